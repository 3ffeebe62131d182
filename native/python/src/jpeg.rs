//! What only JPEGs have: repairs, indices, transcoding, facts of their headers. Arguments are checked, then the core is
//! called without the GIL.

use std::convert::Infallible;

use penstock_core::error::Error;
use penstock_core::fill;
use penstock_core::jpeg::{self, Color, Header, Limits, Process, SeekTable};
use pyo3::inspect::PyStaticExpr;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pyo3::{type_hint_identifier, type_hint_subscript};

use crate::arrays::NewArray;
use crate::bytes::Encoded;
use crate::errors;
use crate::images::scaled_region;
use crate::level::level;
use crate::seek_tables;

/// Decodes a JPEG that is damaged or ends too early, or a region of it, as libjpeg-turbo does.
///
/// Parameters
/// ----------
/// image : buffer
///     The encoded image. Its header must be whole.
/// region, max_pixels, max_nbytes, scale
///     As for `decode`. `max_nbytes` is the limit for the coefficients of images of one scan, too.
///
/// Returns
/// -------
/// ndarray, shape (height, width, 3), uint8
///     RGB, a new array. What is missing is gray; damaged data are read on from the next restart marker; missing
///     scans of a progressive image are estimated. Bit-exact with libjpeg-turbo 3.
///
/// Raises
/// ------
/// CorruptError
///     The header is damaged, or nearly all of the image is missing.
/// UnsupportedError, TooLargeError, MemoryError, ValueError
///     As for `decode`.
#[pyfunction]
#[pyo3(signature = (image, region=None, max_pixels=134_217_728, scale=1, *, max_nbytes=1_342_177_280))]
pub fn decode_damaged<'py>(
    py: Python<'py>,
    image: Encoded,
    region: Option<(i32, i32, i32, i32)>,
    max_pixels: u64,
    scale: usize,
    max_nbytes: u64,
) -> PyResult<NewArray<'py, u8>> {
    let limits = Limits { max_pixels, max_nbytes };
    let header = Header::parse(image.bytes(), &limits).map_err(|error| errors::from_decoder(&error))?;
    let region = scaled_region([header.width(), header.height()], region, scale)?;
    let mut pixels = NewArray::empty(py, &[region.height, region.width, 3])?;
    let (level, out) = (level(), pixels.values_mut());
    py.detach(|| fill::with_filler(level, |filler| filler.decode_damaged(&header, &limits, region, out)))
        .map_err(|error| errors::from_decoder(&error))?;
    Ok(pixels)
}

/// Makes the index of a JPEG: where decoding may begin inside it. With it, a crop reads only what it needs.
///
/// Parameters
/// ----------
/// image : buffer
///     The encoded image. It is not changed.
/// kind : {"rows", "tiles"}
///     Places where decoding may begin: every row of MCUs (about 0.24 % of the file's size), or about every 64
///     pixels of each row (2 %).
/// max_pixels : int
///     Largest width times height that the header may declare.
///
/// Returns
/// -------
/// bytes
///     The index, for `fill` and `decode` with this image. A check of 64 bits binds it to the image.
///
/// Raises
/// ------
/// UnsupportedError, CorruptError, TooLargeError
///     As for `decode` of the whole image.
/// ValueError
///     `kind` is neither of the two.
#[pyfunction]
#[pyo3(signature = (image, kind="rows", max_pixels=134_217_728))]
pub fn build_index<'py>(py: Python<'py>, image: Encoded, kind: &str, max_pixels: u64) -> PyResult<Bound<'py, PyBytes>> {
    let (kind, level) = (seek_tables::kind_from_name(kind)?, level());
    let built = py.detach(|| {
        let header = Header::parse(image.bytes(), &Limits::pixels(max_pixels))?;
        fill::with_filler(level, |filler| filler.build_seek_table(&header, kind)).map(|table| table.to_bytes(&header))
    });
    let bytes = built.map_err(|error| errors::from_decoder(&error))?;
    Ok(PyBytes::new(py, &bytes))
}

/// Describes an index.
///
/// Parameters
/// ----------
/// image : buffer
///     The encoded image.
/// index : buffer
///     Its index.
///
/// Returns
/// -------
/// tuple of (str, int, int), or None
///     Its kind, the number of places that it holds, and the number of places in the image (an index that is still
///     being learned holds fewer). None: it is damaged or belongs to another image.
#[pyfunction]
pub fn inspect_index(image: Encoded, index: Encoded) -> Option<(&'static str, usize, usize)> {
    let header = Header::parse(image.bytes(), &Limits::NONE).ok()?;
    let table = SeekTable::parse(&header, index.bytes())?;
    Some((table.kind().name(), table.known(), table.total()))
}

/// Rewrites a JPEG of several scans, progressive or not, as a baseline JPEG of one scan, without loss.
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
/// bytes
///     A file with the same coefficients, therefore the same pixels, in one scan with optimised Huffman tables.
///     Quantisation tables, comments and application segments (Exif, ICC profile, JFIF, Adobe) are those of
///     `image`, and so is everything after its end marker. Restart markers are dropped.
///
/// Raises
/// ------
/// UnsupportedError
///     The image has one scan already, or `decode` does not support its kind, or its coefficients are too large for
///     a baseline file, or it has segments that depend on their position (MPF; JFIF or Adobe between scans).
/// CorruptError, TooLargeError, MemoryError
///     As for `decode`.
#[pyfunction]
#[pyo3(signature = (image, max_pixels=134_217_728, max_nbytes=1_342_177_280))]
pub fn transcode_baseline(
    py: Python<'_>,
    image: Encoded,
    max_pixels: u64,
    max_nbytes: u64,
) -> PyResult<Bound<'_, PyBytes>> {
    let limits = Limits { max_pixels, max_nbytes };
    let transcoded = py
        .detach(|| jpeg::transcode_baseline(image.bytes(), &limits))
        .map_err(|error| errors::from_decoder(&error))?;
    Ok(PyBytes::new(py, &transcoded))
}

