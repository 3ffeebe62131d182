//! Arguments and results that are memory: checked here, once, so that the rest sees plain slices.
//!
//! All memory comes through the buffer protocol: an exported buffer keeps it in place and alive while the GIL is
//! released. Nobody else is kept from writing to it meanwhile; see the `SAFETY` notes.

use std::marker::PhantomData;
use std::slice;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::inspect::PyStaticExpr;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;
use pyo3::{intern, type_hint_identifier, type_hint_subscript, type_hint_union};

const BUFFER: PyStaticExpr = type_hint_identifier!("typing_extensions", "Buffer");
const ANY_ARRAY: PyStaticExpr = type_hint_subscript!(
    type_hint_identifier!("numpy.typing", "NDArray"),
    type_hint_identifier!("typing", "Any")
);

macro_rules! ndarray {
    ($($dtype:literal),+) => {
        type_hint_subscript!(
            type_hint_identifier!("numpy.typing", "NDArray"),
            type_hint_union!($(type_hint_identifier!("numpy", $dtype)),+)
        )
    };
}

/// An element type of arrays.
///
/// # Safety
/// Any bits of that size are a value, and `FORMATS` are the buffer formats of exactly this type.
pub unsafe trait Element: Copy + Send + Sync {
    /// NumPy's name.
    const NAME: &'static str;
    /// Buffer formats, in native byte order.
    const FORMATS: &'static [&'static [u8]];
    /// As a type hint.
    const HINT: PyStaticExpr;
}

macro_rules! elements {
    ($($type:ty: $name:literal, $formats:expr;)*) => {
        $(
            // SAFETY: a plain number, and the formats of the struct module (native sizes checked with the item size)
            unsafe impl Element for $type {
                const NAME: &'static str = $name;
                const FORMATS: &'static [&'static [u8]] = $formats;
                const HINT: PyStaticExpr = ndarray!($name);
            }
        )*
    };
}

elements! {
    u8: "uint8", &[b"B"];
    i32: "int32", &[b"i", b"l"];
    i64: "int64", &[b"l", b"q"];
    f64: "float64", &[b"d"];
}

fn describe(buffer: &PyUntypedBuffer) -> String {
    format!(
        "format '{}' and shape {:?}",
        buffer.format().to_string_lossy(),
        buffer.shape()
    )
}

fn has_format(buffer: &PyUntypedBuffer, formats: &[&[u8]], size: usize) -> bool {
    let format = buffer.format().to_bytes();
    let format = format.strip_prefix(b"@").unwrap_or(format);
    buffer.item_size() == size && formats.contains(&format) && (buffer.buf_ptr() as usize).is_multiple_of(size)
}

/// An array that is only read.
pub struct Array<T> {
    buffer: PyUntypedBuffer,
    element: PhantomData<T>,
}

impl<T: Element> Array<T> {
    /// Lengths of the axes.
    pub fn shape(&self) -> &[usize] {
        self.buffer.shape()
    }

    /// The elements, in C order.
    pub fn values(&self) -> &[T] {
        let (start, len) = (self.buffer.buf_ptr().cast::<T>(), self.buffer.item_count());
        if len == 0 {
            return &[];
        }
        // SAFETY: `extract` checked type, alignment and contiguity, and the exported buffer stays in place as long as
        // `self`. That nobody writes to it during a call is the Python caller's duty, stated in the module's
        // documentation, as with any NumPy function that releases the GIL.
        unsafe { slice::from_raw_parts(start, len) }
    }
}

impl<T: Element> FromPyObject<'_, '_> for Array<T> {
    type Error = PyErr;
    const INPUT_TYPE: PyStaticExpr = T::HINT;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(&object)?;
        if !has_format(&buffer, T::FORMATS, size_of::<T>()) {
            return Err(PyTypeError::new_err(format!(
                "expected an array of {}, not {}",
                T::NAME,
                describe(&buffer)
            )));
        }
        if !buffer.is_c_contiguous() {
            return Err(PyValueError::new_err(
                "the array is not C-contiguous: pass numpy.ascontiguousarray(...)",
            ));
        }
        Ok(Self {
            buffer,
            element: PhantomData,
        })
    }
}

/// An image's encoded bytes.
pub struct Encoded(PyUntypedBuffer);

/// Bytes of any array.
pub struct Part(Encoded);

impl std::ops::Deref for Part {
    type Target = Encoded;

    fn deref(&self) -> &Encoded {
        &self.0
    }
}

impl FromPyObject<'_, '_> for Part {
    type Error = PyErr;
    const INPUT_TYPE: PyStaticExpr = ANY_ARRAY;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(&object)?;
        if !buffer.is_c_contiguous() {
            let found = describe(&buffer);
            return Err(PyValueError::new_err(format!("not C-contiguous: {found}")));
        }
        Ok(Self(Encoded(buffer)))
    }
}

impl Encoded {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        if self.0.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: checked in `extract`; see `Array::values`
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
                "expected contiguous bytes in one dimension, not {found}"
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
                let named = PyTypeError::new_err(format!("image {i} is not bytes: {}", error.value(object.py())));
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

/// Element type of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    U8,
    F16,
    F32,
}

