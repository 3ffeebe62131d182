//! Augmentation of pictures: values (`adjust`), places (`warp`), neighbours (`blur`) and whole batches (`mix`).
//!
//! Pictures are interleaved bytes of one or three channels, row by row without gaps. Every function reads one slice and
//! writes another of the same length; none allocates more than a few rows. What each result is, to the bit, is said by
//! the NumPy and Pillow specifications in `penstock.transforms`; every level gives the same.

pub mod adjust;
pub mod blur;
pub mod mix;
mod values;
pub mod warp;
