//! Parts of one picture, each from an encoded image.

use penstock_core::fill::{self as core, FillError, FillOptions, FillTimes, Geometry, Layout, Mode, Row};
use penstock_core::jpeg::{DecodeHints, Limits};
use pyo3::prelude::*;

use crate::arrays::{Array, ArrayMut};
use crate::bytes::EncodedImages;
use crate::errors::{self, invalid_argument};
use crate::level::level;
use crate::memory::BufferArgument;
use crate::rows::Failures;
use crate::target::filter_from_name;

/// Fills parts of a picture from encoded images: decode, crop, resize.
///
/// Parameters
/// ----------
/// images : sequence of buffer
///     ``n`` encoded images.
/// geometry : ndarray, shape (n, 9), int32
///     As for `fill`; the window is the part.
/// out : ndarray, shape (H, W, 3), uint8
///     The picture; C-contiguous. No other argument may overlap it.
/// parts : ndarray, shape (n, 4), int32
///     x0, y0, x1, y1 of each part, inside the picture; x1 and y1 are outside the part. Later images are written over
///     earlier ones.
/// filter : {"box", "bilinear", "bicubic", "lanczos"}
///     As for `fill`.
/// max_pixels, max_nbytes, quality, late_color
///     As for `fill`.
///
/// Returns
/// -------
/// failures : list of (int, str, str)
///     As those of `fill`. These parts are unchanged.
/// decode_ns, resize_ns : int
///     Time for decoding, and for resizing and writing.
///
/// Raises
/// ------
/// TypeError, ValueError
///     Invalid arguments. Nothing was written, except if a region does not lie inside its image (the message names
///     ``i``): then other parts may have been written.
#[pyfunction]
#[pyo3(signature = (images, geometry, out, parts, *, filter, max_pixels=134_217_728, max_nbytes=1_342_177_280, quality=None, late_color=false))]
#[allow(clippy::too_many_arguments)] // Python's keyword arguments
pub fn fill_parts(
    py: Python<'_>,
    images: EncodedImages,
    geometry: Array<i32>,
    mut out: ArrayMut<u8>,
    parts: Array<i32>,
    filter: &str,
    max_pixels: u64,
    max_nbytes: u64,
    quality: Option<f64>,
    late_color: bool,
) -> PyResult<(Failures, u64, u64)> {
    let n = images.len();
    if geometry.shape() != [n, Geometry::COLUMNS] || parts.shape() != [n, 4] {
        let (geometry, parts) = (geometry.shape(), parts.shape());
        return Err(invalid_argument(format!(
            "geometry of {n} images must have shape [{n}, 9], got {geometry:?}, and parts shape [{n}, 4], got {parts:?}"
        )));
    }
    if quality.is_some_and(|quality| !(quality >= 1.0 && quality.is_finite())) {
        return Err(invalid_argument("quality must be a finite number of at least 1"));
    }
    let &[height, width, 3] = out.shape() else {
        let shape = out.shape();
        return Err(invalid_argument(format!(
            "out must have shape (H, W, 3), got {shape:?}"
        )));
    };
    if out.overlaps(&geometry) || out.overlaps(&parts) || images.find_overlap(&out).is_some() {
        return Err(invalid_argument("images, geometry and parts must not overlap out"));
    }
    let options = FillOptions {
        mode: Mode::Rgb,
        alpha: [1.0, 0.0],
        filter: filter_from_name(filter)?,
        layout: Layout::Hwc,
        window: [0; 2],
        background: [0; 4],
        quality: quality.unwrap_or(f64::INFINITY),
        late_color,
        limits: Limits { max_pixels, max_nbytes },
    };
    let columns = geometry.values().as_chunks().0;
    let areas = parts.values().as_chunks().0;
    let places: Vec<Place> = (columns.iter().zip(areas).enumerate())
        .map(|(i, (columns, area))| {
            let place = Place::new(columns, *area, [width, height], options);
            place.map_err(|message| invalid_argument(format!("part {i}: {message}")))
        })
        .collect::<PyResult<_>>()?;
    let (mut failures, mut wrong, mut times) = (Failures::new(), None, FillTimes::default());
    let (level, picture) = (level(), out.values_mut());
    py.detach(|| {
        core::with_filler(level, |filler| {
            for (i, (image, place)) in images.iter().zip(&places).enumerate() {
                let row = Row::Part(&mut picture[place.start..], 3 * width);
                let hints = DecodeHints::default();
                match filler.fill(image, hints, &place.geometry, &place.options, row, &mut times) {
                    Ok(_) => {}
                    Err(FillError::Image(error)) => failures.push((i, errors::failure_kind(&error), error.to_string())),
                    Err(FillError::Geometry(message)) => {
                        wrong = Some(invalid_argument(format!("geometry[{i}]: {message}")));
                        return;
                    }
                }
            }
        });
    });
    match wrong {
        Some(error) => Err(error),
        None => Ok((failures, times.decode.as_nanos() as u64, times.resize.as_nanos() as u64)),
    }
}

/// Where an image goes.
struct Place {
    geometry: Geometry,
    options: FillOptions,
    /// The first byte in the picture.
    start: usize,
}

impl Place {
    fn new(
        columns: &[i32; Geometry::COLUMNS],
        [x0, y0, x1, y1]: [i32; 4],
        [width, height]: [usize; 2],
        options: FillOptions,
    ) -> Result<Self, String> {
        let is_inside = |from: i32, to: i32, side: usize| from >= 0 && from < to && to as usize <= side;
        if !is_inside(x0, x1, width) || !is_inside(y0, y1, height) {
            return Err(format!(
                "it must lie inside the picture of {width} x {height} pixels, got ({x0}, {y0}, {x1}, {y1})"
            ));
        }
        let window = [(x1 - x0) as usize, (y1 - y0) as usize];
        Ok(Self {
            geometry: Geometry::new(*columns, window, false)?,
            options: FillOptions { window, ..options },
            start: 3 * (y0 as usize * width + x0 as usize),
        })
    }
}
