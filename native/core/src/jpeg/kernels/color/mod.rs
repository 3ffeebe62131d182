//! YCbCr to RGB as libjpeg does it (`jdcolor.c`, 16-bit fixed point): the scalar specification, and the dispatch.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;

use crate::jpeg::format::markers::Color;
use crate::simd::{Available, dispatch};

/// Bytes past its end that kernels may read of a source row.
pub(crate) const SPARE: usize = 64;

/// A row of `width` pixels, interleaved, to `out` (exactly `3 * width` bytes). Gray: all three sources are the same.
pub(crate) fn interleaved(level: Available, color: Color, sources: [&[u8]; 3], width: usize, out: &mut [u8]) {
    let (ycbcr, out) = (color == Color::YCbCr, &mut out[..3 * width]);
    dispatch!(level, [Avx512, Avx2], interleaved(ycbcr, sources, out))
}

/// A row of `width` pixels to three planes, each as long as [`crate::rows::planar_row_len`] says.
pub(crate) fn planar(level: Available, color: Color, sources: [&[u8]; 3], width: usize, out: [&mut [u8]; 3]) {
    if color != Color::YCbCr {
        for (plane, source) in out.into_iter().zip(sources) {
            plane[..width].copy_from_slice(&source[..width]);
        }
        return;
    }
    dispatch!(level, [Avx512, Avx2], planar(sources, width, out))
}
