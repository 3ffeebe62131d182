//! Kernels on the planes of a block of pixels: look-up, luma, blend, hue. All planes have one length, a multiple of
//! [`STEP`].

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
pub mod scalar;
pub mod shift_hsv;

use crate::simd::{Available, dispatch};

/// A table with the new value of each value.
pub type LookupTable = [u8; 256];

/// Lengths of planes are multiples of this.
pub const STEP: usize = 32;

/// Replaces each value by the table's.
pub fn lookup(level: Available, plane: &mut [u8], table: &LookupTable) {
    dispatch!(level, [Avx512, Avx2, Neon], lookup(plane, table));
}

/// Computes ITU-R BT.601 luma in 16 fractional bits, rounded, as Pillow does.
pub fn luma(level: Available, planes: [&[u8]; 3], out: &mut [u8]) {
    dispatch!(level, [Avx2, Neon], luma(planes, out));
}

/// Computes `base + factor * (plane - base)`, clipped, as Pillow's `Image.blend` does.
pub fn blend(level: Available, base: &[u8], plane: &mut [u8], factor: f32) {
    dispatch!(level, [Avx2, Neon], blend(base, plane, factor));
}

/// Converts to Pillow's 8-bit HSV, adds `turn` to the hue modulo 256, and converts back.
pub fn rotate_hue(level: Available, planes: [&mut [u8]; 3], turn: u8) {
    dispatch!(level, [Avx2, Neon], rotate_hue(planes, turn));
}
