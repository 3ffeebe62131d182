//! Planar memory: pictures, and rings of rows. Rows are padded so that kernels and decoders can work in whole blocks.

use crate::error::Error;
use crate::memory::{Zero, grow};
use crate::rows::planar_row_len;

/// A planar image. Rows are `stride` bytes apart, planes `stride * height`.
#[derive(Debug, Default)]
pub struct Picture {
    /// Colour planes.
    pub planes: usize,
    /// Pixels per row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    pub(super) stride: usize,
    pub(super) pixels: Vec<u8>,
}

impl Picture {
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

    /// One row of one plane.
    pub fn row(&self, plane: usize, y: usize) -> &[u8] {
        &self.pixels[(plane * self.height + y) * self.stride..][..self.width]
    }

    /// One row of one plane, with its padding.
    pub(crate) fn row_mut(&mut self, plane: usize, y: usize) -> &mut [u8] {
        let start = (plane * self.height + y) * self.stride;
        &mut self.pixels[start..][..self.stride]
    }

    /// All rows of one plane, [`stride`](Self::stride) bytes apart.
    pub(crate) fn plane_mut(&mut self, plane: usize) -> &mut [u8] {
        let nbytes = self.height * self.stride;
        &mut self.pixels[plane * nbytes..][..nbytes]
    }

    /// Bytes from a row to the next.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// Row `y` of every plane, with its padding. Slices of planes that do not exist are empty.
    pub(super) fn rows_mut(&mut self, y: usize) -> [&mut [u8]; 4] {
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
    pub(super) values: Vec<T>,
}

impl<T: Zero> RowRing<T> {
    pub(super) fn resize(&mut self, planes: usize, width: usize, capacity: usize) -> Result<(), Error> {
        *self = Self {
            planes,
            stride: planar_row_len(width),
            capacity,
            values: std::mem::take(&mut self.values),
        };
        grow(&mut self.values, planes * self.stride * capacity)
    }

    /// Offset of row `y` of plane 0. The other planes follow, `stride` apart.
    pub(super) fn offset(&self, y: usize) -> usize {
        y % self.capacity * self.planes * self.stride
    }

    pub(super) fn rows_mut(&mut self, y: usize) -> [&mut [T]; 4] {
        let offset = self.offset(y);
        let mut planes = self.values[offset..][..self.planes * self.stride].chunks_exact_mut(self.stride);
        std::array::from_fn(|_| planes.next().unwrap_or_default())
    }
}
