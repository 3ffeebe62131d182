//! Why an image was not decoded. The caller decides what happens next; usually it asks Pillow.

use core::fmt;

/// The three ways in which bytes from outside are refused.
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
        /// Declared width in pixels.
        width: u32,
        /// Declared height in pixels.
        height: u32,
        /// The caller's limit on `width * height`.
        max_pixels: u64,
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
                write!(f, "{width} x {height} pixels are more than the {max_pixels} allowed")
            }
        }
    }
}

impl std::error::Error for Error {}
