//! [`super::scalar`] with AVX-512: sixteen pixels at a time. See [`super::avx2`].

use core::arch::x86_64::*;

use super::{AffineMap, Line, Place, scalar};
use crate::pixels::warp::SourceImage;

/// Pixels that are computed together.
const GROUP: usize = 16;

/// See [`super::draw`]: rows of `width` pixels, from the first one on.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
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
            let out = row[group.x..].first_chunk_mut::<GROUP>().expect("sixteen pixels");
            match group.place {
                Place::Outside => *out = [fill; GROUP],
                Place::Inside if line.place == Place::Inside => {
                    let down = if line.is_upright {
                        _mm512_set1_ps(line.fraction)
                    } else {
                        group.down
                    };
                    // SAFETY: the group, or the group and the line, have the place of their pixels' neighbours.
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

/// Sixteen pixels of a row.
struct Group {
    /// The first one.
    x: usize,
    place: Place,
    /// Offset in bytes of the upper left of the four pixels around each position; without rotation and shear, in its row.
    offsets: [u32; GROUP],
    /// Distances from the centre of that.
    across: __m512,
    down: __m512,
}

/// Both coordinates of a map, and the source's size.
struct Axes {
    x: [__m512d; 3],
    y: [__m512d; 3],
    width: i32,
    height: i32,
}

impl Axes {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn of(map: &AffineMap, source: &SourceImage<'_, 3>) -> Self {
        let three = |first: usize| {
            [
                _mm512_set1_pd(map[first]),
                _mm512_set1_pd(map[first + 1]),
                _mm512_set1_pd(map[first + 2]),
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
    #[target_feature(enable = "avx512f,avx512dq")]
    fn locate(&self, x: usize, y: usize, is_upright: bool) -> Group {
        let zero = (_mm512_setzero_si512(), _mm512_setzero_ps());
        let (left, across) = positions(&self.x, x, y);
        let (top, down) = if is_upright { zero } else { positions(&self.y, x, y) };
        let last_top = if is_upright { 0 } else { self.height - 2 };
        // Eight bytes are read from an upper and a lower row, of which six are used: one more pixel to the right.
        let within = |first: __m512i, last| {
            _mm512_cmpge_epi32_mask(first, _mm512_setzero_si512())
                & _mm512_cmple_epi32_mask(first, _mm512_set1_epi32(last))
        };
        // What is no 32-bit number is the lowest one.
        let beyond = |first: __m512i, count: i32| {
            _mm512_cmplt_epi32_mask(first, _mm512_set1_epi32(-1))
                | _mm512_cmpge_epi32_mask(first, _mm512_set1_epi32(count))
        };
        let place = if within(left, self.width - 3) & within(top, last_top) == u16::MAX {
            Place::Inside
        } else if beyond(left, self.width) | beyond(top, self.height) == u16::MAX {
            Place::Outside
        } else {
            Place::Border
        };
        let pixels = _mm512_add_epi32(_mm512_mullo_epi32(top, _mm512_set1_epi32(self.width)), left);
        let mut offsets = [0; GROUP];
        // SAFETY: an array of 64 bytes.
        unsafe {
            _mm512_storeu_si512(
                offsets.as_mut_ptr().cast(),
                _mm512_mullo_epi32(pixels, _mm512_set1_epi32(3)),
            )
        };
        Group {
            x,
            place,
            offsets,
            across,
            down,
        }
    }
}

/// One coordinate of sixteen positions: the first of two pixels around each, and the distance from its centre.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn positions(axis: &[__m512d; 3], x: usize, y: usize) -> (__m512i, __m512) {
    let y = _mm512_mul_pd(axis[1], _mm512_set1_pd(y as f64 + 0.5));
    let steps = _mm512_setr_pd(0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5);
    let eight = |x: usize| {
        let x = _mm512_add_pd(_mm512_set1_pd(x as f64), steps);
        let position = _mm512_add_pd(_mm512_add_pd(_mm512_mul_pd(axis[0], x), y), axis[2]);
        let position = _mm512_sub_pd(position, _mm512_set1_pd(0.5));
        let first = _mm512_roundscale_pd::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(position);
        let fraction = _mm512_cvtpd_ps(_mm512_sub_pd(position, first));
        (_mm512_cvttpd_epi32(first), fraction)
    };
    let ((low, low_fraction), (high, high_fraction)) = (eight(x), eight(x + GROUP / 2));
    (
        _mm512_inserti32x8::<1>(_mm512_castsi256_si512(low), high),
        _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low_fraction), high_fraction),
    )
}

/// Interpolates a group. Its offsets count from `start`.
///
/// # Safety
/// The group has the [place](Place::Inside) inside, and so has its line if `start` is that of the line.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
unsafe fn mix(source: &SourceImage<'_, 3>, start: usize, group: &Group, down: __m512, out: &mut [[u8; 3]; GROUP]) {
    // SAFETY: three pixels, nine bytes, follow each position, and the one below it.
    let (upper, lower) = unsafe {
        let upper = source.pixels.as_flattened().as_ptr().add(start);
        let lower = upper.add(3 * source.width);
        (neighbours(upper, &group.offsets), neighbours(lower, &group.offsets))
    };
    let [r, g, b] = [0, 1, 2].map(|channel| {
        let upper = along(upper, channel, group.across);
        let lower = along(lower, channel, group.across);
        _mm512_cvttps_epi32(interpolate(upper, lower, down))
    });
    let levels = _mm512_or_si512(
        r,
        _mm512_or_si512(_mm512_slli_epi32::<8>(g), _mm512_slli_epi32::<16>(b)),
    );
    let closed = _mm512_permutexvar_epi8(load_order(&CLOSED), levels);
    // SAFETY: 48 bytes are written to sixteen pixels.
    unsafe { _mm512_mask_storeu_epi8(out.as_mut_ptr().cast(), (1 << 48) - 1, closed) };
}

/// Loads eight bytes at each offset: the pixel and its right neighbour.
///
/// # Safety
/// Eight bytes can be read there.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn neighbours(row: *const u8, offsets: &[u32; GROUP]) -> [__m512i; 2] {
    let two = |first: usize| {
        // SAFETY: the caller guarantees this.
        unsafe {
            let low = _mm_load_sd(row.add(offsets[first] as usize).cast());
            _mm_castpd_si128(_mm_loadh_pd(low, row.add(offsets[first + 1] as usize).cast()))
        }
    };
    let four = |first| _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(two(first)), two(first + 2));
    let eight = |first| _mm512_inserti64x4::<1>(_mm512_castsi256_si512(four(first)), four(first + 4));
    [eight(0), eight(8)]
}

