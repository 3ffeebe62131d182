//! Markers and headers.

pub(crate) mod header;
pub(crate) mod markers;
pub(crate) mod summary;
