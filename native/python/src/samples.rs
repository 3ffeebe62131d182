//! Images of one channel of 16 bits: rows of batches from gray PNGs, and resizing.

use penstock_core::error::Error;
use penstock_core::fill::{self as core, FillError, FillTimes, Geometry, SampleRow};
use penstock_core::jpeg::Limits;
use penstock_core::resample::{Axis, DeepResampler};
use pyo3::prelude::*;

use crate::arrays::{Array, Batch, Dtype, NewArray};
use crate::bytes::EncodedImages;
use crate::errors::{self, invalid_argument};
use crate::level::level;
use crate::memory::BufferArgument;
use crate::rows::Failures;
use crate::target::{check_distinct, filter_from_name};

/// Fills rows of a batch from gray PNGs of 16 bits: decode, crop, resize, flip, normalise, with all bits.
///
/// Parameters
/// ----------
/// images : sequence of buffer
///     ``n`` encoded images.
/// geometry : ndarray, shape (n, 9), int32
///     As for `fill`. The window lies inside the size.
/// out : ndarray, shape (N, H, W, 1) or (N, 1, H, W), uint16, float16 or float32
///     The batch; C-contiguous. With `affine`, uint16 is for the bits of bfloat16 numbers. No other argument may
///     overlap it.
/// rows : ndarray, shape (n,), int64
///     As for `fill`.
/// layout : {"HWC", "CHW"}
///     The order of the axes.
/// filter : {"box", "bilinear", "bicubic", "lanczos"}
///     As for `resize_samples`.
/// affine : tuple of two float, optional
///     For float batches: a factor and a summand, as `scale` and `offset` of `fill`. None for uint16 batches.
/// max_pixels, max_nbytes : int
///     As for `decode`, for each image.
///
/// Returns
/// -------
/// failures, decode_ns, resize_ns
///     As from `fill`. Images that are no gray PNGs of 16 bits are "unsupported".
///
/// Raises
/// ------
/// TypeError, ValueError
///     As from `fill`.
#[pyfunction]
#[pyo3(signature = (images, geometry, out, rows, *, layout, filter, affine=None, max_pixels=134_217_728, max_nbytes=1_342_177_280))]
#[allow(clippy::too_many_arguments)] // Python's keyword arguments
pub fn fill_samples(
    py: Python<'_>,
    images: EncodedImages,
    geometry: Array<i32>,
    out: Batch,
    rows: Array<i64>,
    layout: &str,
    filter: &str,
    affine: Option<[f32; 2]>,
    max_pixels: u64,
    max_nbytes: u64,
) -> PyResult<(Failures, u64, u64)> {
    let window = check_batch(&out, layout, affine)?;
    let (n, filter, limits) = (
        images.len(),
        filter_from_name(filter)?,
        Limits { max_pixels, max_nbytes },
    );
    if geometry.shape() != [n, Geometry::COLUMNS] || rows.shape() != [n] {
        let (geometry, rows) = (geometry.shape(), rows.shape());
        return Err(invalid_argument(format!(
            "geometry of {n} images must have shape [{n}, 9], got {geometry:?}, and rows shape [{n}], got {rows:?}"
        )));
    }
    check_apart(&out, &geometry, "geometry")?;
    check_apart(&out, &rows, "rows")?;
    if let Some(image) = images.find_overlap(&out) {
        return Err(invalid_argument(format!("{image} must not overlap out")));
    }
    let geometries: Vec<_> = geometry
        .values()
        .as_chunks()
        .0
        .iter()
        .enumerate()
        .map(|(i, columns)| {
            Geometry::new(*columns, window, false)
                .map_err(|message| invalid_argument(format!("geometry[{i}]: {message}")))
        })
        .collect::<PyResult<_>>()?;
    let rows: Vec<_> = rows
        .values()
        .iter()
        .map(|row| row_index(&out, *row))
        .collect::<PyResult<_>>()?;
    check_distinct(&rows)?;
    let (mut failures, mut geometry_error, mut times) = (Failures::new(), None, FillTimes::default());
    let level = level();
    py.detach(|| {
        core::with_filler(level, |filler| {
            for (i, image) in images.iter().enumerate() {
                // SAFETY: rows are in range and distinct. The Python caller must not write them in another call at the
                // same time, as the module's documentation says.
                let row = unsafe { sample_row(&out, rows[i], affine) };
                match filler.fill_samples(image, &geometries[i], filter, &limits, row, &mut times) {
                    Ok(()) => {}
                    Err(FillError::Image(error)) => failures.push((i, errors::failure_kind(&error), error.to_string())),
                    Err(FillError::Geometry(message)) => {
                        geometry_error = Some(invalid_argument(format!("geometry[{i}]: {message}")));
                        return;
                    }
                }
            }
        });
    });
    match geometry_error {
        Some(error) => Err(error),
        None => Ok((failures, times.decode.as_nanos() as u64, times.resize.as_nanos() as u64)),
    }
}