/// Interpolates between a pixel and its right neighbour, in one channel.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn along([first, second]: [__m512i; 2], channel: usize, fraction: __m512) -> __m512 {
    // The lowest byte of each number; the others are zero.
    let value = |order| {
        let level = _mm512_maskz_permutex2var_epi8(0x1111_1111_1111_1111, first, load_order(order), second);
        _mm512_cvtepi32_ps(level)
    };
    interpolate(value(&VALUES[channel]), value(&VALUES[channel + 3]), fraction)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn interpolate(from: __m512, to: __m512, fraction: __m512) -> __m512 {
    _mm512_add_ps(from, _mm512_mul_ps(_mm512_sub_ps(to, from), fraction))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_order(order: &[u8; 64]) -> __m512i {
    // SAFETY: an array of 64 bytes.
    unsafe { _mm512_loadu_si512(order.as_ptr().cast()) }
}

/// Three of four bytes, for sixteen numbers.
const CLOSED: [u8; 64] = {
    let (mut order, mut i) = ([0; 64], 0);
    while i < 3 * GROUP {
        order[i] = (i / 3 * 4 + i % 3) as u8;
        i += 1;
    }
    order
};

/// For each of six bytes: where those of sixteen pixels lie, eight bytes apart. Every fourth place is used.
const VALUES: [[u8; 64]; 6] = {
    let (mut orders, mut byte) = ([[0; 64]; 6], 0);
    while byte < 6 {
        let mut i = 0;
        while i < GROUP {
            orders[byte][4 * i] = (8 * i + byte) as u8;
            i += 1;
        }
        byte += 1;
    }
    orders
};
