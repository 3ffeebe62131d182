//! The batch that a call writes to: its arguments checked against each other, its rows as the core takes them.

use penstock_core::fill::{Affine, FillOptions, Geometry, Layout, Row};
use penstock_core::jpeg::Limits;
use penstock_core::resample::Filter;
use pyo3::prelude::*;

use crate::arrays::{Batch, Dtype};
use crate::errors::invalid;
use crate::memory::BufferArgument;

/// A batch to write to, and how.
pub struct Target<'a> {
    batch: &'a Batch,
    affine: Affine,
    /// How images become rows of it.
    pub options: FillOptions,
    /// Whether windows may show something beside the picture.
    pub framed: bool,
}

impl<'a> Target<'a> {
    /// Checks the arguments against each other.
    pub fn new(
        batch: &'a Batch,
        layout: &str,
        filter: &str,
        [scale, offset]: [Option<[f32; 3]>; 2],
        limits: Limits,
        quality: Option<f64>,
        beside: Option<[u8; 3]>,
    ) -> PyResult<Self> {
        let (order, channels, height, width) = match (layout, batch.shape) {
            ("HWC", [_, h, w, c]) => (Layout::Hwc, c, h, w),
            ("CHW", [_, c, h, w]) => (Layout::Chw, c, h, w),
            _ => return Err(invalid(format!("layout {layout:?} is not \"HWC\" or \"CHW\""))),
        };
        if channels != 3 || height == 0 || width == 0 {
            return Err(invalid(format!(
                "out of shape {:?} is not {layout} with 3 channels",
                batch.shape
            )));
        }
        let affine = match (batch.dtype, scale, offset) {
            (Dtype::U8, None, None) => Affine {
                scale: [1.0; 3],
                offset: [0.0; 3],
            },
            (Dtype::U8, ..) => return Err(invalid("uint8 batches take no scale and offset")),
            (_, Some(scale), Some(offset)) => Affine { scale, offset },
            _ => return Err(invalid("float batches need scale and offset")),
        };
        if affine.scale.iter().chain(&affine.offset).any(|x| !x.is_finite()) {
            return Err(invalid("scale and offset must be finite float32 numbers"));
        }
        if quality.is_some_and(|quality| !(quality >= 1.0 && quality.is_finite())) {
            return Err(invalid("quality must be a finite number of at least 1"));
        }
        let options = FillOptions {
            filter: filter_from_name(filter)?,
            layout: order,
            window: [width, height],
            background: beside.unwrap_or_default(),
            quality: quality.unwrap_or(f64::INFINITY),
            limits,
        };
        Ok(Self {
            batch,
            affine,
            options,
            framed: beside.is_some(),
        })
    }

    /// Refuses an argument that lies in the batch: the call would overwrite what it reads.
    pub fn check_apart(&self, argument: &impl BufferArgument, name: impl FnOnce() -> String) -> PyResult<()> {
        if self.batch.overlaps(argument) {
            return Err(invalid(format!("{} overlaps out", name())));
        }
        Ok(())
    }

    /// The memory of a row.
    ///
    /// # Safety
    /// `row` is in range, and no other slice of it exists.
    pub unsafe fn row(&self, row: usize) -> Row<'_> {
        // SAFETY: the types are those of `dtype`, the rest is the caller's promise
        unsafe {
            match self.batch.dtype {
                Dtype::U8 => Row::U8(self.batch.row_mut(row)),
                Dtype::F16 => Row::F16(self.batch.row_mut(row), self.affine),
                Dtype::F32 => Row::F32(self.batch.row_mut(row), self.affine),
            }
        }
    }

    /// Row `i` of the geometry, for windows of the batch's size.
    pub fn geometry(&self, columns: &[i32; Geometry::COLUMNS], i: usize) -> PyResult<Geometry> {
        Geometry::new(*columns, self.options.window, self.framed)
            .map_err(|message| invalid(format!("geometry[{i}]: {message}")))
    }

    /// A row that the batch has.
    pub fn row_index(&self, row: i64) -> PyResult<usize> {
        usize::try_from(row)
            .ok()
            .filter(|r| *r < self.batch.shape[0])
            .ok_or_else(|| {
                invalid(format!(
                    "row {row} is not in out, which has {} rows",
                    self.batch.shape[0]
                ))
            })
    }
}

/// The filter of that name.
pub fn filter_from_name(name: &str) -> PyResult<Filter> {
    Filter::from_name(name).ok_or_else(|| {
        invalid(format!(
            "filter {name:?} is not \"box\", \"bilinear\", \"bicubic\" or \"lanczos\""
        ))
    })
}
