//! Batches of what is only copied, without the GIL: samples one after another, or values at places in a buffer.

use penstock_core::concat as core;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arrays::Array;
use crate::bytes::{ArrayBytes, Encoded, Writable};
use crate::errors::invalid_argument;
use crate::level::level;
use crate::memory::BufferArgument;

/// Copies arrays one after another, as stacking samples into a batch does. Large targets are written past the cache.
///
/// Parameters
/// ----------
/// parts : sequence of ndarray
///     C-contiguous, of any shapes; plain numbers (bool, integers, floats, complex) in native byte order; one axis or
///     more.
/// out : ndarray
///     Plain numbers, as many bytes as all parts together; writable and C-contiguous. It must not overlap a part.
///
/// Raises
/// ------
/// TypeError
///     Objects, strings, records or another byte order. Nothing was written.
/// BufferError, ValueError
///     Other invalid arguments. Nothing was written.
#[pyfunction]
pub fn concat(py: Python<'_>, parts: Vec<ArrayBytes>, mut out: Writable) -> PyResult<()> {
    if parts.iter().any(|part| out.overlaps(&**part)) {
        return Err(PyValueError::new_err("out must not overlap a part"));
    }
    let (total, target) = (
        parts.iter().map(|part| part.bytes().len()).sum::<usize>(),
        out.bytes_mut(),
    );
    if total != target.len() {
        let message = format!("out must have {total} bytes as the parts, got {}", target.len());
        return Err(PyValueError::new_err(message));
    }
    let level = level();
    py.detach(|| core::concat(parts.iter().map(|part| part.bytes()), target, level));
    Ok(())
}

/// Copies values from places in a buffer to rows of an array.
///
/// Parameters
/// ----------
/// buffer : buffer
///     Bytes.
/// offsets : ndarray, shape (n,), int64
///     Where each value begins.
/// out : ndarray
///     Plain numbers, rows along the first axis; writable and C-contiguous. A value has the bytes of a row.
/// rows : ndarray, shape (n,), int64
///     Value ``i`` goes to ``out[rows[i]]``.
///
/// Raises
/// ------
/// TypeError, ValueError
///     Invalid arguments, such as a value that is not inside the buffer. Nothing was written.
#[pyfunction]
pub fn gather(
    py: Python<'_>,
    buffer: Encoded,
    offsets: Array<i64>,
    mut out: Writable,
    rows: Array<i64>,
) -> PyResult<()> {
    let count = *out
        .buffer()
        .shape()
        .first()
        .ok_or_else(|| invalid_argument("out must have an axis of rows"))?;
    if out.overlaps(&buffer) || out.overlaps(&offsets) || out.overlaps(&rows) {
        return Err(invalid_argument("out must not overlap another argument"));
    }
    if offsets.shape().len() != 1 || offsets.shape() != rows.shape() {
        return Err(invalid_argument("offsets and rows must have one axis and one length"));
    }
    let target = out.bytes_mut();
    let nbytes = target.len().checked_div(count).unwrap_or(0);
    let bytes = buffer.bytes();
    let places = rows
        .values()
        .iter()
        .zip(offsets.values())
        .map(|(row, offset)| Some((row_index(*row, count)?, value_at(bytes, *offset, nbytes)?)))
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| invalid_argument("rows must be those of out, and values must lie inside the buffer"))?;
    py.detach(|| {
        for (row, value) in places {
            target[row * nbytes..][..nbytes].copy_from_slice(value);
        }
    });
    Ok(())
}

/// The number of a row, if there are so many.
pub fn row_index(row: i64, count: usize) -> Option<usize> {
    usize::try_from(row).ok().filter(|row| *row < count)
}

/// The bytes of a value, if they lie inside the buffer.
pub fn value_at(bytes: &[u8], offset: i64, nbytes: usize) -> Option<&[u8]> {
    let begin = usize::try_from(offset).ok()?;
    bytes.get(begin..begin.checked_add(nbytes)?)
}
