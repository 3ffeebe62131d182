//! Arguments that are bytes: encoded images, and arrays whose type does not matter.

use std::slice;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::inspect::PyStaticExpr;
use pyo3::prelude::*;
use pyo3::{type_hint_identifier, type_hint_subscript};

use crate::memory::{BufferArgument, check_plain_numbers, check_writable, describe};

const BUFFER: PyStaticExpr = type_hint_identifier!("typing_extensions", "Buffer");
const ANY_ARRAY: PyStaticExpr = type_hint_subscript!(
    type_hint_identifier!("numpy.typing", "NDArray"),
    type_hint_identifier!("typing", "Any")
);

/// The encoded bytes of an image.
pub struct Encoded(PyUntypedBuffer);

/// The bytes of an array of plain numbers.
pub struct ArrayBytes(Encoded);

impl std::ops::Deref for ArrayBytes {
    type Target = Encoded;

    fn deref(&self) -> &Encoded {
        &self.0
    }
}

impl FromPyObject<'_, '_> for ArrayBytes {
    type Error = PyErr;
    const INPUT_TYPE: PyStaticExpr = ANY_ARRAY;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(&object)?;
        check_plain_numbers(&buffer)?;
        if !buffer.is_c_contiguous() {
            let found = describe(&buffer);
            return Err(PyValueError::new_err(format!("not C-contiguous: {found}")));
        }
        Ok(Self(Encoded(buffer)))
    }
}

impl BufferArgument for Encoded {
    fn buffer(&self) -> &PyUntypedBuffer {
        &self.0
    }
}

impl Encoded {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        if self.0.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: `extract` checked contiguity; see `Array::values` of `crate::arrays`.
        unsafe { slice::from_raw_parts(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }
}

impl FromPyObject<'_, '_> for Encoded {
    type Error = PyErr;
    const INPUT_TYPE: PyStaticExpr = BUFFER;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(&object)?;
        if buffer.item_size() != 1 || buffer.dimensions() != 1 || !buffer.is_c_contiguous() {
            let found = describe(&buffer);
            return Err(PyTypeError::new_err(format!(
                "expected contiguous bytes in one dimension, got {found}"
            )));
        }
        Ok(Self(buffer))
    }
}

/// The encoded bytes of several images.
pub struct EncodedImages(pub Vec<Encoded>);

impl FromPyObject<'_, '_> for EncodedImages {
    type Error = PyErr;
    const INPUT_TYPE: PyStaticExpr = type_hint_subscript!(type_hint_identifier!("collections.abc", "Sequence"), BUFFER);

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let encoded = |(i, object): (usize, PyResult<Bound<'_, PyAny>>)| {
            let object = object?;
            object.extract::<Encoded>().map_err(|error| {
                let named = PyTypeError::new_err(format!("image {i} must be bytes: {}", error.value(object.py())));
                named.set_cause(object.py(), Some(error));
                named
            })
        };
        object
            .try_iter()?
            .enumerate()
            .map(encoded)
            .collect::<PyResult<_>>()
            .map(Self)
    }
}

/// The bytes of an array of plain numbers that a call writes.
pub struct Writable(PyUntypedBuffer);

impl BufferArgument for Writable {
    fn buffer(&self) -> &PyUntypedBuffer {
        &self.0
    }
}

impl Writable {
    /// The bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if self.0.len_bytes() == 0 {
            return &mut [];
        }
        // SAFETY: `extract` checked writability and contiguity, and the exported buffer stays in place; any bytes are
        // plain numbers. The Python caller must not use it during a call, see `Array::values`.
        unsafe { slice::from_raw_parts_mut(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }
}

impl FromPyObject<'_, '_> for Writable {
    type Error = PyErr;
    const INPUT_TYPE: PyStaticExpr = ANY_ARRAY;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(&object)?;
        check_plain_numbers(&buffer)?;
        check_writable(&buffer)?;
        Ok(Self(buffer))
    }
}
