//! The functions of the module: arguments are checked against each other, then the core is called without the GIL.

use std::convert::Infallible;

use penstock_core::error::Error;
use penstock_core::fill::{self, FillError, FillOptions, FillTimes, Geometry, Interleaved, Layout, Row};
use penstock_core::jpeg::{self, Color, Header, Limits, Process, Scale, SeekTable};
use pyo3::inspect::PyStaticExpr;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pyo3::{type_hint_identifier, type_hint_subscript};

use crate::arrays::{Array, NewArray};
use crate::bytes::Encoded;
use crate::errors::{self, invalid_argument};
use crate::level::level;
use crate::seek_tables::{self, FoundList, HintsPerImage};
use crate::target::{Target, filter_from_name};

/// `(i, kind, message)` of images that could not become rows.
pub type Failures = Vec<(usize, &'static str, String)>;
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

/// x0, y0, x1, y1.
pub type Corners = (i32, i32, i32, i32);

pub fn fill(
    py: Python<'_>,
    images: &[Encoded],
    geometry: &Array<i32>,
    target: &Target<'_>,
    rows: &Array<i64>,
    hints: &HintsPerImage,
    found_list: Option<FoundList<'_>>,
) -> PyResult<(Failures, u64, u64)> {
    let n = images.len();
    if geometry.shape() != [n, Geometry::COLUMNS] || rows.shape() != [n] {
        let (geometry, rows) = (geometry.shape(), rows.shape());
        return Err(invalid_argument(format!(
            "geometry of {n} images must have shape [{n}, 9], got {geometry:?}, and rows shape [{n}], got {rows:?}"
        )));
    }
    target.check_apart(geometry, || "geometry".to_owned())?;
    target.check_apart(rows, || "rows".to_owned())?;
    for (i, image) in images.iter().enumerate() {
        target.check_apart(image, || format!("image {i}"))?;
    }
    hints.check_apart(target)?;
    let columns = geometry.values().as_chunks::<{ Geometry::COLUMNS }>().0;
    let geometries: Vec<_> = columns
        .iter()
        .enumerate()
        .map(|(i, c)| target.geometry(c, i))
        .collect::<PyResult<_>>()?;
    let rows: Vec<_> = rows
        .values()
        .iter()
        .map(|r| target.row_index(*r))
        .collect::<PyResult<_>>()?;
    check_distinct(&rows)?;
    let (mut failures, mut geometry_error, mut times) = (Failures::new(), None, FillTimes::default());
    let mut found = vec![];
    let level = level();
    py.detach(|| {
        fill::with_filler(level, |filler| {
            for (i, image) in images.iter().enumerate() {
                // SAFETY: rows are in range and distinct. The Python caller must not write them in another call at the
                // same time, as the module's documentation says.
                let row = unsafe { target.row(rows[i]) };
                let hints_of_image = hints.of_image(i);
                match filler.fill(
                    image.bytes(),
                    hints_of_image,
                    &geometries[i],
                    &target.options,
                    row,
                    &mut times,
                ) {
                    Ok(report) => found.push((i, report)),
                    Err(FillError::Image(error)) => failures.push((i, errors::failure_kind(&error), error.to_string())),
                    Err(FillError::Geometry(message)) => {
                        geometry_error = Some(invalid_argument(format!("geometry[{i}]: {message}")));
                        return;
                    }
                }
            }
        });
    });
    seek_tables::append_found(found_list, found)?;
    match geometry_error {
        Some(error) => Err(error),
        None => Ok((failures, times.decode.as_nanos() as u64, times.resize.as_nanos() as u64)),
    }
}

fn check_distinct(rows: &[usize]) -> PyResult<()> {
    let mut sorted = rows.to_vec();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(invalid_argument(format!(
            "rows must be distinct, got row {} twice",
            pair[0]
        ))),
        None => Ok(()),
    }
}

pub fn fill_pixels(
    py: Python<'_>,
    image: &Array<u8>,
    geometry: &Array<i32>,
    target: &Target<'_>,
    row: i64,
) -> PyResult<()> {
    target.check_apart(image, || "image".to_owned())?;
    target.check_apart(geometry, || "geometry".to_owned())?;
    let pixels = as_interleaved(image, &[3])?;
    let Ok(columns) = geometry.values().try_into() else {
        return Err(invalid_argument(format!(
            "geometry must have shape [9], got {:?}",
            geometry.shape()
        )));
    };
    let (geometry, row) = (
        Geometry::new(columns, target.options.window, target.framed).map_err(invalid_argument)?,
        target.row_index(row)?,
    );
    let level = level();
    let filled = py.detach(|| {
        // SAFETY: the row is in range; see `fill`.
        let row = unsafe { target.row(row) };
        fill::with_filler(level, |filler| {
            filler.fill_pixels(pixels, &geometry, &target.options, row)
        })
    });
    filled.map_err(to_exception)
}

