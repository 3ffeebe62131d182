//! Why an image or an argument was refused, as Python exceptions.

use penstock_core::error::Error;
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::{PyErr, create_exception};

create_exception!(
    penstock._native,
    UnsupportedError,
    PyValueError,
    "An image that is left to Pillow: not a JPEG, CMYK, 12-bit, a progressive one that lacks scans ..."
);
create_exception!(
    penstock._native,
    CorruptError,
    PyValueError,
    "Bytes that break the JPEG format; the message says where."
);
create_exception!(
    penstock._native,
    TooLargeError,
    PyValueError,
    "More pixels than `max_pixels`, or bytes of coefficients than `max_nbytes`; nothing was allocated."
);

/// The exception for arguments that cannot be.
pub fn invalid(message: impl Into<String>) -> PyErr {
    PyValueError::new_err(message.into())
}

/// The exception for an error of the decoder.
pub fn refused(error: &Error) -> PyErr {
    let message = error.to_string();
    match error {
        Error::Unsupported(_) => UnsupportedError::new_err(message),
        Error::Corrupt { .. } => CorruptError::new_err(message),
        Error::TooLarge { .. } | Error::TooManyBytes { .. } => TooLargeError::new_err(message),
        Error::OutOfMemory { .. } => PyMemoryError::new_err(message),
    }
}

/// The word by which `fill` reports an error of the decoder.
pub fn kind(error: &Error) -> &'static str {
    match error {
        Error::Unsupported(_) => "unsupported",
        Error::Corrupt { .. } => "corrupt",
        Error::TooLarge { .. } | Error::TooManyBytes { .. } => "too_large",
        Error::OutOfMemory { .. } => "out_of_memory",
    }
}
