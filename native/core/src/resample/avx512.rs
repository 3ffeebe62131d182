//! The kernels of [`super::scalar`] that are quicker with AVX-512 than with AVX2, whose ways they follow: products are
//! added to sums as they are made.

use super::avx2;
use super::near::{self, GROUP_SPARE};
use core::arch::x86_64::*;

/// See [`super::scalar::vertical_convex`]; `out.len()` is a multiple of 32, the number of taps even.
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
pub fn vertical_convex(rows: &[u8], offsets: &[usize], weights: &[i16], drop: u32, out: &mut [i16]) {
    avx2::check_rows(rows, offsets, out.len());
    let pairs = weights.as_chunks::<2>().0;
    assert_eq!(offsets.len(), 2 * pairs.len());
    let (half, low) = (_mm512_set1_epi32(1 << (drop - 1)), _mm512_set1_epi16(0xff));
    let shift = _mm_cvtsi32_si128(drop as i32);
    let first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    let second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    let (wide, rest) = out.as_chunks_mut::<64>();
    let done = 64 * wide.len();
    for (block, out) in wide.iter_mut().enumerate() {
        // of every sixteen pixels: those of the left eight with even places, with odd ones; of the right eight
        let mut sums = [half; 4];
        for (taps, w) in offsets.as_chunks::<2>().0.iter().zip(pairs) {
            // SAFETY: `check_rows` holds for 64 bytes from `block * 64` on behind each offset
            let (a, b) = unsafe {
                let at = rows.as_ptr().add(block * 64);
                (
                    _mm512_loadu_si512(at.add(taps[0]).cast()),
                    _mm512_loadu_si512(at.add(taps[1]).cast()),
                )
            };
            let w = _mm512_set1_epi32(i32::from(w[0] as u16) | i32::from(w[1]) << 16);
            // two neighbours of row a, the same two of row b
            let (left, right) = (_mm512_unpacklo_epi16(a, b), _mm512_unpackhi_epi16(a, b));
            let quarters = [
                _mm512_and_si512(left, low),
                _mm512_srli_epi16::<8>(left),
                _mm512_and_si512(right, low),
                _mm512_srli_epi16::<8>(right),
            ];
            for (sum, q) in sums.iter_mut().zip(quarters) {
                *sum = _mm512_dpwssd_epi32(*sum, q, w);
            }
        }
        let [a, b, c, d] = sums.map(|sum| _mm512_sra_epi32(sum, shift));
        // no weight is negative: nothing exceeds 15 bits
        let left = _mm512_or_si512(a, _mm512_slli_epi32::<16>(b));
        let right = _mm512_or_si512(c, _mm512_slli_epi32::<16>(d));
        // SAFETY: `out` is 64 values long
        unsafe {
            let out: *mut __m512i = out.as_mut_ptr().cast();
            _mm512_storeu_si512(out, _mm512_permutex2var_epi64(left, first, right));
            _mm512_storeu_si512(out.add(1), _mm512_permutex2var_epi64(left, second, right));
        }
    }
    if !rest.is_empty() {
        avx2::vertical_convex(&rows[done..], offsets, weights, drop, rest);
    }
}

/// See [`super::scalar::horizontal_convex`]; `planes` lines at once, which share the taps.
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
pub fn horizontal_convex(
    line: &[i16],
    line_stride: usize,
    horizontal: &near::Convex,
    drop: u32,
    out: &mut [u8],
    out_stride: usize,
    planes: usize,
) {
    let taps = &horizontal.taps;
    let n = taps.starts.len();
    assert!(planes > 0 && taps.reach() + GROUP_SPARE <= line_stride && planes * line_stride <= line.len());
    assert!(n <= out_stride && (planes - 1) * out_stride + n <= out.len() && n * taps.stride == taps.weights.len());
    let lines = (0..planes).map(|plane| (&line[plane * line_stride..][..line_stride], plane * out_stride));
    // SAFETY: a plane's line holds all values that its taps, even those with weight zero, may read, groups or pairs
    // those of the `n` pixels, and `out` has room for `n` bytes a plane: asserted above
    unsafe {
        for (line, at) in lines {
            let (line, out) = (line.as_ptr(), out.as_mut_ptr().add(at));
            match taps.stride {
                4 => near_line(line, horizontal, drop, out),
                8 => far_line::<1>(line, horizontal, drop, out),
                16 => far_line::<2>(line, horizontal, drop, out),
                _ => far_line::<0>(line, horizontal, drop, out),
            }
        }
    }
}

