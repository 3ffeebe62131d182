//! Lines of bytes: interleave, reverse, normalise.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

use crate::simd::{Available, dispatch};

/// `value * scale[c] + offset[c]` in single precision, rounded after each operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine {
    /// Factor for each channel.
    pub scale: [f32; 3],
    /// Summand for each channel.
    pub offset: [f32; 3],
}

impl Affine {
    /// The parameters of channel `c`, for all three channels.
    pub fn channel(self, c: usize) -> Self {
        Self {
            scale: [self.scale[c]; 3],
            offset: [self.offset[c]; 3],
        }
    }
}

pub use scalar::{bfloat_bits, half_bits};

/// The number of rows that [`transpose`] takes.
pub const TRANSPOSED_ROWS: usize = 16;

/// Writes `rows` as columns: `out[c * stride + r] = rows[r][c]`, or with the last column of `rows` first.
pub fn transpose(level: Available, rows: &[&[u8]; TRANSPOSED_ROWS], is_mirrored: bool, out: &mut [u8], stride: usize) {
    dispatch!(level, [Avx2, Neon], transpose(rows, is_mirrored, out, stride));
}

/// Writes `line` to `out` from its end to its start.
pub fn reverse(level: Available, line: &[u8], out: &mut [u8]) {
    dispatch!(level, [Avx2, Neon], reverse(line, out));
}

/// Writes three planes as r, g, b, r, g, b, ...
pub fn interleave(level: Available, planes: [&[u8]; 3], out: &mut [u8]) {
    dispatch!(level, [Avx2, Neon], interleave(planes, out));
}

/// Writes r, g, b, r, g, b, ... as three planes.
pub fn deinterleave(level: Available, line: &[u8], planes: [&mut [u8]; 3]) {
    dispatch!(level, [Avx2, Neon], deinterleave(line, planes));
}

/// Writes normalised values. Channels alternate with period 3.
pub fn normalise_f32(level: Available, line: &[u8], affine: &Affine, out: &mut [f32]) {
    dispatch!(level, [Avx2, Neon], normalise_f32(line, affine, out));
}

/// Writes values as the bits of half-precision floats, rounded to nearest, ties to even.
pub fn halves(level: Available, values: &[f32], out: &mut [u16]) {
    dispatch!(level, [Avx2, Neon], halves(values, out));
}

/// Writes values as the bits of bfloat16 numbers, rounded to nearest, ties to even.
pub fn bfloats(level: Available, values: &[f32], out: &mut [u16]) {
    dispatch!(level, [Avx2, Neon], bfloats(values, out));
}

/// Writes normalised values as the bits of half-precision floats, rounded to nearest, ties to even. Channels alternate
/// with period 3.
pub fn normalise_f16(level: Available, line: &[u8], affine: &Affine, out: &mut [u16]) {
    dispatch!(level, [Avx2, Neon], normalise_f16(line, affine, out));
}

/// Writes normalised values as the bits of bfloat16 numbers, rounded to nearest, ties to even. Channels alternate with
/// period 3.
pub fn normalise_bf16(level: Available, line: &[u8], affine: &Affine, out: &mut [u16]) {
    dispatch!(level, [Avx2, Neon], normalise_bf16(line, affine, out));
}
