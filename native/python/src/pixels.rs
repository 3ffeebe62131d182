//! Augmentation: arguments are checked, then the core is called without the GIL.

use penstock_core::fill::Layout;
use penstock_core::pixels as core;
use penstock_core::pixels::adjust::{HsvShift, Step};
use penstock_core::pixels::blur::Value;
use penstock_core::pixels::warp::window::Window;
use penstock_core::pixels::warp::{Map, Sampling, SourceImage};
use pyo3::inspect::PyStaticExpr;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::{type_hint_identifier, type_hint_subscript};

use crate::arrays::{Array, ArrayMut, Element, NewArray};
use crate::errors::invalid_argument;
use crate::level::level;
use crate::memory::BufferArgument;

// SAFETY: a plain number, and the format of the struct module.
unsafe impl Element for f32 {
    const NAME: &'static str = "float32";
    const FORMATS: &'static [&'static [u8]] = &[b"f"];
    const HINT: PyStaticExpr = type_hint_subscript!(
        type_hint_identifier!("numpy.typing", "NDArray"),
        type_hint_identifier!("numpy", "float32")
    );
}

/// Height, width and channels of an image with shape HWC (one or three channels) or HW.
fn image_size<T: Element>(image: &Array<T>) -> PyResult<[usize; 3]> {
    match *image.shape() {
        [height, width] => Ok([height, width, 1]),
        [height, width, channels @ (1 | 3)] => Ok([height, width, channels]),
        ref shape => Err(invalid_argument(format!(
            "image must have shape (height, width) or (height, width, 1 or 3), got {shape:?}"
        ))),
    }
}

/// Converts to single precision, clipped to its finite range.
fn to_single(value: f64) -> f32 {
    (value as f32).clamp(f32::MIN, f32::MAX)
}

fn step_from_name(name: &str, value: f64) -> PyResult<Step> {
    if !value.is_finite() {
        return Err(invalid_argument(format!(
            "the value of {name} must be finite, got {value}"
        )));
    }
    Ok(match name {
        "brightness" => Step::Brightness(to_single(value)),
        "contrast" => Step::Contrast(to_single(value)),
        "saturation" => Step::Saturation(to_single(value)),
        "hue" => Step::Hue(((value * 255.0) as i64).rem_euclid(256) as u8),
        "gray" => Step::Gray,
        "posterize" if (0.0..=8.0).contains(&value) => Step::Posterize(!(0xffu16 >> value as u32) as u8),
        "solarize" => Step::Solarize(value),
        "invert" => Step::Invert,
        "auto_contrast" => Step::AutoContrast,
        "equalize" => Step::Equalize,
        _ => {
            return Err(invalid_argument(format!(
                "there is no step '{name}' with value {value}"
            )));
        }
    })
}

/// Adjusts an image's values, step by step.
///
/// Parameters
/// ----------
/// image : ndarray, shape (height, width, 3) or (height, width), uint8
///     C-contiguous.
/// steps : sequence of (str, float)
///     ``"brightness"``, ``"contrast"``, ``"saturation"`` (factors), ``"hue"`` (turns), ``"gray"``, ``"posterize"``
///     (bits), ``"solarize"`` (threshold), ``"invert"``, ``"auto_contrast"``, ``"equalize"``. The value of a step
///     without a word in brackets is ignored. Steps are applied one after another, each rounded to 8 bits.
///
/// Returns
/// -------
/// ndarray, uint8
///     A new array of the image's shape. It equals the result of the functions of these names in `penstock.transforms`,
///     bit for bit.
///
/// Raises
/// ------
/// TypeError, ValueError
///     An invalid image or step.
#[pyfunction]
pub fn adjust<'py>(py: Python<'py>, image: Array<u8>, steps: Vec<(PyBackedStr, f64)>) -> PyResult<NewArray<'py, u8>> {
    let [.., channels] = image_size(&image)?;
    let steps: Vec<Step> = steps
        .iter()
        .map(|(name, value)| step_from_name(name, *value))
        .collect::<PyResult<_>>()?;
    let mut changed = NewArray::empty(py, image.shape())?;
    let (level, pixels, out) = (level(), image.values(), changed.values_mut());
    py.detach(|| core::adjust::adjust(pixels, channels, &steps, out, level));
    Ok(changed)
}

/// Changes hue, saturation and value of an image, in single precision and with one rounding.
///
/// Parameters
/// ----------
/// image : ndarray, shape (height, width, 3) or (height, width), uint8
///     C-contiguous.
/// turns : float
///     Turns of the colour circle that are added to the hue.
/// saturation, value : float
///     Factors; negative ones count as 0.
///
/// Returns
/// -------
/// ndarray, uint8
///     A new array of the image's shape. It equals the specification of `penstock.transforms.RandomHSV`, bit for bit.
///
/// Raises
/// ------
/// TypeError, ValueError
///     Invalid arguments.
#[pyfunction]
pub fn shift_hsv<'py>(
    py: Python<'py>,
    image: Array<u8>,
    turns: f64,
    saturation: f64,
    value: f64,
) -> PyResult<NewArray<'py, u8>> {
    let [.., channels] = image_size(&image)?;
    let step = Step::ShiftHsv(hsv_shift(turns, saturation, value)?);
    let mut changed = NewArray::empty(py, image.shape())?;
    let (level, pixels, out) = (level(), image.values(), changed.values_mut());
    py.detach(|| core::adjust::adjust(pixels, channels, &[step], out, level));
    Ok(changed)
}

