//! What arguments that are memory have in common: the buffer that keeps them, what its elements are, and where it lies.
//!
//! All memory comes through the buffer protocol: an exported buffer keeps it in place and alive while the GIL is
//! released. Nobody else is kept from writing to it meanwhile; see the `SAFETY` notes.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// Formats of numbers that are nothing but their bytes: bool, integers, floats; complex ones have `Z` before theirs.
const NUMBERS: &[u8] = b"?bBhHiIlLqQefdg";
/// What may stand before a format in native byte order; NumPy writes `=` or `^` where memory is not aligned.
const NATIVE: &[u8] = if cfg!(target_endian = "little") {
    b"@=^<"
} else {
    b"@=^>"
};

/// BufferArgument that a call was given.
pub trait BufferArgument {
    /// The buffer that keeps it.
    fn buffer(&self) -> &PyUntypedBuffer;

    /// Whether some byte of it is also one of `other`'s.
    fn overlaps(&self, other: &impl BufferArgument) -> bool {
        let [one, other] = [self.buffer(), other.buffer()].map(|buffer| {
            let start = buffer.buf_ptr() as usize;
            start..start + buffer.len_bytes()
        });
        one.start.max(other.start) < one.end.min(other.end)
    }
}

/// Format and shape, for messages.
pub fn describe(buffer: &PyUntypedBuffer) -> String {
    format!(
        "format '{}' and shape {:?}",
        buffer.format().to_string_lossy(),
        buffer.shape()
    )
}

/// Whether elements have one of these formats, this size and the alignment that goes with it.
pub fn has_format(buffer: &PyUntypedBuffer, formats: &[&[u8]], size: usize) -> bool {
    let format = buffer.format().to_bytes();
    let format = format.strip_prefix(b"@").unwrap_or(format);
    buffer.item_size() == size && formats.contains(&format) && (buffer.buf_ptr() as usize).is_multiple_of(size)
}

/// Refuses references (objects), strings, records and foreign byte orders: their bytes are no numbers.
pub fn check_plain_numbers(buffer: &PyUntypedBuffer) -> PyResult<()> {
    if is_plain_number(buffer) {
        return Ok(());
    }
    Err(PyTypeError::new_err(format!(
        "expected an array of plain numbers in native byte order, not {}",
        describe(buffer)
    )))
}

/// Refuses memory that cannot be written as one run of bytes.
pub fn check_writable(buffer: &PyUntypedBuffer) -> PyResult<()> {
    if buffer.readonly() {
        return Err(PyValueError::new_err("the target is read-only"));
    }
    if !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err("the target is not C-contiguous"));
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
