//! Separable resize of 8-bit images, row by row as they are decoded. Every value differs from Pillow's, or for filters
//! of that name from OpenCV's, by at most one.
//!
//! ```text
//! convex filters (box, bilinear, cv2)         lobed filters (bicubic, Lanczos)
//!
//!   rows arrive ──> ring of source rows         rows arrive ──> one strip
//!                     │ vertical: the taps'                       │ horizontal: every row,
//!                     │ rows, as the last arrives                 │ rounded and clipped to 8 bits
//!                     v                                           v
//!                   one line of 16-bit values                   ring of narrowed rows
//!                     │ horizontal                                │ vertical
//!                     v                                           v
//!                   picture (planar, 8 bits)                    picture (planar, 8 bits)
//! ```
//!
//! Where no weight is negative, the order of the passes is free, and this one touches fewer pixels. The line between
//! the passes keeps up to 7 fractional bits, so the result differs from Pillow's only by Pillow's own rounding between
//! the passes. Of an image that its orientation transposes, stored rows are columns of the picture: convex filters then go
//! horizontally first, with the same arithmetic, so that the result is that of the picture. Where weights are negative, Pillow clips between the passes. Then the arithmetic (22-bit weights) and
//! the order of the passes (drawn above, or vertical first) are those of Pillow 13, and the result is equal, bit for
//! bit. Only rows and columns that the window needs are requested.

mod arranged_taps;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod deep;
mod filter;
mod kernels;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod line_pointers;
#[cfg(target_arch = "aarch64")]
mod neon;
mod plan;
mod planar;
mod scalar;
mod taps;

use crate::error::Error;
use crate::memory::{Zero, grow, reserve};
use crate::rows::{ROW_SPARE, planar_row_len};
use crate::simd::Available;
pub use deep::DeepResampler;
pub use filter::{Axis, Filter};
pub use plan::{AxisPlan, Passes, ResizePlan};
pub use planar::Picture;
use planar::RowRing;
use taps::{Taps, Weight};

/// The part of a source image that a resize needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needed {
    /// First column.
    pub x: usize,
    /// First row.
    pub y: usize,
    /// Number of columns.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
}

impl Needed {
    fn by<W: Weight>(h: &Taps<W>, v: &Taps<W>) -> Self {
        Self {
            x: h.first,
            y: v.first,
            width: h.len,
            height: v.len,
        }
    }
}

/// Which axes of the picture the rows and columns of the source are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisOrder {
    /// Its rows and columns.
    Stored,
    /// Its columns and rows. The passes are those of the transposed source.
    Transposed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Mode {
    /// No axis changes its size: rows are written to the picture directly.
    #[default]
    Copy,
    Convex,
    ConvexHorizontalFirst,
    Lobed,
    LobedVerticalFirst,
}

impl Mode {
    fn choose(filter: Filter, [x, y]: [Axis; 2], order: AxisOrder) -> Self {
        let is_transposed = order == AxisOrder::Transposed;
        // Pillow 13 begins with the vertical pass where the height shrinks more than twice as much as the width;
        // earlier versions always begin with the horizontal pass. The order matters where lobes are clipped.
        let shrinks = |axis: Axis| axis.source as i64 - axis.target as i64;
        let (across, down) = if is_transposed { (y, x) } else { (x, y) };
        if x.is_identity() && y.is_identity() {
            return Self::Copy;
        }
        let begins_down = filter.is_convex() || shrinks(down) > 0 && shrinks(down) > 2 * shrinks(across);
        match (filter.is_convex(), begins_down != is_transposed) {
            (true, true) => Self::Convex,
            (true, false) => Self::ConvexHorizontalFirst,
            (false, true) => Self::LobedVerticalFirst,
            (false, false) => Self::Lobed,
        }
    }
}

/// Resizes one image after another. It keeps its memory, and the taps as long as the geometry stays the same.
///
/// Call [`begin`](Self::begin). For each needed row, in order, write it to [`rows_mut`](Self::rows_mut) and call
/// [`done`](Self::done). Then read [`picture`](Self::picture).
#[derive(Debug)]
pub struct Resampler {
    level: Available,
    mode: Mode,
    /// Taps of both axes.
    convex: (arranged_taps::ConvexTaps, Taps<i16>),
    lobed: (arranged_taps::LobedTaps, Taps<i32>),
    /// Source rows, and rows after a horizontal pass that comes first.
    source: RowRing<u8>,
    narrowed: RowRing<u8>,
    /// Rows of 16-bit values after a horizontal pass of a convex filter that comes first.
    narrowed_words: RowRing<i16>,
    /// The result of a vertical pass that comes first: a line per plane, `line_stride` apart.
    line: Vec<i16>,
    clipped_line: Vec<u8>,
    line_stride: usize,
    /// Offsets in the ring of the rows that an output row's taps read.
    offsets: Vec<usize>,
    /// Number of complete source rows, of finished output rows, and of source rows that may be incomplete at once.
    arrived: usize,
    made: usize,
    open_rows: usize,
    picture: Picture,
}

