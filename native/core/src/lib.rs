//! Penstock's pixels: JPEG decoding, resampling and the fused fill of a batch's rows. Knows no Python.

pub mod concat;
pub mod error;
pub mod fill;
pub mod jpeg;
mod memory;
pub mod philox;
pub mod pixels;
pub mod resample;
pub mod rows;
pub mod simd;
