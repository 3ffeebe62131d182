//! Rows of batches, from encoded images or from one that is decoded.

use penstock_core::fill::{self as core, FillError, FillTimes, Geometry, Orientation};
use penstock_core::image;
use penstock_core::jpeg::Limits;
use pyo3::prelude::*;

use crate::arrays::{Array, Batch};
use crate::bytes::EncodedImages;
use crate::errors::{self, invalid_argument};
use crate::level::level;
use crate::resize::{as_interleaved, to_exception};
use crate::seek_tables::{self, FoundList, HintsPerImage, SeekTables};
use crate::target::{Target, check_distinct};

/// `(i, kind, message)` of images that could not become rows.
pub type Failures = Vec<(usize, &'static str, String)>;

/// The kind of failure of a truncated JPEG.
pub const TRUNCATED: &str = "truncated";

/// Fills rows of a batch from encoded images: decode, crop, resize, flip, normalise.
///
/// Parameters
/// ----------
/// images : sequence of buffer
///     ``n`` encoded images. If the sequence has attributes `buffer` and `places`, an ndarray, shape (n, 2), int64,
///     image ``i`` is ``buffer[places[i, 0] : places[i, 1]]``, and no object is made for it.
/// geometry : ndarray, shape (n, 9), int32
///     x0, y0, x1, y1 (the region of the image), width, height (its size after resizing), left, top (the position
///     of the output's H x W window in that; inside it, unless `beside` is given), flip (bit 0: left and right, bit
///     1: top and bottom; applied last).
/// out : ndarray, shape (N, H, W, C) or (N, C, H, W), uint8, float16, float32 or uint16
///     The batch; C-contiguous. uint16 is for the bits of bfloat16 numbers. C is 3, or what `mode` says. No other
///     argument may overlap it.
/// rows : ndarray, shape (n,), int64
///     Image ``i`` goes to ``out[rows[i]]``. Rows must be distinct.
/// layout : {"HWC", "CHW"}
///     The order of the axes.
/// filter : {"box", "bilinear", "bicubic", "lanczos"}
///     Antialiased, as Pillow's `Image.resize` of the cropped region: at most one different per value, for bicubic
///     and lanczos equal. A region that keeps its size keeps its pixels.
/// scale, offset : sequence of C float, optional
///     For float batches: ``value * scale[c] + offset[c]`` in float32 (two roundings), then rounded to float16 or
///     bfloat16 if that is the type. None for uint8 batches.
/// max_pixels, max_nbytes : int
///     As for `decode`, for each image.
/// orientations : ndarray, shape (n,), uint8, optional
///     The Exif orientation of each image, 1 to 8, to apply. The region remains one of the stored image; size, window
///     and flips are those of the oriented one. Rows equal those of the oriented image, decoded first. None: all
///     are 1.
/// beside : sequence of three int, optional
///     Colour, 0 to 255, of the window outside the resized region, with three channels. The window must show a part of
///     the region.
/// quality : float, optional
///     Decode each image at the smallest scale (1/1, 1/2, 1/4, 1/8) at which its region still has ``quality``
///     samples for each pixel of the size, in both directions; at least 1. The result is that of the full-size
///     picture with every pixel replaced by the sample that covers it. None: always at full size.
/// late_color : bool
///     Resize luma and chroma of JPEGs, each from its own samples, and convert the result to RGB: where the mode is
///     "RGB" or "BGR", no weight of the filter is negative, and the resize makes the region smaller.
/// indices : sequence of (buffer or None), optional
///     The index of each image, from `build_index` or from `found`. Rows do not depend on it, even if it is wrong. If
///     the sequence has attributes `fd`, `entries`, `numbers` (see `read_tables`) and `errors`, a list, indices are
///     read from the file without an object for each; if that fails, they are None, and the error is appended.
/// learn : {"rows", "tiles"}, optional
///     Record the places that decoding passes, in the given index or in a new one of this kind.
/// found : list, optional
///     A list that receives reports on indices. Required with `indices` and `learn`. ``(i, damaged, learned)`` is
///     appended for each image with something to report: whether the index was damaged or another image's (bool),
///     and the index that replaces it (bytes, or None if nothing was recorded).
/// threads : int
///     Threads that work on one image together, the calling thread included, if a million pixels or more of it are
///     decoded: all of them with an index (or restart markers at every row), otherwise two. Fewer if the system
///     starts no more. Rows do not depend on it.
/// mode : {"RGB", "BGR", "L", "RGBA"}
///     The channels of the decoded pixels, before they are resized: as for `decode`.
///
/// Returns
/// -------
/// failures : list of (int, str, str)
///     ``i``, "unsupported" | "corrupt" | "too_large" | "out_of_memory" | "truncated", and a message. These rows are
///     unchanged. A truncated JPEG is refused also if the part that is used is whole.
/// decode_ns, resize_ns : int
///     Time for decoding, and for resizing and writing.
///
/// Raises
/// ------
/// TypeError, ValueError
///     Invalid arguments. Nothing was written, except if a region does not lie inside its image (the message names
///     ``i``): then other rows may have been written.
#[pyfunction]
#[pyo3(signature = (images, geometry, out, rows, *, layout, filter, scale=None, offset=None, max_pixels=134_217_728, max_nbytes=1_342_177_280, orientations=None, beside=None, quality=None, indices=None, learn=None, found=None, threads=1, mode="RGB", late_color=false))]
#[allow(clippy::too_many_arguments)] // Python's keyword arguments
pub fn fill<'py>(
    py: Python<'py>,
    images: EncodedImages,
    geometry: Array<i32>,
    out: Batch,
    rows: Array<i64>,
    layout: &str,
    filter: &str,
    scale: Option<Vec<f32>>,
    offset: Option<Vec<f32>>,
    max_pixels: u64,
    max_nbytes: u64,
    orientations: Option<Array<u8>>,
    beside: Option<[u8; 3]>,
    quality: Option<f64>,
    indices: Option<SeekTables>,
    learn: Option<&str>,
    found: Option<FoundList<'py>>,
    threads: usize,
    mode: &str,
    late_color: bool,
) -> PyResult<(Failures, u64, u64)> {
    let limits = Limits { max_pixels, max_nbytes };
    let numbers = [scale.as_deref(), offset.as_deref()];
    let mut target = Target::new(&out, [layout, filter, mode], numbers, limits, quality, beside)?;
    target.options.late_color = late_color;
    let hints = HintsPerImage::new(images.len(), indices, learn, found.is_some(), threads)?;
    let n = images.len();
    if geometry.shape() != [n, Geometry::COLUMNS] || rows.shape() != [n] {
        let (geometry, rows) = (geometry.shape(), rows.shape());
        return Err(invalid_argument(format!(
            "geometry of {n} images must have shape [{n}, 9], got {geometry:?}, and rows shape [{n}], got {rows:?}"
        )));
    }
    target.check_apart(&geometry, || "geometry".to_owned())?;
    target.check_apart(&rows, || "rows".to_owned())?;
    target.check_images_apart(&images)?;
    hints.check_apart(&target)?;
    let geometries = oriented(&geometry, orientations.as_ref(), |columns, i| {
        target.geometry(columns, i)
    })?;
    let rows: Vec<_> = rows
        .values()
        .iter()
        .map(|r| target.row_index(*r))
        .collect::<PyResult<_>>()?;
    check_distinct(&rows)?;
    let (mut failures, mut geometry_error, mut times) = (Failures::new(), None, FillTimes::default());
    let mut reports = vec![];
    let level = level();
    py.detach(|| {
        core::with_filler(level, |filler| {
            for (i, bytes) in images.iter().enumerate() {
                if image::is_truncated_jpeg(bytes) {
                    failures.push((i, TRUNCATED, "the file is truncated".to_owned()));
                    continue;
                }
                // SAFETY: rows are in range and distinct. The Python caller must not write them in another call at the
                // same time, as the module's documentation says.
                let row = unsafe { target.row(rows[i]) };
                let table = hints.table(i);
                match filler.fill(
                    bytes,
                    hints.with_table(table.as_deref()),
                    &geometries[i],
                    &target.options,
                    row,
                    &mut times,
                ) {
                    Ok(report) => reports.push((i, report)),
                    Err(FillError::Image(error)) => failures.push((i, errors::failure_kind(&error), error.to_string())),
                    Err(FillError::Geometry(message)) => {
                        geometry_error = Some(invalid_argument(format!("geometry[{i}]: {message}")));
                        return;
                    }
                }
            }
        });
    });
    seek_tables::append_found(found, reports)?;
    hints.report_error(py)?;
    match geometry_error {
        Some(error) => Err(error),
        None => Ok((failures, times.decode.as_nanos() as u64, times.resize.as_nanos() as u64)),
    }
}

