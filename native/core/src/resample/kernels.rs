//! The kernels of both passes, each in the best version that a level allows.

use super::arranged_taps;
#[cfg(target_arch = "x86_64")]
use super::avx2;
#[cfg(target_arch = "x86_64")]
use super::avx512;
#[cfg(target_arch = "aarch64")]
use super::neon;
use super::scalar;
use crate::simd::{Available, dispatch};

/// Computes a line of 16-bit values from source rows: see [`scalar::vertical_convex`].
pub fn vertical_convex(level: Available, rows: &[u8], offsets: &[usize], weights: &[i16], drop: u32, out: &mut [i16]) {
    dispatch!(
        level,
        [Avx512, Avx2, Neon],
        vertical_convex(rows, offsets, weights, drop, out)
    );
}

/// Computes a row of each plane from such lines: see [`scalar::horizontal_convex`].
#[allow(clippy::too_many_arguments)] // two strided groups of planes; a struct for one caller would say no more
pub fn horizontal_convex(
    level: Available,
    line: &[i16],
    line_stride: usize,
    horizontal: &arranged_taps::ConvexTaps,
    drop: u32,
    out: &mut [u8],
    out_stride: usize,
    planes: usize,
) {
    dispatch!(
        level,
        [Avx512, Avx2, Neon],
        horizontal_convex(line, line_stride, horizontal, drop, out, out_stride, planes)
    );
}

/// Writes bytes as 16-bit values.
pub fn widen(level: Available, row: &[u8], out: &mut [i16]) {
    dispatch!(level, [Avx2, Neon], widen(row, out));
}

/// Computes a narrower row of 16-bit values of each plane: see [`scalar::horizontal_convex_words`].
#[allow(clippy::too_many_arguments)] // as above
pub fn horizontal_convex_words(
    level: Available,
    line: &[i16],
    line_stride: usize,
    horizontal: &arranged_taps::ConvexTaps,
    drop: u32,
    out: &mut [i16],
    out_stride: usize,
    planes: usize,
) {
    dispatch!(
        level,
        [Avx512, Avx2, Neon],
        horizontal_convex_words(line, line_stride, horizontal, drop, out, out_stride, planes)
    );
}

/// Computes a row from rows of 16-bit values: see [`scalar::vertical_convex_words`].
pub fn vertical_convex_words(
    level: Available,
    rows: &[i16],
    offsets: &[usize],
    weights: &[i16],
    drop: u32,
    out: &mut [u8],
) {
    dispatch!(
        level,
        [Avx512, Avx2, Neon],
        vertical_convex_words(rows, offsets, weights, drop, out)
    );
}

/// Computes a row of 16-bit values from rows of them: see [`scalar::vertical_words`].
pub fn vertical_words(level: Available, rows: &[i16], offsets: &[usize], weights: &[i16], drop: u32, out: &mut [i16]) {
    dispatch!(level, [Avx2], vertical_words(rows, offsets, weights, drop, out));
}

/// Computes a row from rows: see [`scalar::vertical_lobed`].
pub fn vertical_lobed(level: Available, rows: &[u8], offsets: &[usize], weights: &[i32], out: &mut [u8]) {
    dispatch!(level, [Avx2, Neon], vertical_lobed(rows, offsets, weights, out));
}

/// Computes a narrower row from a row: see [`scalar::horizontal_lobed`].
pub fn horizontal_lobed(level: Available, line: &[u8], horizontal: &arranged_taps::LobedTaps, out: &mut [u8]) {
    dispatch!(level, [Avx2, Neon], horizontal_lobed(line, horizontal, out));
}
