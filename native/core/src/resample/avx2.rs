//! [`super::scalar`] with AVX2. Sums of integer products do not depend on their order.

use super::arranged_taps::{self, Aligned, GROUP_SPARE, LOW_BITS, LobedGroup};
use super::line_pointers::{LinePointers, check_rows};
use super::scalar;
use super::taps::Taps;
use crate::simd::avx2::{load_words, load16, load32, store_words, store16};
use core::arch::x86_64::*;

/// See [`super::scalar::vertical_convex`]. `out.len()` is a multiple of 32, the number of taps is even.
#[target_feature(enable = "avx2")]
pub fn vertical_convex(rows: &[u8], offsets: &[usize], weights: &[i16], drop: u32, out: &mut [i16]) {
    check_rows(rows, offsets, out.len());
    let pairs = weights.as_chunks::<2>().0;
    assert!(out.len().is_multiple_of(32) && offsets.len() == 2 * pairs.len());
    let (zero, half) = (_mm256_setzero_si256(), _mm256_set1_epi32(1 << (drop - 1)));
    let drop = _mm_cvtsi32_si128(drop as i32);
    for (block, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let mut sums = [half; 4];
        for (taps, w) in offsets.as_chunks::<2>().0.iter().zip(pairs) {
            // SAFETY: `check_rows` covers 32 bytes from `block * 32` on at each offset.
            let (a, b) = unsafe {
                let at = rows.as_ptr().add(block * 32);
                (
                    _mm256_loadu_si256(at.add(taps[0]).cast()),
                    _mm256_loadu_si256(at.add(taps[1]).cast()),
                )
            };
            let w = _mm256_set1_epi32(i32::from(w[0] as u16) | i32::from(w[1]) << 16);
            let (lo, hi) = (_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b));
            let quarters = [
                _mm256_unpacklo_epi8(lo, zero),
                _mm256_unpackhi_epi8(lo, zero),
                _mm256_unpacklo_epi8(hi, zero),
                _mm256_unpackhi_epi8(hi, zero),
            ];
            for (sum, q) in sums.iter_mut().zip(quarters) {
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(q, w));
            }
        }
        let [a, b, c, d] = sums;
        let (a, b) = (_mm256_sra_epi32(a, drop), _mm256_sra_epi32(b, drop));
        let (c, d) = (_mm256_sra_epi32(c, drop), _mm256_sra_epi32(d, drop));
        // Pixels 0..8 | 16..24 and 8..16 | 24..32.
        let (even, odd) = (_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
        let [first, second] = out.as_chunks_mut().0 else {
            unreachable!("two halves")
        };
        store_words(first, _mm256_permute2x128_si256::<0x20>(even, odd));
        store_words(second, _mm256_permute2x128_si256::<0x31>(even, odd));
    }
}

/// See [`super::scalar::vertical_words`], which the compiler makes vectors of.
#[target_feature(enable = "avx2")]
pub fn vertical_words(rows: &[i16], offsets: &[usize], weights: &[i16], drop: u32, out: &mut [i16]) {
    scalar::vertical_words(rows, offsets, weights, drop, out);
}

/// See [`super::scalar::vertical_convex_words`]. `out.len()` is a multiple of 16, the number of taps is even.
#[target_feature(enable = "avx2")]
pub fn vertical_convex_words(rows: &[i16], offsets: &[usize], weights: &[i16], drop: u32, out: &mut [u8]) {
    check_rows(rows, offsets, out.len());
    let pairs = weights.as_chunks::<2>().0;
    assert!(out.len().is_multiple_of(16) && offsets.len() == 2 * pairs.len());
    let half = _mm256_set1_epi32(1 << (drop - 1));
    let drop = _mm_cvtsi32_si128(drop as i32);
    for (block, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let mut sums = [half; 2];
        for (taps, w) in offsets.as_chunks::<2>().0.iter().zip(pairs) {
            // SAFETY: `check_rows` covers 16 values from `block * 16` on at each offset.
            let (a, b) = unsafe {
                let at = rows.as_ptr().add(block * 16);
                (
                    _mm256_loadu_si256(at.add(taps[0]).cast()),
                    _mm256_loadu_si256(at.add(taps[1]).cast()),
                )
            };
            let w = _mm256_set1_epi32(i32::from(w[0] as u16) | i32::from(w[1]) << 16);
            for (sum, pair) in sums
                .iter_mut()
                .zip([_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b)])
            {
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pair, w));
            }
        }
        let [lo, hi] = sums.map(|sum| _mm256_sra_epi32(sum, drop));
        // Each half has its eight pixels in order.
        let words = _mm256_packs_epi32(lo, hi);
        let (first, second) = (_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
        store16(out, _mm_packus_epi16(first, second));
    }
}

