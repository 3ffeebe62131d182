//! All coefficients of a picture, or of its upper part: what the scans of a JPEG that has several add to.

use core::ops::Range;

use crate::error::Error;
use crate::jpeg::format::header::Header;
use crate::memory;

/// Bytes that a block takes: its coefficients, and the word that tells which of them are not zero.
pub(crate) const BLOCK_BYTES: u64 = (size_of::<[i16; 64]>() + size_of::<u64>()) as u64;
/// Memory kept between images: the coefficients of a picture of 2000 x 2000 in 4:2:0.
const KEPT_BLOCKS: usize = 6 * 125 * 125;

/// A component's blocks, row by row, whole MCUs.
#[derive(Debug, Default)]
pub(crate) struct CoefficientPlane {
    /// Natural order.
    blocks: Vec<[i16; 64]>,
    /// Per block, bit k: the coefficient at zigzag position k is not zero (bit 0 means nothing).
    nonzero: Vec<u64>,
    /// Blocks per row of blocks.
    stride: usize,
    /// Rows that are kept.
    rows: usize,
}

impl CoefficientPlane {
    /// Blocks from `start` to `end` of a row, and which of their coefficients are not zero.
    pub fn run(&mut self, row: usize, columns: Range<usize>) -> (&mut [[i16; 64]], &mut [u64]) {
        let run = row * self.stride + columns.start..row * self.stride + columns.end;
        (&mut self.blocks[run.clone()], &mut self.nonzero[run])
    }

    /// A row of blocks, and which of their coefficients are not zero.
    pub fn row(&self, row: usize) -> (&[[i16; 64]], &[u64]) {
        let run = row * self.stride..(row + 1) * self.stride;
        (&self.blocks[run.clone()], &self.nonzero[run])
    }

    /// Rows of blocks that are kept.
    pub fn rows(&self) -> usize {
        self.rows
    }
}

/// The planes of all components.
#[derive(Debug, Default)]
pub(crate) struct Coefficients {
    pub planes: [CoefficientPlane; 3],
}

impl Coefficients {
    /// Blocks of the first `mcu_rows` rows of MCUs.
    pub fn count(header: &Header<'_>, mcu_rows: usize) -> usize {
        mcu_rows * header.mcus_x * header.blocks_per_mcu
    }

    /// Makes room for the first `mcu_rows` rows of MCUs: all coefficients zero. [`crate::jpeg::Limits`] are checked already.
    pub fn begin(&mut self, header: &Header<'_>, mcu_rows: usize) -> Result<(), Error> {
        for (plane, component) in self.planes.iter_mut().zip(header.components()) {
            plane.stride = header.mcus_x * component.h;
            plane.rows = mcu_rows * component.v;
            let count = plane.stride * plane.rows;
            if plane.blocks.len() < count {
                // fresh memory is zero; the blocks last, whose length says that both are there
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

    /// Gives the memory of an unusually large picture back.
    pub fn shrink(&mut self) {
        if self.planes.iter().map(|plane| plane.blocks.len()).sum::<usize>() > KEPT_BLOCKS {
            self.planes = Default::default();
        }
    }
}
