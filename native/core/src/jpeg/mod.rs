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
//! nothing else; rows below it are not read. With an index ([`Index`], [`Guide`]) blocks above, and most beside it, are not
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

mod ahead;
mod band;
mod bits;
mod coefficients;
mod color;
#[cfg(target_arch = "x86_64")]
mod color_avx2;
#[cfg(target_arch = "x86_64")]
mod color_avx512;
mod decoder;
mod entropy;
#[cfg(test)]
mod entropy_tests;
mod guide;
mod header;
mod huffman;
mod huffman_code;
mod idct;
#[cfg(target_arch = "x86_64")]
mod idct_avx2;
#[cfg(target_arch = "x86_64")]
mod idct_avx512;
mod idct_scaled;
#[cfg(target_arch = "x86_64")]
mod idct_scaled_avx2;
mod index;
mod index_bytes;
#[cfg(all(test, target_arch = "x86_64"))]
mod kernel_tests;
mod markers;
mod planes;
mod progressive;
mod scale;
mod scan;
mod script;
mod summary;
mod transcode;
#[cfg(test)]
mod transcode_tests;
mod unstuff;
mod upsample;
#[cfg(target_arch = "x86_64")]
mod upsample_avx2;
#[cfg(target_arch = "x86_64")]
mod upsample_avx512;
#[cfg(target_arch = "x86_64")]
mod vector;
mod walk;
mod whole;

pub use decoder::{Decoder, Region};
pub use guide::{Found, Guide};
pub use header::{Header, Limits};
pub use index::{Index, Kind};
pub use markers::{Color, Process};
pub use scale::Scale;
pub use summary::{Summary, inspect};
pub use transcode::transcode_baseline;
