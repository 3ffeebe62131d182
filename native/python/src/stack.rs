//! Stacking of samples to a batch: bytes are copied one after another, without the GIL.

use penstock_core::concat as core;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::bytes::{ArrayBytes, Writable};
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
