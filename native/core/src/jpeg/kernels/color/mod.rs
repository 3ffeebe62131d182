//! YCbCr to RGB as libjpeg does it (`jdcolor.c`, 16-bit fixed point): the scalar specification, and the dispatch.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;

use crate::jpeg::format::markers::Color;
use crate::simd::Level;

/// Bytes past its end that kernels may read of a source row.
pub(crate) const SPARE: usize = 64;

/// One pixel.
pub(crate) fn rgb(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    const HALF: i32 = 1 << 15;
    let red = y + ((91881 * cr + HALF) >> 16);
    let green = y + ((-22554 * cb - 46802 * cr + HALF) >> 16);
    let blue = y + ((116130 * cb + HALF) >> 16);
    [red, green, blue].map(|v| v.clamp(0, 255) as u8)
}

/// A row of `width` pixels, interleaved, to `out` (exactly `3 * width` bytes). Gray: all three sources are the same.
pub(crate) fn interleaved(level: Level, color: Color, sources: [&[u8]; 3], width: usize, out: &mut [u8]) {
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is only ever one that the processor has.
        Level::Avx512 => unsafe { avx512::interleaved(color == Color::YCbCr, sources, &mut out[..3 * width]) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx2 => unsafe { avx2::interleaved(color == Color::YCbCr, sources, &mut out[..3 * width]) },
        _ => {
            let [a, b, c] = sources;
            for (((pixel, &a), &b), &c) in out[..3 * width].chunks_exact_mut(3).zip(a).zip(b).zip(c) {
                pixel.copy_from_slice(&if color == Color::YCbCr { rgb(a, b, c) } else { [a, b, c] });
            }
        }
    }
}

/// A row of `width` pixels to three planes, each as long as [`crate::rows::planar_row_len`] says.
pub(crate) fn planar(level: Level, color: Color, sources: [&[u8]; 3], width: usize, out: [&mut [u8]; 3]) {
    if color != Color::YCbCr {
        for (plane, source) in out.into_iter().zip(sources) {
            plane[..width].copy_from_slice(&source[..width]);
        }
        return;
    }
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is only ever one that the processor has.
        Level::Avx512 => unsafe { avx512::planar(sources, width, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx2 => unsafe { avx2::planar(sources, width, out) },
        _ => {
            let [red, green, blue] = out;
            for i in 0..width {
                [red[i], green[i], blue[i]] = rgb(sources[0][i], sources[1][i], sources[2][i]);
            }
        }
    }
}
