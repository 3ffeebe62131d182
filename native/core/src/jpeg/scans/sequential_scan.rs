//! Scans of a sequential file of several scans, decoded into the coefficients. Each is read as the only scan of a
//! picture that has only its components.

use core::ops::Range;

use crate::error::{Error, corrupt};
use crate::jpeg::entropy::huffman::HuffmanTables;
use crate::jpeg::entropy::sequential::{McuLayout, SLACK, Window};
use crate::jpeg::format::header::Header;
use crate::jpeg::format::markers::ZIGZAG;
use crate::jpeg::scans::coefficients::Coefficients;
use crate::jpeg::scans::scan_reader::ScanReader;
use crate::jpeg::scans::script::ScanSpec;
use crate::simd::Available;

/// Blocks that are decoded before they are copied to the coefficients.
const RUN_BLOCKS: usize = 64;

/// Buffers that are kept from one scan to the next.
pub(crate) struct SequentialScanReader {
    window: Window,
    blocks: Box<[i16; 64 * RUN_BLOCKS + SLACK]>,
    used: [u8; RUN_BLOCKS],
}

impl SequentialScanReader {
    pub fn new() -> Self {
        SequentialScanReader {
            window: Window::new(),
            blocks: Box::new([0; 64 * RUN_BLOCKS + SLACK]),
            used: [0; RUN_BLOCKS],
        }
    }

    /// Decodes the first `rows` rows of MCUs of a scan whose components have the tables `raw`. After the last row of
    /// the picture, no data may be left.
    pub fn scan<'a>(
        &mut self,
        level: Available,
        tables: &mut HuffmanTables,
        (header, spec, raw): (&Header<'a>, &ScanSpec<'a>, [[&'a [u8]; 3]; 2]),
        rows: usize,
        coefficients: &mut Coefficients,
    ) -> Result<(), Error> {
        let single = header.for_single_scan(spec.components(), raw, spec.restart_interval, spec.start);
        for (i, (dc, ac)) in raw[0].iter().zip(raw[1]).take(single.components().len()).enumerate() {
            if !tables.set_dc(i, dc) || !tables.set_ac(i, ac) {
                return corrupt("bad Huffman table", spec.start);
            }
        }
        let mut scan = ScanReader::new(level, &single, McuLayout::new(&single, tables), &mut self.window);
        let most = RUN_BLOCKS / single.blocks_per_mcu;
        for row in 0..rows {
            for first in (0..single.mcus_x).step_by(most) {
                let mcus = first..single.mcus_x.min(first + most);
                let used = &mut self.used[..mcus.len() * single.blocks_per_mcu];
                scan.decode(&mut self.blocks[..], used)?;
                let blocks = self.blocks.as_chunks().0.iter().zip(&*used);
                store_blocks(blocks, &single, spec, row, mcus, coefficients);
            }
        }
        if rows == single.mcus_y && scan.finish_data()? != spec.end {
            return corrupt("image data longer than the image", spec.end);
        }
        Ok(())
    }
}

/// Copies the blocks of some MCUs of row `row` to the coefficients.
fn store_blocks<'b>(
    mut blocks: impl Iterator<Item = (&'b [i16; 64], &'b u8)>,
    single: &Header<'_>,
    spec: &ScanSpec<'_>,
    row: usize,
    mcus: Range<usize>,
    coefficients: &mut Coefficients,
) {
    for column in mcus {
        for (component, position) in single.components().iter().zip(spec.components()) {
            for y in 0..component.v {
                let columns = column * component.h..(column + 1) * component.h;
                let (into, nonzero) = coefficients.planes[position].run(row * component.v + y, columns);
                for ((into, nonzero), (block, &used)) in into.iter_mut().zip(nonzero).zip(&mut blocks) {
                    *into = *block;
                    *nonzero = nonzero_positions(block, used);
                }
            }
        }
    }
}

/// A bit for each of the first `used` zigzag positions whose coefficient is not zero.
fn nonzero_positions(block: &[i16; 64], used: u8) -> u64 {
    let nonzero = |&(_, position): &(usize, &u8)| block[usize::from(*position)] != 0;
    let positions = ZIGZAG.iter().enumerate().take(usize::from(used)).skip(1);
    positions.filter(nonzero).fold(0, |bits, (k, _)| bits | 1 << k)
}