impl Resampler {
    /// A resampler that uses the kernels of `level`.
    pub fn with_level(level: Available) -> Self {
        Self {
            level,
            mode: Mode::Copy,
            convex: Default::default(),
            lobed: Default::default(),
            source: RowRing::default(),
            narrowed: RowRing::default(),
            narrowed_words: RowRing::default(),
            line: Vec::new(),
            clipped_line: Vec::new(),
            line_stride: 0,
            offsets: Vec::new(),
            arrived: 0,
            made: 0,
            open_rows: 0,
            picture: Picture::default(),
        }
    }

    /// Starts an image of `planes` (1 to 4) planes. Returns the part of it that is needed.
    ///
    /// `axes`: across and down the rows of the source. `open_rows`: the largest number of rows written between two calls of
    /// [`done`](Self::done).
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]. Rows of the source are kept, all of them where a picture becomes very low.
    pub fn begin(
        &mut self,
        filter: Filter,
        [x, y]: [Axis; 2],
        order: AxisOrder,
        planes: usize,
        open_rows: usize,
    ) -> Result<Needed, Error> {
        self.restart();
        self.open_rows = open_rows;
        self.offsets.clear();
        self.picture.resize(planes, x.len, y.len)?;
        let filter = filter.of_axes(x, y);
        self.mode = Mode::choose(filter, [x, y], order);
        Ok(match self.mode {
            Mode::Copy => Needed {
                x: x.start,
                y: y.start,
                width: x.len,
                height: y.len,
            },
            Mode::Convex | Mode::ConvexHorizontalFirst => {
                let (h, v) = &mut self.convex;
                h.prepare(filter, x, self.level)?;
                v.prepare(filter, y)?;
                reserve(&mut self.offsets, v.stride)?;
                let h = &h.taps;
                if self.mode == Mode::Convex {
                    self.source.resize(planes, h.len, v.held_rows + open_rows)?;
                } else {
                    self.source.resize(planes, h.reach(), open_rows)?;
                    self.narrowed_words.resize(planes, x.len, v.held_rows)?;
                }
                self.line_stride = planar_row_len(h.reach());
                grow(&mut self.line, planes * self.line_stride)?;
                Needed::by(h, v)
            }
            Mode::Lobed | Mode::LobedVerticalFirst => {
                let (h, v) = &mut self.lobed;
                h.prepare(filter, x)?;
                v.prepare(filter, y)?;
                reserve(&mut self.offsets, v.stride)?;
                let h = &h.taps;
                if self.mode == Mode::Lobed {
                    self.source.resize(planes, h.reach(), open_rows)?;
                    self.narrowed.resize(planes, x.len, v.held_rows)?;
                } else {
                    self.source.resize(planes, h.reach(), v.held_rows + open_rows)?;
                    grow(&mut self.clipped_line, self.source.stride)?;
                }
                Needed::by(h, v)
            }
        })
    }

    /// Starts the image again from its first needed row.
    pub fn restart(&mut self) {
        (self.arrived, self.made) = (0, 0);
    }

    /// The memory of needed row `y` (counted from the first needed one): a slice per plane, at least [`planar_row_len`]
    /// of the needed width long. Slices of planes that do not exist are empty.
    ///
    /// # Panics
    /// If more than `open_rows` rows would be incomplete.
    pub fn rows_mut(&mut self, y: usize) -> [&mut [u8]; 4] {
        assert!(
            y < self.arrived + self.open_rows,
            "row {y} is too far ahead of {}",
            self.arrived
        );
        match self.mode {
            Mode::Copy => self.picture.rows_mut(y),
            _ => self.source.rows_mut(y),
        }
    }

    /// Declares rows before `end` complete, and computes the output rows that depend only on them.
    pub fn done(&mut self, end: usize) {
        for y in self.arrived..end {
            match self.mode {
                Mode::Copy => {}
                Mode::Convex => self.push_convex(y),
                Mode::ConvexHorizontalFirst => self.push_convex_horizontal_first(y),
                Mode::Lobed => self.push_lobed(y),
                Mode::LobedVerticalFirst => self.push_lobed_vertical_first(y),
            }
        }
        self.arrived = end;
    }

    /// The picture, complete once all needed rows are done.
    pub fn picture(&self) -> &Picture {
        &self.picture
    }

    /// Returns the picture and leaves an empty one.
    pub fn take_picture(&mut self) -> Picture {
        std::mem::take(&mut self.picture)
    }

    /// Frees buffers that are larger than `keep` bytes.
    pub fn shrink(&mut self, keep: usize) {
        for bytes in [
            &mut self.picture.pixels,
            &mut self.source.values,
            &mut self.narrowed.values,
        ] {
            if bytes.len() > keep {
                *bytes = Vec::new();
            }
        }
        if self.narrowed_words.values.len() > keep / size_of::<i16>() {
            self.narrowed_words.values = Vec::new();
        }
    }

    fn push_convex(&mut self, y: usize) {
        let (h, v) = &self.convex;
        // Up to 7 fractional bits between the passes; fewer where fine weights need these bits to stay in 32.
        let fraction = 7.min(23 - h.taps.shift);
        while let Some(weights) = v.complete(self.made, y) {
            collect_offsets(&self.source, v.starts[self.made], y, weights.len(), &mut self.offsets);
            for plane in 0..self.picture.planes {
                let rows = &self.source.values[plane * self.source.stride..];
                let line = &mut self.line[plane * self.line_stride..][..self.source.stride - ROW_SPARE];
                kernels::vertical_convex(self.level, rows, &self.offsets, weights, v.shift - fraction, line);
            }
            let (planes, plane_stride) = (self.picture.planes, self.picture.stride * self.picture.height);
            let out = &mut self.picture.pixels[self.made * self.picture.stride..];
            let drop = h.taps.shift + fraction;
            kernels::horizontal_convex(
                self.level,
                &self.line,
                self.line_stride,
                h,
                drop,
                out,
                plane_stride,
                planes,
            );
            self.made += 1;
        }
    }

    fn push_convex_horizontal_first(&mut self, y: usize) {
        let (h, v) = &self.convex;
        let planes = self.picture.planes;
        let fraction = 7.min(23 - v.shift);
        let source = self.source.values[self.source.offset(y)..].chunks_exact(self.source.stride);
        for (line, row) in self.line.chunks_exact_mut(self.line_stride).zip(source).take(planes) {
            kernels::widen(self.level, row, line);
        }
        let offset = self.narrowed_words.offset(y);
        let out = &mut self.narrowed_words.values[offset..];
        kernels::horizontal_convex_words(
            self.level,
            &self.line,
            self.line_stride,
            h,
            h.taps.shift - fraction,
            out,
            self.narrowed_words.stride,
            planes,
        );
        while let Some(weights) = v.complete(self.made, y) {
            collect_offsets(
                &self.narrowed_words,
                v.starts[self.made],
                y,
                weights.len(),
                &mut self.offsets,
            );
            for (plane, out) in self.picture.rows_mut(self.made).into_iter().take(planes).enumerate() {
                let rows = &self.narrowed_words.values[plane * self.narrowed_words.stride..];
                let blocks = out.len() - ROW_SPARE;
                let drop = v.shift + fraction;
                kernels::vertical_convex_words(self.level, rows, &self.offsets, weights, drop, &mut out[..blocks]);
            }
            self.made += 1;
        }
    }

    fn push_lobed(&mut self, y: usize) {
        let ((h, v), planes, stride) = (&self.lobed, self.picture.planes, self.source.stride);
        for (plane, out) in self.narrowed.rows_mut(y).into_iter().take(planes).enumerate() {
            let line = &self.source.values[self.source.offset(y) + plane * stride..][..stride];
            kernels::horizontal_lobed(self.level, line, h, out);
        }
        while let Some(weights) = v.complete(self.made, y) {
            collect_offsets(&self.narrowed, v.starts[self.made], y, weights.len(), &mut self.offsets);
            for (plane, out) in self.picture.rows_mut(self.made).into_iter().take(planes).enumerate() {
                let rows = &self.narrowed.values[plane * self.narrowed.stride..];
                let blocks = out.len() - ROW_SPARE;
                kernels::vertical_lobed(self.level, rows, &self.offsets, weights, &mut out[..blocks]);
            }
            self.made += 1;
        }
    }

    fn push_lobed_vertical_first(&mut self, y: usize) {
        let ((h, v), planes, stride) = (&self.lobed, self.picture.planes, self.source.stride);
        while let Some(weights) = v.complete(self.made, y) {
            collect_offsets(&self.source, v.starts[self.made], y, weights.len(), &mut self.offsets);
            for (plane, out) in self.picture.rows_mut(self.made).into_iter().take(planes).enumerate() {
                let line = &mut self.clipped_line[..stride];
                let rows = &self.source.values[plane * stride..];
                kernels::vertical_lobed(
                    self.level,
                    rows,
                    &self.offsets,
                    weights,
                    &mut line[..stride - ROW_SPARE],
                );
                kernels::horizontal_lobed(self.level, line, h, out);
            }
            self.made += 1;
        }
    }
}

/// Collects the offsets of rows `start..start + count`. Rows after `last` have weight zero; `last` is read instead.
fn collect_offsets<T: Zero>(ring: &RowRing<T>, start: u32, last: usize, count: usize, offsets: &mut Vec<usize>) {
    let start = start as usize;
    offsets.clear();
    offsets.extend((start..start + count).map(|y| ring.offset(y.min(last))));
}
