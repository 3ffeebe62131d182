//! Records of TFRecord files.

use penstock_core::tf_example::{self, Values};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

use crate::bytes::Encoded;

/// Returns the features of a serialised ``tf.train.Example``.
///
/// Parameters
/// ----------
/// record : buffer
///     Contiguous bytes.
///
/// Returns
/// -------
/// list of (str, int, list or bytes)
///     Name, kind and values of each feature. Kind 0: no values, ``b""``. Kind 1: byte strings, a list of tuples
///     (begin, end) of offsets in the record. Kind 2: floats, little-endian float32. Kind 3: integers, little-endian
///     int64.
///
/// Raises
/// ------
/// TypeError
///     ``record`` is not contiguous bytes in one dimension.
/// ValueError
///     The bytes are not such a message.
#[pyfunction]
pub fn example_features<'py>(py: Python<'py>, record: Encoded) -> PyResult<Vec<NamedValues<'py>>> {
    let found = tf_example::features(record.bytes())
        .map_err(|error| PyValueError::new_err(format!("{} (byte {})", error.reason, error.offset)))?;
    found
        .into_iter()
        .map(|feature| {
            let (kind, values) = match feature.values {
                Values::None => (0, PyBytes::new(py, b"").into_any()),
                Values::Bytes(ranges) => {
                    let ranges = ranges.into_iter().map(|range| (range.start, range.end));
                    (1, PyList::new(py, ranges.collect::<Vec<_>>())?.into_any())
                }
                Values::Floats(values) => (2, pack(py, &values, f32::to_le_bytes).into_any()),
                Values::Ints(values) => (3, pack(py, &values, i64::to_le_bytes).into_any()),
            };
            Ok((PyString::new(py, feature.name), kind, values))
        })
        .collect()
}

/// Name, kind and values of a feature.
type NamedValues<'py> = (Bound<'py, PyString>, u8, Bound<'py, PyAny>);

/// The bytes of some numbers.
fn pack<'py, T: Copy, const N: usize>(py: Python<'py>, values: &[T], bytes: fn(T) -> [u8; N]) -> Bound<'py, PyBytes> {
    PyBytes::new(
        py,
        values
            .iter()
            .flat_map(|&value| bytes(value))
            .collect::<Vec<u8>>()
            .as_slice(),
    )
}