/// Fills a row of a batch from an image that is already decoded. See `fill`.
///
/// Parameters
/// ----------
/// image : ndarray, shape (height, width, 3), uint8
///     RGB; C-contiguous.
/// geometry : ndarray, shape (9,), int32
///     A row of the geometry of `fill`.
/// out, layout, filter, scale, offset, beside
///     As for `fill`.
/// row : int
///     The row of `out` to fill.
/// orientation : int
///     As one of `fill`'s.
///
/// Raises
/// ------
/// TypeError, ValueError
///     Invalid arguments. Nothing was written.
#[pyfunction]
#[pyo3(signature = (image, geometry, out, row, *, layout, filter, scale=None, offset=None, orientation=1, beside=None))]
#[allow(clippy::too_many_arguments)] // Python's keyword arguments
pub fn fill_pixels(
    py: Python<'_>,
    image: Array<u8>,
    geometry: Array<i32>,
    out: Batch,
    row: i64,
    layout: &str,
    filter: &str,
    scale: Option<[f32; 3]>,
    offset: Option<[f32; 3]>,
    orientation: u8,
    beside: Option<[u8; 3]>,
) -> PyResult<()> {
    let numbers = [
        scale.as_ref().map(|numbers| &numbers[..]),
        offset.as_ref().map(|numbers| &numbers[..]),
    ];
    let target = Target::new(&out, [layout, filter, "RGB"], numbers, Limits::NONE, None, beside)?;
    target.check_apart(&image, || "image".to_owned())?;
    target.check_apart(&geometry, || "geometry".to_owned())?;
    let pixels = as_interleaved(&image, &[3])?;
    let Ok(columns) = geometry.values().try_into() else {
        return Err(invalid_argument(format!(
            "geometry must have shape [9], got {:?}",
            geometry.shape()
        )));
    };
    let (geometry, row) = (
        Geometry::new(columns, target.options.window, target.framed)
            .map_err(invalid_argument)?
            .oriented(as_orientation(orientation)?),
        target.row_index(row)?,
    );
    let level = level();
    let filled = py.detach(|| {
        // SAFETY: the row is in range; see `fill`.
        let row = unsafe { target.row(row) };
        core::with_filler(level, |filler| {
            filler.fill_pixels(pixels, &geometry, &target.options, row)
        })
    });
    filled.map_err(to_exception)
}

/// The geometry of each image with its orientation; `make` is given the columns of an image, and its number.
pub fn oriented(
    geometry: &Array<i32>,
    orientations: Option<&Array<u8>>,
    make: impl Fn(&[i32; Geometry::COLUMNS], usize) -> PyResult<Geometry>,
) -> PyResult<Vec<Geometry>> {
    let columns = geometry.values().as_chunks().0;
    let (n, orientations) = (columns.len(), orientations.map(|values| values.values()));
    if orientations.is_some_and(|values| values.len() != n) {
        return Err(invalid_argument(format!(
            "orientations of {n} images must have shape [{n}]"
        )));
    }
    let each = columns.iter().enumerate().map(|(i, columns)| {
        let orientation = as_orientation(orientations.map_or(1, |values| values[i]))?;
        Ok(make(columns, i)?.oriented(orientation))
    });
    each.collect()
}

fn as_orientation(value: u8) -> PyResult<Orientation> {
    Orientation::from_exif(value)
        .ok_or_else(|| invalid_argument(format!("an orientation must be in [1, 8], got {value}")))
}
