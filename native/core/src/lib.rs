//! The native core of Penstock: decoding of JPEG, PNG and WebP, resampling, and filling of a batch's rows. It does not depend on Python.
//!
//! Where to find what:
//!
//! - the decoder of JPEG: `jpeg/mod.rs`; PNG and WebP, and by which libraries they are read: `png/`, `webp/`,
//!   `image.rs`; `docs/decisions/0028-*`
//! - what happens without memory: `memory.rs`
//! - how a kernel is called for a processor, and where a version for another one goes: `simd/`;
//!   `docs/decisions/0012-*`, `docs/decisions/0029-*`
//! - the resize: `resample/`; why the passes differ in order: `docs/decisions/0003-order-of-resize-passes.md`
//! - resizing luma and chroma before they become RGB: `fill/late_color.rs`; `docs/decisions/0032-*`
//! - how rows of a batch are filled, and what is drawn for them: `fill/mod.rs`, `fill/steps.rs`
//! - kernels of augmentation: `pixels/`

pub mod concat;
pub mod crc32c;
pub mod error;
pub mod fill;
pub mod image;
pub mod jpeg;
mod memory;
pub mod pack;
pub mod philox;
pub mod pixels;
pub mod png;
pub mod resample;
pub mod rows;
pub mod seek_table_file;
pub mod simd;
pub mod tf_example;
pub mod webp;
pub mod windows;
