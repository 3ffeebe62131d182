//! Markers and headers.

pub(crate) mod exif;
pub(crate) mod header;
pub(crate) mod markers;
pub(crate) mod summary;
