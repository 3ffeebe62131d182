//! Warps with AVX2, four pixels at a time, in double precision like the specification.

use core::arch::x86_64::*;

use super::{Map, SourceImage};
use crate::simd::avx2::store16;

/// See [`super::warp`].
#[target_feature(enable = "avx2")]
pub(super) fn bilinear(source: SourceImage<'_, 3>, map: &Map, fill: [u8; 3], out: &mut [[u8; 3]]) {
    // Eight bytes are read from an upper and a lower row, of which six are used. Therefore the last two columns of the
    // last row are left to the scalar code, and so are positions with fewer than four pixels around them.
    let (inner, whole) = (Bounds::inner(&source), Bounds::whole(&source));
    for (y, row) in out.chunks_exact_mut(source.width).enumerate() {
        let v = y as f64 + 0.5;
        let (fours, rest) = row.as_chunks_mut::<4>();
        for (i, four) in fours.iter_mut().enumerate() {
            let u = (4 * i) as f64 + 0.5;
            let positions = map_positions(map, u, v);
            let between = positions.between_centres();
            if inner.hold(&between) == 0b1111 {
                // SAFETY: `inner` holds all positions.
                unsafe { mix(&source, &between, four) };
            } else if whole.hold(&positions) == 0 {
                *four = [fill; 4];
            } else {
                for (x, out) in four.iter_mut().enumerate() {
                    *out = one(&source, map, u + x as f64, v).unwrap_or(fill);
                }
            }
        }
        let done = 4 * fours.len();
        for (x, out) in rest.iter_mut().enumerate() {
            *out = one(&source, map, (done + x) as f64 + 0.5, v).unwrap_or(fill);
        }
    }
}

fn one(source: &SourceImage<'_, 3>, map: &Map, u: f64, v: f64) -> Option<[u8; 3]> {
    let (x, y) = map.source_point(u, v);
    source.interpolate_at(x, y)
}

/// Positions of four pixels in the source.
struct Positions {
    x: __m256d,
    y: __m256d,
}

#[inline]
#[target_feature(enable = "avx2")]
fn map_positions(map: &Map, u: f64, v: f64) -> Positions {
    let x = _mm256_add_pd(_mm256_set1_pd(u), _mm256_setr_pd(0.0, 1.0, 2.0, 3.0));
    let y = _mm256_set1_pd(v);
    let linear = |a: f64, b: f64, c: f64| {
        let sum = _mm256_add_pd(_mm256_mul_pd(_mm256_set1_pd(a), x), _mm256_mul_pd(_mm256_set1_pd(b), y));
        _mm256_add_pd(sum, _mm256_set1_pd(c))
    };
    let (x, y) = match map {
        Map::Affine(m) => (linear(m[0], m[1], m[2]), linear(m[3], m[4], m[5])),
        Map::Projective(m) => {
            let below = linear(m[6], m[7], 1.0);
            (
                _mm256_div_pd(linear(m[0], m[1], m[2]), below),
                _mm256_div_pd(linear(m[3], m[4], m[5]), below),
            )
        }
    };
    Positions { x, y }
}

impl Positions {
    /// The same positions counted from the centre of the first pixel.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn between_centres(&self) -> Self {
        let half = _mm256_set1_pd(0.5);
        Self {
            x: _mm256_sub_pd(self.x, half),
            y: _mm256_sub_pd(self.y, half),
        }
    }
}

/// An upper bound of positions; the lower bound is 0.
struct Bounds {
    x: f64,
    y: f64,
}

impl Bounds {
    /// The bounds of the source.
    fn whole<const N: usize>(source: &SourceImage<'_, N>) -> Self {
        Self {
            x: source.width as f64,
            y: source.height as f64,
        }
    }

    /// The bounds of positions between centres that have four pixels around them, and one more to the right of these.
    fn inner(source: &SourceImage<'_, 3>) -> Self {
        Self {
            x: source.width as f64 - 2.0,
            y: source.height as f64 - 1.0,
        }
    }

    /// A bit for each position inside the bounds.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn hold(&self, positions: &Positions) -> i32 {
        let within = |v, most: f64| {
            _mm256_and_pd(
                _mm256_cmp_pd::<_CMP_GE_OQ>(v, _mm256_setzero_pd()),
                _mm256_cmp_pd::<_CMP_LT_OQ>(v, _mm256_set1_pd(most)),
            )
        };
        _mm256_movemask_pd(_mm256_and_pd(within(positions.x, self.x), within(positions.y, self.y)))
    }
}

