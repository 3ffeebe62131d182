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
        if bytes.starts_with(png::SIGNATURE) {
            return Ok(Self::Png(png::Header::parse(bytes, limits)?));
        }
        if webp::is_webp(bytes) {
            return Ok(Self::WebP(webp::Header::parse(bytes, limits)?));
        }
        Ok(Self::Jpeg(jpeg::Header::parse(bytes, limits)?))
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