/// See [`super::scalar::widen`].
#[target_feature(enable = "avx2")]
pub fn widen(row: &[u8], out: &mut [i16]) {
    let (blocks, rest) = row.as_chunks::<16>();
    let (wide, tail) = out[..row.len()].as_chunks_mut::<16>();
    for (block, out) in blocks.iter().zip(wide) {
        store_words(out, _mm256_cvtepu8_epi16(load16(block)));
    }
    super::scalar::widen(rest, tail);
}

/// See [`super::scalar::horizontal_convex`].
#[target_feature(enable = "avx2")]
pub fn horizontal_convex(
    line: &[i16],
    line_stride: usize,
    horizontal: &arranged_taps::ConvexTaps,
    drop: u32,
    out: &mut [u8],
    out_stride: usize,
    planes: usize,
) {
    narrow_lines::<1>(
        horizontal,
        drop,
        LinePointers::new(line, line_stride, out, out_stride, planes),
    );
}

/// See [`super::scalar::horizontal_convex_words`].
#[target_feature(enable = "avx2")]
pub fn horizontal_convex_words(
    line: &[i16],
    line_stride: usize,
    horizontal: &arranged_taps::ConvexTaps,
    drop: u32,
    out: &mut [i16],
    out_stride: usize,
    planes: usize,
) {
    narrow_lines::<2>(
        horizontal,
        drop,
        LinePointers::new(line, line_stride, out, out_stride, planes),
    );
}

/// Outputs have `BYTES` bytes, 1 or 2.
#[target_feature(enable = "avx2")]
fn narrow_lines<const BYTES: usize>(horizontal: &arranged_taps::ConvexTaps, drop: u32, lines: LinePointers<'_>) {
    let taps = &horizontal.taps;
    let n = taps.starts.len();
    assert!(taps.reach() + GROUP_SPARE <= lines.line_stride && n <= lines.outputs);
    assert!(BYTES == lines.out_bytes && n * taps.stride == taps.weights.len());
    let (outputs, weights) = (8 * horizontal.groups.len(), 64 * horizontal.pairs.len());
    assert!(if taps.stride == 4 {
        outputs == n
    } else {
        weights == taps.weights.len()
    });
    // SAFETY: the assertions above hold: a plane's line holds all values that its taps read, including those with
    // weight zero; groups or pairs cover the `n` pixels; the output has `n` values per plane.
    unsafe {
        match taps.stride {
            4 => near_lines::<BYTES>(lines, horizontal, drop),
            8 => far_lines::<1, BYTES>(lines, horizontal, drop),
            16 => far_lines::<2, BYTES>(lines, horizontal, drop),
            _ => far_lines::<0, BYTES>(lines, horizontal, drop),
        }
    }
}

/// Up to four taps per output.
///
/// # Safety
/// 10 values can be read in every line from each group's base on, and all outputs can be written.
#[target_feature(enable = "avx2")]
unsafe fn near_lines<const BYTES: usize>(lines: LinePointers<'_>, horizontal: &arranged_taps::ConvexTaps, drop: u32) {
    let half = _mm256_set1_epi32(1 << (drop - 1));
    let drop = _mm_cvtsi32_si128(drop as i32);
    for (block, group) in horizontal.groups.iter().enumerate() {
        let shuffle = load32(&group.shuffle);
        let weights = [load_words(&group.weights[0]), load_words(&group.weights[1])];
        // SAFETY: the caller guarantees eight values from tap 0 and from tap 2 on.
        unsafe {
            for plane in 0..lines.planes {
                let (line, out) = lines.plane(plane);
                let products = |pair: usize| {
                    let at = |four: usize| _mm_loadu_si128(line.add(group.bases[four] + 2 * pair).cast());
                    let values = _mm256_shuffle_epi8(_mm256_set_m128i(at(1), at(0)), shuffle);
                    _mm256_madd_epi16(values, weights[pair])
                };
                let sums = _mm256_add_epi32(_mm256_add_epi32(products(0), products(1)), half);
                store_values::<BYTES>(_mm256_sra_epi32(sums, drop), out.add(block * 8 * BYTES));
            }
        }
    }
}

