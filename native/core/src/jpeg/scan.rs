//! The scan as a sequence of MCUs: restart intervals, their markers, and a small window of unstuffed bytes that moves along.

use super::entropy::{self, Cursor, Layout, PADDING, WINDOW, Window};
use super::header::Header;
use super::unstuff::{self, find_marker};
use crate::error::Error;
use crate::simd::Level;

/// Reads MCUs in order.
pub(crate) struct Scan<'a> {
    level: Level,
    file: &'a [u8],
    /// Next byte of the file to be unstuffed.
    source: usize,
    window: &'a mut Window,
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
        window.filled = 0;
        window.ended = false;
        Scan {
            level,
            file: header.bytes,
            source: header.scan,
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
        }
    }

    /// Decodes the next MCUs: see [`entropy::decode_blocks`].
    pub fn decode(&mut self, coefficients: &mut [i16], used: &mut [u8]) -> Result<(), Error> {
        let mut done = 0;
        while done < used.len() {
            let most = self.prepare(used.len() - done)?;
            let decoded = entropy::decode_blocks(
                self.level,
                self.window,
                &self.layout,
                &mut self.cursor,
                &mut coefficients[64 * done..],
                &mut used[done..done + most],
            );
            done += self.progress(decoded)?;
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
                if !self.window.ended {
                    self.source += find_marker(&self.file[self.source..]);
                }
                self.drop_interval();
                blocks -= rest;
                continue;
            }
            let most = self.prepare(blocks)?;
            let skipped = entropy::skip_blocks(self.level, self.window, &self.layout, &mut self.cursor, most);
            blocks -= self.progress(skipped)?;
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

    /// Gets ready to read up to `blocks` blocks; tells how many of them the current interval has.
    fn prepare(&mut self, blocks: usize) -> Result<usize, Error> {
        if self.left == 0 {
            self.restart()?;
        }
        if !self.window.ended {
            self.fill_window();
        }
        Ok(blocks.min(self.left.saturating_mul(self.layout.blocks_per_mcu())))
    }

    /// Takes note of what the entropy decoder did.
    fn progress(&mut self, blocks: Option<usize>) -> Result<usize, Error> {
        let Some(blocks) = blocks else {
            return self.corrupt("invalid Huffman code or coefficient");
        };
        if self.cursor.position() > 8 * self.window.filled as isize {
            return self.corrupt("image data end too early");
        }
        if self.interval > 0 {
            self.left -= blocks / self.layout.blocks_per_mcu();
        }
        Ok(blocks)
    }

    /// Fills the window, unless it is more than half full.
    fn fill_window(&mut self) {
        let window = &mut *self.window;
        let spent = self.cursor.spent().min(window.filled);
        if window.filled - spent > WINDOW / 2 {
            return;
        }
        window.bytes.copy_within(spent..window.filled, 0);
        self.cursor.rebase(spent);
        window.filled -= spent;
        let room = &mut window.bytes[window.filled..WINDOW];
        let progress = unstuff::unstuff(self.level, &self.file[self.source..], room);
        self.source += progress.read;
        window.filled += progress.written;
        window.ended = progress.ended;
        window.bytes[window.filled..][..PADDING].fill(0);
    }

    /// Less than a byte may be left of the current interval.
    fn check_spent(&mut self) -> Result<(), Error> {
        if !self.window.ended {
            self.fill_window();
        }
        if !self.window.ended || 8 * self.window.filled as isize - self.cursor.position() >= 8 {
            return self.corrupt("image data longer than the image");
        }
        Ok(())
    }

    /// Forgets what is left of the current interval; `source` is at its marker.
    fn drop_interval(&mut self) {
        self.left = 0;
        self.window.filled = 0;
        self.window.ended = true;
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
        self.window.ended = false;
        self.left = self.interval;
        Ok(())
    }

    #[cold]
    fn corrupt<T>(&self, what: &'static str) -> Result<T, Error> {
        Err(Error::Corrupt {
            what,
            offset: self.source,
        })
    }
}
