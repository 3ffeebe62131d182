//! [`super::scalar`] with AVX2: eight pixels at a time.
//!
//! ```text
//!  row; without rotation and shear, all rows together ──locate──> groups: offsets, weights ──mix──> pixels
//! ```

use core::arch::x86_64::*;

use super::{AffineMap, Line, Place, scalar};
use crate::pixels::warp::SourceImage;
use crate::simd::avx2::store16;

/// Pixels that are computed together.
const GROUP: usize = 8;

/// See [`super::draw`]: rows of `width` pixels, from the first one on.
#[target_feature(enable = "avx2")]
pub(super) fn window(
    source: SourceImage<'_, 3>,
    map: &AffineMap,
    fill: [u8; 3],
    [first, width]: [usize; 2],
    out: &mut [[u8; 3]],
) {
    if width < GROUP {
        return scalar::window(source, map, fill, [first, width], out);
    }
    let axes = Axes::of(map, &source);
    let mut groups = Vec::new();
    for (y, row) in (first..).zip(out.chunks_exact_mut(width)) {
        let line = Line::of(&source, map, y);
        if line.place == Place::Outside {
            row.fill(fill);
            continue;
        }
        if groups.is_empty() || !line.is_upright {
            groups.clear();
            // The last group ends with the row.
            let starts = (0..width.div_ceil(GROUP)).map(|i| (i * GROUP).min(width - GROUP));
            groups.extend(starts.map(|x| axes.locate(x, y, line.is_upright)));
        }
        for group in &groups {
            let out = row[group.x..].first_chunk_mut::<GROUP>().expect("eight pixels");
            match group.place {
                Place::Outside => *out = [fill; GROUP],
                Place::Inside if line.place == Place::Inside => {
                    let down = if line.is_upright {
                        _mm256_set1_ps(line.fraction)
                    } else {
                        group.down
                    };
                    // SAFETY: the group is inside, and so is its line.
                    unsafe { mix(&source, line.start, group, down, out) };
                }
                _ => {
                    for (x, out) in (group.x..).zip(out) {
                        *out = scalar::pixel(&source, map, fill, [x, y]);
                    }
                }
            }
        }
    }
}

/// Eight pixels of a row.
struct Group {
    /// The first one.
    x: usize,
    place: Place,
    /// Offset in bytes of the upper left of the four pixels around each position; without rotation and shear, in its
    /// row.
    offsets: [u32; GROUP],
    /// Distances from the centre of that.
    across: __m256,
    down: __m256,
}

/// Both coordinates of a map, and the source's size.
struct Axes {
    x: [__m256d; 3],
    y: [__m256d; 3],
    width: i32,
    height: i32,
}

impl Axes {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn of(map: &AffineMap, source: &SourceImage<'_, 3>) -> Self {
        let three = |first: usize| {
            [
                _mm256_set1_pd(map[first]),
                _mm256_set1_pd(map[first + 1]),
                _mm256_set1_pd(map[first + 2]),
            ]
        };
        Self {
            x: three(0),
            y: three(3),
            width: source.width as i32,
            height: source.height as i32,
        }
    }

    /// The group that begins with (x, y). If `is_upright`, its columns alone.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn locate(&self, x: usize, y: usize, is_upright: bool) -> Group {
        let zero = (_mm256_setzero_si256(), _mm256_setzero_ps());
        let (left, across) = positions(&self.x, x, y);
        let (top, down) = if is_upright { zero } else { positions(&self.y, x, y) };
        // Eight bytes are read from an upper and a lower row, of which six are used: one more pixel to the right.
        let last_left = self.width - 3;
        let last_top = if is_upright { 0 } else { self.height - 2 };
        let without = |first: __m256i, last: i32| {
            _mm256_or_si256(
                _mm256_cmpgt_epi32(_mm256_setzero_si256(), first),
                _mm256_cmpgt_epi32(first, _mm256_set1_epi32(last)),
            )
        };
        // What is no 32-bit number is the lowest one.
        let beyond = |first: __m256i, count: i32| {
            _mm256_or_si256(
                _mm256_cmpgt_epi32(_mm256_set1_epi32(-1), first),
                _mm256_cmpgt_epi32(first, _mm256_set1_epi32(count - 1)),
            )
        };
        let mask = |one, other| _mm256_movemask_epi8(_mm256_or_si256(one, other));
        let place = if mask(without(left, last_left), without(top, last_top)) == 0 {
            Place::Inside
        } else if mask(beyond(left, self.width), beyond(top, self.height)) == -1 {
            Place::Outside
        } else {
            Place::Border
        };
        let pixels = _mm256_add_epi32(_mm256_mullo_epi32(top, _mm256_set1_epi32(self.width)), left);
        let bytes = _mm256_mullo_epi32(pixels, _mm256_set1_epi32(3));
        let mut offsets = [0; GROUP];
        // SAFETY: an array of 32 bytes.
        unsafe { _mm256_storeu_si256(offsets.as_mut_ptr().cast(), bytes) };
        Group {
            x,
            place,
            offsets,
            across,
            down,
        }
    }
}

