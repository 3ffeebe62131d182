//! Augmentation: arguments checked, pixels changed without the GIL.

use penstock_core::pixels as core;
use penstock_core::pixels::adjust::Step;
use penstock_core::pixels::blur::Value;
use penstock_core::pixels::warp::{Map, Sampling, SourceImage};
use pyo3::inspect::PyStaticExpr;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::{type_hint_identifier, type_hint_subscript};

use crate::arrays::{Array, ArrayMut, Element, NewArray};
use crate::errors::invalid;
use crate::level::level;
use crate::memory::BufferArgument;

// SAFETY: a plain number, and the format of the struct module
unsafe impl Element for f32 {
    const NAME: &'static str = "float32";
    const FORMATS: &'static [&'static [u8]] = &[b"f"];
    const HINT: PyStaticExpr = type_hint_subscript!(
        type_hint_identifier!("numpy.typing", "NDArray"),
        type_hint_identifier!("numpy", "float32")
    );
}

/// Height, width and channels of an image, HWC with one or three channels or HW.
fn extent<T: Element>(image: &Array<T>) -> PyResult<[usize; 3]> {
    match *image.shape() {
        [height, width] => Ok([height, width, 1]),
        [height, width, channels @ (1 | 3)] => Ok([height, width, channels]),
        ref shape => Err(invalid(format!(
            "an image of shape {shape:?} is not (height, width) or (height, width, 1 or 3)"
        ))),
    }
}

/// As single precision has it; beyond its range the greatest that is finite.
fn single(value: f64) -> f32 {
    (value as f32).clamp(f32::MIN, f32::MAX)
}

fn step(name: &str, value: f64) -> PyResult<Step> {
    if !value.is_finite() {
        return Err(invalid(format!("{name} of {value}: only finite numbers")));
    }
    Ok(match name {
        "brightness" => Step::Brightness(single(value)),
        "contrast" => Step::Contrast(single(value)),
        "saturation" => Step::Saturation(single(value)),
        "hue" => Step::Hue(((value * 255.0) as i64).rem_euclid(256) as u8),
        "gray" => Step::Gray,
        "posterize" if (0.0..=8.0).contains(&value) => Step::Posterize(!(0xffu16 >> value as u32) as u8),
        "solarize" => Step::Solarize(value),
        "invert" => Step::Invert,
        "auto_contrast" => Step::AutoContrast,
        "equalize" => Step::Equalize,
        _ => return Err(invalid(format!("{name:?} of {value} is not a step"))),
    })
}

/// Changes an image's values, step by step.
///
/// Parameters
/// ----------
/// image : ndarray, shape (height, width, 3) or (height, width), uint8
///     C-contiguous.
/// steps : sequence of (str, float)
///     ``"brightness"``, ``"contrast"``, ``"saturation"`` (factors), ``"hue"`` (turns), ``"gray"``,
///     ``"posterize"`` (bits), ``"solarize"`` (threshold), ``"invert"``, ``"auto_contrast"``, ``"equalize"``; those
///     without a word in brackets take any number. One after another, as if each rounded a whole image.
///
/// Returns
/// -------
/// ndarray, uint8
///     A new array of the image's shape: what the functions of these names in `penstock.transforms` give, bit for bit.
///
/// Raises
/// ------
/// TypeError, ValueError
///     No such image, or no such step.
#[pyfunction]
pub fn adjust<'py>(py: Python<'py>, image: Array<u8>, steps: Vec<(PyBackedStr, f64)>) -> PyResult<NewArray<'py, u8>> {
    let [.., channels] = extent(&image)?;
    let steps: Vec<Step> = steps
        .iter()
        .map(|(name, value)| step(name, *value))
        .collect::<PyResult<_>>()?;
    let mut changed = NewArray::empty(py, image.shape())?;
    let (level, pixels, out) = (level(), image.values(), changed.values_mut());
    py.detach(|| core::adjust::adjust(pixels, channels, &steps, out, level));
    Ok(changed)
}

/// Maps an image onto itself: `PIL.Image.transform`, bit for bit.
///
/// Parameters
/// ----------
/// image : ndarray, shape (height, width, 3) or (height, width), uint8
///     C-contiguous; fewer than 2**31 pixels.
/// matrix : sequence of 6 or 8 float
///     From the result to the image: an affine map row by row, or a projective one without its last number, 1.
/// filter : {"nearest", "bilinear"}
///     How the image is sampled.
/// fill : tuple of three int
///     0 to 255: what comes from outside the image; of an image without channels the first.
///
/// Returns
/// -------
/// ndarray, uint8
///     A new array of the image's shape.
///
/// Raises
/// ------
/// TypeError, ValueError
///     Arguments that are not as above.
#[pyfunction]
pub fn warp<'py>(
    py: Python<'py>,
    image: Array<u8>,
    matrix: Vec<f64>,
    filter: &str,
    fill: (u8, u8, u8),
) -> PyResult<NewArray<'py, u8>> {
    let [height, width, channels] = extent(&image)?;
    if i32::try_from(height * width).is_err() {
        return Err(invalid("an image of 2**31 pixels or more"));
    }
    let map = match *matrix {
        [a, b, c, d, e, f] => Map::Affine([a, b, c, d, e, f]),
        [a, b, c, d, e, f, g, h] => Map::Projective([a, b, c, d, e, f, g, h]),
        _ => return Err(invalid(format!("a matrix of {} numbers, not 6 or 8", matrix.len()))),
    };
    let sampling = match filter {
        "nearest" => Sampling::Nearest,
        "bilinear" => Sampling::Bilinear,
        _ => return Err(invalid(format!("filter {filter:?} is not \"nearest\" or \"bilinear\""))),
    };
    let mut mapped = NewArray::empty(py, image.shape())?;
    let (level, pixels, out) = (level(), image.values(), mapped.values_mut());
    py.detach(|| {
        if channels == 3 {
            let source = SourceImage {
                pixels: pixels.as_chunks().0,
                width,
                height,
            };
            core::warp::warp(source, &map, sampling, fill.into(), out.as_chunks_mut().0, level);
        } else {
            let source = SourceImage {
                pixels: pixels.as_chunks().0,
                width,
                height,
            };
            core::warp::warp(source, &map, sampling, [fill.0], out.as_chunks_mut().0, level);
        }
    });
    Ok(mapped)
}

