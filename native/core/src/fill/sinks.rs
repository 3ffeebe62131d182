//! What receives decoded rows: the resampler, or memory of interleaved pixels.

use std::time::{Duration, Instant};

use super::late_color::LateColor;
use super::mode::{Mode, luma, write_pixels};
use crate::error::Error;
use crate::memory::grow;
use crate::resample::Resampler;
use crate::rows::{ComponentWindow, RowSink, planar_row_len};
use crate::simd::Available;

/// A few rows of up to four planes, before their mode is made of them.
#[derive(Default)]
pub(super) struct OpenRows {
    bytes: Vec<u8>,
    stride: usize,
    count: usize,
}

impl OpenRows {
    /// Prepares for rows of this width, so many of which are incomplete at once.
    pub fn begin(&mut self, width: usize, count: usize) -> Result<(), Error> {
        (self.stride, self.count) = (planar_row_len(width), count);
        grow(&mut self.bytes, 4 * self.stride * count)
    }

    fn planes(&self, y: usize) -> [&[u8]; 4] {
        let mut planes = self.bytes[y % self.count * 4 * self.stride..].chunks_exact(self.stride);
        std::array::from_fn(|_| planes.next().unwrap_or_default())
    }

    fn planes_mut(&mut self, y: usize) -> [&mut [u8]; 4] {
        let mut planes = self.bytes[y % self.count * 4 * self.stride..].chunks_exact_mut(self.stride);
        std::array::from_fn(|_| planes.next().unwrap_or_default())
    }
}

/// Passes rows to the resampler and measures its time.
pub(super) struct TimedResampler<'a> {
    pub resampler: &'a mut Resampler,
    pub spent: Duration,
    mode: Mode,
    level: Available,
    late: &'a mut LateColor,
    /// Rows that become luma.
    open: &'a mut OpenRows,
    /// Rows that are complete.
    end: usize,
    has_alpha: bool,
}

impl<'a> TimedResampler<'a> {
    /// Rows of a mode, of this width; at most so many are incomplete at once.
    pub fn new(
        resampler: &'a mut Resampler,
        late: &'a mut LateColor,
        open: &'a mut OpenRows,
        mode: Mode,
        level: Available,
        [width, open_rows]: [usize; 2],
    ) -> Result<Self, Error> {
        if mode == Mode::Luma {
            open.begin(width, open_rows)?;
        }
        Ok(Self {
            resampler,
            late,
            spent: Duration::ZERO,
            mode,
            level,
            open,
            end: 0,
            has_alpha: false,
        })
    }

    /// Starts again from the first row.
    pub fn restart(&mut self) {
        self.resampler.restart();
        self.late.chroma.restart();
        self.end = 0;
    }
}

impl RowSink for TimedResampler<'_> {
    const PLANAR: bool = true;

    fn row(&mut self, y: usize) -> [&mut [u8]; 3] {
        let [r, g, b, _] = match self.mode {
            Mode::Luma => self.open.planes_mut(y),
            _ => self.resampler.rows_mut(y),
        };
        [r, g, b]
    }

    fn alpha(&mut self, y: usize) -> &mut [u8] {
        if self.mode != Mode::Rgba {
            return &mut [];
        }
        self.has_alpha = true;
        let [.., alpha] = self.resampler.rows_mut(y);
        alpha
    }

    fn components(&self) -> Option<[ComponentWindow; 3]> {
        self.late.windows()
    }

    fn samples(&mut self, component: usize, x: usize, y: usize) -> (&mut [u8], usize) {
        match component {
            0 => self.resampler.blocks_mut(0, x, y),
            _ => self.late.chroma.blocks_mut(component - 1, x, y),
        }
    }

    fn samples_done(&mut self, [luma, chroma, _]: [usize; 3]) {
        let begun = Instant::now();
        self.resampler.done(luma);
        self.late.chroma.done(chroma);
        self.spent += begun.elapsed();
    }

    fn done(&mut self, end: usize) {
        let begun = Instant::now();
        for y in self.end..end {
            let [first, .., last] = self.resampler.rows_mut(y);
            match self.mode {
                Mode::Luma => {
                    let [r, g, b, _] = self.open.planes(y);
                    luma(self.level, [r, g, b], first);
                }
                Mode::Rgba if !self.has_alpha => last.fill(255),
                _ => break,
            }
        }
        self.end = end;
        self.resampler.done(end);
        self.spent += begun.elapsed();
    }
}

/// Collects interleaved RGB without gaps.
pub(super) struct RgbSink<'a> {
    pub out: &'a mut [u8],
    pub width: usize,
}

impl RowSink for RgbSink<'_> {
    const PLANAR: bool = false;

    fn row(&mut self, y: usize) -> [&mut [u8]; 3] {
        [&mut self.out[3 * y * self.width..][..3 * self.width], &mut [], &mut []]
    }

    fn done(&mut self, _end: usize) {}
}

/// Collects luma as a JPEG stores it, without gaps.
pub(super) struct LumaSink<'a> {
    pub out: &'a mut [u8],
    pub width: usize,
}

impl RowSink for LumaSink<'_> {
    const PLANAR: bool = true;
    const LUMA: bool = true;

    fn row(&mut self, y: usize) -> [&mut [u8]; 3] {
        [&mut self.out[y * self.width..][..self.width], &mut [], &mut []]
    }

    fn done(&mut self, _end: usize) {}
}

/// Collects interleaved pixels of a mode, without gaps.
pub(super) struct ModeSink<'a> {
    level: Available,
    mode: Mode,
    out: &'a mut [u8],
    width: usize,
    open: &'a mut OpenRows,
    end: usize,
    has_alpha: bool,
}

impl<'a> ModeSink<'a> {
    /// Rows of a mode, of this width; at most so many are incomplete at once.
    pub fn new(
        level: Available,
        mode: Mode,
        out: &'a mut [u8],
        open: &'a mut OpenRows,
        [width, open_rows]: [usize; 2],
    ) -> Result<Self, Error> {
        open.begin(width, open_rows)?;
        Ok(Self {
            level,
            mode,
            out,
            width,
            open,
            end: 0,
            has_alpha: false,
        })
    }

    /// Starts again from the first row.
    pub fn restart(&mut self) {
        self.end = 0;
    }
}

impl RowSink for ModeSink<'_> {
    const PLANAR: bool = true;

    fn row(&mut self, y: usize) -> [&mut [u8]; 3] {
        let [r, g, b, _] = self.open.planes_mut(y);
        [r, g, b]
    }

    fn alpha(&mut self, y: usize) -> &mut [u8] {
        if self.mode != Mode::Rgba {
            return &mut [];
        }
        self.has_alpha = true;
        let [.., alpha] = self.open.planes_mut(y);
        alpha
    }

    fn done(&mut self, end: usize) {
        let line = self.width * self.mode.channels();
        for y in self.end..end {
            if !self.has_alpha {
                let [.., alpha] = self.open.planes_mut(y);
                alpha.fill(255);
            }
            let planes = self.open.planes(y).map(|plane| &plane[..self.width]);
            write_pixels(self.level, self.mode, planes, &mut self.out[y * line..][..line]);
        }
        self.end = end;
    }
}
