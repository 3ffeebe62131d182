//! Conversion of YCbCr to RGB by libjpeg's rules (`jdcolor.c`, 16-bit fixed point).

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

use crate::jpeg::format::markers::Color;
use crate::simd::{Available, dispatch};

/// Kernels read up to this many bytes past the end of a source row.
pub(crate) const SPARE: usize = 64;

/// Writes a row of `width` pixels as interleaved RGB to `out` (exactly `3 * width` bytes). For gray, all sources are
/// the same.
pub(crate) fn interleaved(level: Available, color: Color, sources: [&[u8]; 3], width: usize, out: &mut [u8]) {
    let (ycbcr, out) = (color == Color::YCbCr, &mut out[..3 * width]);
    dispatch!(level, [Avx512, Avx2, Neon], interleaved(ycbcr, sources, out))
}

/// Writes a row of `width` pixels as three planes. Each is as long as [`crate::rows::planar_row_len`] says.
pub(crate) fn planar(level: Available, color: Color, sources: [&[u8]; 3], width: usize, out: [&mut [u8]; 3]) {
    if color != Color::YCbCr {
        for (plane, source) in out.into_iter().zip(sources) {
            plane[..width].copy_from_slice(&source[..width]);
        }
        return;
    }
    dispatch!(level, [Avx512, Avx2, Neon], planar(sources, width, out))
}
