//! Errors of images and arguments as Python exceptions.

use penstock_core::error::Error;
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::{PyErr, create_exception};

create_exception!(
    penstock._native,
    UnsupportedError,
    PyValueError,
    "A kind of image that these decoders do not support: CMYK, 12 bits, a progressive file without all scans ..."
);
create_exception!(
    penstock._native,
    CorruptError,
    PyValueError,
    "Bytes that are not a valid image. The message says where."
);
create_exception!(
    penstock._native,
    TooLargeError,
    PyValueError,
    "More pixels than `max_pixels`, or more bytes for decoding than `max_nbytes`. Nothing was allocated."
);

/// The exception for invalid arguments.
pub fn invalid_argument(message: impl Into<String>) -> PyErr {
    PyValueError::new_err(message.into())
}

/// The exception for an error of the decoder.
pub fn from_decoder(error: &Error) -> PyErr {
    let message = error.to_string();
    match error {
        Error::Unsupported(_) => UnsupportedError::new_err(message),
        Error::Corrupt { .. } => CorruptError::new_err(message),
        Error::TooLarge { .. } | Error::TooManyBytes { .. } => TooLargeError::new_err(message),
        Error::OutOfMemory { .. } => PyMemoryError::new_err(message),
    }
}

/// The word with which `fill` reports an error of the decoder.
pub fn failure_kind(error: &Error) -> &'static str {
    match error {
        Error::Unsupported(_) => "unsupported",
        Error::Corrupt { .. } => "corrupt",
        Error::TooLarge { .. } | Error::TooManyBytes { .. } => "too_large",
        Error::OutOfMemory { .. } => "out_of_memory",
    }
}
