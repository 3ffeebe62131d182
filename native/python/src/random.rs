//! Random numbers of samples: arguments are checked, then the core is called without the GIL.

use penstock_core::philox;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arrays::{Array, MaskedInteger, NewArray};

/// Draws uniform numbers in [0, 1) for each sample of a chunk, as `penstock.rng.uniforms` does, bit for bit.
///
/// Parameters
/// ----------
/// seed, epoch : int
///     The lower 64 and 32 bits are used.
/// indices : ndarray, shape (n,), int64
///     The indices of the samples.
/// stream : int
///     The number of the consumer, 0 to 65535.
/// count : int
///     Numbers per sample, at most 65536.
///
/// Returns
/// -------
/// ndarray, shape (n, count), float64
///     A new array.
///
/// Raises
/// ------
/// ValueError
///     Stream or count out of range.
#[pyfunction]
#[pyo3(signature = (seed, epoch, indices, stream, count))]
pub fn uniforms<'py>(
    py: Python<'py>,
    seed: MaskedInteger,
    epoch: MaskedInteger,
    indices: Array<i64>,
    stream: i64,
    count: i64,
) -> PyResult<NewArray<'py, f64>> {
    let (Ok(stream), Ok(0..=0x1_0000)) = (u16::try_from(stream), usize::try_from(count)) else {
        let message =
            format!("stream must be in [0, 65535] and count in [0, 65536], got stream {stream} and count {count}");
        return Err(PyValueError::new_err(message));
    };
    let &[n] = indices.shape() else {
        return Err(PyValueError::new_err(format!(
            "indices must have one axis, got shape {:?}",
            indices.shape()
        )));
    };
    let mut numbers = NewArray::empty(py, &[n, count as usize])?;
    let (indices, out) = (indices.values(), numbers.values_mut());
    py.detach(|| philox::uniforms(seed.0, epoch.0 as u32, indices, stream, out));
    Ok(numbers)
}
