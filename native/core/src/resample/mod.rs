//! Antialiased separable resize of 8-bit images, row by row as they are decoded, within one level of Pillow's
//! on every pixel.
//!
//! ```text
//! convex filters (box, bilinear)              lobed filters (bicubic, Lanczos)
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
//! Where no weight is negative the cheaper order is free: the line between the passes keeps up to 7 fractional bits,
//! so the result differs from Pillow's only by Pillow's own rounding in between. Where weights are negative, Pillow
//! clips between the passes, and we follow its order and arithmetic (22-bit weights): the result is Pillow's, bit for
//! bit. Nothing outside the rows and columns that the wanted window needs is asked for.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod kernels;
mod scalar;
mod taps;

use crate::rows::{ROW_SPARE, planar_row_len};
use crate::simd::Level;
use kernels::Kernels;
pub use taps::{Axis, Filter, Taps, Weight};

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

/// A finished planar image; rows are `stride` bytes apart, planes `stride * height`.
#[derive(Debug, Default)]
pub struct Picture {
    /// Colour planes.
    pub planes: usize,
    /// Pixels per row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    stride: usize,
    pixels: Vec<u8>,
}

impl Picture {
    fn resize(&mut self, planes: usize, width: usize, height: usize) {
        *self = Self {
            planes,
            width,
            height,
            stride: planar_row_len(width),
            pixels: std::mem::take(&mut self.pixels),
        };
        grow(&mut self.pixels, planes * self.stride * height);
    }

    /// One row of one plane.
    pub fn row(&self, plane: usize, y: usize) -> &[u8] {
        &self.pixels[(plane * self.height + y) * self.stride..][..self.width]
    }

    /// Row `y` of every plane, with the padding behind each; planes that are not there are empty.
    fn rows_mut(&mut self, y: usize) -> [&mut [u8]; 3] {
        let stride = self.stride;
        let mut planes = self.pixels.chunks_exact_mut(stride * self.height).take(self.planes);
        std::array::from_fn(|_| {
            planes
                .next()
                .map(|p| &mut p[y * stride..][..stride])
                .unwrap_or_default()
        })
    }
}

/// The most recent rows of a planar image.
#[derive(Debug, Default)]
struct Ring {
    planes: usize,
    stride: usize,
    capacity: usize,
    bytes: Vec<u8>,
}

impl Ring {
    fn resize(&mut self, planes: usize, width: usize, capacity: usize) {
        *self = Self {
            planes,
            stride: planar_row_len(width),
            capacity,
            bytes: std::mem::take(&mut self.bytes),
        };
        grow(&mut self.bytes, planes * self.stride * capacity);
    }

    /// Where row `y` of plane 0 lies; the other planes follow, `stride` apart.
    fn offset(&self, y: usize) -> usize {
        y % self.capacity * self.planes * self.stride
    }

    fn rows_mut(&mut self, y: usize) -> [&mut [u8]; 3] {
        let offset = self.offset(y);
        let mut planes = self.bytes[offset..][..self.planes * self.stride].chunks_exact_mut(self.stride);
        std::array::from_fn(|_| planes.next().unwrap_or_default())
    }
}