/// Stores the coefficients of a JPEG in a form that decodes faster, without loss.
///
/// Parameters
/// ----------
/// image : buffer
///     A JPEG, baseline or progressive.
/// max_pixels, max_nbytes : int
///     As for `decode`.
///
/// Returns
/// -------
/// bytes
///     A record of coefficients, from which `jpeg_from_coefficients` makes the same file, byte for byte: this has been
///     checked. All functions that take an encoded image take it in place of the JPEG, and give the same pixels.
///
/// Raises
/// ------
/// UnsupportedError
///     The file would not come back byte for byte, or `decode` does not support its kind, or it is such a record.
/// CorruptError, TooLargeError, MemoryError
///     As for `decode`.
#[pyfunction]
#[pyo3(signature = (image, max_pixels=134_217_728, max_nbytes=1_342_177_280))]
pub fn coefficients_from_jpeg(
    py: Python<'_>,
    image: Encoded,
    max_pixels: u64,
    max_nbytes: u64,
) -> PyResult<Bound<'_, PyBytes>> {
    let limits = Limits { max_pixels, max_nbytes };
    let record = py
        .detach(|| jpeg::to_record(image.bytes(), &limits))
        .map_err(|error| errors::from_decoder(&error))?;
    Ok(PyBytes::new(py, &record))
}

/// Returns the JPEG of a record of coefficients.
///
/// Parameters
/// ----------
/// record : buffer
///     What `coefficients_from_jpeg` returned.
/// max_pixels, max_nbytes : int
///     As for `decode`.
///
/// Returns
/// -------
/// bytes
///     The JPEG that the record was made of, compared with its checksum.
///
/// Raises
/// ------
/// CorruptError, TooLargeError, MemoryError
///     As for `decode`. Also if `record` is not a record of coefficients.
#[pyfunction]
#[pyo3(signature = (record, max_pixels=134_217_728, max_nbytes=1_342_177_280))]
pub fn jpeg_from_coefficients(
    py: Python<'_>,
    record: Encoded,
    max_pixels: u64,
    max_nbytes: u64,
) -> PyResult<Bound<'_, PyBytes>> {
    let limits = Limits { max_pixels, max_nbytes };
    let image = py
        .detach(|| jpeg::to_jpeg(record.bytes(), &limits))
        .map_err(|error| errors::from_decoder(&error))?;
    Ok(PyBytes::new(py, &image))
}

/// Returns facts from the header of a JPEG.
///
/// Parameters
/// ----------
/// image : buffer
///     The encoded image.
///
/// Returns
/// -------
/// dict
///     ``width``, ``height``, ``components``, ``precision`` (bits), ``sampling`` ("4:2:0" ...), ``color`` ("gray" |
///     "ycbcr" | "rgb" | "other"), ``process`` ("sequential" | "progressive" ...), ``progressive`` (bool),
///     ``restart_interval`` (MCUs; 0: none), ``native`` (bool: whether the native decoder supports it, judged by
///     its first header only), ``reason`` (str: why not; None if it does).
///
/// Raises
/// ------
/// UnsupportedError, CorruptError
///     The markers up to the first scan are damaged or unknown.
#[pyfunction]
pub fn inspect(py: Python<'_>, image: Encoded) -> PyResult<Facts<'_>> {
    let summary = jpeg::inspect(image.bytes()).map_err(|error| errors::from_decoder(&error))?;
    let refused: Option<Error> = Header::parse(image.bytes(), &Limits::NONE).err();
    let facts = PyDict::new(py);
    facts.set_item("width", summary.width)?;
    facts.set_item("height", summary.height)?;
    facts.set_item("components", summary.components)?;
    facts.set_item("precision", summary.precision)?;
    facts.set_item("sampling", summary.sampling)?;
    let color = match summary.color {
        Color::Gray => "gray",
        Color::YCbCr => "ycbcr",
        Color::Rgb => "rgb",
        Color::Other => "other",
    };
    facts.set_item("color", color)?;
    let process = match summary.process {
        Process::Sequential => "sequential",
        Process::Progressive => "progressive",
        Process::Lossless => "lossless",
        Process::Arithmetic => "arithmetic",
        Process::Hierarchical => "hierarchical",
    };
    facts.set_item("process", process)?;
    facts.set_item("progressive", summary.process == Process::Progressive)?;
    facts.set_item("restart_interval", summary.restart_interval)?;
    facts.set_item("native", refused.is_none())?;
    facts.set_item("reason", refused.map(|error| error.to_string()))?;
    Ok(Facts(facts))
}

/// Facts by name.
pub struct Facts<'py>(Bound<'py, PyDict>);

impl<'py> IntoPyObject<'py> for Facts<'py> {
    type Target = PyDict;
    type Output = Bound<'py, PyDict>;
    type Error = Infallible;
    const OUTPUT_TYPE: PyStaticExpr = type_hint_subscript!(
        type_hint_identifier!("builtins", "dict"),
        type_hint_identifier!("builtins", "str"),
        type_hint_identifier!("typing", "Any")
    );

    fn into_pyobject(self, _py: Python<'py>) -> Result<Self::Output, Infallible> {
        Ok(self.0)
    }
}
