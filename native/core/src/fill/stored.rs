//! From pixels that are stored as they are to a row of a batch: cut out a window, flip, convert, write.
//!
//! ```text
//!  image (u8 | u16 | f32, any channels) ──lines of the window──mirror──> ──convert──> row (HWC | CHW; same | f16 | bf16 | f32)
//! ```
//!
//! Nothing is resampled here: an image that changes its size goes through [`super::Filler::fill_pixels`]. A window of
//! whole lines is one line, so that small images are converted by one call of a kernel. Values outside the image are 0
//! before they are converted.

use std::ops::Range;

use super::convert::{self, Channels, StoredValue};
use super::lines::{self, Affine};
use super::{Geometry, Layout};
use crate::simd::Available;

/// The type of stored values, which are little-endian and need no alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// 8 bits.
    U8,
    /// 16 bits.
    U16,
    /// Single precision.
    F32,
}

impl ValueType {
    /// Bytes of a value.
    pub const fn nbytes(self) -> usize {
        match self {
            ValueType::U8 => 1,
            ValueType::U16 => 2,
            ValueType::F32 => 4,
        }
    }
}

/// An image as it is stored, rows without gaps.
#[derive(Clone, Copy, Debug)]
pub struct StoredImage<'a> {
    /// `width * height * channels` values.
    pub bytes: &'a [u8],
    /// Their type.
    pub value: ValueType,
    /// Pixels per row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Values per pixel.
    pub channels: usize,
}

/// A part of an image, possibly mirrored. It may leave the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredWindow {
    /// First column.
    pub x: i64,
    /// First row.
    pub y: i64,
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Mirror left and right.
    pub flip_x: bool,
    /// Mirror top and bottom.
    pub flip_y: bool,
}

impl StoredWindow {
    /// The whole image.
    pub fn whole(width: usize, height: usize) -> Self {
        Self {
            x: 0,
            y: 0,
            width,
            height,
            flip_x: false,
            flip_y: false,
        }
    }

    /// The window of a geometry that changes no size and lies inside the picture; None for others.
    pub fn of(geometry: &Geometry) -> Option<Self> {
        let ([x, y], [width, height]) = geometry.unscaled_window()?;
        Some(Self {
            x: x as i64,
            y: y as i64,
            width,
            height,
            flip_x: geometry.flip_x,
            flip_y: geometry.flip_y,
        })
    }
}

/// What happens to each value, in single precision, with a number for each channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Conversion<'a> {
    /// Nothing, except that the type may become half precision or bfloat16.
    Keep,
    /// `value * scale + offset`, rounded after each operation.
    Scale {
        /// Factors.
        scale: &'a [f32],
        /// Summands.
        offset: &'a [f32],
    },
    /// `(value - mean) / deviation`, rounded after each operation.
    Standardise {
        /// Subtracted first.
        mean: &'a [f32],
        /// Divisors.
        deviation: &'a [f32],
    },
}