/// A batch, some of whose rows a call writes.
pub struct Batch {
    buffer: PyUntypedBuffer,
    /// Element type.
    pub dtype: Dtype,
    /// Lengths of the four axes.
    pub shape: [usize; 4],
}

impl Batch {
    /// Elements per row.
    pub fn row_len(&self) -> usize {
        self.shape[1..].iter().product()
    }

    /// Row `i`, as elements of type `T`.
    ///
    /// # Safety
    /// `T` has the size and alignment of `dtype`'s elements, `i < shape[0]`, and no other slice of this row exists.
    #[allow(clippy::mut_from_ref)] // the memory is Python's; rows are handed out one at a time
    pub unsafe fn row_mut<T>(&self, i: usize) -> &mut [T] {
        let len = self.row_len();
        // SAFETY: `extract` checked writability, alignment and contiguity; the rest is the caller's promise
        unsafe { slice::from_raw_parts_mut(self.buffer.buf_ptr().cast::<T>().add(i * len), len) }
    }
}

impl FromPyObject<'_, '_> for Batch {
    type Error = PyErr;
    const INPUT_TYPE: PyStaticExpr = ndarray!("uint8", "float16", "float32");

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(&object)?;
        let dtype = if has_format(&buffer, &[b"B"], 1) {
            Dtype::U8
        } else if has_format(&buffer, &[b"e"], 2) {
            Dtype::F16
        } else if has_format(&buffer, &[b"f"], 4) {
            Dtype::F32
        } else {
            let found = describe(&buffer);
            return Err(PyTypeError::new_err(format!(
                "expected uint8, float16 or float32, not {found}"
            )));
        };
        if buffer.readonly() {
            return Err(PyValueError::new_err("the array is read-only"));
        }
        if !buffer.is_c_contiguous() {
            return Err(PyValueError::new_err("the array is not C-contiguous"));
        }
        let Ok(shape) = buffer.shape().try_into() else {
            return Err(PyValueError::new_err(format!(
                "expected four axes, not shape {:?}",
                buffer.shape()
            )));
        };
        Ok(Self { buffer, dtype, shape })
    }
}

/// Any memory that can be written.
pub struct Writable(PyUntypedBuffer);

impl Writable {
    /// Whether some byte of it is also one of `encoded`'s.
    pub fn overlaps(&self, encoded: &Encoded) -> bool {
        let (start, other) = (self.0.buf_ptr() as usize, encoded.0.buf_ptr() as usize);
        start < other + encoded.0.len_bytes() && other < start + self.0.len_bytes()
    }

    /// The bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if self.0.len_bytes() == 0 {
            return &mut [];
        }
        // SAFETY: `extract` checked writability and contiguity, and the exported buffer stays in place; that nobody
        // else uses it during a call is the Python caller's duty, see `Array::values`
        unsafe { slice::from_raw_parts_mut(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }
}

impl FromPyObject<'_, '_> for Writable {
    type Error = PyErr;
    const INPUT_TYPE: PyStaticExpr = ANY_ARRAY;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(&object)?;
        if buffer.readonly() || !buffer.is_c_contiguous() {
            return Err(PyValueError::new_err("the target is read-only, or not C-contiguous"));
        }
        Ok(Self(buffer))
    }
}

/// A new NumPy array, ours until it is returned.
pub struct NewArray<'py, T> {
    array: Bound<'py, PyAny>,
    memory: Array<T>,
}

impl<'py, T: Element> NewArray<'py, T> {
    /// `numpy.empty(shape, dtype)`.
    pub fn empty(py: Python<'py>, shape: &[usize]) -> PyResult<Self> {
        static EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let array = EMPTY
            .import(py, "numpy", "empty")?
            .call1((PyTuple::new(py, shape)?, T::NAME))?;
        let memory = array.extract::<Array<T>>()?;
        Ok(Self { array, memory })
    }

    /// The elements, in C order, to be written.
    pub fn values_mut(&mut self) -> &mut [T] {
        let len = self.memory.buffer.item_count();
        if len == 0 {
            return &mut [];
        }
        // SAFETY: a fresh array that nobody else knows of, checked by `extract`
        unsafe { slice::from_raw_parts_mut(self.memory.buffer.buf_ptr().cast(), len) }
    }
}

impl<'py, T: Element> IntoPyObject<'py> for NewArray<'py, T> {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;
    const OUTPUT_TYPE: PyStaticExpr = T::HINT;

    fn into_pyobject(self, _py: Python<'py>) -> PyResult<Self::Output> {
        Ok(self.array)
    }
}

/// An integer of which 64 bits count, whatever its size and sign.
pub struct Word(pub u64);

impl FromPyObject<'_, '_> for Word {
    type Error = PyErr;
    const INPUT_TYPE: PyStaticExpr = type_hint_identifier!("builtins", "int");

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let masked = || {
            object
                .call_method1(intern!(object.py(), "__and__"), (u64::MAX,))?
                .extract()
        };
        object.extract().or_else(|_| masked()).map(Self)
    }
}
