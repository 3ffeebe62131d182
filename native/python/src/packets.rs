//! Packets of encoded images, for rows that a device makes.

use penstock_core::error::Error;
use penstock_core::fill::{self as core, FillError, FillOptions, Geometry, Layout, PacketBuffer};
use penstock_core::image;
use penstock_core::jpeg::{Limits, SeekTableKind};
use pyo3::prelude::*;

use crate::arrays::{Array, NewArray};
use crate::bytes::EncodedImages;
use crate::errors::{self, invalid_argument};
use crate::level::level;
use crate::rows::{Failures, TRUNCATED, oriented};
use crate::seek_tables::{self, FoundList, HintsPerImage, SeekTables};
use crate::target::{background, filter_from_name, mode_from_name};

/// Memory for a packet besides the bytes of its image: enough for a photograph of a megapixel with tiles.
const SPARE_NBYTES: usize = 16 << 10;

/// Collects what a device needs to make rows of a batch from JPEGs. Nothing is decoded.
///
/// Parameters
/// ----------
/// images, geometry, filter, max_pixels, max_nbytes, orientations, beside, quality, indices, found, mode
///     As for `fill`. Without an index that covers the region, a scan is read once to make one.
/// window : tuple of int
///     Width and height of the row.
/// learn : {"rows", "tiles"}, optional
///     The kind of the indices that are made and returned in `found`.
///
/// Returns
/// -------
/// packets : ndarray, shape (m,), uint8
///     The packets of all images, one after the other, each a multiple of 16 bytes, and space behind them.
/// nbytes : int
///     Bytes of all packets.
/// lengths : ndarray, shape (n,), int64
///     Bytes of each; 0 for images without one.
/// failures : list of (int, str, str)
///     As `fill`'s, of the images without a packet: "unsupported" where `fill` may succeed.
///
/// Raises
/// ------
/// TypeError, ValueError
///     Invalid arguments.
#[pyfunction]
#[pyo3(signature = (images, geometry, window, *, filter, max_pixels=134_217_728, max_nbytes=1_342_177_280, orientations=None, beside=None, quality=None, indices=None, learn=None, found=None, mode="RGB"))]
#[allow(clippy::too_many_arguments)] // Python's keyword arguments
pub fn write_packets<'py>(
    py: Python<'py>,
    images: EncodedImages,
    geometry: Array<i32>,
    window: (usize, usize),
    filter: &str,
    max_pixels: u64,
    max_nbytes: u64,
    orientations: Option<Array<u8>>,
    beside: Option<[u8; 3]>,
    quality: Option<f64>,
    indices: Option<SeekTables>,
    learn: Option<&str>,
    found: Option<FoundList<'py>>,
    mode: &str,
) -> PyResult<(NewArray<'py, u8>, usize, NewArray<'py, i64>, Failures)> {
    let n = images.len();
    let options = FillOptions {
        filter: filter_from_name(filter)?,
        mode: mode_from_name(mode)?,
        alpha: [1.0, 0.0],
        layout: Layout::Chw,
        window: [window.0, window.1],
        background: background(beside),
        quality: quality.unwrap_or(f64::INFINITY),
        late_color: false,
        limits: Limits { max_pixels, max_nbytes },
    };
    if quality.is_some_and(|quality| !(quality >= 1.0 && quality.is_finite())) {
        return Err(invalid_argument("quality must be a finite number of at least 1"));
    }
    if geometry.shape() != [n, Geometry::COLUMNS] || window.0 == 0 || window.1 == 0 {
        return Err(invalid_argument(format!(
            "geometry of {n} images must have shape [{n}, 9] and windows at least one pixel, got {:?} and {window:?}",
            geometry.shape()
        )));
    }
    let geometries = oriented(&geometry, orientations.as_ref(), |columns, i| {
        Geometry::new(*columns, options.window, beside.is_some())
            .map_err(|message| invalid_argument(format!("geometry[{i}]: {message}")))
    })?;
    let learn = learn
        .map(|kind| seek_tables::kind_from_name(kind).map(SeekTableKind::name))
        .transpose()?;
    let hints = HintsPerImage::new(n, indices, learn, found.is_some(), 1)?;
    let mut lengths = NewArray::empty(py, &[n])?;
    let values = lengths.values_mut();
    let (mut failures, mut reports, mut geometry_error) = (Failures::new(), vec![], None);
    let sizes = images.iter().map(|image| image.len() + SPARE_NBYTES);
    let (mut memory, mut used, mut done) = (NewArray::empty(py, &[sizes.sum()])?, 0, 0);
    let level = level();
    loop {
        let bytes = memory.values_mut();
        let missing = py.detach(|| {
            core::with_filler(level, |filler| {
                let mut packets = PacketBuffer::with_len(bytes, used);
                let mut missing = None;
                while done < n && missing.is_none() {
                    let (image, table, geometry) = (images.get(done), hints.table(done), &geometries[done]);
                    if image::is_truncated_jpeg(image) {
                        failures.push((done, TRUNCATED, "the file is truncated".to_owned()));
                        values[done] = 0;
                        done += 1;
                        continue;
                    }
                    match filler.write_packet(
                        image,
                        hints.with_table(table.as_deref()),
                        geometry,
                        &options,
                        &mut packets,
                    ) {
                        Ok(report) => reports.push((done, report)),
                        Err(FillError::Image(Error::OutOfMemory { nbytes })) if nbytes > packets.capacity() => {
                            missing = Some(nbytes);
                            break;
                        }
                        Err(FillError::Image(error)) => {
                            failures.push((done, errors::failure_kind(&error), error.to_string()));
                        }
                        Err(FillError::Geometry(message)) => {
                            geometry_error = Some(invalid_argument(format!("geometry[{done}]: {message}")));
                        }
                    }
                    values[done] = (packets.len() - used) as i64;
                    used = packets.len();
                    done += 1;
                }
                missing
            })
        });
        let Some(nbytes) = missing else { break };
        let mut larger = NewArray::empty(py, &[2 * nbytes])?;
        larger.values_mut()[..used].copy_from_slice(&memory.values_mut()[..used]);
        memory = larger;
    }
    seek_tables::append_found(found, reports)?;
    hints.report_error(py)?;
    match geometry_error {
        Some(error) => Err(error),
        None => Ok((memory, used, lengths, failures)),
    }
}
