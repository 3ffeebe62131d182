//! JPEG decoding, baseline and progressive, bit-exact with libjpeg-turbo (islow IDCT, fancy upsampling), of whole images
//! and of regions, at full size and at a half, a quarter or an eighth of it.
//!
//! ```text
//! bytes ── header ── tables ──┐
//!   │      (markers)  (huffman)│
//!   └─ scan ── unstuff ── entropy ── coefficients ── idct ── planes ── upsample ── color ── RowSink
//!      intervals  window   (MCUs)    (one MCU row)          (one MCU row and a row of context)
//! ```
//!
//! The picture is decoded strip by strip (an MCU row each), so that everything after the file's bytes stays in cache and
//! memory grows with the region's width only. Blocks outside the region are passed over by the entropy decoder and cost
//! nothing else; rows below it are not read. With an index ([`SeekTable`], [`DecodeHints`]) blocks above, and most beside it, are not
//! even read.
//!
//! A file of several scans, which every progressive one is, comes to the same strips on another way: its scans are looked
//! through first, then all are decoded into the coefficients of the picture down to the region's last row.
//!
//! ```text
//! bytes ── header ── script ─┐
//!   └─ scans ── unstuff ── band ── coefficients ── idct ── ...
//!      (progressive)  or whole     (all of them)
//! ```
//!
//! Beside each `*_avx2` and `*_avx512` kernel stands the scalar one that specifies it. Whatever libjpeg would decode with a warning is
//! [`crate::error::Error::Corrupt`] here: a decode that succeeds gives libjpeg's pixels.

mod decoder;
mod entropy;
mod format;
mod kernels;
mod read_ahead;
mod sample_strips;
mod scale;
mod scans;
mod seek;
mod strips;
mod transcode;

pub use decoder::{Decoder, Region};
pub use format::header::{Header, Limits};
pub use format::markers::{Color, Process};
pub use format::summary::{Summary, inspect};
pub use scale::Scale;
pub use seek::hints::{DecodeHints, SeekReport};
pub use seek::table::{SeekTable, SeekTableKind};
pub use transcode::transcode_baseline;
