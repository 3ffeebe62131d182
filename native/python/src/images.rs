//! Encoded images of all formats that are decoded here: sizes, orientations, pixels, values. Arguments are checked, then
//! the core is called without the GIL.

use penstock_core::error::Error;
use penstock_core::fill::{self, Geometry, Mode};
use penstock_core::image::{self, Header};
use penstock_core::jpeg::{Limits, Region, Scale};
use penstock_core::png;
use pyo3::prelude::*;

use crate::arrays::{ByteOrWordArray, NewArray};
use crate::bytes::{Encoded, EncodedImages};
use crate::errors::{self, invalid_argument};
use crate::level::level;
use crate::pack::size_of;
use crate::resize::{Corners, region_or_whole};
use crate::seek_tables::{self, FoundList, HintsPerImage, SeekTables};
use crate::target::mode_from_name;

/// The mode of `decode` that gives the luma of a JPEG as it is stored.
const STORED_LUMA: &str = "Y";

/// Returns the width and height of images that the native decoders support.
///
/// Parameters
/// ----------
/// images : sequence of buffer
///     Encoded images.
///
/// Returns
/// -------
/// ndarray, shape (n, 2), int32
///     Width and height in pixels. (0, 0) for images that Pillow must decode (another format, CMYK, 12 bits, a damaged
///     header ...).
#[pyfunction]
pub fn sizes(py: Python<'_>, images: EncodedImages) -> PyResult<NewArray<'_, i32>> {
    let mut sizes = NewArray::empty(py, &[images.len(), 2])?;
    let rows = sizes.values_mut().as_chunks_mut::<2>().0;
    py.detach(|| {
        for (row, image) in rows.iter_mut().zip(images.iter()) {
            *row = size_of(image);
        }
    });
    Ok(sizes)
}

/// Returns the Exif orientation of images.
///
/// Parameters
/// ----------
/// images : sequence of buffer
///     Encoded images.
///
/// Returns
/// -------
/// ndarray, shape (n,), uint8
///     The value of the tag, 1 to 8; 1 for a JPEG, PNG or WebP without it. 0 for images that Pillow must look at: of
///     another format, with an Exif segment that is damaged or unusual, or with none but XMP.
#[pyfunction]
pub fn orientations(py: Python<'_>, images: EncodedImages) -> PyResult<NewArray<'_, u8>> {
    let mut orientations = NewArray::empty(py, &[images.len()])?;
    let values = orientations.values_mut();
    py.detach(|| {
        for (value, image) in values.iter_mut().zip(images.iter()) {
            *value = image::orientation(image).unwrap_or(0);
        }
    });
    Ok(orientations)
}

/// Decodes a JPEG, PNG or WebP, or a region of it.
///
/// Parameters
/// ----------
/// image : buffer
///     The encoded image.
/// region : tuple of four int, optional
///     x0, y0, x1, y1 in pixels, inside the image. The pixels equal those of the whole image, cropped. Rows below
///     the region are not decoded. Of a JPEG of several scans, everything above and beside the region is decoded.
/// max_pixels : int
///     Largest width times height that the header may declare.
/// max_nbytes : int
///     Largest number of bytes that decoding may take: the result, and what the decoder holds of the whole image. That
///     is, of a JPEG of several scans (as progressive images have) 136 for each block of 8 x 8 samples, 6.4 per pixel
///     in 4:4:4; of an interlaced PNG its pixels; of a WebP 3 per pixel, and 8 if it is lossless. The default is enough
///     for JPEGs of the default of `max_pixels`.
/// scale : {1, 2, 4, 8}
///     Decode a JPEG at 1/scale of the size with libjpeg's scaled inverse DCT; other formats have only 1. Sizes are
///     rounded up, and the region is rounded outward: ``x0 // scale`` to ``ceil(x1 / scale)``.
/// index, learn, found, threads
///     As for `fill`, for this image only. Its number is 0.
/// mode : {"RGB", "BGR", "L", "Y", "RGBA"}
///     The channels of the result. "L": Pillow's ``convert("L")`` of the RGB pixels. "Y": the luma that a JPEG stores,
///     as libjpeg's grayscale output; "L" of files that store none. "RGBA": with the alpha of a PNG, 255 for images
///     without alpha; that of a WebP, and of transparent colours, is not supported.
///
/// Returns
/// -------
/// ndarray, shape (height, width, 3), (height, width) or (height, width, 4), uint8
///     A new array. A gray image has three equal channels; alpha is dropped; of 16 bits, the high 8 are used.
///     JPEGs are bit-exact with libjpeg-turbo's slow integer IDCT and fancy upsampling.
///
/// Raises
/// ------
/// UnsupportedError
///     The decoder does not support this kind of file.
/// CorruptError
///     The bytes are damaged, or no image of these formats.
/// TooLargeError
///     More than `max_pixels` or `max_nbytes`. Nothing was allocated.
/// MemoryError
///     The system has no more memory.
/// ValueError
///     The region does not lie inside the image, or another argument is invalid.
#[pyfunction]
#[pyo3(signature = (image, region=None, max_pixels=134_217_728, scale=1, *, max_nbytes=1_342_177_280, index=None, learn=None, found=None, threads=1, mode="RGB"))]
#[allow(clippy::too_many_arguments)] // Python's keyword arguments
pub fn decode<'py>(
    py: Python<'py>,
    image: Encoded,
    region: Option<(i32, i32, i32, i32)>,
    max_pixels: u64,
    scale: usize,
    max_nbytes: u64,
    index: Option<Encoded>,
    learn: Option<&str>,
    found: Option<FoundList<'py>>,
    threads: usize,
    mode: &str,
) -> PyResult<NewArray<'py, u8>> {
    let indices = index.map(|index| SeekTables::Each(vec![Some(index)]));
    let hints = HintsPerImage::new(1, indices, learn, found.is_some(), threads)?;
    let limits = Limits { max_pixels, max_nbytes };
    let header = Header::parse(image.bytes(), &limits).map_err(|error| errors::from_decoder(&error))?;
    let region = scaled_region([header.width(), header.height()], region, scale)?;
    if region.scale != Scale::Full && !matches!(header, Header::Jpeg(_)) {
        return Err(errors::from_decoder(&Error::Unsupported(
            "images other than JPEG at a reduced size",
        )));
    }
    let is_stored_luma = mode == STORED_LUMA;
    let mode = if is_stored_luma {
        Mode::Luma
    } else {
        mode_from_name(mode)?
    };
    let shape = [region.height, region.width, mode.channels()];
    check_nbytes(&header, &limits, shape.iter().product())?;
    let axes = if mode == Mode::Luma { 2 } else { 3 };
    let mut pixels = NewArray::empty(py, &shape[..axes])?;
    let (level, out) = (level(), pixels.values_mut());
    let decoded = py.detach(|| {
        let table = hints.table(0);
        let hints = hints.with_table(table.as_deref());
        fill::with_filler(level, |filler| {
            if is_stored_luma {
                return filler.decode_stored_luma(&header, hints, region, out);
            }
            filler.decode(&header, hints, region, mode, out)
        })
    });
    let report = decoded.map_err(|error| errors::from_decoder(&error))?;
    seek_tables::append_found(found, [(0, report)])?;
    Ok(pixels)
}

