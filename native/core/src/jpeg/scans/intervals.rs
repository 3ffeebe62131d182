//! The restart intervals of one of several scans: their bytes without stuffing, and their MCUs.

use core::ops::Range;

use super::coefficients::Coefficients;
use super::script::ScanSpec;
use crate::error::{Error, corrupt};
use crate::jpeg::entropy::bit_reader::{BitPosition, BitReader, LOAD};
use crate::jpeg::entropy::unstuff::unstuff;
use crate::jpeg::format::header::Header;
use crate::memory;
use crate::simd::Available;

/// Bytes that unstuffing may write after the data.
const UNSTUFF_SPARE: usize = 64;
/// Bytes of a scan whose memory is kept between images.
const KEPT_BYTES: usize = 4 << 20;

/// The unstuffed bytes of a restart interval.
#[derive(Default)]
pub(crate) struct IntervalBytes {
    /// As long as the longest scan so far plus [`UNSTUFF_SPARE`].
    bytes: Vec<u8>,
    filled: usize,
}

/// The MCUs of a scan.
pub(crate) struct McuGrid {
    /// MCUs per row.
    pub across: usize,
    /// Rows that are decoded, and all rows.
    pub down: usize,
    pub all: usize,
}

impl McuGrid {
    /// In a scan of one component, each MCU is one block, and blocks that only pad the MCUs of other scans are missing.
    pub fn new(header: &Header<'_>, spec: &ScanSpec<'_>, coefficients: &Coefficients) -> Self {
        let mut components = spec.components();
        let first = components.next().unwrap_or(0);
        let (component, rows) = (&header.components()[first], coefficients.planes[first].rows());
        if components.next().is_some() {
            return McuGrid {
                across: header.mcus_x,
                down: rows / component.v,
                all: header.mcus_y,
            };
        }
        let all = component.height.div_ceil(8);
        McuGrid {
            across: component.width.div_ceil(8),
            down: rows.min(all),
            all,
        }
    }

    /// The row of the first of some MCUs, and the columns of those that lie in that row.
    fn run(&self, mcus: Range<usize>) -> (usize, Range<usize>) {
        let (row, column) = (mcus.start / self.across, mcus.start % self.across);
        (row, column..self.across.min(column + mcus.len()))
    }
}

impl IntervalBytes {
    /// Calls `decode` for all MCUs that are decoded, in order, a row at a time. Its arguments: the bits, the row, the
    /// columns, and whether they begin a restart interval.
    pub fn for_each_run(
        &mut self,
        level: Available,
        file: &[u8],
        spec: &ScanSpec<'_>,
        grid: &McuGrid,
        mut decode: impl FnMut(&mut BitReader<&[u8]>, usize, Range<usize>, bool) -> bool,
    ) -> Result<(), Error> {
        let (wanted, total) = (grid.across * grid.down, grid.across * grid.all);
        let interval = if spec.restart_interval == 0 {
            total
        } else {
            spec.restart_interval
        };
        let (mut at, mut next) = (spec.start, 0);
        while next < wanted {
            if next > 0 {
                let number = (next / interval - 1) as u8 & 7;
                if file.get(at..at + 2) != Some(&[0xff, 0xd0 | number]) {
                    return corrupt("restart marker missing or out of order", at);
                }
                at += 2;
            }
            let length = self.unstuff_interval(level, &file[at..spec.end])?;
            let mut bits = BitReader::new(&self.bytes[..self.filled + LOAD], BitPosition::default());
            let length_in_bits = 8 * self.filled as isize;
            let end = total.min(next + interval);
            let mut fresh = true;
            while next < end.min(wanted) {
                let (row, columns) = grid.run(next..end.min(wanted));
                next += columns.len();
                if !decode(&mut bits, row, columns, core::mem::take(&mut fresh)) {
                    return corrupt("invalid Huffman code or coefficient", at);
                }
                if bits.position().next_bit() > length_in_bits {
                    return corrupt("image data end too early", at + length);
                }
            }
            at += length;
            if next == end && length_in_bits - bits.position().next_bit() >= 8 {
                return corrupt("image data longer than the image", at);
            }
        }
        if wanted == total && at != spec.end {
            return corrupt("image data longer than the image", at);
        }
        Ok(())
    }

    /// Unstuffs the interval at the start of `data`. Returns its length in the file.
    fn unstuff_interval(&mut self, level: Available, data: &[u8]) -> Result<usize, Error> {
        memory::grow(&mut self.bytes, data.len() + UNSTUFF_SPARE)?;
        let unstuffed = unstuff(level, data, &mut self.bytes);
        self.filled = unstuffed.written;
        self.bytes[self.filled..][..LOAD].fill(0);
        Ok(unstuffed.read)
    }

    /// Frees the memory of an unusually large file.
    pub fn shrink(&mut self) {
        if self.bytes.len() > KEPT_BYTES {
            *self = IntervalBytes::default();
        }
    }
}
