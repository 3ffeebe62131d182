//! Samples joined to a batch: bytes copied one after another, without the GIL.

use penstock_core::concat as core;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::bytes::{ArrayBytes, Writable};
use crate::level::level;
use crate::memory::BufferArgument;

/// Copies arrays one after another: what stacking samples into a batch is. Large targets are written past the cache.
///
/// Parameters
/// ----------
/// parts : sequence of ndarray
///     C-contiguous, of any shapes; plain numbers (bool, integers, floats, complex) in native byte order; one axis or
///     more.
/// out : ndarray
///     Plain numbers, as many bytes as all parts together; writable and C-contiguous. It overlaps none of them.
///
/// Raises
/// ------
/// TypeError
///     Objects, strings, records or another byte order; nothing was written.
/// BufferError, ValueError
///     Something else that is not as above; nothing was written.
#[pyfunction]
pub fn concat(py: Python<'_>, parts: Vec<ArrayBytes>, mut out: Writable) -> PyResult<()> {
    if parts.iter().any(|part| out.overlaps(&**part)) {
        return Err(PyValueError::new_err("a part overlaps the target"));
    }
    let (total, target) = (
        parts.iter().map(|part| part.bytes().len()).sum::<usize>(),
        out.bytes_mut(),
    );
    if total != target.len() {
        let message = format!("the parts have {total} bytes, the target {}", target.len());
        return Err(PyValueError::new_err(message));
    }
    let level = level();
    py.detach(|| core::concat(parts.iter().map(|part| part.bytes()), target, level));
    Ok(())
}
