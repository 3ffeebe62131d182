//! The batch that a call writes to: its arguments are checked against each other.

use penstock_core::fill::{Affine, FillOptions, Geometry, Layout, Mode, Row};
use penstock_core::jpeg::Limits;
use penstock_core::resample::Filter;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::arrays::{Batch, Dtype};
use crate::bytes::EncodedImages;
use crate::errors::invalid_argument;
use crate::memory::BufferArgument;

/// A batch to write to, and the options for its rows.
pub struct Target<'a> {
    batch: &'a Batch,
    affine: Affine,
    /// Options for filling rows.
    pub options: FillOptions,
    /// Whether windows may show a background outside the picture.
    pub framed: bool,
}

impl<'a> Target<'a> {
    /// Checks the arguments against each other.
    pub fn new(
        batch: &'a Batch,
        [layout, filter, mode]: [&str; 3],
        [scale, offset]: [Option<&[f32]>; 2],
        limits: Limits,
        quality: Option<f64>,
        beside: Option<[u8; 3]>,
    ) -> PyResult<Self> {
        let (order, channels, height, width) = match (layout, batch.shape) {
            ("HWC", [_, h, w, c]) => (Layout::Hwc, c, h, w),
            ("CHW", [_, c, h, w]) => (Layout::Chw, c, h, w),
            _ => {
                return Err(invalid_argument(format!(
                    "layout must be one of HWC, CHW, got '{layout}'"
                )));
            }
        };
        let mode = mode_from_name(mode)?;
        if channels != mode.channels() || height == 0 || width == 0 {
            return Err(invalid_argument(format!(
                "out must have layout {layout} with {} and at least one pixel, got shape {:?}",
                if mode == Mode::Luma {
                    "1 channel".to_owned()
                } else {
                    format!("{} channels", mode.channels())
                },
                batch.shape
            )));
        }
        if beside.is_some() && channels != 3 {
            return Err(invalid_argument("beside must be None for images of 1 or 4 channels"));
        }
        if let Some(numbers) = [scale, offset]
            .into_iter()
            .flatten()
            .find(|numbers| numbers.len() != channels)
        {
            let found = numbers.len();
            return Err(invalid_argument(format!(
                "scale and offset must have a number for each of {channels} channels, got {found}"
            )));
        }
        let mut alpha = [1.0, 0.0];
        if let ([Some(scale), Some(offset)], true) = ([scale, offset], channels == 4) {
            alpha = [scale[3], offset[3]];
        }
        let affine = match (batch.dtype, scale, offset) {
            (Dtype::U16, None, None) => {
                return Err(PyTypeError::new_err(
                    "the batch must be of type uint8, float16 or float32, or uint16 for the bits of bfloat16 numbers \
                     with scale and offset, got uint16 without",
                ));
            }
            (Dtype::U8, None, None) => Affine {
                scale: [1.0; 3],
                offset: [0.0; 3],
            },
            (Dtype::U8, ..) => return Err(invalid_argument("scale and offset must be None for uint8 batches")),
            (_, Some(scale), Some(offset)) => Affine {
                scale: first_three(scale),
                offset: first_three(offset),
            },
            _ => return Err(invalid_argument("scale and offset must be given for float batches")),
        };
        if affine
            .scale
            .iter()
            .chain(&affine.offset)
            .chain(&alpha)
            .any(|x| !x.is_finite())
        {
            return Err(invalid_argument("scale and offset must be finite float32 numbers"));
        }
        if quality.is_some_and(|quality| !(quality >= 1.0 && quality.is_finite())) {
            return Err(invalid_argument("quality must be a finite number of at least 1"));
        }
        let options = FillOptions {
            filter: filter_from_name(filter)?,
            mode,
            alpha,
            layout: order,
            window: [width, height],
            background: background(beside),
            quality: quality.unwrap_or(f64::INFINITY),
            late_color: false,
            limits,
        };
        Ok(Self {
            batch,
            affine,
            options,
            framed: beside.is_some(),
        })
    }

    /// Refuses an argument that overlaps the batch: the call would overwrite what it reads.
    pub fn check_apart(&self, argument: &impl BufferArgument, name: impl FnOnce() -> String) -> PyResult<()> {
        if self.batch.overlaps(argument) {
            return Err(invalid_argument(format!("{} must not overlap out", name())));
        }
        Ok(())
    }

    /// Refuses images that overlap the batch.
    pub fn check_images_apart(&self, images: &EncodedImages) -> PyResult<()> {
        match images.find_overlap(self.batch) {
            Some(name) => Err(invalid_argument(format!("{name} must not overlap out"))),
            None => Ok(()),
        }
    }

    /// The memory of a row.
    ///
    /// # Safety
    /// `row` is in range, and no other slice of it exists.
    pub unsafe fn row(&self, row: usize) -> Row<'_> {
        // SAFETY: the types are those of `dtype`; the caller guarantees the rest.
        unsafe {
            match self.batch.dtype {
                Dtype::U8 => Row::U8(self.batch.row_bytes_mut(row)),
                Dtype::U16 => Row::Bf16(self.batch.row_mut(row), self.affine),
                Dtype::F16 => Row::F16(self.batch.row_mut(row), self.affine),
                Dtype::F32 => Row::F32(self.batch.row_mut(row), self.affine),
            }
        }
    }

    /// Row `i` of the geometry, for windows of the batch's size.
    pub fn geometry(&self, columns: &[i32; Geometry::COLUMNS], i: usize) -> PyResult<Geometry> {
        Geometry::new(*columns, self.options.window, self.framed)
            .map_err(|message| invalid_argument(format!("geometry[{i}]: {message}")))
    }

    /// Checks that the batch has this row.
    pub fn row_index(&self, row: i64) -> PyResult<usize> {
        usize::try_from(row)
            .ok()
            .filter(|r| *r < self.batch.shape[0])
            .ok_or_else(|| {
                invalid_argument(format!(
                    "row must be in [0, {}), the rows of out, got {row}",
                    self.batch.shape[0]
                ))
            })
    }
}

/// Numbers of the first three channels; those of a single one for all.
fn first_three(numbers: &[f32]) -> [f32; 3] {
    std::array::from_fn(|channel| *numbers.get(channel).unwrap_or(&numbers[0]))
}

/// The colour of the window outside the picture.
pub fn background(beside: Option<[u8; 3]>) -> [u8; 4] {
    let [r, g, b] = beside.unwrap_or_default();
    [r, g, b, 0]
}

/// The mode with this name.
pub fn mode_from_name(name: &str) -> PyResult<Mode> {
    Mode::from_name(name).ok_or_else(|| {
        let names = Mode::NAMES.join(", ");
        invalid_argument(format!("mode must be one of {names}, got '{name}'"))
    })
}

/// The filter with this name.
pub fn filter_from_name(name: &str) -> PyResult<Filter> {
    Filter::from_name(name).ok_or_else(|| {
        let names = Filter::NAMES.join(", ");
        invalid_argument(format!("filter must be one of {names}, got '{name}'"))
    })
}

/// Checks that no row is written twice.
pub fn check_distinct(rows: &[usize]) -> PyResult<()> {
    let mut sorted = rows.to_vec();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(invalid_argument(format!(
            "rows must be distinct, got row {} twice",
            pair[0]
        ))),
        None => Ok(()),
    }
}