fn to_exception(failure: FillError) -> PyErr {
    match failure {
        FillError::Image(error) => errors::from_decoder(&error),
        FillError::Geometry(message) => invalid_argument(message),
    }
}

fn as_interleaved<'a>(image: &'a Array<u8>, channels: &[usize]) -> PyResult<Interleaved<'a>> {
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
fn region_or_whole(region: Option<Corners>, width: usize, height: usize) -> PyResult<[i32; 4]> {
    let whole = || Some([0, 0, i32::try_from(width).ok()?, i32::try_from(height).ok()?]);
    region
        .map(|(x0, y0, x1, y1)| [x0, y0, x1, y1])
        .or_else(whole)
        .ok_or_else(|| invalid_argument("width and height of the image must be less than 2**31"))
}

pub fn resize<'py>(
    py: Python<'py>,
    image: &Array<u8>,
    [width, height]: [i32; 2],
    filter: &str,
    region: Option<Corners>,
) -> PyResult<NewArray<'py, u8>> {
    let pixels = as_interleaved(image, &[1, 3])?;
    let filter = filter_from_name(filter)?;
    let [x0, y0, x1, y1] = region_or_whole(region, pixels.width, pixels.height)?;
    let window = [width, height].map(|side| side.max(0) as usize);
    let geometry = Geometry::new([x0, y0, x1, y1, width, height, 0, 0, 0], window, false).map_err(invalid_argument)?;
    geometry
        .check_inside(pixels.width, pixels.height)
        .map_err(invalid_argument)?;
    let mut resized = NewArray::empty(py, &[window[1], window[0], pixels.channels])?;
    let options = FillOptions {
        filter,
        layout: Layout::Hwc,
        window,
        background: [0; 3],
        quality: f64::INFINITY,
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

pub fn decode<'py>(
    py: Python<'py>,
    image: &Encoded,
    region: Option<Corners>,
    limits: Limits,
    scale: usize,
    hints: &HintsPerImage,
    found_list: Option<FoundList<'_>>,
) -> PyResult<NewArray<'py, u8>> {
    let scale = Scale::from_denominator(scale)
        .ok_or_else(|| invalid_argument(format!("scale must be 1, 2, 4 or 8, got {scale}")))?;
    let header = Header::parse(image.bytes(), &limits).map_err(|error| errors::from_decoder(&error))?;
    let [x0, y0, x1, y1] = region_or_whole(region, header.width(), header.height())?;
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
    geometry
        .check_inside(header.width(), header.height())
        .map_err(invalid_argument)?;
    let region = geometry.scaled_region(scale);
    let mut pixels = NewArray::empty(py, &[region.height, region.width, 3])?;
    let (level, out) = (level(), pixels.values_mut());
    let decoded =
        py.detach(|| fill::with_filler(level, |filler| filler.decode(&header, hints.of_image(0), region, out)));
    let found = decoded.map_err(|error| errors::from_decoder(&error))?;
    seek_tables::append_found(found_list, [(0, found)])?;
    Ok(pixels)
}

pub fn transcode_baseline<'py>(py: Python<'py>, image: &Encoded, limits: Limits) -> PyResult<Bound<'py, PyBytes>> {
    let transcoded = py
        .detach(|| jpeg::transcode_baseline(image.bytes(), &limits))
        .map_err(|error| errors::from_decoder(&error))?;
    Ok(PyBytes::new(py, &transcoded))
}

pub fn build_index<'py>(
    py: Python<'py>,
    image: &Encoded,
    kind: &str,
    max_pixels: u64,
) -> PyResult<Bound<'py, PyBytes>> {
    let (kind, level) = (seek_tables::kind_from_name(kind)?, level());
    let built = py.detach(|| {
        let header = Header::parse(image.bytes(), &Limits::pixels(max_pixels))?;
        fill::with_filler(level, |filler| filler.build_seek_table(&header, kind)).map(|table| table.to_bytes(&header))
    });
    let bytes = built.map_err(|error| errors::from_decoder(&error))?;
    Ok(PyBytes::new(py, &bytes))
}

pub fn inspect_index(image: &Encoded, index: &Encoded) -> Option<(&'static str, usize, usize)> {
    let header = Header::parse(image.bytes(), &Limits::NONE).ok()?;
    let table = SeekTable::parse(&header, index.bytes())?;
    Some((table.kind().name(), table.known(), table.total()))
}

pub fn inspect<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Facts<'py>> {
    let summary = jpeg::inspect(bytes).map_err(|error| errors::from_decoder(&error))?;
    let refused: Option<Error> = Header::parse(bytes, &Limits::NONE).err();
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
