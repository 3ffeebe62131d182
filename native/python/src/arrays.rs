//! Arguments and results that are arrays of one type. They are checked here; all other code uses slices.
//!
//! [`crate::memory`] says how their memory is kept alive.

use std::marker::PhantomData;
use std::slice;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::inspect::PyStaticExpr;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;
use pyo3::{intern, type_hint_identifier, type_hint_subscript, type_hint_union};

use crate::memory::{BufferArgument, check_writable, describe, has_format};

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
/// Every bit pattern of this size is a valid value, and `FORMATS` are the buffer formats of exactly this type.
pub unsafe trait Element: Copy + Send + Sync {
    /// NumPy's name.
    const NAME: &'static str;
    /// Buffer formats, in native byte order.
    const FORMATS: &'static [&'static [u8]];
    /// The type hint of an array.
    const HINT: PyStaticExpr;
}

macro_rules! elements {
    ($($type:ty: $name:literal, $formats:expr;)*) => {
        $(
            // SAFETY: a plain number, and the formats of the struct module (native sizes are checked with the item
            // size).
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
    u16: "uint16", &[b"H"];
    i32: "int32", &[b"i", b"l"];
    i64: "int64", &[b"l", b"q"];
    u64: "uint64", &[b"L", b"Q"];
    f64: "float64", &[b"d"];
}

/// An array that a call reads.
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
        // `self`. The Python caller must not write to it during a call, as the module's documentation says; this is
        // true of any NumPy function that releases the GIL.
        unsafe { slice::from_raw_parts(start, len) }
    }
}

impl<T> BufferArgument for Array<T> {
    fn buffer(&self) -> &PyUntypedBuffer {
        &self.buffer
    }
}

impl<T: Element> FromPyObject<'_, '_> for Array<T> {
    type Error = PyErr;
    const INPUT_TYPE: PyStaticExpr = T::HINT;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(&object)?;
        if !has_format(&buffer, T::FORMATS, size_of::<T>()) {
            return Err(PyTypeError::new_err(format!(
                "the array must be of type {}, got {}",
                T::NAME,
                describe(&buffer)
            )));
        }
        if !buffer.is_c_contiguous() {
            return Err(PyValueError::new_err(
                "the array must be C-contiguous: pass numpy.ascontiguousarray(...)",
            ));
        }
        Ok(Self {
            buffer,
            element: PhantomData,
        })
    }
}

/// Element type of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    U8,
    U16,
    F16,
    F32,
}

/// A batch. A call writes some of its rows.
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
    #[allow(clippy::mut_from_ref)] // the memory belongs to Python; each row is borrowed once
    pub unsafe fn row_mut<T>(&self, i: usize) -> &mut [T] {
        let len = self.row_len();
        // SAFETY: `extract` checked writability, alignment and contiguity; the caller guarantees the rest.
        unsafe { slice::from_raw_parts_mut(self.buffer.buf_ptr().cast::<T>().add(i * len), len) }
    }
}

impl Batch {
    /// Row `i`, as bytes.
    ///
    /// # Safety
    /// `i < shape[0]`, and no other slice of this row exists.
    #[allow(clippy::mut_from_ref)] // as `row_mut`
    pub unsafe fn row_bytes_mut(&self, i: usize) -> &mut [u8] {
        let len = self.row_len() * self.buffer.item_size();
        // SAFETY: as `row_mut`; bytes have no alignment.
        unsafe { slice::from_raw_parts_mut(self.buffer.buf_ptr().cast::<u8>().add(i * len), len) }
    }
}

impl BufferArgument for Batch {
    fn buffer(&self) -> &PyUntypedBuffer {
        &self.buffer
    }
}

impl FromPyObject<'_, '_> for Batch {
    type Error = PyErr;
    const INPUT_TYPE: PyStaticExpr = ndarray!("uint8", "uint16", "float16", "float32");

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(&object)?;
        let dtype = if has_format(&buffer, &[b"B"], 1) {
            Dtype::U8
        } else if has_format(&buffer, &[b"H"], 2) {
            Dtype::U16
        } else if has_format(&buffer, &[b"e"], 2) {
            Dtype::F16
        } else if has_format(&buffer, &[b"f"], 4) {
            Dtype::F32
        } else {
            let found = describe(&buffer);
            return Err(PyTypeError::new_err(format!(
                "the batch must be of type uint8, uint16, float16 or float32, got {found}"
            )));
        };
        if buffer.readonly() {
            return Err(PyValueError::new_err(
                "the batch must be writable, got a read-only array",
            ));
        }
        if !buffer.is_c_contiguous() {
            return Err(PyValueError::new_err("the batch must be C-contiguous"));
        }
        let Ok(shape) = buffer.shape().try_into() else {
            return Err(PyValueError::new_err(format!(
                "the batch must have four axes, got shape {:?}",
                buffer.shape()
            )));
        };
        Ok(Self { buffer, dtype, shape })
    }
}

/// An array that a call writes.
pub struct ArrayMut<T>(Array<T>);

impl<T> BufferArgument for ArrayMut<T> {
    fn buffer(&self) -> &PyUntypedBuffer {
        &self.0.buffer
    }
}

impl<T: Element> ArrayMut<T> {
    /// Lengths of the axes.
    pub fn shape(&self) -> &[usize] {
        self.0.shape()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.0.buffer.item_count()
    }

    /// The elements, in C order.
    pub fn values_mut(&mut self) -> &mut [T] {
        let len = self.len();
        if len == 0 {
            return &mut [];
        }
        // SAFETY: `extract` checked type, alignment, contiguity and writability. The Python caller must not use it
        // during a call, see `Array::values`.
        unsafe { slice::from_raw_parts_mut(self.0.buffer.buf_ptr().cast(), len) }
    }
}

impl<T: Element> FromPyObject<'_, '_> for ArrayMut<T> {
    type Error = PyErr;
    const INPUT_TYPE: PyStaticExpr = T::HINT;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let array = object.extract::<Array<T>>()?;
        check_writable(&array.buffer)?;
        Ok(Self(array))
    }
}

/// A new NumPy array, which nothing else uses until it is returned.
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

    /// The elements to write, in C order.
    pub fn values_mut(&mut self) -> &mut [T] {
        let len = self.memory.buffer.item_count();
        if len == 0 {
            return &mut [];
        }
        // SAFETY: a fresh array that nothing else uses; `extract` checked it.
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

/// A new array of one of two types.
pub enum ByteOrWordArray<'py> {
    Bytes(NewArray<'py, u8>),
    Words(NewArray<'py, u16>),
}

impl<'py> IntoPyObject<'py> for ByteOrWordArray<'py> {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;
    const OUTPUT_TYPE: PyStaticExpr = ndarray!("uint8", "uint16");

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        match self {
            Self::Bytes(array) => array.into_pyobject(py),
            Self::Words(array) => array.into_pyobject(py),
        }
    }
}

/// The lowest 64 bits of an integer of any size and sign.
pub struct MaskedInteger(pub u64);

impl FromPyObject<'_, '_> for MaskedInteger {
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
