//! Images that are stored as their pixels: rows of batches from places in one buffer, or from arrays.

use penstock_core::fill::{StoredImage, ValueType};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::arrays::{Array, Batch};
use crate::bytes::{ArrayBytes, Encoded};
use crate::errors::invalid_argument;
use crate::memory::BufferArgument;
use crate::stack::value_at;
use crate::stored_call::{RowArguments, StoredCall, refuse_overlap};

/// Fills rows of a batch from images that are stored as their pixels, at places of one buffer. See `fill`.
///
/// Parameters
/// ----------
/// buffer : buffer
///     Bytes, such as a memory map.
/// offsets : ndarray, shape (n,), int64
///     Where each image begins. Values are little-endian and need no alignment.
/// shape : tuple of three int
///     Height, width and channels of every image.
/// dtype : {"uint8", "uint16", "float32"}
///     The type of the values.
/// out : ndarray, shape (N, H, W, C) or (N, C, H, W), uint8, uint16, float16 or float32
///     The batch; C-contiguous.
/// rows, layout, filter, beside
///     As for `fill`.
/// geometry : ndarray, shape (n, 9), int32, optional
///     As for `fill`; without it, images have the size of the rows. Only uint8 images of 1 or 3 channels are resized.
/// scale, offset : sequence of float, optional
///     One number for each channel: ``value * scale[c] + offset[c]`` in float32 (two roundings).
/// mean, std : sequence of float, optional
///     Instead of these: ``(value - mean[c]) / std[c]`` in float32. Without any, values are kept; float32 values may
///     then be rounded to float16, or to bfloat16 if the batch is of uint16. Any batch of uint16 has the bits of
///     bfloat16 numbers, unless uint16 values are kept.
/// pad : bool
///     Whether regions have the size of the rows, and may leave the image: there, values are 0 before they are
///     converted.
///
/// Raises
/// ------
/// TypeError, ValueError
///     Invalid arguments. Nothing was written.
#[pyfunction]
#[pyo3(signature = (buffer, offsets, shape, dtype, out, rows, *, layout, filter, geometry=None, scale=None, offset=None, mean=None, std=None, beside=None, pad=false))]
#[allow(clippy::too_many_arguments)] // Python's keyword arguments
pub fn fill_stored(
    py: Python<'_>,
    buffer: Encoded,
    offsets: Array<i64>,
    shape: [usize; 3],
    dtype: &str,
    out: Batch,
    rows: Array<i64>,
    layout: &str,
    filter: &str,
    geometry: Option<Array<i32>>,
    scale: Option<Vec<f32>>,
    offset: Option<Vec<f32>>,
    mean: Option<Vec<f32>>,
    std: Option<Vec<f32>>,
    beside: Option<[u8; 3]>,
    pad: bool,
) -> PyResult<()> {
    refuse_overlap(&out, &buffer)?;
    let images = images_at(&buffer, &offsets, shape, dtype)?;
    let arguments = RowArguments::new(rows, layout, filter, geometry, [scale, offset, mean, std], beside, pad);
    StoredCall::new(images, &out, &arguments)?.run(py)
}

/// Fills rows of a batch from arrays of pixels, which may differ in size. See `fill_stored`.
///
/// Parameters
/// ----------
/// images : sequence of ndarray, shape (height, width, channels)
///     C-contiguous, of one type and number of channels.
/// dtype, out, rows, layout, filter, geometry, scale, offset, mean, std, beside, pad
///     As for `fill_stored`.
///
/// Raises
/// ------
/// TypeError, ValueError
///     Invalid arguments. Nothing was written.
#[pyfunction]
#[pyo3(signature = (images, dtype, out, rows, *, layout, filter, geometry=None, scale=None, offset=None, mean=None, std=None, beside=None, pad=false))]
#[allow(clippy::too_many_arguments)] // Python's keyword arguments
pub fn fill_arrays(
    py: Python<'_>,
    images: Vec<ArrayBytes>,
    dtype: &str,
    out: Batch,
    rows: Array<i64>,
    layout: &str,
    filter: &str,
    geometry: Option<Array<i32>>,
    scale: Option<Vec<f32>>,
    offset: Option<Vec<f32>>,
    mean: Option<Vec<f32>>,
    std: Option<Vec<f32>>,
    beside: Option<[u8; 3]>,
    pad: bool,
) -> PyResult<()> {
    for image in &images {
        refuse_overlap(&out, &**image)?;
    }
    let stored = images_of(&images, dtype)?;
    let arguments = RowArguments::new(rows, layout, filter, geometry, [scale, offset, mean, std], beside, pad);
    StoredCall::new(stored, &out, &arguments)?.run(py)
}

/// The images at places in a buffer.
fn images_at<'a>(
    buffer: &'a Encoded,
    offsets: &Array<i64>,
    [height, width, channels]: [usize; 3],
    dtype: &str,
) -> PyResult<Vec<StoredImage<'a>>> {
    let value = value_type(dtype)?;
    let nbytes = [height, width, channels, value.nbytes()]
        .into_iter()
        .try_fold(1_usize, |product, factor| product.checked_mul(factor))
        .filter(|nbytes| *nbytes > 0);
    let bytes = buffer.bytes();
    let image = |offset: &i64| {
        Some(StoredImage {
            bytes: value_at(bytes, *offset, nbytes?)?,
            value,
            width,
            height,
            channels,
        })
    };
    offsets
        .values()
        .iter()
        .map(image)
        .collect::<Option<_>>()
        .ok_or_else(|| invalid_argument("images must have at least one value and lie inside the buffer"))
}

/// Arrays of one type and number of channels.
fn images_of<'a>(arrays: &'a [ArrayBytes], dtype: &str) -> PyResult<Vec<StoredImage<'a>>> {
    let value = value_type(dtype)?;
    let formats: &[&[u8]] = match value {
        ValueType::U8 => &[b"B"],
        ValueType::U16 => &[b"H"],
        ValueType::F32 => &[b"f"],
    };
    let channels = arrays
        .first()
        .map_or(0, |array| array.buffer().shape().last().copied().unwrap_or(0));
    let image = |(i, array): (usize, &'a ArrayBytes)| {
        let format = array.buffer().format().to_bytes();
        let format = format
            .strip_prefix(b"<")
            .or(format.strip_prefix(b"="))
            .unwrap_or(format);
        match *array.buffer().shape() {
            [height, width, c] if c == channels && height * width * c > 0 && formats.contains(&format) => {
                Ok(StoredImage {
                    bytes: array.bytes(),
                    value,
                    width,
                    height,
                    channels,
                })
            }
            ref shape => Err(PyTypeError::new_err(format!(
                "image {i} must be a {dtype} array of shape (height, width, {channels}), got shape {shape:?}"
            ))),
        }
    };
    arrays.iter().enumerate().map(image).collect()
}

fn value_type(name: &str) -> PyResult<ValueType> {
    match name {
        "uint8" => Ok(ValueType::U8),
        "uint16" => Ok(ValueType::U16),
        "float32" => Ok(ValueType::F32),
        _ => Err(invalid_argument(format!(
            "dtype must be one of uint8, uint16, float32, got '{name}'"
        ))),
    }
}
