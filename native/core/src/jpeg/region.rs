//! The part of a picture that is decoded.

use crate::jpeg::format::header::Header;
use crate::jpeg::scale::Scale;

/// A rectangle of the picture's samples at a scale. It is not empty and lies inside the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Left edge.
    pub x: usize,
    /// Top edge.
    pub y: usize,
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// The scale of the picture that `x`, `y`, `width` and `height` refer to.
    pub scale: Scale,
}

impl Region {
    /// The whole picture.
    pub fn whole(header: &Header<'_>) -> Self {
        Self::whole_at(header, Scale::Full)
    }

    /// The whole picture at a scale.
    pub fn whole_at(header: &Header<'_>, scale: Scale) -> Self {
        Region {
            x: 0,
            y: 0,
            width: scale.side(header.width),
            height: scale.side(header.height),
            scale,
        }
    }

    /// Whether the region is not empty and lies inside the picture.
    pub fn is_inside(&self, header: &Header<'_>) -> bool {
        let Region { width, height, .. } = Self::whole_at(header, self.scale);
        let fits = |from: usize, length: usize, size: usize| length > 0 && from < size && length <= size - from;
        fits(self.x, self.width, width) && fits(self.y, self.height, height)
    }
}
