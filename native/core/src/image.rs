//! Headers of the formats that are decoded here, recognised by the first bytes of a file.

use crate::error::Error;
use crate::jpeg::{self, Limits};
use crate::{png, webp};

/// The header of an image that can be decoded.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // one at a time, on the stack: a box could not be refused without an abort
pub enum Header<'a> {
    /// A JPEG.
    Jpeg(jpeg::Header<'a>),
    /// A PNG.
    Png(png::Header<'a>),
    /// A WebP.
    WebP(webp::Header<'a>),
}

impl<'a> Header<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// Those of the format. Of bytes in no known format: [`Error::Corrupt`].
    pub fn parse(bytes: &'a [u8], limits: &Limits) -> Result<Self, Error> {
        let header = if bytes.starts_with(png::SIGNATURE) {
            Self::Png(png::Header::parse(bytes, limits)?)
        } else if webp::is_webp(bytes) {
            Self::WebP(webp::Header::parse(bytes, limits)?)
        } else {
            Self::Jpeg(jpeg::Header::parse(bytes, limits)?)
        };
        header.check_nbytes(limits, 0)?;
        Ok(header)
    }

    /// Checks the memory for decoding into `decoded` bytes.
    ///
    /// # Errors
    /// [`Error::TooManyBytes`]: above `limits`.
    pub fn check_nbytes(&self, limits: &Limits, decoded: usize) -> Result<(), Error> {
        let held = match self {
            Self::Jpeg(header) => header.held_nbytes(),
            Self::Png(header) => header.held_nbytes(),
            Self::WebP(header) => header.held_nbytes(),
        };
        limits.check_nbytes(held.saturating_add(decoded as u64))
    }

    /// Width in pixels.
    pub fn width(&self) -> usize {
        match self {
            Self::Jpeg(header) => header.width(),
            Self::Png(header) => header.width(),
            Self::WebP(header) => header.width(),
        }
    }

    /// Whether the image has an alpha channel that the decoders do not return: transparent colours of a PNG, alpha of a
    /// WebP.
    pub fn has_unread_alpha(&self) -> bool {
        match self {
            Self::Jpeg(_) => false,
            Self::Png(header) => header.has_transparent_color(),
            Self::WebP(header) => header.has_alpha(),
        }
    }

    /// Height in pixels.
    pub fn height(&self) -> usize {
        match self {
            Self::Jpeg(header) => header.height(),
            Self::Png(header) => header.height(),
            Self::WebP(header) => header.height(),
        }
    }
}

/// Whether a file is a JPEG without an end marker after its last scan: it is truncated, or its end is overwritten.
///
/// A part of an image can be decoded from a file that is truncated below it.
pub fn is_truncated_jpeg(bytes: &[u8]) -> bool {
    if !bytes.starts_with(b"\xff\xd8") || bytes.ends_with(b"\xff\xd9") {
        return false;
    }
    let last = |marker: &[u8; 2]| bytes.windows(2).rposition(|pair| pair == marker);
    last(b"\xff\xd9") < last(b"\xff\xda")
}

/// The Exif orientation, 1 to 8; 1 if the file has none. None: a full parser must decide.
pub fn orientation(bytes: &[u8]) -> Option<u8> {
    if bytes.starts_with(png::SIGNATURE) {
        return png::orientation(bytes);
    }
    if webp::is_webp(bytes) {
        return webp::orientation(bytes);
    }
    jpeg::orientation(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jpeg_is_truncated_without_an_end_after_its_last_scan() {
        let cases: [(&[u8], bool); 7] = [
            (b"\xff\xd8\xff\xda12\xff\xd9", false),
            (b"\xff\xd8\xff\xda12\xff\xd9rubbish", false),
            (b"\xff\xd8\xff\xda12\xff", true),
            (b"\xff\xd8\xff\xd9\xff\xda12", true),
            (b"\xff\xd8 no scan", false),
            (b"\x89PNG\xff\xda", false),
            (b"", false),
        ];
        for (bytes, expected) in cases {
            assert_eq!(is_truncated_jpeg(bytes), expected, "{bytes:?}");
        }
    }
}
