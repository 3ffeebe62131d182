//! The kernels of [`super::scalar`] that are faster with AVX-512 than with AVX2. The methods are those of
//! [`super::avx2`], but products are added to sums in one instruction.

use super::arranged_taps::{self, Aligned, WINDOW};
use super::avx2;
use super::line_pointers::{LinePointers, check_rows};
use super::taps::Taps;
use crate::simd::avx2::store32;
use crate::simd::avx512::{alternate_quarters, load_words, store_words};
use core::arch::x86_64::*;

/// See [`super::scalar::vertical_convex`]. `out.len()` is a multiple of 32, the number of taps is even.
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
pub fn vertical_convex(rows: &[u8], offsets: &[usize], weights: &[i16], drop: u32, out: &mut [i16]) {
    check_rows(rows, offsets, out.len());
    let pairs = weights.as_chunks::<2>().0;
    assert_eq!(offsets.len(), 2 * pairs.len());
    let (half, low) = (_mm512_set1_epi32(1 << (drop - 1)), _mm512_set1_epi16(0xff));
    let shift = _mm_cvtsi32_si128(drop as i32);
    let (wide, rest) = out.as_chunks_mut::<64>();
    let done = 64 * wide.len();
    for (block, out) in wide.iter_mut().enumerate() {
        // Of every sixteen pixels: the left eight with even positions, with odd positions, then the right eight.
        let mut sums = [half; 4];
        for (taps, w) in offsets.as_chunks::<2>().0.iter().zip(pairs) {
            // SAFETY: `check_rows` covers 64 bytes from `block * 64` on at each offset.
            let (a, b) = unsafe {
                let at = rows.as_ptr().add(block * 64);
                (
                    _mm512_loadu_si512(at.add(taps[0]).cast()),
                    _mm512_loadu_si512(at.add(taps[1]).cast()),
                )
            };
            let w = _mm512_set1_epi32(i32::from(w[0] as u16) | i32::from(w[1]) << 16);
            // Two neighbours of row a, then the same two of row b.
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
        // Weights are not negative: no value exceeds 15 bits.
        let left = _mm512_or_si512(a, _mm512_slli_epi32::<16>(b));
        let right = _mm512_or_si512(c, _mm512_slli_epi32::<16>(d));
        let [first, second] = out.as_chunks_mut().0 else {
            unreachable!("two halves")
        };
        let values = alternate_quarters(left, right);
        store_words(first, values[0]);
        store_words(second, values[1]);
    }
    if !rest.is_empty() {
        avx2::vertical_convex(&rows[done..], offsets, weights, drop, rest);
    }
}

/// See [`super::scalar::vertical_convex_words`]. `out.len()` is a multiple of 32, the number of taps is even.
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
pub fn vertical_convex_words(rows: &[i16], offsets: &[usize], weights: &[i16], drop: u32, out: &mut [u8]) {
    check_rows(rows, offsets, out.len());
    let pairs = weights.as_chunks::<2>().0;
    assert!(out.len().is_multiple_of(32) && offsets.len() == 2 * pairs.len());
    let half = _mm512_set1_epi32(1 << (drop - 1));
    let drop = _mm_cvtsi32_si128(drop as i32);
    for (block, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (mut left, mut right) = (half, half);
        for (taps, w) in offsets.as_chunks::<2>().0.iter().zip(pairs) {
            // SAFETY: `check_rows` covers 32 values from `block * 32` on at each offset.
            let (a, b) = unsafe {
                let at = rows.as_ptr().add(block * 32);
                (
                    _mm512_loadu_si512(at.add(taps[0]).cast()),
                    _mm512_loadu_si512(at.add(taps[1]).cast()),
                )
            };
            let w = _mm512_set1_epi32(i32::from(w[0] as u16) | i32::from(w[1]) << 16);
            left = _mm512_dpwssd_epi32(left, _mm512_unpacklo_epi16(a, b), w);
            right = _mm512_dpwssd_epi32(right, _mm512_unpackhi_epi16(a, b), w);
        }
        // Each quarter has its eight values in order.
        let words = _mm512_packs_epi32(_mm512_sra_epi32(left, drop), _mm512_sra_epi32(right, drop));
        store32(out, _mm512_cvtepi16_epi8(words));
    }
}

/// See [`super::scalar::horizontal_convex`].
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
pub fn horizontal_convex(
    line: &[i16],
    line_stride: usize,
    horizontal: &arranged_taps::ConvexTaps,
    drop: u32,
    out: &mut [u8],
    out_stride: usize,
    planes: usize,
) {
    if horizontal.windows.is_none() && horizontal.taps.stride < FAR_STRIDE {
        return avx2::horizontal_convex(line, line_stride, horizontal, drop, out, out_stride, planes);
    }
    narrow_lines::<1>(
        horizontal,
        drop,
        LinePointers::new(line, line_stride, out, out_stride, planes),
    );
}

/// See [`super::scalar::horizontal_convex_words`].
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
pub fn horizontal_convex_words(
    line: &[i16],
    line_stride: usize,
    horizontal: &arranged_taps::ConvexTaps,
    drop: u32,
    out: &mut [i16],
    out_stride: usize,
    planes: usize,
) {
    if horizontal.windows.is_none() && horizontal.taps.stride < FAR_STRIDE {
        return avx2::horizontal_convex_words(line, line_stride, horizontal, drop, out, out_stride, planes);
    }
    narrow_lines::<2>(
        horizontal,
        drop,
        LinePointers::new(line, line_stride, out, out_stride, planes),
    );
}

/// Outputs have `BYTES` bytes, 1 or 2. Taps that have no windows have a stride of at least [`FAR_STRIDE`].
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn narrow_lines<const BYTES: usize>(horizontal: &arranged_taps::ConvexTaps, drop: u32, lines: LinePointers<'_>) {
    let taps = &horizontal.taps;
    assert!(BYTES == lines.out_bytes && taps.reach() + WINDOW <= lines.line_stride);
    let Some(windows) = &horizontal.windows else {
        let n = taps.starts.len();
        assert!(n.is_multiple_of(8) && n <= lines.outputs && n * taps.stride == taps.weights.len());
        // SAFETY: a plane's line holds all values that its taps read, including those with weight zero; the output has `n`
        // values per plane.
        return unsafe { far_lines::<BYTES>(lines, taps, drop) };
    };
    let (starts, n) = (windows.bases.len(), windows.bases.len() * windows.outputs);
    assert!(n <= lines.outputs);
    assert!(windows.places.len() == starts && windows.weights.len() == starts * windows.steps);
    // SAFETY: the assertions above hold: a plane's line holds a window from every tap on, and the output has `n` values per
    // plane.
    unsafe {
        match (windows.outputs, windows.steps) {
            (16, 2) => window_lines::<16, 2, BYTES>(lines, windows, drop),
            (16, 3) => window_lines::<16, 3, BYTES>(lines, windows, drop),
            (16, _) => window_lines::<16, 0, BYTES>(lines, windows, drop),
            (_, 2) => window_lines::<8, 2, BYTES>(lines, windows, drop),
            _ => window_lines::<8, 0, BYTES>(lines, windows, drop),
        }
    }
}

/// The least stride of taps for [`far_lines`].
const FAR_STRIDE: usize = 16;

/// Any taps, 32 of an output at a time; eight outputs at once.
///
/// # Safety
/// `stride` values can be read in every line from each start on, and all outputs, a multiple of 8, can be written.
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
unsafe fn far_lines<const BYTES: usize>(lines: LinePointers<'_>, taps: &Taps<i16>, drop: u32) {
    let half = _mm256_set1_epi32(1 << (drop - 1));
    let drop = _mm_cvtsi32_si128(drop as i32);
    let weights = taps.weights.chunks_exact(8 * taps.stride);
    for plane in 0..lines.planes {
        // SAFETY: the plane exists.
        let (line, out) = unsafe { lines.plane(plane) };
        for (block, (starts, weights)) in taps.starts.as_chunks::<8>().0.iter().zip(weights.clone()).enumerate() {
            let mut sums = [_mm512_setzero_si512(); 8];
            for tap in (0..taps.stride).step_by(32) {
                let mask = u32::MAX >> (32 - (taps.stride - tap).min(32));
                for (i, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: the mask ends with the taps; the caller guarantees the rest.
                    unsafe {
                        let values = _mm512_maskz_loadu_epi16(mask, line.add(starts[i] as usize + tap));
                        let weights = _mm512_maskz_loadu_epi16(mask, weights.as_ptr().add(i * taps.stride + tap));
                        *sum = _mm512_dpwssd_epi32(*sum, values, weights);
                    }
                }
            }
            let values = _mm256_sra_epi32(_mm256_add_epi32(add_lanes(sums), half), drop);
            // SAFETY: the caller guarantees this. Weights are not negative: a value has no sign.
            unsafe {
                if BYTES == 2 {
                    _mm_storeu_si128(out.add(block * 16).cast(), _mm256_cvtepi32_epi16(values));
                } else {
                    _mm_storel_epi64(out.add(block * 8).cast(), _mm256_cvtepi32_epi8(values));
                }
            }
        }
    }
}

/// The sum of the lanes of each vector, in order.
#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn add_lanes(sums: [__m512i; 8]) -> __m256i {
    let halves = sums.map(|sum| _mm256_add_epi32(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64::<1>(sum)));
    let [a, b, c, d, e, f, g, h] = halves;
    let low = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    let high = _mm256_hadd_epi32(_mm256_hadd_epi32(e, f), _mm256_hadd_epi32(g, h));
    // Each half has a part of every sum.
    _mm256_add_epi32(
        _mm256_permute2x128_si256::<0x20>(low, high),
        _mm256_permute2x128_si256::<0x31>(low, high),
    )
}

