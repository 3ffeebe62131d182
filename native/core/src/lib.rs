//! The native core of Penstock: decoding of JPEG, PNG and WebP, resampling, and filling of a batch's rows. It does not depend on Python.

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
