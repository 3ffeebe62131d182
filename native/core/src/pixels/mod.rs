//! Augmentation of pictures: values (`adjust`), coordinates (`warp`), neighbours (`blur`) and whole batches (`mix`).
//!
//! Pictures are interleaved bytes of one or three channels, row by row without gaps. Every function reads one slice and
//! writes another of the same length, and allocates at most a few rows. The NumPy and Pillow specifications in
//! `penstock.transforms` define each result, to the bit; all levels give the same.

pub mod adjust;
pub mod blur;
pub mod mix;
mod values;
pub mod warp;