/// `8 * EIGHTS` taps per output. 0: any number.
///
/// # Safety
/// That many values can be read in every line from each start on, and all outputs can be written.
#[target_feature(enable = "avx2")]
unsafe fn far_lines<const EIGHTS: usize, const BYTES: usize>(
    lines: LinePointers<'_>,
    horizontal: &arranged_taps::ConvexTaps,
    drop: u32,
) {
    let eights = if EIGHTS == 0 {
        horizontal.taps.stride / 8
    } else {
        EIGHTS
    };
    let half = _mm256_set1_epi32(1 << (drop - 1));
    let drop = _mm_cvtsi32_si128(drop as i32);
    let blocks = horizontal.taps.starts.as_chunks::<8>().0.iter();
    for plane in 0..lines.planes {
        // SAFETY: the plane exists.
        let (line, out) = unsafe { lines.plane(plane) };
        for (block, (starts, pairs)) in blocks.clone().zip(horizontal.pairs.chunks_exact(eights)).enumerate() {
            let mut sums = [_mm256_setzero_si256(); 4];
            for (eight, Aligned(weights)) in pairs.iter().enumerate() {
                for (i, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: the caller guarantees this.
                    let values = unsafe {
                        let at = |i: usize| _mm_loadu_si128(line.add(starts[i] as usize + 8 * eight).cast());
                        _mm256_set_m128i(at(i + 4), at(i))
                    };
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(values, load_words(&weights[i])));
                }
            }
            let [a, b, c, d] = sums;
            let sums = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
            // SAFETY: the caller guarantees this.
            unsafe {
                let sums = _mm256_sra_epi32(_mm256_add_epi32(sums, half), drop);
                store_values::<BYTES>(sums, out.add(block * 8 * BYTES));
            }
        }
    }
}

/// Stores eight 32-bit values as bytes, clipped to 0..=255.
///
/// # Safety
/// 8 bytes can be written at `out`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store_levels(levels: __m256i, out: *mut u8) {
    let words = _mm_packs_epi32(_mm256_castsi256_si128(levels), _mm256_extracti128_si256::<1>(levels));
    // SAFETY: the caller guarantees this.
    unsafe { _mm_storel_epi64(out.cast(), _mm_packus_epi16(words, words)) }
}

/// Stores eight 32-bit values of a convex filter with `BYTES` bytes each, 1 or 2.
///
/// # Safety
/// They can be written at `out`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store_values<const BYTES: usize>(values: __m256i, out: *mut u8) {
    if BYTES == 1 {
        // SAFETY: the caller guarantees this.
        return unsafe { store_levels(values, out) };
    }
    let words = _mm_packs_epi32(_mm256_castsi256_si128(values), _mm256_extracti128_si256::<1>(values));
    // SAFETY: the caller guarantees this.
    unsafe { _mm_storeu_si128(out.cast(), words) }
}

/// See [`super::scalar::vertical_lobed`]. `out.len()` is a multiple of 8.
#[target_feature(enable = "avx2")]
pub fn vertical_lobed(rows: &[u8], offsets: &[usize], weights: &[i32], out: &mut [u8]) {
    check_rows(rows, offsets, out.len());
    assert!(out.len().is_multiple_of(8));
    for (block, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let mut sum = _mm256_set1_epi32(1 << 21);
        for (offset, w) in offsets.iter().zip(weights) {
            // SAFETY: `check_rows` covers 8 bytes from `block * 8` on at each offset.
            let row = unsafe { _mm_loadl_epi64(rows.as_ptr().add(offset + block * 8).cast()) };
            sum = _mm256_add_epi32(
                sum,
                _mm256_mullo_epi32(_mm256_cvtepu8_epi32(row), _mm256_set1_epi32(*w)),
            );
        }
        // SAFETY: `out` is 8 bytes long.
        unsafe { store_levels(_mm256_srai_epi32::<22>(sum), out.as_mut_ptr()) }
    }
}