/// Decodes the values of a PNG of one channel: a mask.
///
/// Parameters
/// ----------
/// image : buffer
///     The encoded image.
/// max_pixels, max_nbytes : int
///     As for `decode`.
///
/// Returns
/// -------
/// ndarray, shape (height, width), uint8 or uint16
///     Indices of a palette, or gray levels. Levels of less than 8 bits are brought to 8.
///
/// Raises
/// ------
/// UnsupportedError
///     Not a PNG, or one of several channels.
/// CorruptError, TooLargeError, MemoryError
///     As for `decode`.
#[pyfunction]
#[pyo3(signature = (image, max_pixels=134_217_728, *, max_nbytes=1_342_177_280))]
pub fn decode_values(
    py: Python<'_>,
    image: Encoded,
    max_pixels: u64,
    max_nbytes: u64,
) -> PyResult<ByteOrWordArray<'_>> {
    let limits = Limits { max_pixels, max_nbytes };
    let any = Header::parse(image.bytes(), &limits).map_err(|error| errors::from_decoder(&error))?;
    let Header::Png(header) = &any else {
        return Err(errors::from_decoder(&Error::Unsupported(
            "values of other images than PNG",
        )));
    };
    let bits = header.channel_bits().map_err(|error| errors::from_decoder(&error))?;
    let (shape, level) = ([header.height(), header.width()], level());
    check_nbytes(&any, &limits, bits / 8 * shape[0] * shape[1])?;
    let decode = |values: png::Values<'_>| {
        py.detach(|| fill::with_filler(level, |filler| filler.decode_values(header, values)))
            .map_err(|error| errors::from_decoder(&error))
    };
    if bits == 8 {
        let mut values = NewArray::empty(py, &shape)?;
        decode(png::Values::Bytes(values.values_mut()))?;
        return Ok(ByteOrWordArray::Bytes(values));
    }
    let mut values = NewArray::empty(py, &shape)?;
    decode(png::Values::Words(values.values_mut()))?;
    Ok(ByteOrWordArray::Words(values))
}