fn hsv_shift(turns: f64, saturation: f64, value: f64) -> PyResult<HsvShift> {
    if ![turns, saturation, value].iter().all(|number| number.is_finite()) {
        return Err(invalid_argument(format!(
            "turns, saturation and value must be finite, got {turns}, {saturation}, {value}"
        )));
    }
    Ok(HsvShift::new(turns, saturation, value))
}

/// Maps an image onto itself, as `PIL.Image.transform` does, bit for bit.
///
/// Parameters
/// ----------
/// image : ndarray, shape (height, width, 3) or (height, width), uint8
///     C-contiguous; fewer than 2**31 pixels.
/// matrix : sequence of 6 or 8 float
///     The map from the result to the image: an affine map row by row, or a projective map without its last number, 1.
/// filter : {"nearest", "bilinear"}
///     How the image is sampled.
/// fill : tuple of three int
///     0 to 255: the colour of pixels from outside the image. An image without channels uses the first number.
///
/// Returns
/// -------
/// ndarray, uint8
///     A new array of the image's shape.
///
/// Raises
/// ------
/// TypeError, ValueError
///     Invalid arguments.
#[pyfunction]
pub fn warp<'py>(
    py: Python<'py>,
    image: Array<u8>,
    matrix: Vec<f64>,
    filter: &str,
    fill: (u8, u8, u8),
) -> PyResult<NewArray<'py, u8>> {
    let [height, width, channels] = image_size(&image)?;
    if i32::try_from(height * width).is_err() {
        return Err(invalid_argument("image must have fewer than 2**31 pixels"));
    }
    let map = match *matrix {
        [a, b, c, d, e, f] => Map::Affine([a, b, c, d, e, f]),
        [a, b, c, d, e, f, g, h] => Map::Projective([a, b, c, d, e, f, g, h]),
        _ => {
            return Err(invalid_argument(format!(
                "matrix must have 6 or 8 numbers, got {}",
                matrix.len()
            )));
        }
    };
    let sampling = match filter {
        "nearest" => Sampling::Nearest,
        "bilinear" => Sampling::Bilinear,
        _ => {
            return Err(invalid_argument(format!(
                "filter must be one of nearest, bilinear, got '{filter}'"
            )));
        }
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

/// Draws a window on an affinely mapped image, by bilinear sampling in single precision.
///
/// Parameters
/// ----------
/// image : ndarray, shape (height, width, 3), uint8
///     C-contiguous; fewer than 2**32 bytes.
/// matrix : sequence of 6 float
///     The affine map from the window to the image, row by row.
/// size : (int, int)
///     Width and height of the window.
/// fill : tuple of three int
///     0 to 255: the colour of pixels from outside the image.
/// layout : {"HWC", "CHW"}
///     The order of the result's axes.
/// shift : (float, float, float), optional
///     Turns, saturation and value of `shift_hsv`, which is applied to the window.
///
/// Returns
/// -------
/// ndarray, shape (size[1], size[0], 3) or (3, size[1], size[0]), uint8
///     A new array.
///
/// Raises
/// ------
/// TypeError, ValueError
///     Invalid arguments.
#[pyfunction]
#[pyo3(signature = (image, matrix, size, fill, layout="HWC", shift=None))]
pub fn warp_window<'py>(
    py: Python<'py>,
    image: Array<u8>,
    matrix: [f64; 6],
    size: (usize, usize),
    fill: (u8, u8, u8),
    layout: &str,
    shift: Option<(f64, f64, f64)>,
) -> PyResult<NewArray<'py, u8>> {
    let [height, width, channels] = image_size(&image)?;
    if channels != 3 || u32::try_from(image.values().len()).is_err() {
        return Err(invalid_argument(
            "image must have three channels and fewer than 2**32 bytes",
        ));
    }
    if size.0 == 0 || size.1 == 0 {
        return Err(invalid_argument(format!("size must be at least 1 x 1, got {size:?}")));
    }
    let (layout, shape) = match layout {
        "HWC" => (Layout::Hwc, [size.1, size.0, 3]),
        "CHW" => (Layout::Chw, [3, size.1, size.0]),
        _ => {
            return Err(invalid_argument(format!(
                "layout must be one of HWC, CHW, got '{layout}'"
            )));
        }
    };
    let window = Window {
        map: matrix,
        size: [size.0, size.1],
        fill: fill.into(),
        shift: shift
            .map(|(turns, saturation, value)| hsv_shift(turns, saturation, value))
            .transpose()?,
        layout,
    };
    let mut drawn = NewArray::empty(py, &shape)?;
    let (level, pixels, out) = (level(), image.values(), drawn.values_mut());
    let source = SourceImage {
        pixels: pixels.as_chunks().0,
        width,
        height,
    };
    py.detach(|| core::warp::window::draw(source, &window, out, level));
    Ok(drawn)
}

