//! PNG decoding (W3C PNG, third edition): every colour type and depth, interlaced or not, as RGB or as stored values.
//!
//! ```text
//! bytes ── header ── IDAT chunks ── inflate ── lines ── unfilter ── pixels ── RowSink
//!        (chunks)                 (a window of bytes) (two lines)
//! ```
//!
//! Lines are inflated and unfiltered one after another, down to the last that is needed and up to the rightmost column
//! that is needed. Memory depends on the width only, except for interlaced files, which are decoded whole.
//!
//! The pixels are Pillow's. What Pillow may refuse, or reads in its own way, is refused here (damaged chunks, animation,
//! large compressed texts), so that Pillow decides. As in Pillow, checksums of IDAT chunks are not compared; that of the
//! inflated bytes is, if the last row is decoded.

mod chunks;
mod decoder;
mod header;
mod inflate;
mod metadata;
mod pixels;
pub mod unfilter;

pub use decoder::{Decoder, Values};
pub use header::Header;
pub use metadata::orientation;

/// The first bytes of every file.
pub const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