/// Decodes the samples of a PNG of 16 bits, or of a region of it, as they are stored.
///
/// Parameters
/// ----------
/// image : buffer
///     The encoded image.
/// region : tuple of four int, optional
///     As for `decode`.
/// max_pixels, max_nbytes : int
///     As for `decode`.
///
/// Returns
/// -------
/// ndarray, shape (height, width, channels), uint16
///     A new array of gray, gray and alpha, RGB or RGBA.
///
/// Raises
/// ------
/// UnsupportedError
///     Not a PNG, one of at most 8 bits, or one with a transparent colour.
/// CorruptError, TooLargeError, MemoryError, ValueError
///     As for `decode`.
#[pyfunction]
#[pyo3(signature = (image, region=None, max_pixels=134_217_728, *, max_nbytes=1_342_177_280))]
pub fn decode_samples(
    py: Python<'_>,
    image: Encoded,
    region: Option<(i32, i32, i32, i32)>,
    max_pixels: u64,
    max_nbytes: u64,
) -> PyResult<NewArray<'_, u16>> {
    let limits = Limits { max_pixels, max_nbytes };
    let any = Header::parse(image.bytes(), &limits).map_err(|error| errors::from_decoder(&error))?;
    let Header::Png(header) = &any else {
        return Err(errors::from_decoder(&Error::Unsupported(
            "samples of other images than PNG",
        )));
    };
    let channels = header.deep_samples().map_err(|error| errors::from_decoder(&error))?;
    let region = scaled_region([header.width(), header.height()], region, 1)?;
    check_nbytes(&any, &limits, 2 * channels * region.width * region.height)?;
    let mut samples = NewArray::empty(py, &[region.height, region.width, channels])?;
    let (level, out) = (level(), samples.values_mut());
    py.detach(|| fill::with_filler(level, |filler| filler.decode_samples(header, region, out)))
        .map_err(|error| errors::from_decoder(&error))?;
    Ok(samples)
}

fn check_nbytes(header: &Header<'_>, limits: &Limits, decoded: usize) -> PyResult<()> {
    header
        .check_nbytes(limits, decoded)
        .map_err(|error| errors::from_decoder(&error))
}

/// The samples of a region, or of the whole picture, at a scale.
pub fn scaled_region([width, height]: [usize; 2], region: Option<Corners>, scale: usize) -> PyResult<Region> {
    let scale = Scale::from_denominator(scale)
        .ok_or_else(|| invalid_argument(format!("scale must be 1, 2, 4 or 8, got {scale}")))?;
    let [x0, y0, x1, y1] = region_or_whole(region, width, height)?;
    let window = [
        x1.saturating_sub(x0).max(0) as usize,
        y1.saturating_sub(y0).max(0) as usize,
    ];
    let geometry = Geometry::new(
        [x0, y0, x1, y1, window[0] as i32, window[1] as i32, 0, 0, 0],
        window,
        false,
    )
    .map_err(invalid_argument)?;
    geometry.check_inside(width, height).map_err(invalid_argument)?;
    Ok(geometry.scaled_region(scale))
}
