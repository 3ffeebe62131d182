//! All coefficients of a picture or of its upper part, which the scans of a file of several scans fill.

use core::ops::Range;

use crate::error::Error;
use crate::jpeg::format::header::Header;
use crate::memory;

/// Blocks whose memory is kept between images: those of a picture of 2000 x 2000 in 4:2:0.
const KEPT_BLOCKS: usize = 6 * 125 * 125;

/// The blocks of a component, row by row, in whole MCUs.
#[derive(Debug, Default)]
pub(crate) struct CoefficientPlane {
    /// Coefficients in natural order.
    blocks: Vec<[i16; 64]>,
    /// Per block, bit k: the coefficient at zigzag position k is not zero. Bit 0 is unspecified.
    nonzero: Vec<u64>,
    /// Blocks in a row of blocks.
    stride: usize,
    /// Rows of blocks that are kept.
    rows: usize,
}

impl CoefficientPlane {
    /// Consecutive blocks of a row, and their words of nonzero coefficients.
    pub fn run(&mut self, row: usize, columns: Range<usize>) -> (&mut [[i16; 64]], &mut [u64]) {
        let run = row * self.stride + columns.start..row * self.stride + columns.end;
        (&mut self.blocks[run.clone()], &mut self.nonzero[run])
    }

    /// A row of blocks, and their words of nonzero coefficients.
    pub fn row(&self, row: usize) -> (&[[i16; 64]], &[u64]) {
        let run = row * self.stride..(row + 1) * self.stride;
        (&self.blocks[run.clone()], &self.nonzero[run])
    }

    /// Rows of blocks that are kept.
    pub fn rows(&self) -> usize {
        self.rows
    }
}

/// The coefficients of all components.
#[derive(Debug, Default)]
pub(crate) struct Coefficients {
    pub planes: [CoefficientPlane; 3],
}

impl Coefficients {
    /// The number of blocks in the first `mcu_rows` rows of MCUs.
    pub fn count(header: &Header<'_>, mcu_rows: usize) -> usize {
        mcu_rows * header.mcus_x * header.blocks_per_mcu
    }

    /// Allocates the first `mcu_rows` rows of MCUs, with all coefficients zero. The caller has checked
    /// [`crate::jpeg::Limits`].
    pub fn begin(&mut self, header: &Header<'_>, mcu_rows: usize) -> Result<(), Error> {
        for (plane, component) in self.planes.iter_mut().zip(header.components()) {
            plane.stride = header.mcus_x * component.h;
            plane.rows = mcu_rows * component.v;
            let count = plane.stride * plane.rows;
            if plane.blocks.len() < count {
                // Fresh memory is zero. The blocks come last: their length says that both are allocated.
                (plane.blocks, plane.nonzero) = (Vec::new(), Vec::new());
                plane.nonzero = memory::zeroed(count)?;
                plane.blocks = memory::zeroed(count)?;
                continue;
            }
            plane.blocks[..count].as_flattened_mut().fill(0);
            plane.nonzero[..count].fill(0);
        }
        Ok(())
    }

    /// Frees the memory of an unusually large picture.
    pub fn shrink(&mut self) {
        if self.planes.iter().map(|plane| plane.blocks.len()).sum::<usize>() > KEPT_BLOCKS {
            self.planes = Default::default();
        }
    }
}