/// Resizes one channel of 16 bits, antialiased, as Pillow's `Image.resize` does with floats, and rounds.
///
/// Parameters
/// ----------
/// samples : ndarray, shape (height, width), uint16
///     C-contiguous.
/// width, height : int
///     The new size in pixels.
/// filter : {"box", "bilinear", "bicubic", "lanczos"}
///     As Pillow's.
///
/// Returns
/// -------
/// ndarray, shape (height, width), uint16
///     A new array.
///
/// Raises
/// ------
/// TypeError, ValueError
///     Invalid arguments.
/// MemoryError
///     The system has no more memory.
#[pyfunction]
pub fn resize_samples<'py>(
    py: Python<'py>,
    samples: Array<u16>,
    width: i32,
    height: i32,
    filter: &str,
) -> PyResult<NewArray<'py, u16>> {
    let filter = filter_from_name(filter)?;
    let [width, height] = [width, height].map(|side| side.max(0) as usize);
    let [rows, columns] = *samples.shape() else {
        let shape = samples.shape();
        return Err(invalid_argument(format!(
            "samples must have two axes, got shape {shape:?}"
        )));
    };
    if [rows, columns, width, height].contains(&0) {
        return Err(invalid_argument(format!(
            "sizes must be at least 1 x 1, got {columns} x {rows} and {width} x {height}"
        )));
    }
    let mut resized = NewArray::empty(py, &[height, width])?;
    let (source, out) = (samples.values(), resized.values_mut());
    py.detach(|| -> Result<(), Error> {
        let mut resampler = DeepResampler::default();
        let needed = resampler.begin(filter, [Axis::whole(columns, width), Axis::whole(rows, height)])?;
        let part: Vec<u16>;
        let source = if needed.width == columns {
            &source[needed.y * columns..][..needed.height * columns]
        } else {
            let lines = source.chunks_exact(columns).skip(needed.y).take(needed.height);
            part = lines
                .flat_map(|line| &line[needed.x..][..needed.width])
                .copied()
                .collect();
            &part
        };
        resampler.resize(source, needed.width, out, width);
        Ok(())
    })
    .map_err(|error| errors::from_decoder(&error))?;
    Ok(resized)
}

/// Checks the batch, and returns the width and height of its window.
fn check_batch(out: &Batch, layout: &str, affine: Option<[f32; 2]>) -> PyResult<[usize; 2]> {
    let (channels, height, width) = match (layout, out.shape) {
        ("HWC", [_, h, w, c]) | ("CHW", [_, c, h, w]) => (c, h, w),
        _ => {
            return Err(invalid_argument(format!(
                "layout must be one of HWC, CHW, got '{layout}'"
            )));
        }
    };
    if channels != 1 || height == 0 || width == 0 {
        return Err(invalid_argument(format!(
            "out must have layout {layout} with 1 channel and at least one pixel, got shape {:?}",
            out.shape
        )));
    }
    match (out.dtype, affine) {
        (Dtype::U8, _) => Err(invalid_argument(
            "out must be of type uint16, float16 or float32, got uint8",
        )),
        (Dtype::F16 | Dtype::F32, None) => Err(invalid_argument("affine must be given for float batches")),
        (_, Some(affine)) if affine.iter().any(|number| !number.is_finite()) => {
            Err(invalid_argument("affine must be finite float32 numbers"))
        }
        _ => Ok([width, height]),
    }
}

fn check_apart(out: &Batch, argument: &impl BufferArgument, name: &str) -> PyResult<()> {
    if out.overlaps(argument) {
        return Err(invalid_argument(format!("{name} must not overlap out")));
    }
    Ok(())
}

fn row_index(out: &Batch, row: i64) -> PyResult<usize> {
    let index = usize::try_from(row).ok().filter(|row| *row < out.shape[0]);
    index.ok_or_else(|| {
        let count = out.shape[0];
        invalid_argument(format!("row must be in [0, {count}), the rows of out, got {row}"))
    })
}

/// The memory of a row.
///
/// # Safety
/// `row` is in range, no other slice of it exists, and the batch passed [`check_batch`] with `affine`.
unsafe fn sample_row(out: &Batch, row: usize, affine: Option<[f32; 2]>) -> SampleRow<'_> {
    let numbers = affine.unwrap_or([1.0, 0.0]);
    // SAFETY: the types are those of `dtype`; the caller guarantees the rest.
    unsafe {
        match (out.dtype, affine) {
            (Dtype::U8, _) => unreachable!("`check_batch` refuses it"),
            (Dtype::U16, None) => SampleRow::U16(out.row_mut(row)),
            (Dtype::U16, Some(_)) => SampleRow::Bf16(out.row_mut(row), numbers),
            (Dtype::F16, _) => SampleRow::F16(out.row_mut(row), numbers),
            (Dtype::F32, _) => SampleRow::F32(out.row_mut(row), numbers),
        }
    }
}
