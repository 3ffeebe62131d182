//! The errors of the decoder. The caller decides what happens next; usually Pillow decodes the image.

use core::fmt;

/// Why bytes were refused or could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The file may be valid, but this decoder does not support its kind.
    Unsupported(&'static str),
    /// The bytes break the format.
    Corrupt {
        /// What is wrong.
        what: &'static str,
        /// Offset in the file near which it was found.
        offset: usize,
    },
    /// The header declares more pixels than the caller allows. Nothing was allocated.
    TooLarge {
        /// Declared width in pixels.
        width: u32,
        /// Declared height in pixels.
        height: u32,
        /// The caller's limit on `width * height`.
        max_pixels: u64,
    },
    /// Decoding needs more memory than the caller allows. Nothing was allocated.
    TooManyBytes {
        /// Bytes of what the decoder holds of the whole picture, and of the decoded pixels.
        nbytes: u64,
        /// The caller's limit on these bytes.
        max_nbytes: u64,
    },
    /// The system has no more memory. The image may be valid.
    OutOfMemory {
        /// Bytes that were requested.
        nbytes: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unsupported(what) => write!(f, "not decoded natively: {what}"),
            Error::Corrupt { what, offset } => write!(f, "corrupt image: {what}, near byte {offset}"),
            Error::TooLarge {
                width,
                height,
                max_pixels,
            } => {
                write!(
                    f,
                    "{width} x {height} pixels are more than the {max_pixels} allowed; raise max_pixels if the image is \
                     meant to be that large"
                )
            }
            Error::TooManyBytes { nbytes, max_nbytes } => {
                write!(
                    f,
                    "its pixels and what the decoder holds of the picture take {nbytes} bytes, more than the \
                     {max_nbytes} allowed; raise max_nbytes if the image is meant to be that large"
                )
            }
            Error::OutOfMemory { nbytes } => write!(
                f,
                "out of memory while decoding an image: {nbytes} bytes were requested"
            ),
        }
    }
}

impl std::error::Error for Error {}

/// Fails because the bytes are corrupt.
pub(crate) fn corrupt<T>(what: &'static str, offset: usize) -> Result<T, Error> {
    Err(Error::Corrupt { what, offset })
}
