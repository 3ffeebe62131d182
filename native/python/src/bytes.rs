//! Arguments that are bytes: encoded images, and arrays whose type does not matter.

use std::ops::Range;
use std::slice;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::inspect::PyStaticExpr;
use pyo3::prelude::*;
use pyo3::{intern, type_hint_identifier, type_hint_subscript};

use crate::arrays::Array;
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

/// The encoded bytes of several images: buffers, or places of one buffer.
///
/// The second are Python's `EncodedRows`. No object is made for an image then.
pub enum EncodedImages {
    /// A buffer for each.
    Each(Vec<Encoded>),
    /// One buffer, and where each image lies in it; all inside of it.
    Places(Encoded, Vec<Range<usize>>),
}

impl EncodedImages {
    /// Number of images.
    pub fn len(&self) -> usize {
        match self {
            Self::Each(images) => images.len(),
            Self::Places(_, places) => places.len(),
        }
    }

    /// The bytes of image `i`.
    pub fn get(&self, i: usize) -> &[u8] {
        match self {
            Self::Each(images) => images[i].bytes(),
            Self::Places(buffer, places) => &buffer.bytes()[places[i].clone()],
        }
    }

    /// The bytes of each image.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|i| self.get(i))
    }

    /// The first argument that shares memory with `out`, in words.
    pub fn find_overlap(&self, out: &impl BufferArgument) -> Option<String> {
        match self {
            Self::Each(images) => {
                let found = images.iter().position(|image| out.overlaps(image));
                found.map(|i| format!("image {i}"))
            }
            Self::Places(buffer, _) => out.overlaps(buffer).then(|| "the buffer of the images".to_owned()),
        }
    }

    fn at_places(object: &Bound<'_, PyAny>, places: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer: Encoded = object.getattr(intern!(object.py(), "buffer"))?.extract()?;
        let places: Array<i64> = places.extract()?;
        let ([n, 2], len) = (places.shape(), buffer.bytes().len()) else {
            let shape = places.shape();
            return Err(PyValueError::new_err(format!(
                "places must have shape (n, 2), got {shape:?}"
            )));
        };
        let mut ranges = Vec::with_capacity(*n);
        for (i, &[begin, end]) in places.values().as_chunks::<2>().0.iter().enumerate() {
            if begin < 0 || begin > end || end as usize > len {
                return Err(PyValueError::new_err(format!(
                    "places[{i}] must lie inside the buffer of {len} bytes, got {begin} to {end}"
                )));
            }
            ranges.push(begin as usize..end as usize);
        }
        Ok(Self::Places(buffer, ranges))
    }
}

impl FromPyObject<'_, '_> for EncodedImages {
    type Error = PyErr;
    const INPUT_TYPE: PyStaticExpr = type_hint_subscript!(type_hint_identifier!("collections.abc", "Sequence"), BUFFER);

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Some(places) = object.getattr_opt(intern!(object.py(), "places"))? {
            return Self::at_places(&object, &places);
        }
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
            .map(Self::Each)
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
