//! Kernels on samples: inverse DCT, upsampling, colour conversion. Each kernel is a folder with a scalar specification
//! and its vector versions.

pub(crate) mod color;
pub(crate) mod idct;
pub(crate) mod idct_scaled;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod upsample;