/// Windows with this many outputs and steps. 0: any number.
///
/// # Safety
/// A window can be read in every line from each base on, and again after every step, and all outputs can be written.
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
unsafe fn window_lines<const OUTPUTS: usize, const STEPS: usize, const BYTES: usize>(
    lines: LinePointers<'_>,
    windows: &arranged_taps::Windows,
    drop: u32,
) {
    let steps = if STEPS == 0 { windows.steps } else { STEPS };
    let half = _mm256_set1_epi32(1 << (drop - 1));
    let half = if OUTPUTS == 16 {
        _mm512_broadcast_i64x4(half)
    } else {
        _mm512_zextsi256_si512(half)
    };
    let drop = _mm_cvtsi32_si128(drop as i32);
    // Weights are not negative: the lowest byte of a sum is the value.
    let lowest = _mm_setr_epi8(0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60);
    let each = windows
        .bases
        .iter()
        .zip(&windows.places)
        .zip(windows.weights.chunks_exact(steps));
    for (window, ((base, Aligned(places)), weights)) in each.enumerate() {
        let places = load_words(places);
        for plane in 0..lines.planes {
            // SAFETY: the caller guarantees this.
            unsafe {
                let (line, out) = lines.plane(plane);
                let mut sums = half;
                for (step, Aligned(weights)) in weights.iter().enumerate() {
                    let values = _mm512_loadu_si512(line.add(base + WINDOW / OUTPUTS * step).cast());
                    let values = _mm512_permutexvar_epi16(places, values);
                    sums = _mm512_dpwssd_epi32(sums, values, load_words(weights));
                }
                let out = out.add(window * OUTPUTS * BYTES);
                if OUTPUTS == 16 && BYTES == 2 {
                    let words = _mm512_cvtepi32_epi16(_mm512_sra_epi32(sums, drop));
                    _mm256_storeu_si256(out.cast(), words);
                } else if OUTPUTS == 16 {
                    let levels = _mm512_sra_epi32(sums, drop);
                    let levels = _mm512_permutexvar_epi8(_mm512_castsi128_si512(lowest), levels);
                    _mm_storeu_si128(out.cast(), _mm512_castsi512_si128(levels));
                } else {
                    let sums = _mm256_add_epi32(_mm512_castsi512_si256(sums), _mm512_extracti64x4_epi64::<1>(sums));
                    let levels = _mm256_sra_epi32(sums, drop);
                    if BYTES == 2 {
                        _mm_storeu_si128(out.cast(), _mm256_cvtepi32_epi16(levels));
                        continue;
                    }
                    let levels = _mm256_permutexvar_epi8(_mm256_castsi128_si256(lowest), levels);
                    _mm_storel_epi64(out.cast(), _mm256_castsi256_si128(levels));
                }
            }
        }
    }
}
