//! Why an image was not decoded. The caller decides what happens next; usually it asks Pillow.

use core::fmt;

/// Why bytes from outside were refused, or could not be decoded here and now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A valid file, perhaps, but of a kind that this decoder leaves to a general one.
    Unsupported(&'static str),
    /// The bytes break the format.
    Corrupt {
        /// What was found to be wrong.
        what: &'static str,
        /// Byte of the file near which it was noticed.
        offset: usize,
    },
    /// The header declares more pixels than the caller allows. Nothing was allocated.
    TooLarge {
        /// DeclaredComponent width in pixels.
        width: u32,
        /// DeclaredComponent height in pixels.
        height: u32,
        /// The caller's limit on `width * height`.
        max_pixels: u64,
    },
    /// The header declares several scans, and their coefficients need more memory than the caller allows. Nothing was
    /// allocated.
    TooManyBytes {
        /// Bytes of the coefficients.
        nbytes: u64,
        /// The caller's limit on them.
        max_nbytes: u64,
    },
    /// The system has no more memory. The image may be a good one.
    OutOfMemory {
        /// Bytes that were asked for.
        nbytes: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unsupported(what) => write!(f, "not decoded natively: {what}"),
            Error::Corrupt { what, offset } => write!(f, "corrupt JPEG: {what}, near byte {offset}"),
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
                    "a JPEG of several scans (progressive) whose coefficients take {nbytes} bytes, more than the \
                     {max_nbytes} allowed; raise max_nbytes if the image is meant to be that large"
                )
            }
            Error::OutOfMemory { nbytes } => write!(f, "no memory to decode an image: {nbytes} bytes were asked for"),
        }
    }
}

impl std::error::Error for Error {}