/// One coordinate of eight positions: the first of two pixels around each, and the distance from its centre.
#[inline]
#[target_feature(enable = "avx2")]
fn positions(axis: &[__m256d; 3], x: usize, y: usize) -> (__m256i, __m256) {
    let y = _mm256_mul_pd(axis[1], _mm256_set1_pd(y as f64 + 0.5));
    let four = |x: usize| {
        let x = _mm256_add_pd(_mm256_set1_pd(x as f64), _mm256_setr_pd(0.5, 1.5, 2.5, 3.5));
        let position = _mm256_add_pd(_mm256_add_pd(_mm256_mul_pd(axis[0], x), y), axis[2]);
        let position = _mm256_sub_pd(position, _mm256_set1_pd(0.5));
        let first = _mm256_floor_pd(position);
        let fraction = _mm256_cvtpd_ps(_mm256_sub_pd(position, first));
        (_mm256_cvttpd_epi32(first), fraction)
    };
    let ((low, low_fraction), (high, high_fraction)) = (four(x), four(x + GROUP / 2));
    (
        _mm256_set_m128i(high, low),
        _mm256_set_m128(high_fraction, low_fraction),
    )
}

/// Interpolates a group. Its offsets count from `start`.
///
/// # Safety
/// The group has the place inside; `start` is that of its line, which has so, too.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn mix(source: &SourceImage<'_, 3>, start: usize, group: &Group, down: __m256, out: &mut [[u8; 3]; GROUP]) {
    // SAFETY: three pixels, nine bytes, follow each position, and the one below it.
    let (upper, lower) = unsafe {
        let upper = source.pixels.as_flattened().as_ptr().add(start);
        let lower = upper.add(3 * source.width);
        (neighbours(upper, &group.offsets), neighbours(lower, &group.offsets))
    };
    let [r, g, b] = [0, 1, 2].map(|channel| {
        let upper = along(upper, channel, group.across);
        let lower = along(lower, channel, group.across);
        _mm256_cvttps_epi32(interpolate(upper, lower, down))
    });
    let levels = _mm256_or_si256(
        r,
        _mm256_or_si256(_mm256_slli_epi32::<8>(g), _mm256_slli_epi32::<16>(b)),
    );
    let close = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    let closed = _mm256_shuffle_epi8(levels, close);
    let closed = _mm256_permutevar8x32_epi32(closed, _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7));
    let out = out.as_flattened_mut();
    store16(out, _mm256_castsi256_si128(closed));
    let last = _mm256_extract_epi64::<2>(closed);
    out[16..].copy_from_slice(&last.to_le_bytes());
}

/// Loads eight bytes at each offset, the pixel and its right neighbour: of pixels 0, 1, 4, 5, then of the others.
///
/// # Safety
/// Eight bytes can be read there.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn neighbours(row: *const u8, offsets: &[u32; GROUP]) -> [__m256i; 2] {
    let two = |first: usize| {
        // SAFETY: the caller guarantees this.
        unsafe {
            let low = _mm_load_sd(row.add(offsets[first] as usize).cast());
            _mm_castpd_si128(_mm_loadh_pd(low, row.add(offsets[first + 1] as usize).cast()))
        }
    };
    [_mm256_set_m128i(two(4), two(0)), _mm256_set_m128i(two(6), two(2))]
}

/// Interpolates between a pixel and its right neighbour, in one channel.
#[inline]
#[target_feature(enable = "avx2")]
fn along(bytes: [__m256i; 2], channel: i8, fraction: __m256) -> __m256 {
    // Of the two pixels in each half: the left values, then the right ones, as words of 32 bits.
    let word = |byte: i8| -256 | i32::from(byte);
    let order = _mm_setr_epi32(word(channel), word(channel + 8), word(channel + 3), word(channel + 11));
    let order = _mm256_broadcastsi128_si256(order);
    let [first, second] = bytes.map(|bytes| _mm256_shuffle_epi8(bytes, order));
    let left = _mm256_cvtepi32_ps(_mm256_unpacklo_epi64(first, second));
    let right = _mm256_cvtepi32_ps(_mm256_unpackhi_epi64(first, second));
    interpolate(left, right, fraction)
}

#[inline]
#[target_feature(enable = "avx2")]
fn interpolate(from: __m256, to: __m256, fraction: __m256) -> __m256 {
    _mm256_add_ps(from, _mm256_mul_ps(_mm256_sub_ps(to, from), fraction))
}
