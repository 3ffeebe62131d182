//! Resizing one image, and what other calls share with it.

use penstock_core::fill::{self, FillError, FillOptions, Geometry, Interleaved, Layout, Mode, Row};
use penstock_core::jpeg::Limits;
use pyo3::prelude::*;

use crate::arrays::{Array, NewArray};
use crate::errors::{self, invalid_argument};
use crate::level::level;
use crate::target::filter_from_name;

/// x0, y0, x1, y1.
pub type Corners = (i32, i32, i32, i32);

/// Resizes an image, antialiased, as Pillow's `Image.resize` of the cropped region does.
///
/// Parameters
/// ----------
/// image : ndarray, shape (height, width, channels), uint8
///     1 or 3 channels; C-contiguous.
/// width, height : int
///     The new size in pixels.
/// filter : {"box", "bilinear", "bicubic", "lanczos"}
///     At most one different from Pillow's result per value; bicubic and lanczos are equal.
/// region : tuple of four int, optional
///     x0, y0, x1, y1: resize only this part of the image.
///
/// Returns
/// -------
/// ndarray, shape (height, width, channels), uint8
///     A new array.
///
/// Raises
/// ------
/// TypeError, ValueError
///     Invalid arguments.
#[pyfunction]
#[pyo3(signature = (image, width, height, filter, region=None))]
pub fn resize<'py>(
    py: Python<'py>,
    image: Array<u8>,
    width: i32,
    height: i32,
    filter: &str,
    region: Option<(i32, i32, i32, i32)>,
) -> PyResult<NewArray<'py, u8>> {
    let pixels = as_interleaved(&image, &[1, 3])?;
    let filter = filter_from_name(filter)?;
    let [x0, y0, x1, y1] = region_or_whole(region, pixels.width, pixels.height)?;
    let window = [width, height].map(|side| side.max(0) as usize);
    let geometry = Geometry::new([x0, y0, x1, y1, width, height, 0, 0, 0], window, false).map_err(invalid_argument)?;
    geometry
        .check_inside(pixels.width, pixels.height)
        .map_err(invalid_argument)?;
    let mut resized = NewArray::empty(py, &[window[1], window[0], pixels.channels])?;
    let options = FillOptions {
        mode: Mode::Rgb,
        alpha: [1.0, 0.0],
        filter,
        layout: Layout::Hwc,
        window,
        background: [0; 4],
        quality: f64::INFINITY,
        late_color: false,
        limits: Limits::NONE,
    };
    let (level, out) = (level(), resized.values_mut());
    py.detach(|| {
        fill::with_filler(level, |filler| {
            filler.fill_pixels(pixels, &geometry, &options, Row::U8(out))
        })
    })
    .map_err(to_exception)?;
    Ok(resized)
}

/// The exception for an image that could not become a row.
pub fn to_exception(failure: FillError) -> PyErr {
    match failure {
        FillError::Image(error) => errors::from_decoder(&error),
        FillError::Geometry(message) => invalid_argument(message),
    }
}

/// The pixels of an image.
pub fn as_interleaved<'a>(image: &'a Array<u8>, channels: &[usize]) -> PyResult<Interleaved<'a>> {
    match *image.shape() {
        [height, width, c] if channels.contains(&c) && height > 0 && width > 0 => Ok(Interleaved {
            bytes: image.values(),
            width,
            height,
            channels: c,
        }),
        _ => {
            let shape = image.shape();
            Err(invalid_argument(format!(
                "image must have shape (height, width, channels) with channels one of {channels:?}, got {shape:?}"
            )))
        }
    }
}

/// The corners of the region, or of the whole image. They are not checked.
pub fn region_or_whole(region: Option<Corners>, width: usize, height: usize) -> PyResult<[i32; 4]> {
    let whole = || Some([0, 0, i32::try_from(width).ok()?, i32::try_from(height).ok()?]);
    region
        .map(|(x0, y0, x1, y1)| [x0, y0, x1, y1])
        .or_else(whole)
        .ok_or_else(|| invalid_argument("width and height of the image must be less than 2**31"))
}