/// See [`super::scalar::horizontal_lobed`].
#[target_feature(enable = "avx2")]
pub fn horizontal_lobed(line: &[u8], horizontal: &arranged_taps::LobedTaps, out: &mut [u8]) {
    let (taps, pairs) = (&horizontal.taps, horizontal.pairs);
    let n = taps.starts.len();
    assert!(taps.reach() + GROUP_SPARE <= line.len() && n <= out.len() && n * taps.stride == taps.weights.len());
    if horizontal.groups.is_empty() {
        return horizontal_lobed_far(line, taps, out);
    }
    assert!(horizontal.weights.len() == horizontal.groups.len() * pairs && 2 * pairs <= taps.stride + 1);
    let weights = horizontal.weights.chunks_exact(pairs);
    for ((group, weights), out) in horizontal.groups.iter().zip(weights).zip(out.as_chunks_mut::<8>().0) {
        // SAFETY: a group's bases lie within the line's `len` values, its taps within `reach`; `out` is 8 bytes long.
        unsafe {
            let sum = _mm256_add_epi32(lobed_sums(line.as_ptr(), group, weights), _mm256_set1_epi32(1 << 21));
            store_levels(_mm256_srai_epi32::<22>(sum), out.as_mut_ptr());
        }
    }
}

/// The sums of eight pixels, for any number of pairs of taps.
///
/// # Safety
/// From each base on, 16 bytes can be read in `line`, and two more for every pair.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn lobed_sums(line: *const u8, group: &LobedGroup, weights: &[[[i16; 16]; 2]]) -> __m256i {
    let (mut high, mut low) = (_mm256_setzero_si256(), _mm256_setzero_si256());
    let shuffle = load32(&group.shuffle);
    for (pair, [high_weights, low_weights]) in weights.iter().enumerate() {
        // SAFETY: the caller guarantees this.
        let values = unsafe {
            let at = |base: usize| _mm_loadu_si128(line.add(base + 2 * pair).cast());
            _mm256_set_m128i(at(group.bases[1]), at(group.bases[0]))
        };
        let values = _mm256_shuffle_epi8(values, shuffle);
        high = _mm256_add_epi32(high, _mm256_madd_epi16(values, load_words(high_weights)));
        low = _mm256_add_epi32(low, _mm256_madd_epi16(values, load_words(low_weights)));
    }
    // Arithmetic is modulo 2^32: only the total must fit.
    _mm256_add_epi32(_mm256_slli_epi32::<{ LOW_BITS as i32 }>(high), low)
}

/// For neighbours whose taps lie far apart: one pixel at a time.
#[target_feature(enable = "avx2")]
fn horizontal_lobed_far(line: &[u8], taps: &Taps<i32>, out: &mut [u8]) {
    assert!(taps.reach() <= line.len());
    let weights = taps.weights.chunks_exact(taps.stride);
    for ((&start, weights), out) in taps.starts.iter().zip(weights).zip(out) {
        let mut sums = _mm256_setzero_si256();
        for (tap, w) in weights.as_chunks::<8>().0.iter().enumerate() {
            // SAFETY: taps read at most `reach` bytes of the line; a chunk of weights has 8.
            let (x, w) = unsafe {
                let at = line.as_ptr().add(start as usize + tap * 8);
                (
                    _mm256_cvtepu8_epi32(_mm_loadl_epi64(at.cast())),
                    _mm256_loadu_si256(w.as_ptr().cast()),
                )
            };
            sums = _mm256_add_epi32(sums, _mm256_mullo_epi32(x, w));
        }
        let fours = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
        let twos = _mm_hadd_epi32(fours, fours);
        let sum = _mm_cvtsi128_si32(_mm_hadd_epi32(twos, twos));
        *out = ((sum + (1 << 21)) >> 22).clamp(0, 255) as u8;
    }
}
