//! Checks of arguments that are memory: their buffer, the type of their elements, and overlaps.
//!
//! All memory comes through the buffer protocol: an exported buffer keeps it in place and alive while the GIL is
//! released. Others may still write to it; see the `SAFETY` comments.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// Formats of numbers that consist of their bytes only: bool, integers, floats. Complex numbers have `Z` before them.
const NUMBERS: &[u8] = b"?bBhHiIlLqQefdg";
/// Prefixes of formats in native byte order. NumPy writes `=` or `^` where memory is not aligned.
const NATIVE: &[u8] = if cfg!(target_endian = "little") {
    b"@=^<"
} else {
    b"@=^>"
};

/// An argument that is memory.
pub trait BufferArgument {
    /// The buffer that keeps it.
    fn buffer(&self) -> &PyUntypedBuffer;

    /// Whether it shares a byte with `other`.
    fn overlaps(&self, other: &impl BufferArgument) -> bool {
        let [one, other] = [self.buffer(), other.buffer()].map(|buffer| {
            let start = buffer.buf_ptr() as usize;
            start..start + buffer.len_bytes()
        });
        one.start.max(other.start) < one.end.min(other.end)
    }
}

/// Describes format and shape for messages.
pub fn describe(buffer: &PyUntypedBuffer) -> String {
    format!(
        "format '{}' and shape {:?}",
        buffer.format().to_string_lossy(),
        buffer.shape()
    )
}

/// Whether the elements have one of these formats, this size, and the matching alignment.
pub fn has_format(buffer: &PyUntypedBuffer, formats: &[&[u8]], size: usize) -> bool {
    let format = buffer.format().to_bytes();
    let format = format.strip_prefix(b"@").unwrap_or(format);
    buffer.item_size() == size && formats.contains(&format) && (buffer.buf_ptr() as usize).is_multiple_of(size)
}

/// Refuses references (objects), strings, records and other byte orders: their bytes are not plain numbers.
pub fn check_plain_numbers(buffer: &PyUntypedBuffer) -> PyResult<()> {
    if is_plain_number(buffer) {
        return Ok(());
    }
    Err(PyTypeError::new_err(format!(
        "the array must hold plain numbers in native byte order, got {}",
        describe(buffer)
    )))
}

/// Refuses memory that is read-only or not contiguous.
pub fn check_writable(buffer: &PyUntypedBuffer) -> PyResult<()> {
    if buffer.readonly() {
        return Err(PyValueError::new_err("out must be writable, got a read-only array"));
    }
    if !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err("out must be C-contiguous"));
    }
    Ok(())
}

fn is_plain_number(buffer: &PyUntypedBuffer) -> bool {
    let format = buffer.format().to_bytes();
    let format = match format.split_first() {
        Some((order, rest)) if NATIVE.contains(order) => rest,
        _ => format,
    };
    matches!(format, [number] | [b'Z', number] if NUMBERS.contains(number))
}
