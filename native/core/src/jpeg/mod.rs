//! JPEG decoding, baseline and progressive. It is bit-exact with libjpeg-turbo (islow IDCT, fancy upsampling), for whole
//! images and regions, at full size, a half, a quarter or an eighth.
//!
//! ```text
//! bytes ── header ── tables ──┐
//!   │      (format)           │
//!   └─ scan ── unstuff ── entropy ── coefficients ── idct ── samples ── upsample ── color ── RowSink
//!      (scans)             (entropy) (one MCU row)          (a strip and a row of context)   (kernels)
//! ```
//!
//! A picture is decoded in strips of one MCU row, so that everything after the file's bytes stays in cache, and memory
//! depends only on the region's width. The entropy decoder skips blocks outside the region; rows below the region are not
//! read. With a seek table ([`SeekTable`], [`DecodeHints`]), blocks above the region and most beside it are not read
//! either, and two rows of MCUs can be decoded at once.
//!
//! A progressive file, and any other file of several scans, is decoded in two steps: all scan headers are read, then all
//! scans fill the coefficients of the picture down to the region's last row. The strips are made from these.
//!
//! ```text
//! bytes ── header ── script ───────┐
//!   └─ scans ── unstuff ── entropy ── coefficients ── idct ── ...
//!                         (progressive,  (all of them)
//!                          refinement)
//! ```
//!
//! Where libjpeg would decode with a warning, this decoder returns [`crate::error::Error::Corrupt`]: a successful decode
//! has libjpeg's pixels. [`Decoder::decode_damaged`] decodes such files as libjpeg does.
//!
//! Where to find what:
//!
//! - what a file may declare: `Limits` in `format/header.rs`
//! - kernels: `kernels/`; a kernel's scalar code is its specification, SIMD files lie beside it
//! - where decoding may begin inside a file: `seek/`; tables are kept by `penstock/stores/common/seek_table_file.py`,
//!   made by `penstock/pack/seek_tables.py`, or while decoding by `penstock/datasets/store/seek_tables.py`;
//!   `docs/decisions/0009-*`
//! - progressive files, and others of several scans: `scans/`, `entropy/progressive.rs`; rewritten without loss:
//!   `transcode/`
//! - decoding at a fraction of the size: `scale.rs`; `docs/scaled-decoding.md`; `docs/decisions/0011-*`
//! - what becomes of truncated and damaged files: `repair/`; `docs/decisions/0023-*`
//! - what a device is given to decode: `packet/`; `docs/decisions/0030-*`

mod coefficients;
mod decoder;
mod entropy;
mod format;
mod kernels;
mod mcu_rows;
pub(crate) mod packet;
mod read_ahead;
mod region;
mod repair;
mod sample_strips;
mod scale;
mod scans;
mod seek;
mod strips;
mod transcode;

pub use coefficients::{is_record, to_jpeg, to_record};
pub use decoder::Decoder;
pub use format::exif::orientation;
pub(crate) use format::exif::orientation_of_tiff;
pub use format::header::{Header, Limits};
pub use format::markers::{Color, Process};
pub use format::summary::{Summary, inspect};
pub use region::Region;
pub(crate) use scale::ChromaGrid;
pub use scale::Scale;
pub use seek::hints::{DecodeHints, SeekReport};
pub use seek::table::{SeekTable, SeekTableKind};
pub use transcode::transcode_baseline;
