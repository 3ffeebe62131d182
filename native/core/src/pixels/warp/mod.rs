//! Warps: a picture mapped onto itself.
//!
//! The arithmetic is that of `PIL.Image.transform`: affine maps to the nearest pixel use 16.16 fixed point as far as
//! its range allows, everything else double precision. Interpolated values are truncated. [`window`] writes a part of a
//! mapped picture, in single precision.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
pub mod window;

use crate::simd::{Available, dispatch};

/// A map from the result to the source in continuous coordinates: pixel (0, 0) has its centre at (0.5, 0.5).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Map {
    /// x and y: `m[0] x + m[1] y + m[2]`, `m[3] x + m[4] y + m[5]`.
    Affine([f64; 6]),
    /// Both divided by `m[6] x + m[7] y + 1`.
    Projective([f64; 8]),
}

/// How the source is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// The pixel that contains the position.
    Nearest,
    /// The four nearest pixels, weighted by distance.
    Bilinear,
}

/// An image of `N` channels.
#[derive(Clone, Copy, Debug)]
pub struct SourceImage<'a, const N: usize> {
    /// Pixels, row by row.
    pub pixels: &'a [[u8; N]],
    /// Pixels per row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// Writes the mapped picture, which has the size of the source. Pixels from outside the source become `fill`.
///
/// # Panics
/// If lengths do not match the size, or the picture has 2^31 pixels or more: indices have 32 bits.
pub fn warp<const N: usize>(
    source: SourceImage<'_, N>,
    map: &Map,
    sampling: Sampling,
    fill: [u8; N],
    out: &mut [[u8; N]],
    level: Available,
) {
    assert!(source.pixels.len() == source.width * source.height && out.len() == source.pixels.len());
    assert!(i32::try_from(out.len()).is_ok(), "{} pixels", out.len());
    if out.is_empty() {
        return;
    }
    match (sampling, map) {
        (Sampling::Nearest, Map::Affine(m)) => scalar::affine_nearest(source, m, fill, out),
        (Sampling::Nearest, Map::Projective(_)) => dispatch!(level, [Avx2, Neon], nearest(source, map, fill, out)),
        (Sampling::Bilinear, _) if N == 3 => {
            let (source, out) = (as_rgb_source(source), as_rgb_mut(out));
            let fill = *fill.first_chunk().expect("three channels");
            dispatch!(level, [Avx2, Neon], bilinear(source, map, fill, out));
        }
        (Sampling::Bilinear, _) => scalar::bilinear(source, map, fill, out),
    }
}

/// The same image, whose pixels have three channels.
fn as_rgb_source<const N: usize>(source: SourceImage<'_, N>) -> SourceImage<'_, 3> {
    SourceImage {
        pixels: source.pixels.as_flattened().as_chunks().0,
        width: source.width,
        height: source.height,
    }
}

/// The same pixels, which have three channels.
fn as_rgb_mut<const N: usize>(pixels: &mut [[u8; N]]) -> &mut [[u8; 3]] {
    pixels.as_flattened_mut().as_chunks_mut().0
}
