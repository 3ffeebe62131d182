//! The one place where an implementation is chosen.

#[cfg(target_arch = "x86_64")]
use super::avx2;
#[cfg(target_arch = "x86_64")]
use super::avx512;
use super::near;
use super::scalar;
use crate::simd::Level;

/// Made from an available level only.
#[derive(Clone, Copy, Debug)]
pub struct Kernels(Level);

impl Kernels {
    pub fn new(level: Level) -> Self {
        Self(level.available())
    }

    pub fn level(self) -> Level {
        self.0
    }

    pub fn vertical_convex(self, rows: &[u8], offsets: &[usize], weights: &[i16], drop: u32, out: &mut [i16]) {
        match self.0 {
            // SAFETY: this level is available
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { avx512::vertical_convex(rows, offsets, weights, drop, out) },
            // SAFETY: as above
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { avx2::vertical_convex(rows, offsets, weights, drop, out) },
            _ => scalar::vertical_convex(rows, offsets, weights, drop, out),
        }
    }

    #[allow(clippy::too_many_arguments)] // two strided groups of planes; a struct for one caller would say no more
    pub fn horizontal_convex(
        self,
        line: &[i16],
        line_stride: usize,
        horizontal: &near::Convex,
        drop: u32,
        out: &mut [u8],
        out_stride: usize,
        planes: usize,
    ) {
        match self.0 {
            // SAFETY: this level is available
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe {
                avx512::horizontal_convex(line, line_stride, horizontal, drop, out, out_stride, planes)
            },
            // SAFETY: as above
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe {
                avx2::horizontal_convex(line, line_stride, horizontal, drop, out, out_stride, planes)
            },
            _ => {
                let taps = &horizontal.taps;
                for plane in 0..planes {
                    let out = &mut out[plane * out_stride..][..taps.starts.len()];
                    scalar::horizontal_convex(&line[plane * line_stride..], taps, drop, out);
                }
            }
        }
    }

    pub fn vertical_lobed(self, rows: &[u8], offsets: &[usize], weights: &[i32], out: &mut [u8]) {
        match self.0 {
            // SAFETY: this level is available
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::Avx512 => unsafe { avx2::vertical_lobed(rows, offsets, weights, out) },
            _ => scalar::vertical_lobed(rows, offsets, weights, out),
        }
    }

    pub fn horizontal_lobed(self, line: &[u8], horizontal: &near::Lobed, out: &mut [u8]) {
        match self.0 {
            // SAFETY: this level is available
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::Avx512 => unsafe { avx2::horizontal_lobed(line, horizontal, out) },
            _ => scalar::horizontal_lobed(line, &horizontal.taps, &mut out[..horizontal.taps.starts.len()]),
        }
    }
}
