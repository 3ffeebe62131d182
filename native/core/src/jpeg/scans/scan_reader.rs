//! A scan as a sequence of MCUs: restart intervals, their markers, and a small moving window of unstuffed bytes.

use crate::error::Error;
use crate::jpeg::entropy::bit_reader::LOAD;
use crate::jpeg::entropy::sequential::{self, Cursor, McuLayout, PADDING, WINDOW, Window};
use crate::jpeg::entropy::two_places::{self, Blocks, Place};
use crate::jpeg::entropy::unstuff::{self, find_marker};
use crate::jpeg::format::header::Header;
use crate::jpeg::seek::table::SeekPoint;
use crate::simd::Available;

/// What fills the ends of the intervals that were read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Filling {
    /// Bits of a last byte: whether any is 0, and whether any is 1.
    pub zeros: bool,
    pub ones: bool,
    /// Whether bytes lie before a marker that only fill.
    pub bytes: bool,
}

/// Reads MCUs in order.
pub(crate) struct ScanReader<'a> {
    level: Available,
    file: &'a [u8],
    /// Offsets of the scan, of the next byte to be unstuffed, and of the end of the bytes that may be unstuffed.
    start: usize,
    source: usize,
    end: usize,
    window: &'a mut Window,
    cursor: Cursor,
    layout: McuLayout<'a>,
    interval: usize,
    /// MCUs left in the current interval.
    left: usize,
    /// Number of the next restart marker.
    next_restart: u8,
    /// The position of a byte in the window and its offset in the file, at or before the cursor; set if seek points are
    /// wanted.
    known_offset: Option<(usize, usize)>,
    pub filling: Filling,
}

impl<'a> ScanReader<'a> {
    pub fn new(level: Available, header: &Header<'a>, layout: McuLayout<'a>, window: &'a mut Window) -> Self {
        window.filled = 0;
        window.ended = false;
        ScanReader {
            level,
            file: header.bytes,
            start: header.scan,
            source: header.scan,
            end: header.bytes.len(),
            window,
            cursor: Cursor::default(),
            layout,
            interval: header.restart_interval,
            left: if header.restart_interval == 0 {
                usize::MAX
            } else {
                header.restart_interval
            },
            next_restart: 0,
            known_offset: None,
            filling: Filling::default(),
        }
    }

    /// Prepares for [`Self::seek_point`]. Must be called before anything is read.
    pub fn track_offsets(&mut self, enabled: bool) {
        self.known_offset = enabled.then_some((0, self.source));
    }

    /// The seek point of the next MCU. [`Self::track_offsets`] must be on.
    pub fn seek_point(&mut self) -> Result<SeekPoint, Error> {
        if self.left == 0 {
            self.start_next_interval()?;
        }
        let bits = self.cursor.next_bit().max(0) as usize;
        let offset = self.file_offset(bits / 8);
        Ok(SeekPoint {
            bits: (8 * (offset - self.start) + bits % 8) as u64,
            predictors: self.cursor.predictors,
        })
    }

    /// Moves to MCU `mcu`, whose seek point is `point`. Bytes from `end` on are not read.
    pub fn seek(&mut self, mcu: usize, point: SeekPoint, end: Option<SeekPoint>) {
        let len = self.file.len();
        let offset = |bits: u64| self.start.saturating_add((bits / 8) as usize).min(len);
        self.source = offset(point.bits);
        // A byte that has begun may be FF00.
        self.end = end.map_or(len, |end| {
            (offset(end.bits) + 2 * usize::from(end.bits % 8 > 0)).min(len)
        });
        self.end = self.end.max(self.source);
        if self.interval > 0 {
            self.left = self.interval - mcu % self.interval;
            self.next_restart = ((mcu / self.interval) & 7) as u8;
        }
        self.restart_at(self.source);
        self.fill_window();
        self.cursor.predictors = point.predictors;
        self.cursor.skip_bits(self.window, (point.bits % 8) as u8);
    }