fn blurred<'py, T: Element + Value>(
    py: Python<'py>,
    image: &Array<T>,
    across: &Array<f32>,
    down: &Array<f32>,
) -> PyResult<NewArray<'py, T>> {
    let size = extent(image)?;
    let (across, down) = (across.values(), down.values());
    if across.len() % 2 == 0 || down.len() % 2 == 0 || across.iter().chain(down).any(|weight| !weight.is_finite()) {
        return Err(invalid("weights are odd numbers of finite values"));
    }
    let mut changed = NewArray::empty(py, image.shape())?;
    let (level, pixels, out) = (level(), image.values(), changed.values_mut());
    py.detach(|| core::blur::gaussian(pixels, size, across, down, out, level));
    Ok(changed)
}

/// Blurs an image by two symmetric sets of weights.
///
/// Parameters
/// ----------
/// image : ndarray, shape (height, width, 3) or (height, width), uint8
///     C-contiguous. Mirrored at its borders, as ``numpy.pad(..., "reflect")``.
/// across, down : ndarray, shape (odd,), float32
///     Weights along a row and along a column; their first halves and their middles count.
///
/// Returns
/// -------
/// ndarray, uint8
///     A new array of the image's shape: `penstock.transforms.GaussianBlur`'s specification, bit for bit.
///
/// Raises
/// ------
/// TypeError, ValueError
///     Arguments that are not as above.
#[pyfunction]
pub fn blur<'py>(
    py: Python<'py>,
    image: Array<u8>,
    across: Array<f32>,
    down: Array<f32>,
) -> PyResult<NewArray<'py, u8>> {
    blurred(py, &image, &across, &down)
}

/// The same as `blur` for a float image.
///
/// Parameters
/// ----------
/// image : ndarray, shape (height, width, 3) or (height, width), float32
///     C-contiguous.
/// across, down : ndarray, shape (odd,), float32
///     As `blur`'s.
///
/// Returns
/// -------
/// ndarray, float32
///     A new array of the image's shape.
///
/// Raises
/// ------
/// TypeError, ValueError
///     Arguments that are not as above.
#[pyfunction]
pub fn blur_floats<'py>(
    py: Python<'py>,
    image: Array<f32>,
    across: Array<f32>,
    down: Array<f32>,
) -> PyResult<NewArray<'py, f32>> {
    blurred(py, &image, &across, &down)
}

/// Sharpens or smooths an image: `PIL.ImageEnhance.Sharpness`, bit for bit.
///
/// Parameters
/// ----------
/// image : ndarray, shape (height, width, 3) or (height, width), uint8
///     C-contiguous.
/// factor : float
///     0: smooth; 1: as it is; above: sharper. Finite.
///
/// Returns
/// -------
/// ndarray, uint8
///     A new array of the image's shape.
///
/// Raises
/// ------
/// TypeError, ValueError
///     Arguments that are not as above.
#[pyfunction]
pub fn sharpen<'py>(py: Python<'py>, image: Array<u8>, factor: f64) -> PyResult<NewArray<'py, u8>> {
    let size = extent(&image)?;
    if !factor.is_finite() {
        return Err(invalid(format!("a factor of {factor}: only finite numbers")));
    }
    let mut changed = NewArray::empty(py, image.shape())?;
    let (level, pixels, out) = (level(), image.values(), changed.values_mut());
    py.detach(|| core::blur::sharpen(pixels, size, single(factor), out, level));
    Ok(changed)
}

/// Mixes each row of a batch with the one before it, the first with the last: ``before * rest + own * share``.
///
/// Parameters
/// ----------
/// images : ndarray, shape (n, ...), float32
///     C-contiguous.
/// share, rest : float
///     Factors, rounded to float32.
/// out : ndarray, float32
///     As many elements as ``images``; writable and C-contiguous. It does not overlap them.
///
/// Raises
/// ------
/// TypeError, ValueError
///     Something that is not as above; nothing was written.
#[pyfunction]
pub fn mix(py: Python<'_>, images: Array<f32>, share: f64, rest: f64, mut out: ArrayMut<f32>) -> PyResult<()> {
    let rows = *images
        .shape()
        .first()
        .ok_or_else(|| invalid("a batch has an axis of rows"))?;
    if out.overlaps(&images) {
        return Err(invalid("out overlaps the images"));
    }
    let values = images.values();
    if out.len() != values.len() {
        return Err(invalid(format!(
            "out has {} elements, the batch {}",
            out.len(),
            values.len()
        )));
    }
    let (level, target) = (level(), out.values_mut());
    py.detach(|| core::mix::mix(values, rows, share as f32, rest as f32, target, level));
    Ok(())
}
