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
//!
//! With a convex filter, the source may also be blocks of samples, and the result a picture of words, which keeps a
//! fraction: luma and chroma, before they become RGB.

mod arranged_taps;
mod averages;
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
mod passes;
mod plan;
mod planar;
mod scalar;
mod taps;
mod weights;

use crate::error::Error;
use crate::memory::{grow, reserve};
use crate::rows::planar_row_len;
use crate::simd::Available;
pub use deep::DeepResampler;
pub use filter::{Axis, Between, Filter};
pub use plan::{AxisPlan, Passes, ResizePlan};
pub use planar::Picture;
use planar::RowRing;
use taps::Taps;
use weights::Weight;

/// Fractional bits of a picture of words: the most with which luma and chroma can become RGB in words.
pub const WORD_FRACTION: u32 = 6;

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

/// Where the source lies among samples that come in blocks.
#[derive(Clone, Copy, Debug)]
pub struct BlockGrid {
    /// Side of a block in samples. Blocks begin at multiples of it.
    pub side: usize,
    /// The column and row that are the first of the axes.
    pub origin: [usize; 2],
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
    planes: usize,
    picture: Picture,
    /// The picture, if [`Self::begin_words`] began it.
    words: Picture<i16>,
    is_of_words: bool,
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
            planes: 0,
            picture: Picture::default(),
            words: Picture::default(),
            is_of_words: false,
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
        self.is_of_words = false;
        self.picture.resize(planes, x.len, y.len)?;
        self.begin_passes(filter, [x, y], order, planes, open_rows, None)
    }

    /// [`Self::begin`] of a picture of words, from blocks of samples: write them to [`blocks_mut`](Self::blocks_mut), and read
    /// [`words`](Self::words) instead of [`picture`](Self::picture). The filter must be convex, and at least one axis must
    /// change its size.
    ///
    /// `open_rows`: a multiple of the side of a block.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn begin_words(
        &mut self,
        filter: Filter,
        [x, y]: [Axis; 2],
        order: AxisOrder,
        planes: usize,
        open_rows: usize,
        grid: BlockGrid,
    ) -> Result<Needed, Error> {
        self.is_of_words = true;
        self.words.resize(planes, x.len, y.len)?;
        let needed = self.begin_passes(filter, [x, y], order, planes, open_rows, Some(grid))?;
        assert!(
            matches!(self.mode, Mode::Convex | Mode::ConvexHorizontalFirst),
            "{:?} makes no words",
            self.mode
        );
        Ok(needed)
    }

    fn begin_passes(
        &mut self,
        filter: Filter,
        [x, y]: [Axis; 2],
        order: AxisOrder,
        planes: usize,
        open_rows: usize,
        grid: Option<BlockGrid>,
    ) -> Result<Needed, Error> {
        self.restart();
        self.planes = planes;
        self.open_rows = open_rows;
        self.offsets.clear();
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
                let (width, held) = if self.mode == Mode::Convex {
                    (h.len, v.held_rows)
                } else {
                    self.narrowed_words.resize(planes, x.len, v.held_rows)?;
                    (h.reach(), 0)
                };
                match grid {
                    None => self.source.resize(planes, width, held + open_rows)?,
                    Some(grid) => {
                        let first = [grid.origin[0] + h.first, grid.origin[1] + v.first];
                        self.source
                            .resize_for_blocks(planes, width, held + open_rows, first, grid.side)?;
                    }
                }
                self.line_stride = planar_row_len(h.reach()).max(self.source.stride);
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

    /// The memory of a plane from a block on, whose first sample is column `x` and row `y` of [`BlockGrid`]'s samples, and the
    /// bytes from a row to the next. Blocks are written whole, and may overlap the next one. At most `open_rows` rows after
    /// the complete ones are written.
    pub fn blocks_mut(&mut self, plane: usize, x: usize, y: usize) -> (&mut [u8], usize) {
        self.source.blocks_mut(plane, x, y)
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

    /// The picture of words, complete once all needed rows are done: `1 << WORD_FRACTION` is one level.
    pub fn words(&self) -> &Picture<i16> {
        &self.words
    }

    /// Returns the picture and leaves an empty one.
    pub fn take_picture(&mut self) -> Picture {
        std::mem::take(&mut self.picture)
    }

    /// Frees buffers that are larger than `keep` bytes.
    pub fn shrink(&mut self, keep: usize) {
        self.picture.shrink(keep);
        self.words.shrink(keep);
        self.source.shrink(keep);
        self.narrowed.shrink(keep);
        self.narrowed_words.shrink(keep);
    }
}