/// Interpolates four pixels.
///
/// # Safety
/// [`Bounds::inner`] holds all positions.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn mix(source: &SourceImage<'_, 3>, positions: &Positions, out: &mut [[u8; 3]; 4]) {
    let (left, top) = (_mm256_floor_pd(positions.x), _mm256_floor_pd(positions.y));
    let (across, down) = (_mm256_sub_pd(positions.x, left), _mm256_sub_pd(positions.y, top));
    let at = indices(source, left, top);
    // SAFETY: at least three pixels, nine bytes, follow each position, and the one below it.
    let (upper, lower) = unsafe { (neighbours(source, at, 0), neighbours(source, at, source.width)) };
    let [r, g, b] = [0, 1, 2].map(|channel| {
        let mixed = lerp(along(upper, channel, across), along(lower, channel, across), down);
        _mm256_cvttpd_epi32(mixed)
    });
    let levels = _mm_or_si128(r, _mm_or_si128(_mm_slli_epi32::<8>(g), _mm_slli_epi32::<16>(b)));
    let close = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    let mut bytes = [0; 16];
    store16(&mut bytes, _mm_shuffle_epi8(levels, close));
    out.as_flattened_mut().copy_from_slice(&bytes[..12]);
}

/// The indices of the pixels in these columns and rows.
#[inline]
#[target_feature(enable = "avx2")]
fn indices<const N: usize>(source: &SourceImage<'_, N>, column: __m256d, row: __m256d) -> [i32; 4] {
    let width = _mm_set1_epi32(source.width as i32);
    let pixels = _mm_add_epi32(
        _mm_mullo_epi32(_mm256_cvttpd_epi32(row), width),
        _mm256_cvttpd_epi32(column),
    );
    let mut at = [0; 4];
    // SAFETY: an array of 16 bytes
    unsafe { _mm_storeu_si128(at.as_mut_ptr().cast(), pixels) };
    at
}

/// Loads eight bytes from each of four pixels: the pixel and its right neighbour.
///
/// # Safety
/// Three pixels can be read from each index on.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn neighbours(source: &SourceImage<'_, 3>, at: [i32; 4], further: usize) -> __m256i {
    // SAFETY: the caller guarantees this.
    let [a, b, c, d] = at.map(|at| unsafe {
        let pixel = source.pixels.as_ptr().add(at as usize + further);
        _mm_loadl_epi64(pixel.cast())
    });
    _mm256_set_m128i(_mm_unpacklo_epi64(c, d), _mm_unpacklo_epi64(a, b))
}

/// Interpolates between a pixel and its right neighbour, in one channel.
#[inline]
#[target_feature(enable = "avx2")]
fn along(bytes: __m256i, channel: i8, fraction: __m256d) -> __m256d {
    // A byte in the lowest bits of the significand of 2^52 is added to it. This replaces a conversion.
    let base = _mm256_set1_pd(4_503_599_627_370_496.0);
    let based = |byte: i8| {
        // The byte goes to the lowest of eight bytes; the others become zero.
        let (low, high) = (-256 | i64::from(byte), -256 | i64::from(byte + 8));
        let moved = _mm256_shuffle_epi8(bytes, _mm256_setr_epi64x(low, high, low, high));
        _mm256_or_pd(_mm256_castsi256_pd(moved), base)
    };
    let (left, right) = (based(channel), based(channel + 3));
    let away = _mm256_mul_pd(_mm256_sub_pd(right, left), fraction);
    _mm256_add_pd(_mm256_sub_pd(left, base), away)
}

#[inline]
#[target_feature(enable = "avx2")]
fn lerp(from: __m256d, to: __m256d, fraction: __m256d) -> __m256d {
    _mm256_add_pd(from, _mm256_mul_pd(_mm256_sub_pd(to, from), fraction))
}

/// See [`super::warp`]: the nearest pixel, for a projective map.
#[target_feature(enable = "avx2")]
pub(super) fn nearest<const N: usize>(source: SourceImage<'_, N>, map: &Map, fill: [u8; N], out: &mut [[u8; N]]) {
    let whole = Bounds::whole(&source);
    for (y, row) in out.chunks_exact_mut(source.width).enumerate() {
        for (i, four) in row.chunks_mut(4).enumerate() {
            let positions = map_positions(map, (4 * i) as f64 + 0.5, y as f64 + 0.5);
            let (inside, at) = (whole.hold(&positions), indices(&source, positions.x, positions.y));
            for (i, out) in four.iter_mut().enumerate() {
                *out = if inside >> i & 1 == 1 {
                    source.pixels[at[i] as usize]
                } else {
                    fill
                };
            }
        }
    }
}
