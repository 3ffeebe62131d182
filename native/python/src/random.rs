//! Random numbers of samples: arguments are checked, then the core is called; for many samples, without the GIL.

use penstock_core::fill::{self as core, Geometry, Step};
use penstock_core::philox;
use penstock_core::windows::WindowRange;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arrays::{Array, MaskedInteger, NewArray};
use crate::errors::invalid_argument;

/// Draws up to which the GIL is kept: to get it back from another thread takes longer.
const FEW: usize = 512;

fn detach_if_many<T: Send>(py: Python<'_>, draws: usize, draw: impl FnOnce() -> T + Send) -> T {
    if draws > FEW { py.detach(draw) } else { draw() }
}

/// Draws uniform numbers in [0, 1) for each sample of a chunk, as `penstock.rng.uniforms` does, bit for bit.
///
/// Parameters
/// ----------
/// seed, epoch : int
///     The lower 64 and 32 bits are used.
/// indices : ndarray, shape (n,), int64
///     The indices of the samples.
/// stream : int
///     The number of the consumer, 0 to 65535.
/// count : int
///     Numbers per sample, at most 65536.
///
/// Returns
/// -------
/// ndarray, shape (n, count), float64
///     A new array.
///
/// Raises
/// ------
/// ValueError
///     Stream or count out of range.
#[pyfunction]
#[pyo3(signature = (seed, epoch, indices, stream, count))]
pub fn uniforms<'py>(
    py: Python<'py>,
    seed: MaskedInteger,
    epoch: MaskedInteger,
    indices: Array<i64>,
    stream: i64,
    count: i64,
) -> PyResult<NewArray<'py, f64>> {
    let (Ok(stream), Ok(0..=0x1_0000)) = (u16::try_from(stream), usize::try_from(count)) else {
        let message =
            format!("stream must be in [0, 65535] and count in [0, 65536], got stream {stream} and count {count}");
        return Err(PyValueError::new_err(message));
    };
    let &[n] = indices.shape() else {
        return Err(PyValueError::new_err(format!(
            "indices must have one axis, got shape {:?}",
            indices.shape()
        )));
    };
    let mut numbers = NewArray::empty(py, &[n, count as usize])?;
    let (indices, out) = (indices.values(), numbers.values_mut());
    detach_if_many(py, out.len(), || {
        philox::uniforms(seed.0, epoch.0 as u32, indices, stream, out)
    });
    Ok(numbers)
}

/// Draws the windows of RandomResizedCrop for each sample of a chunk.
///
/// Parameters
/// ----------
/// seed, epoch, indices, stream
///     As for `uniforms`.
/// sizes : ndarray, shape (n, 2), int32
///     Width and height of each image, at least 1.
/// scale, ratio, log_ratio : (float, float)
///     The share of the image's area: the least, and the greatest minus it. The least width / height, and the greatest.
///     The logarithm of the least, and that of the greatest minus it.
///
/// Returns
/// -------
/// ndarray, shape (n, 4), int32
///     Left, top, width, height of each window; inside its image. A new array.
///
/// Raises
/// ------
/// ValueError
///     Invalid arguments.
#[pyfunction]
#[pyo3(signature = (seed, epoch, indices, stream, sizes, *, scale, ratio, log_ratio))]
#[allow(clippy::too_many_arguments)] // Python's keyword arguments
pub fn resized_crop_windows<'py>(
    py: Python<'py>,
    seed: MaskedInteger,
    epoch: MaskedInteger,
    indices: Array<i64>,
    stream: u16,
    sizes: Array<i32>,
    scale: [f64; 2],
    ratio: [f64; 2],
    log_ratio: [f64; 2],
) -> PyResult<NewArray<'py, i32>> {
    let n = indices.values().len();
    if indices.shape() != [n] || sizes.shape() != [n, 2] || sizes.values().iter().any(|&side| side < 1) {
        return Err(invalid_argument(format!(
            "indices and sizes must have shapes [n] and [n, 2], got {:?} and {:?}, and sides must be at least 1",
            indices.shape(),
            sizes.shape()
        )));
    }
    let range = WindowRange {
        scale,
        ratio,
        log_ratio,
    };
    let mut windows = NewArray::empty(py, &[n, 4])?;
    let (indices, sizes) = (indices.values(), sizes.values().as_chunks::<2>().0);
    let out = windows.values_mut().as_chunks_mut::<4>().0;
    detach_if_many(py, out.len(), || {
        for ((window, &index), &size) in out.iter_mut().zip(indices).zip(sizes) {
            *window = range.draw((seed.0, epoch.0 as u32, index), stream, size);
        }
    });
    Ok(windows)
}

/// Draws the windows and flips of each sample of a chunk, and composes them to the geometry of `fill`.
///
/// Parameters
/// ----------
/// steps : ndarray, shape (k, 10), float64
///     The ops that move pixels, in order: the kind, the stream of its random numbers, and its settings.
///     0: RandomResizedCrop, with `scale`, `ratio`, `log_ratio` (see `resized_crop_windows`), width, height.
///     1: CenterCrop and 2: Resize, with width, height. 3: Resize of the shorter side, with its length.
///     4: a flip, with its probability, and the bit of its axis in the geometry.
/// seed, epoch, indices
///     As for `uniforms`.
/// sizes : ndarray, shape (n, 2), int32
///     Width and height of each image.
///
/// Returns
/// -------
/// ndarray, shape (n, 9), int32, or None
///     A new array. None if there is an image whose size is not known, or whose window it does not contain.
///
/// Raises
/// ------
/// ValueError
///     Invalid arguments.
#[pyfunction]
#[pyo3(signature = (steps, seed, epoch, indices, sizes))]
pub fn draw_geometry<'py>(
    py: Python<'py>,
    steps: Array<f64>,
    seed: MaskedInteger,
    epoch: MaskedInteger,
    indices: Array<i64>,
    sizes: Array<i32>,
) -> PyResult<Option<NewArray<'py, i32>>> {
    let n = indices.values().len();
    let (rows, rest) = steps.values().as_chunks::<{ Step::NUMBERS }>();
    let ops: Option<Vec<_>> = rows.iter().copied().map(Step::new).collect();
    let Some(ops) = ops.filter(|_| rest.is_empty() && indices.shape() == [n] && sizes.shape() == [n, 2]) else {
        return Err(invalid_argument(format!(
            "steps, indices and sizes must have shapes [k, {}], [n] and [n, 2], got {:?}, {:?} and {:?}, and the kind \
             of a step must be in [0, 4]",
            Step::NUMBERS,
            steps.shape(),
            indices.shape(),
            sizes.shape()
        )));
    };
    let mut geometry = NewArray::empty(py, &[n, Geometry::COLUMNS])?;
    let (indices, sizes) = (indices.values(), sizes.values().as_chunks::<2>().0);
    let out = geometry.values_mut().as_chunks_mut::<{ Geometry::COLUMNS }>().0;
    let is_complete = detach_if_many(py, n * ops.len(), || {
        out.iter_mut().zip(indices).zip(sizes).all(|((row, &index), &size)| {
            let composed = core::compose(&ops, (seed.0, epoch.0 as u32, index), size);
            composed.map(|columns| *row = columns).is_some()
        })
    });
    Ok(is_complete.then_some(geometry))
}