fn grow<T: Copy + Default>(values: &mut Vec<T>, len: usize) {
    if values.len() < len {
        values.resize(len, T::default());
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Mode {
    /// No axis changes: rows are written where they stay.
    #[default]
    Copy,
    Convex,
    Lobed,
}

/// Resizes one image after another; keeps its memory, and the taps while the geometry repeats.
///
/// [`begin`](Self::begin), then for each needed row, in order, [`rows_mut`](Self::rows_mut) to write it, and
/// [`done`](Self::done) once it is complete; then [`picture`](Self::picture).
#[derive(Debug)]
pub struct Resampler {
    kernels: Kernels,
    mode: Mode,
    convex: [Taps<i16>; 2],
    lobed: [Taps<i32>; 2],
    source: Ring,
    narrowed: Ring,
    /// Convex: the line between the passes, one per plane, and the distance between them.
    line: Vec<i16>,
    line_stride: usize,
    /// Where the rows of an output row's taps lie in the ring.
    offsets: Vec<usize>,
    /// Source rows that are complete, and output rows that are made.
    arrived: usize,
    made: usize,
    open_rows: usize,
    picture: Picture,
}

impl Resampler {
    /// Kernels of the given level; every level gives the same pixels.
    pub fn with_level(level: Level) -> Self {
        Self {
            kernels: Kernels::new(level),
            mode: Mode::Copy,
            convex: Default::default(),
            lobed: Default::default(),
            source: Ring::default(),
            narrowed: Ring::default(),
            line: Vec::new(),
            line_stride: 0,
            offsets: Vec::new(),
            arrived: 0,
            made: 0,
            open_rows: 0,
            picture: Picture::default(),
        }
    }

    /// Starts an image of `planes` (1 to 3) colour planes and says which part of it is needed.
    ///
    /// `open_rows` is the greatest number of rows written between two calls of [`done`](Self::done).
    pub fn begin(&mut self, filter: Filter, x: Axis, y: Axis, planes: usize, open_rows: usize) -> Needed {
        (self.arrived, self.made, self.open_rows) = (0, 0, open_rows);
        self.picture.resize(planes, x.len, y.len);
        if x.is_identity() && y.is_identity() {
            self.mode = Mode::Copy;
            return Needed {
                x: x.start,
                y: y.start,
                width: x.len,
                height: y.len,
            };
        }
        if filter.is_convex() {
            self.mode = Mode::Convex;
            let [h, v] = &mut self.convex;
            h.prepare(filter, x);
            v.prepare(filter, y);
            self.source.resize(planes, h.len, v.held_rows() + open_rows);
            self.line_stride = planar_row_len(h.reach());
            grow(&mut self.line, planes * self.line_stride);
            return Needed {
                x: h.first,
                y: v.first,
                width: h.len,
                height: v.len,
            };
        }
        self.mode = Mode::Lobed;
        let [h, v] = &mut self.lobed;
        h.prepare(filter, x);
        v.prepare(filter, y);
        self.source.resize(planes, h.reach(), open_rows);
        self.narrowed.resize(planes, x.len, v.held_rows());
        Needed {
            x: h.first,
            y: v.first,
            width: h.len,
            height: v.len,
        }
    }

    /// Where needed row `y` (counted from the first needed one) is to be written: a slice per plane, at least
    /// [`planar_row_len`] of the needed width long; of planes that are not there, empty.
    ///
    /// # Panics
    /// If more than `open_rows` rows would be open.
    pub fn rows_mut(&mut self, y: usize) -> [&mut [u8]; 3] {
        assert!(
            y < self.arrived + self.open_rows,
            "row {y} is too far ahead of {}",
            self.arrived
        );
        match self.mode {
            Mode::Copy => self.picture.rows_mut(y),
            Mode::Convex | Mode::Lobed => self.source.rows_mut(y),
        }
    }

    /// Rows before `end` are complete: makes the output rows that they suffice for.
    pub fn done(&mut self, end: usize) {
        for y in self.arrived..end {
            match self.mode {
                Mode::Copy => {}
                Mode::Convex => self.push_convex(y),
                Mode::Lobed => self.push_lobed(y),
            }
        }
        self.arrived = end;
    }

    /// The picture, complete once all needed rows are done.
    pub fn picture(&self) -> &Picture {
        &self.picture
    }

    /// Frees memory beyond `keep` bytes that an exceptional image left behind.
    pub fn shrink(&mut self, keep: usize) {
        for bytes in [
            &mut self.picture.pixels,
            &mut self.source.bytes,
            &mut self.narrowed.bytes,
        ] {
            if bytes.len() > keep {
                *bytes = Vec::new();
            }
        }
    }

    fn push_convex(&mut self, y: usize) {
        let [h, v] = &self.convex;
        // up to 7 fractional bits between the passes; fewer where fine weights need the room in 32 bits
        let fraction = 7.min(23 - h.shift);
        while self.made < self.picture.height && v.end(self.made) <= y + 1 {
            let weights = v.pairs(self.made);
            gather_offsets(
                &self.source,
                v.starts[self.made] as usize,
                y,
                weights.len(),
                &mut self.offsets,
            );
            for plane in 0..self.picture.planes {
                let rows = &self.source.bytes[plane * self.source.stride..];
                let line = &mut self.line[plane * self.line_stride..][..self.source.stride - ROW_SPARE];
                self.kernels
                    .vertical_convex(rows, &self.offsets, weights, v.shift - fraction, line);
            }
            let picture = &mut self.picture;
            let plane_stride = picture.stride * picture.height;
            let out = &mut picture.pixels[self.made * picture.stride..];
            self.kernels.horizontal_convex(
                &self.line,
                self.line_stride,
                h,
                h.shift + fraction,
                out,
                plane_stride,
                picture.planes,
            );
            self.made += 1;
        }
    }

    fn push_lobed(&mut self, y: usize) {
        let [h, v] = &self.lobed;
        for (plane, out) in self
            .narrowed
            .rows_mut(y)
            .into_iter()
            .take(self.picture.planes)
            .enumerate()
        {
            let line = &self.source.bytes[self.source.offset(y) + plane * self.source.stride..][..self.source.stride];
            self.kernels.horizontal_lobed(line, h, out);
        }
        while self.made < self.picture.height && v.end(self.made) <= y + 1 {
            let weights = v.pairs(self.made);
            gather_offsets(
                &self.narrowed,
                v.starts[self.made] as usize,
                y,
                weights.len(),
                &mut self.offsets,
            );
            let stride = self.narrowed.stride;
            for (plane, out) in self
                .picture
                .rows_mut(self.made)
                .into_iter()
                .take(self.narrowed.planes)
                .enumerate()
            {
                let rows = &self.narrowed.bytes[plane * stride..];
                self.kernels
                    .vertical_lobed(rows, &self.offsets, weights, &mut out[..stride - ROW_SPARE]);
            }
            self.made += 1;
        }
    }
}

/// Where rows `start..start + count` lie; those after `last`, whose weights are zero, are read from `last`.
fn gather_offsets(ring: &Ring, start: usize, last: usize, count: usize, offsets: &mut Vec<usize>) {
    offsets.clear();
    offsets.extend((start..start + count).map(|y| ring.offset(y.min(last))));
}
