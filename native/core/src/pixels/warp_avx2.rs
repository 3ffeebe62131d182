//! Bilinear warps of three channels with AVX2: places of four pixels at once, then one pixel's channels at once, in
//! double precision like the specification.

use super::warp::{Map, Source};
use core::arch::x86_64::*;

/// See [`super::warp::warp`].
#[target_feature(enable = "avx2")]
pub fn bilinear(source: Source<'_, 3>, map: &Map, fill: [u8; 3], out: &mut [[u8; 3]]) {
    // Eight bytes are read from an upper and a lower row, of which six are meant: the last row's last two columns are
    // left to the specification, as is what lies between fewer than four pixels.
    let inner = Inner::of(&source);
    for (y, row) in out.chunks_exact_mut(source.width).enumerate() {
        let v = y as f64 + 0.5;
        let (fours, rest) = row.as_chunks_mut::<4>();
        for (i, four) in fours.iter_mut().enumerate() {
            let u = (4 * i) as f64 + 0.5;
            let places = places(map, u, v);
            if inner.holds(&places) {
                // SAFETY: the places are inner ones
                unsafe { mix(&source, &places, four) };
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

fn one(source: &Source<'_, 3>, map: &Map, u: f64, v: f64) -> Option<[u8; 3]> {
    let (x, y) = map.place(u, v);
    source.between(x, y)
}

/// Where four pixels lie, half a pixel to the upper left: between which centres.
struct Places {
    x: __m256d,
    y: __m256d,
}

#[inline]
#[target_feature(enable = "avx2")]
fn places(map: &Map, u: f64, v: f64) -> Places {
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
    let half = _mm256_set1_pd(0.5);
    Places {
        x: _mm256_sub_pd(x, half),
        y: _mm256_sub_pd(y, half),
    }
}

/// Places between four pixels, eight bytes from each row's left one on being within the source.
struct Inner {
    x: f64,
    y: f64,
}

impl Inner {
    fn of(source: &Source<'_, 3>) -> Self {
        // below these: columns x and x + 1 and another one behind them; rows y and y + 1
        Self {
            x: source.width as f64 - 2.0,
            y: source.height as f64 - 1.0,
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn holds(&self, places: &Places) -> bool {
        let zero = _mm256_setzero_pd();
        let within = |v, most: f64| {
            _mm256_and_pd(
                _mm256_cmp_pd::<_CMP_GE_OQ>(v, zero),
                _mm256_cmp_pd::<_CMP_LT_OQ>(v, _mm256_set1_pd(most)),
            )
        };
        _mm256_movemask_pd(_mm256_and_pd(within(places.x, self.x), within(places.y, self.y))) == 0b1111
    }
}

/// # Safety
/// [`Inner::holds`] for the places in this source.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn mix(source: &Source<'_, 3>, places: &Places, out: &mut [[u8; 3]; 4]) {
    let (left, top) = (_mm256_floor_pd(places.x), _mm256_floor_pd(places.y));
    let across: [f64; 4] = to_array(_mm256_sub_pd(places.x, left));
    let down: [f64; 4] = to_array(_mm256_sub_pd(places.y, top));
    let (columns, rows) = (_mm256_cvttpd_epi32(left), _mm256_cvttpd_epi32(top));
    let width = _mm_set1_epi32(source.width as i32);
    let mut at = [0i32; 4];
    let pixels = _mm_add_epi32(_mm_mullo_epi32(rows, width), columns);
    // SAFETY: an array of 16 bytes
    unsafe { _mm_storeu_si128(at.as_mut_ptr().cast(), pixels) };
    for (i, out) in out.iter_mut().enumerate() {
        // SAFETY: at least three pixels, nine bytes, lie behind each of the two places
        let (upper, lower) = unsafe {
            let start = source.pixels.as_ptr().add(at[i] as usize);
            (
                _mm_loadl_epi64(start.cast()),
                _mm_loadl_epi64(start.add(source.width).cast()),
            )
        };
        let (x, y) = (_mm256_set1_pd(across[i]), _mm256_set1_pd(down[i]));
        let levels = _mm256_cvttpd_epi32(lerp(along(upper, x), along(lower, x), y));
        let bytes = _mm_packus_epi16(_mm_packs_epi32(levels, levels), levels);
        let [r, g, b, _] = _mm_cvtsi128_si32(bytes).to_le_bytes();
        *out = [r, g, b];
    }
}

/// Between the first two of three-byte pixels.
#[inline]
#[target_feature(enable = "avx2")]
fn along(bytes: __m128i, share: __m256d) -> __m256d {
    let left = _mm256_cvtepi32_pd(_mm_cvtepu8_epi32(bytes));
    let right = _mm256_cvtepi32_pd(_mm_cvtepu8_epi32(_mm_srli_si128::<3>(bytes)));
    lerp(left, right, share)
}

#[inline]
#[target_feature(enable = "avx2")]
fn lerp(from: __m256d, to: __m256d, share: __m256d) -> __m256d {
    _mm256_add_pd(from, _mm256_mul_pd(_mm256_sub_pd(to, from), share))
}

#[inline]
#[target_feature(enable = "avx2")]
fn to_array(v: __m256d) -> [f64; 4] {
    let mut array = [0.0; 4];
    // SAFETY: an array of 32 bytes
    unsafe { _mm256_storeu_pd(array.as_mut_ptr(), v) };
    array
}