    /// Decodes the next MCUs: see [`sequential::decode_blocks`].
    pub fn decode(&mut self, coefficients: &mut [i16], used: &mut [u8]) -> Result<(), Error> {
        let mut done = 0;
        while done < used.len() {
            let most = self.prepare(used.len() - done)?;
            let decoded = sequential::decode_blocks(
                self.level,
                self.window,
                &self.layout,
                &mut self.cursor,
                &mut coefficients[64 * done..],
                &mut used[done..done + most],
            );
            done += self.record_decoded(decoded)?;
        }
        Ok(())
    }

    /// Decodes the next MCUs here and at the place of another reader of the same scan.
    pub fn decode_two(&mut self, other: &mut Self, mut own: Blocks<'_>, mut others: Blocks<'_>) -> Result<(), Error> {
        let [mut done, mut others_done] = [0; 2];
        while done < own.used.len() && others_done < others.used.len() {
            let most = self.prepare(own.used.len() - done)?;
            let others_most = other.prepare(others.used.len() - others_done)?;
            let blocks = [
                own.reborrow().part(done, most),
                others.reborrow().part(others_done, others_most),
            ];
            let decoded = two_places::decode_two(self.level, [self.place(), other.place()], blocks);
            done += self.record_decoded(decoded.map(|[blocks, _]| blocks))?;
            others_done += other.record_decoded(decoded.map(|[_, blocks]| blocks))?;
        }
        self.decode(&mut own.coefficients[64 * done..], &mut own.used[done..])?;
        other.decode(
            &mut others.coefficients[64 * others_done..],
            &mut others.used[others_done..],
        )
    }

    /// Skips the next `mcus` MCUs here and at the place of another reader of the same scan. Without tables for that, it
    /// decodes them, and overwrites the blocks that are given.
    pub fn skip_two(
        &mut self,
        other: &mut Self,
        mcus: usize,
        mut own: Blocks<'_>,
        mut others: Blocks<'_>,
    ) -> Result<(), Error> {
        if self.interval > 0 || self.layout.can_skip() {
            self.skip(mcus)?;
            return other.skip(mcus);
        }
        let per_mcu = self.layout.blocks_per_mcu();
        let most = own.used.len().min(others.used.len()) / per_mcu;
        let mut left = mcus;
        while left > 0 {
            let blocks = left.min(most) * per_mcu;
            self.decode_two(other, own.reborrow().part(0, blocks), others.reborrow().part(0, blocks))?;
            left -= left.min(most);
        }
        Ok(())
    }

    fn place(&mut self) -> Place<'_, 'a> {
        Place {
            window: self.window,
            layout: &self.layout,
            cursor: &mut self.cursor,
        }
    }

    /// Skips the next `mcus` MCUs. Of whole restart intervals, only the markers are read.
    pub fn skip(&mut self, mcus: usize) -> Result<(), Error> {
        let mut blocks = mcus * self.layout.blocks_per_mcu();
        while blocks > 0 {
            if self.left == 0 {
                self.start_next_interval()?;
            }
            let rest = self.left.saturating_mul(self.layout.blocks_per_mcu());
            if blocks >= rest {
                if !self.window.ended {
                    self.source += find_marker(&self.file[self.source..]);
                }
                self.skip_rest_of_interval();
                blocks -= rest;
                continue;
            }
            let most = self.prepare(blocks)?;
            let skipped = sequential::skip_blocks(self.level, self.window, &self.layout, &mut self.cursor, most);
            blocks -= self.record_decoded(skipped)?;
        }
        Ok(())
    }

    /// Checks that the scan ends with the last MCU, and that the marker that ends the image follows.
    pub fn finish(&mut self) -> Result<(), Error> {
        let end = self.finish_data()?;
        match self.file.get(end..end + 2) {
            Some([0xff, 0xd9]) => Ok(()),
            Some(_) => self.corrupt("the image must end with EOI, another marker follows"),
            None => self.corrupt("the end of the image (EOI) is missing"),
        }
    }

    /// Checks that the data end with the last MCU. Returns the offset of their end.
    pub fn finish_data(&mut self) -> Result<usize, Error> {
        self.check_interval_end()?;
        Ok(self.source)
    }