/// One line of up to four taps per output.
///
/// # Safety
/// 10 values are readable in `line` from each group's base on; `out` has room for all outputs.
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
unsafe fn near_line(line: *const i16, horizontal: &near::Convex, drop: u32, out: *mut u8) {
    let half = _mm256_set1_epi32(1 << (drop - 1));
    let drop = _mm_cvtsi32_si128(drop as i32);
    for (block, [a, b]) in horizontal.groups.as_chunks().0.iter().enumerate() {
        // SAFETY: arrays of 16 bytes, and the caller's promise: eight values from tap 0 or 2 on
        unsafe {
            let both = |a: *const __m128i, b: *const __m128i| _mm256_set_m128i(_mm_loadu_si128(b), _mm_loadu_si128(a));
            let shuffle = both(a.shuffle.as_ptr().cast(), b.shuffle.as_ptr().cast());
            let mut sums = half;
            for pair in 0..2 {
                let at = |base: usize| line.add(base + 2 * pair).cast();
                let values = _mm256_shuffle_epi8(both(at(a.base), at(b.base)), shuffle);
                let weights = both(a.weights[pair].as_ptr().cast(), b.weights[pair].as_ptr().cast());
                sums = _mm256_dpwssd_epi32(sums, values, weights);
            }
            store_levels(_mm256_sra_epi32(sums, drop), out.add(block * 8));
        }
    }
}

/// One line of `8 * EIGHTS` taps per output; 0: however many.
///
/// # Safety
/// Each start has so many readable values in `line`; `out` has room for all outputs.
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
unsafe fn far_line<const EIGHTS: usize>(line: *const i16, horizontal: &near::Convex, drop: u32, out: *mut u8) {
    let eights = if EIGHTS == 0 {
        horizontal.taps.stride / 8
    } else {
        EIGHTS
    };
    // once per output
    let half = 1 << (drop - 1);
    let half = _mm256_setr_epi32(half, 0, 0, 0, half, 0, 0, 0);
    let drop = _mm_cvtsi32_si128(drop as i32);
    let blocks = horizontal.taps.starts.as_chunks::<8>().0.iter();
    for (block, (starts, pairs)) in blocks.zip(horizontal.pairs.chunks_exact(eights)).enumerate() {
        let mut sums = [half; 4];
        for (eight, weights) in pairs.iter().enumerate() {
            for (i, sum) in sums.iter_mut().enumerate() {
                // SAFETY: the caller's promise; an array of 32 bytes
                unsafe {
                    let at = |i: usize| _mm_loadu_si128(line.add(starts[i] as usize + 8 * eight).cast());
                    let values = _mm256_set_m128i(at(i + 4), at(i));
                    *sum = _mm256_dpwssd_epi32(*sum, values, _mm256_loadu_si256(weights[i].as_ptr().cast()));
                }
            }
        }
        let [a, b, c, d] = sums;
        let sums = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
        // SAFETY: the caller's promise
        unsafe { store_levels(_mm256_sra_epi32(sums, drop), out.add(block * 8)) }
    }
}

/// Stores eight 32-bit levels, none of them negative, as bytes.
///
/// # Safety
/// `out` has room for 8 bytes.
#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
unsafe fn store_levels(levels: __m256i, out: *mut u8) {
    // SAFETY: the caller's promise
    unsafe { _mm_storel_epi64(out.cast(), _mm256_cvtepi32_epi8(levels)) }
}
