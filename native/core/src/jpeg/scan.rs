//! The scan as a sequence of MCUs: restart intervals, their markers, and a small window of unstuffed bytes that moves along.

use super::entropy::{self, Cursor, Layout, MAX_BLOCK_BYTES, PADDING};
use super::header::Header;
use super::unstuff::{self, find_marker};
use crate::error::Error;
use crate::simd::Level;

/// Unstuffed bytes held at most: what a call of the entropy decoder can need, and as much again.
const WINDOW: usize = 32 * 1024;
/// Blocks decoded by one call, such that the window holds all they can take.
const MAX_BLOCKS: usize = WINDOW / 2 / MAX_BLOCK_BYTES;

/// Buffer that scans of one image after another use.
pub(crate) struct Window(Box<[u8; WINDOW + PADDING + unstuff::SPARE]>);

impl Window {
    pub fn new() -> Self {
        Window(Box::new([0; WINDOW + PADDING + unstuff::SPARE]))
    }
}

/// Reads MCUs in order.
pub(crate) struct Scan<'a> {
    level: Level,
    file: &'a [u8],
    /// Next byte of the file to be unstuffed.
    source: usize,
    window: &'a mut Window,
    /// Unstuffed bytes in the window.
    filled: usize,
    /// The current interval's data are in the window to their end.
    ended: bool,
    cursor: Cursor,
    layout: Layout<'a>,
    interval: usize,
    /// MCUs left in the current interval.
    left: usize,
    /// Number of the restart marker that comes next.
    next_restart: u8,
}

impl<'a> Scan<'a> {
    pub fn new(level: Level, header: &Header<'a>, layout: Layout<'a>, window: &'a mut Window) -> Self {
        Scan {
            level,
            file: header.bytes,
            source: header.scan,
            window,
            filled: 0,
            ended: false,
            cursor: Cursor::default(),
            layout,
            interval: header.restart_interval,
            left: if header.restart_interval == 0 { usize::MAX } else { header.restart_interval },
            next_restart: 0,
        }
    }

    /// Decodes the next MCUs: see [`entropy::decode_blocks`].
    pub fn decode(&mut self, coefficients: &mut [i16], used: &mut [u8]) -> Result<(), Error> {
        let mut done = 0;
        while done < used.len() {
            let count = self.prepare(used.len() - done)?;
            let good = entropy::decode_blocks(
                self.level,
                &self.window.0[..self.filled + PADDING],
                &self.layout,
                &mut self.cursor,
                &mut coefficients[64 * done..],
                &mut used[done..done + count],
            );
            self.check(good)?;
            done += count;
        }
        Ok(())
    }

    /// Passes over the next `mcus` MCUs. Whole restart intervals are not even looked into.
    pub fn skip(&mut self, mcus: usize) -> Result<(), Error> {
        let mut blocks = mcus * self.layout.blocks_per_mcu();
        while blocks > 0 {
            if self.left == 0 {
                self.restart()?;
            }
            let rest = self.left.saturating_mul(self.layout.blocks_per_mcu());
            if blocks >= rest {
                if !self.ended {
                    self.source += find_marker(&self.file[self.source..]);
                }
                self.drop_interval();
                blocks -= rest;
                continue;
            }
            let count = self.prepare(blocks)?;
            let data = &self.window.0[..self.filled + PADDING];
            let good = entropy::skip_blocks(self.level, data, &self.layout, &mut self.cursor, count);
            self.check(good)?;
            blocks -= count;
        }
        Ok(())
    }

    /// Checks that the scan ends where the last MCU does, with the marker that ends the image.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.check_spent()?;
        match self.file.get(self.source..self.source + 2) {
            Some([0xff, 0xd9]) => Ok(()),
            Some(_) => self.corrupt("another marker where the image should end"),
            None => self.corrupt("no end of image"),
        }
    }

    /// Gets ready to read up to `blocks` blocks; tells how many of them may be read now.
    fn prepare(&mut self, blocks: usize) -> Result<usize, Error> {
        if self.left == 0 {
            self.restart()?;
        }
        let per_mcu = self.layout.blocks_per_mcu();
        let mcus = (blocks / per_mcu).min(MAX_BLOCKS / per_mcu).min(self.left);
        self.left -= if self.interval == 0 { 0 } else { mcus };
        let count = mcus * per_mcu;
        if !self.ended && self.filled < self.cursor.spent() + count * MAX_BLOCK_BYTES {
            self.fill_window();
        }
        Ok(count)
    }

    fn fill_window(&mut self) {
        let spent = self.cursor.spent().min(self.filled);
        self.window.0.copy_within(spent..self.filled, 0);
        self.cursor.rebase(spent);
        self.filled -= spent;
        let progress = unstuff::unstuff(&self.file[self.source..], &mut self.window.0[self.filled..WINDOW + unstuff::SPARE]);
        self.source += progress.read;
        self.filled += progress.written;
        self.ended = progress.ended;
        self.window.0[self.filled..][..PADDING].fill(0);
    }

    fn check(&self, good: bool) -> Result<(), Error> {
        if !good {
            return self.corrupt("invalid Huffman code or coefficient");
        }
        if self.cursor.position() > 8 * self.filled as isize {
            return self.corrupt("image data end too early");
        }
        Ok(())
    }

    /// Less than a byte may be left of the current interval.
    fn check_spent(&mut self) -> Result<(), Error> {
        if !self.ended {
            self.fill_window();
        }
        if !self.ended || 8 * self.filled as isize - self.cursor.position() >= 8 {
            return self.corrupt("image data longer than the image");
        }
        Ok(())
    }

    /// Forgets what is left of the current interval; `source` is at its marker.
    fn drop_interval(&mut self) {
        self.left = 0;
        self.filled = 0;
        self.ended = true;
        self.cursor = Cursor::default();
    }

    /// Moves to the next restart interval.
    fn restart(&mut self) -> Result<(), Error> {
        self.check_spent()?;
        if self.file.get(self.source..self.source + 2) != Some(&[0xff, 0xd0 | self.next_restart]) {
            return self.corrupt("restart marker missing or out of order");
        }
        self.source += 2;
        self.next_restart = (self.next_restart + 1) & 7;
        self.drop_interval();
        self.ended = false;
        self.left = self.interval;
        Ok(())
    }

    #[cold]
    fn corrupt<T>(&self, what: &'static str) -> Result<T, Error> {
        Err(Error::Corrupt { what, offset: self.source })
    }
}
