//! WebP decoding by libwebp: lossy and lossless still images, whole or in part, as RGB.
//!
//! ```text
//! bytes ── header (container) ── libwebp: the region and two pixels around it ── rows ── RowSink
//! ```
//!
//! libwebp decodes down to the last row that is needed. Chroma is upsampled from the neighbours of a pixel, and at the
//! edges of a crop without them: two pixels around the region make its pixels those of the whole picture.
//!
//! The pixels are Pillow's, which uses libwebp too. What Pillow may refuse or reads in its own way is refused here:
//! animations, separate alpha, containers that break a rule.

mod decoder;
mod header;

pub use decoder::Decoder;
pub use header::{Header, is_webp, orientation};
