//! Planar memory: pictures, and rings of rows. Rows are padded so that kernels and decoders can work in whole blocks.

use crate::error::Error;
use crate::memory::{Zero, grow};
use crate::rows::planar_row_len;

/// A planar image of bytes, or of words ([`super::WORD_FRACTION`]). Rows are `stride` values apart, planes `stride *
/// height`.
#[derive(Debug, Default)]
pub struct Picture<T = u8> {
    /// Colour planes.
    pub planes: usize,
    /// Pixels per row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    pub(super) stride: usize,
    pub(super) pixels: Vec<T>,
}

impl<T: Zero> Picture<T> {
    pub(crate) fn resize(&mut self, planes: usize, width: usize, height: usize) -> Result<(), Error> {
        *self = Self {
            planes,
            width,
            height,
            stride: planar_row_len(width),
            pixels: std::mem::take(&mut self.pixels),
        };
        grow(&mut self.pixels, planes * self.stride * height)
    }

    /// Frees the memory if it has more than `keep` bytes.
    pub(crate) fn shrink(&mut self, keep: usize) {
        shrink(&mut self.pixels, keep);
    }

    /// One row of one plane.
    pub fn row(&self, plane: usize, y: usize) -> &[T] {
        &self.pixels[(plane * self.height + y) * self.stride..][..self.width]
    }

    /// One row of one plane, with its padding.
    pub(crate) fn row_mut(&mut self, plane: usize, y: usize) -> &mut [T] {
        let start = (plane * self.height + y) * self.stride;
        &mut self.pixels[start..][..self.stride]
    }

    /// All rows of one plane, [`stride`](Self::stride) values apart.
    pub(crate) fn plane_mut(&mut self, plane: usize) -> &mut [T] {
        let len = self.height * self.stride;
        &mut self.pixels[plane * len..][..len]
    }

    /// Values from a row to the next.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// The values from row `y` of the first plane on, and those from a plane to the next.
    pub(super) fn rows_from(&mut self, y: usize) -> (&mut [T], usize) {
        (&mut self.pixels[y * self.stride..], self.stride * self.height)
    }

    /// Row `y` of every plane, with its padding. Slices of planes that do not exist are empty.
    pub(crate) fn rows_mut(&mut self, y: usize) -> [&mut [T]; 4] {
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
pub(super) struct RowRing<T> {
    planes: usize,
    /// Values per row of one plane.
    pub(super) stride: usize,
    capacity: usize,
    /// Where row 0 begins: rows of the ring before it, and values of a row before its first.
    top: usize,
    left: usize,
    /// The column of the samples at which rows of blocks begin.
    first_column: usize,
    pub(super) values: Vec<T>,
}

impl<T: Zero> RowRing<T> {
    pub(super) fn resize(&mut self, planes: usize, width: usize, capacity: usize) -> Result<(), Error> {
        *self = Self {
            planes,
            stride: planar_row_len(width),
            capacity,
            top: 0,
            left: 0,
            first_column: 0,
            values: std::mem::take(&mut self.values),
        };
        grow(&mut self.values, planes * self.stride * capacity)
    }

    /// Frees the memory if it has more than `keep` bytes.
    pub(super) fn shrink(&mut self, keep: usize) {
        shrink(&mut self.values, keep);
    }

    /// [`Self::resize`] for rows that are written in blocks of `side` x `side` samples, which begin at multiples of `side`:
    /// row 0 begins at this column and row of the samples.
    pub(super) fn resize_for_blocks(
        &mut self,
        planes: usize,
        width: usize,
        capacity: usize,
        [x, y]: [usize; 2],
        side: usize,
    ) -> Result<(), Error> {
        // No block begins at the end of the ring and ends at its start. Two blocks are written at once.
        let left = x % side;
        self.resize(planes, left + width + 2 * side, capacity.next_multiple_of(side))?;
        (self.top, self.left, self.first_column) = (y % self.capacity, left, x - left);
        // A row of `stride` values may be read from `left` on.
        grow(&mut self.values, planes * self.stride * self.capacity + side)
    }

    /// Offset of row `y` of plane 0. The other planes follow, `stride` apart.
    pub(super) fn offset(&self, y: usize) -> usize {
        (y + self.top) % self.capacity * self.planes * self.stride + self.left
    }

    /// The memory of a plane from column `x` and row `y` of the samples on, and the values from a row to the next.
    pub(super) fn blocks_mut(&mut self, plane: usize, x: usize, y: usize) -> (&mut [T], usize) {
        let pitch = self.planes * self.stride;
        let start = y % self.capacity * pitch + plane * self.stride + x - self.first_column;
        (&mut self.values[start..], pitch)
    }

    pub(super) fn rows_mut(&mut self, y: usize) -> [&mut [T]; 4] {
        let offset = self.offset(y);
        let mut planes = self.values[offset..][..self.planes * self.stride].chunks_exact_mut(self.stride);
        std::array::from_fn(|_| planes.next().unwrap_or_default())
    }
}

fn shrink<T>(values: &mut Vec<T>, keep: usize) {
    if size_of_val(&**values) > keep {
        *values = Vec::new();
    }
}