/// A row to write: as many values as the window has.
#[derive(Debug)]
pub enum StoredRow<'a> {
    /// The values themselves, of the type of the image.
    Same(&'a mut [u8]),
    /// Converted values, as the bits of half-precision floats.
    F16(&'a mut [u16]),
    /// Converted values, as the bits of bfloat16 numbers.
    Bf16(&'a mut [u16]),
    /// Converted values.
    F32(&'a mut [f32]),
}

/// Writes windows of stored images, one after another. It keeps its memory.
pub struct StoredFiller {
    level: Available,
    mirrored: Vec<u8>,
    scratch: Scratch,
}

/// Memory for parts of a line.
#[derive(Default)]
struct Scratch {
    planes: [Vec<u8>; 3],
    floats: Vec<f32>,
    zeros: Vec<u8>,
}

impl StoredFiller {
    /// A filler that uses the kernels of `level`.
    pub fn with_level(level: Available) -> Self {
        Self {
            level,
            mirrored: Vec::new(),
            scratch: Scratch::default(),
        }
    }

    /// Writes a window of an image to a row.
    ///
    /// # Panics
    /// If the row has another size.
    pub fn fill(
        &mut self,
        image: StoredImage<'_>,
        window: StoredWindow,
        layout: Layout,
        conversion: Conversion<'_>,
        row: &mut StoredRow<'_>,
    ) {
        let pixel = image.channels * image.value.nbytes();
        let columns = visible(window.x, window.width, image.width);
        let rows = visible(window.y, window.height, image.height);
        let area = window.width * window.height;
        let writer = LineWriter {
            level: self.level,
            value: image.value,
            channels: image.channels,
            area,
            layout,
            conversion,
        };
        let (mirrored, scratch) = (&mut self.mirrored, &mut self.scratch);
        let is_inside = columns.len() == window.width && rows.len() == window.height;
        if is_inside && window.width == image.width && window.flip_x == window.flip_y {
            let start = window.y as usize * image.width * pixel;
            let line = &image.bytes[start..][..area * pixel];
            writer.write(maybe_reversed(line, pixel, window.flip_x, mirrored), 0, scratch, row);
            return;
        }
        if !is_inside {
            writer.write_zeros(scratch, row);
            if columns.is_empty() {
                return;
            }
        }
        let left = if window.flip_x {
            window.width - columns.end
        } else {
            columns.start
        };
        for y in rows {
            let from = (window.y + y as i64) as usize;
            let start = (from * image.width + (window.x + columns.start as i64) as usize) * pixel;
            let to = if window.flip_y { window.height - 1 - y } else { y };
            let line = &image.bytes[start..][..columns.len() * pixel];
            let line = maybe_reversed(line, pixel, window.flip_x, mirrored);
            writer.write(line, to * window.width + left, scratch, row);
        }
    }
}

/// The places of a window, along one axis, that show the image.
fn visible(start: i64, window: usize, size: usize) -> Range<usize> {
    let first = (-start).clamp(0, window as i64);
    let end = (size as i64 - start).clamp(first, window as i64);
    first as usize..end as usize
}

/// The pixels of a line, or these from last to first.
fn maybe_reversed<'a>(line: &'a [u8], pixel: usize, reversed: bool, mirrored: &'a mut Vec<u8>) -> &'a [u8] {
    if !reversed {
        return line;
    }
    mirrored.resize(line.len(), 0);
    for (to, from) in mirrored.chunks_exact_mut(pixel).zip(line.chunks_exact(pixel).rev()) {
        to.copy_from_slice(from);
    }
    mirrored
}

/// Writes lines of one image to its row.
struct LineWriter<'a> {
    level: Available,
    value: ValueType,
    channels: usize,
    /// Pixels of the row.
    area: usize,
    layout: Layout,
    conversion: Conversion<'a>,
}

impl LineWriter<'_> {
    /// Writes what the value 0 becomes, everywhere.
    fn write_zeros(&self, scratch: &mut Scratch, row: &mut StoredRow<'_>) {
        if let StoredRow::Same(out) = row {
            out.fill(0);
            return;
        }
        let mut zeros = std::mem::take(&mut scratch.zeros);
        zeros.resize(self.area * self.channels * self.value.nbytes(), 0);
        self.write(&zeros, 0, scratch, row);
        scratch.zeros = zeros;
    }

    /// Writes the pixels of `line` at pixel `at` of the row.
    fn write(&self, line: &[u8], at: usize, scratch: &mut Scratch, row: &mut StoredRow<'_>) {
        let is_planar = self.layout == Layout::Chw && self.channels > 1;
        match self.value {
            ValueType::U8 if (!is_planar || self.channels == 3) && self.write_bytes(line, at, scratch, row) => {}
            ValueType::U8 => self.write_values::<[u8; 1]>(line, at, scratch, row),
            ValueType::U16 => self.write_values::<[u8; 2]>(line, at, scratch, row),
            ValueType::F32 => self.write_values::<[u8; 4]>(line, at, scratch, row),
        }
    }

    /// Writes values of any type: plane by plane, or in their order.
    fn write_values<V: StoredValue>(&self, line: &[u8], at: usize, scratch: &mut Scratch, row: &mut StoredRow<'_>) {
        let values = V::values(line);
        let pixels = values.len() / self.channels;
        let mut write = |channels: Channels, begin: usize, count: usize| match row {
            StoredRow::Same(out) => convert::copy(values, channels, &mut V::values_mut(out)[begin..][..count]),
            StoredRow::F32(out) => {
                convert::convert(values, channels, self.conversion, &mut out[begin..][..count]);
            }
            StoredRow::F16(out) => {
                scratch.floats.resize(count, 0.0);
                convert::convert(values, channels, self.conversion, &mut scratch.floats);
                lines::halves(self.level, &scratch.floats, &mut out[begin..][..count]);
            }
            StoredRow::Bf16(out) => {
                scratch.floats.resize(count, 0.0);
                convert::convert(values, channels, self.conversion, &mut scratch.floats);
                lines::bfloats(self.level, &scratch.floats, &mut out[begin..][..count]);
            }
        };
        let count = self.channels;
        if self.layout == Layout::Hwc {
            return write(Channels { count, only: None }, at * count, values.len());
        }
        for channel in 0..count {
            let channels = Channels {
                count,
                only: Some(channel),
            };
            write(channels, channel * self.area + at, pixels);
        }
    }

    /// The same for bytes of one channel, of three, or of any number that stay in their order, by the kernels of lines.
    /// Returns false if they do not know this case.
    fn write_bytes(&self, line: &[u8], at: usize, scratch: &mut Scratch, row: &mut StoredRow<'_>) -> bool {
        let affine = match (&row, self.conversion) {
            (StoredRow::Same(_), _) => None,
            (_, Conversion::Scale { scale, offset }) if self.channels == 1 || self.channels == 3 => {
                let of = |numbers: &[f32]| std::array::from_fn(|c| numbers[c % self.channels]);
                Some(Affine {
                    scale: of(scale),
                    offset: of(offset),
                })
            }
            _ => return false,
        };
        if self.layout == Layout::Hwc || self.channels == 1 {
            write_line(self.level, line, at * self.channels, affine, row);
            return true;
        }
        let count = line.len() / 3;
        for plane in &mut scratch.planes {
            plane.resize(count, 0);
        }
        let [r, g, b] = &mut scratch.planes;
        lines::deinterleave(self.level, line, [r, g, b]);
        for (c, plane) in scratch.planes.iter().enumerate() {
            let affine = affine.map(|affine| affine.channel(c));
            write_line(self.level, plane, c * self.area + at, affine, row);
        }
        true
    }
}

fn write_line(level: Available, line: &[u8], at: usize, affine: Option<Affine>, row: &mut StoredRow<'_>) {
    match (row, affine) {
        (StoredRow::Same(out), _) => out[at..][..line.len()].copy_from_slice(line),
        (StoredRow::F16(out), Some(affine)) => {
            lines::normalise_f16(level, line, &affine, &mut out[at..][..line.len()]);
        }
        (StoredRow::Bf16(out), Some(affine)) => {
            lines::normalise_bf16(level, line, &affine, &mut out[at..][..line.len()]);
        }
        (StoredRow::F32(out), Some(affine)) => {
            lines::normalise_f32(level, line, &affine, &mut out[at..][..line.len()]);
        }
        (_, None) => unreachable!("floats have factors"),
    }
}