fn blur_image<'py, T: Element + Value>(
    py: Python<'py>,
    image: &Array<T>,
    across: &Array<f32>,
    down: &Array<f32>,
) -> PyResult<NewArray<'py, T>> {
    let size = image_size(image)?;
    let (across, down) = (across.values(), down.values());
    if across.len() % 2 == 0 || down.len() % 2 == 0 || across.iter().chain(down).any(|weight| !weight.is_finite()) {
        return Err(invalid_argument(
            "across and down must be odd numbers of finite weights",
        ));
    }
    let mut changed = NewArray::empty(py, image.shape())?;
    let (level, pixels, out) = (level(), image.values(), changed.values_mut());
    py.detach(|| core::blur::gaussian(pixels, size, across, down, out, level));
    Ok(changed)
}

/// Blurs an image with two symmetric sets of weights.
///
/// Parameters
/// ----------
/// image : ndarray, shape (height, width, 3) or (height, width), uint8
///     C-contiguous. Its borders are extended as by ``numpy.pad(..., "reflect")``.
/// across, down : ndarray, shape (odd,), float32
///     Weights along a row and along a column. Only the first half and the middle are used.
///
/// Returns
/// -------
/// ndarray, uint8
///     A new array of the image's shape. It equals the specification of `penstock.transforms.GaussianBlur`, bit for
///     bit.
///
/// Raises
/// ------
/// TypeError, ValueError
///     Invalid arguments.
#[pyfunction]
pub fn blur<'py>(
    py: Python<'py>,
    image: Array<u8>,
    across: Array<f32>,
    down: Array<f32>,
) -> PyResult<NewArray<'py, u8>> {
    blur_image(py, &image, &across, &down)
}

/// Blurs a float image. See `blur`.
///
/// Parameters
/// ----------
/// image : ndarray, shape (height, width, 3) or (height, width), float32
///     C-contiguous.
/// across, down : ndarray, shape (odd,), float32
///     As for `blur`.
///
/// Returns
/// -------
/// ndarray, float32
///     A new array of the image's shape.
///
/// Raises
/// ------
/// TypeError, ValueError
///     Invalid arguments.
#[pyfunction]
pub fn blur_floats<'py>(
    py: Python<'py>,
    image: Array<f32>,
    across: Array<f32>,
    down: Array<f32>,
) -> PyResult<NewArray<'py, f32>> {
    blur_image(py, &image, &across, &down)
}

/// Sharpens or smooths an image, as `PIL.ImageEnhance.Sharpness` does, bit for bit.
///
/// Parameters
/// ----------
/// image : ndarray, shape (height, width, 3) or (height, width), uint8
///     C-contiguous.
/// factor : float
///     0: smooth. 1: unchanged. Above 1: sharper. Must be finite.
///
/// Returns
/// -------
/// ndarray, uint8
///     A new array of the image's shape.
///
/// Raises
/// ------
/// TypeError, ValueError
///     Invalid arguments.
#[pyfunction]
pub fn sharpen<'py>(py: Python<'py>, image: Array<u8>, factor: f64) -> PyResult<NewArray<'py, u8>> {
    let size = image_size(&image)?;
    if !factor.is_finite() {
        return Err(invalid_argument(format!("factor must be finite, got {factor}")));
    }
    let mut changed = NewArray::empty(py, image.shape())?;
    let (level, pixels, out) = (level(), image.values(), changed.values_mut());
    py.detach(|| core::blur::sharpen(pixels, size, to_single(factor), out, level));
    Ok(changed)
}

/// Mixes each row of a batch with the one before it, and the first with the last: ``before * rest + own * share``.
///
/// Parameters
/// ----------
/// images : ndarray, shape (n, ...), float32
///     C-contiguous.
/// share, rest : float
///     Factors, rounded to float32.
/// out : ndarray, float32
///     As many elements as ``images``; writable and C-contiguous. It must not overlap ``images``.
///
/// Raises
/// ------
/// TypeError, ValueError
///     Invalid arguments. Nothing was written.
#[pyfunction]
pub fn mix(py: Python<'_>, images: Array<f32>, share: f64, rest: f64, mut out: ArrayMut<f32>) -> PyResult<()> {
    let rows = *images
        .shape()
        .first()
        .ok_or_else(|| invalid_argument("images must have an axis of rows"))?;
    if out.overlaps(&images) {
        return Err(invalid_argument("out must not overlap images"));
    }
    let values = images.values();
    if out.len() != values.len() {
        return Err(invalid_argument(format!(
            "out has {} elements, the batch {}",
            out.len(),
            values.len()
        )));
    }
    let (level, target) = (level(), out.values_mut());
    py.detach(|| core::mix::mix(values, rows, share as f32, rest as f32, target, level));
    Ok(())
}