    /// Prepares to read up to `blocks` blocks. Returns how many of them the current interval has.
    fn prepare(&mut self, blocks: usize) -> Result<usize, Error> {
        if self.left == 0 {
            self.start_next_interval()?;
        }
        if !self.window.ended {
            self.fill_window();
        }
        Ok(blocks.min(self.left.saturating_mul(self.layout.blocks_per_mcu())))
    }

    /// Checks and records the result of the entropy decoder.
    fn record_decoded(&mut self, blocks: Option<usize>) -> Result<usize, Error> {
        let Some(blocks) = blocks else {
            return self.corrupt("invalid Huffman code or coefficient");
        };
        if self.cursor.next_bit() > 8 * self.window.filled as isize {
            return self.corrupt("image data end too early");
        }
        if self.interval > 0 {
            self.left -= blocks / self.layout.blocks_per_mcu();
        }
        Ok(blocks)
    }

    /// Fills the window, unless it is more than half full.
    fn fill_window(&mut self) {
        // Bits of the bytes loaded last may still be needed: their offset is.
        let spent = self
            .cursor
            .consumed_bytes()
            .min(self.window.filled)
            .saturating_sub(LOAD);
        if self.window.filled - spent > WINDOW / 2 {
            return;
        }
        if self.known_offset.is_some() {
            self.file_offset(self.cursor.next_bit().max(0) as usize / 8);
            self.known_offset = self.known_offset.map(|(byte, offset)| (byte - spent, offset));
        }
        let window = &mut *self.window;
        window.bytes.copy_within(spent..window.filled, 0);
        self.cursor.move_back(spent);
        window.filled -= spent;
        let space = &mut window.bytes[window.filled..WINDOW];
        let unstuffed = unstuff::unstuff(self.level, &self.file[self.source..self.end.max(self.source)], space);
        self.source += unstuffed.read;
        window.filled += unstuffed.written;
        window.ended = unstuffed.ended;
        window.bytes[window.filled..][..PADDING].fill(0);
    }

    /// Checks that less than a byte is left of the current interval, and notes what it holds.
    fn check_interval_end(&mut self) -> Result<(), Error> {
        if !self.window.ended {
            self.fill_window();
        }
        let left = 8 * self.window.filled as isize - self.cursor.next_bit();
        if !self.window.ended || left >= 8 {
            return self.corrupt("image data longer than the image");
        }
        let ones = (1u8 << left.max(0)) - 1;
        let last = self.window.bytes[self.window.filled.saturating_sub(1)] & ones;
        self.filling.zeros |= last != ones;
        self.filling.ones |= last != 0;
        self.filling.bytes |= self.file.get(self.source.wrapping_sub(1)) == Some(&0xff);
        Ok(())
    }

    /// Skips the rest of the current interval. `source` must be at its marker.
    fn skip_rest_of_interval(&mut self) {
        self.left = 0;
        self.window.filled = 0;
        self.window.ended = true;
        self.cursor = Cursor::default();
    }

    /// Moves to the next restart interval.
    fn start_next_interval(&mut self) -> Result<(), Error> {
        self.check_interval_end()?;
        if self.file.get(self.source..self.source + 2) != Some(&[0xff, 0xd0 | self.next_restart]) {
            return self.corrupt("restart marker missing or out of order");
        }
        self.next_restart = (self.next_restart + 1) & 7;
        self.restart_at(self.source + 2);
        self.left = self.interval;
        Ok(())
    }

    /// Continues reading at a byte of the file.
    fn restart_at(&mut self, source: usize) {
        self.source = source;
        self.window.filled = 0;
        self.window.ended = false;
        self.cursor = Cursor::default();
        self.known_offset = self.known_offset.map(|_| (0, source));
    }

    /// Offset in the file of a byte of the window. Bytes must be asked for in ascending order.
    fn file_offset(&mut self, byte: usize) -> usize {
        let (from, offset) = self.known_offset.unwrap_or_default();
        let passed = self.window.bytes.get(from..byte).unwrap_or_default();
        let offset = offset + passed.len() + unstuff::count_ff(passed);
        self.known_offset = Some((from + passed.len(), offset));
        offset
    }

    #[cold]
    pub fn corrupt<T>(&self, what: &'static str) -> Result<T, Error> {
        Err(Error::Corrupt {
            what,
            offset: self.source,
        })
    }
}
