//! A window on an affinely mapped picture, by bilinear sampling.
//!
//! Positions are computed in double precision, as by [`super::warp`]; weights and sums have single precision. Values are
//! truncated. Of a million values of photographs about fifty differ from those of [`super::warp`], by one level.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

use super::SourceImage;
use crate::fill::{Layout, lines};
use crate::pixels::values::STEP;
use crate::pixels::values::shift_hsv::{HsvShift, shift_hsv};
use crate::simd::{Available, dispatch};

/// An affine map from the window to the source: x and y are `m[0] x + m[1] y + m[2]`, `m[3] x + m[4] y + m[5]`.
pub type AffineMap = [f64; 6];

/// A window, and what is done with its colours.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The map from the window to the source.
    pub map: AffineMap,
    /// Its width and height.
    pub size: [usize; 2],
    /// The colour of pixels from outside the source.
    pub fill: [u8; 3],
    /// A change of colours.
    pub shift: Option<HsvShift>,
    /// The order of the result's axes.
    pub layout: Layout,
}

/// Pixels of a band of rows: its planes stay in the caches.
const BAND: usize = 1 << 13;

/// Draws a window.
///
/// # Panics
/// If lengths do not match the sizes, or the source has 2^32 bytes or more: offsets have 32 bits.
pub fn draw(source: SourceImage<'_, 3>, window: &Window, out: &mut [u8], level: Available) {
    let [width, height] = window.size;
    assert!(source.pixels.len() == source.width * source.height && out.len() == 3 * width * height);
    let bytes = source.pixels.as_flattened().len();
    assert!(u32::try_from(bytes).is_ok(), "{bytes} bytes");
    if out.is_empty() {
        return;
    }
    if window.layout == Layout::Hwc && window.shift.is_none() {
        return draw_rows(source, window, 0, out.as_chunks_mut().0, level);
    }
    let band = (BAND / width).clamp(1, height);
    let mut line = vec![[0; 3]; band * width];
    let mut planes = [(); 3].map(|()| vec![0; (band * width).next_multiple_of(STEP)]);
    for first in (0..height).step_by(band) {
        let count = band.min(height - first) * width;
        let line = &mut line[..count];
        draw_rows(source, window, first, line, level);
        let [r, g, b] = &mut planes;
        lines::deinterleave(
            level,
            line.as_flattened(),
            [&mut r[..count], &mut g[..count], &mut b[..count]],
        );
        if let Some(shift) = &window.shift {
            let padded = count.next_multiple_of(STEP);
            shift_hsv(level, [&mut r[..padded], &mut g[..padded], &mut b[..padded]], shift);
        }
        match window.layout {
            Layout::Hwc => {
                let out = &mut out[3 * first * width..][..3 * count];
                lines::interleave(level, [&r[..count], &g[..count], &b[..count]], out);
            }
            Layout::Chw => {
                for (plane, out) in planes.iter().zip(out.chunks_exact_mut(width * height)) {
                    out[first * width..][..count].copy_from_slice(&plane[..count]);
                }
            }
        }
    }
}

/// Draws rows from `first` on.
fn draw_rows(source: SourceImage<'_, 3>, window: &Window, first: usize, out: &mut [[u8; 3]], level: Available) {
    let (map, fill, place) = (&window.map, window.fill, [first, window.size[0]]);
    dispatch!(level, [Avx512, Avx2, Neon], window(source, map, fill, place, out));
}

/// Where the neighbours of positions lie.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// Each position has four pixels around it, and one more to the right of these.
    Inside,
    /// No position is inside the source.
    Outside,
    /// Anything else.
    Border,
}

/// What kernels know of a row.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
struct Line {
    /// Whether the map has no rotation and no shear: each row has the same columns, and one row of the source.
    is_upright: bool,
    /// That of the row's position; inside, if that is not the same for all pixels.
    place: Place,
    /// Offset in bytes of the upper row of the source; 0, if it is not the same for all pixels.
    start: usize,
    /// Distance from the centre of that.
    fraction: f32,
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl Line {
    #[inline]
    fn of(source: &SourceImage<'_, 3>, map: &AffineMap, y: usize) -> Self {
        if map[1] != 0.0 || map[3] != 0.0 {
            return Self {
                is_upright: false,
                place: Place::Inside,
                start: 0,
                fraction: 0.0,
            };
        }
        let position = map[3] * 0.5 + map[4] * (y as f64 + 0.5) + map[5];
        let is_outside = !(position >= 0.0 && position < source.height as f64);
        let position = position - 0.5;
        let top = position.floor();
        let is_inside = top >= 0.0 && top + 2.0 <= source.height as f64;
        Self {
            is_upright: true,
            place: match (is_outside, is_inside) {
                (true, _) => Place::Outside,
                (_, true) => Place::Inside,
                _ => Place::Border,
            },
            start: if is_inside { top as usize * 3 * source.width } else { 0 },
            fraction: (position - top) as f32,
        }
    }
}
