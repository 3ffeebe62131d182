//! Upsampling with AVX2, 16 samples at a time. Equal to [`super::upsample`].

use core::arch::x86_64::*;

use super::vector::{load16, store16, store32};

/// Samples `at` to `at + 16` of a row, widened.
#[inline]
#[target_feature(enable = "avx2")]
fn wide(row: &[u8], at: usize) -> __m256i {
    _mm256_cvtepu8_epi16(load16(&row[at..]))
}

#[inline]
#[target_feature(enable = "avx2")]
fn triple(v: __m256i) -> __m256i {
    _mm256_add_epi16(v, _mm256_add_epi16(v, v))
}

/// Two output samples of each input sample, in order.
#[inline]
#[target_feature(enable = "avx2")]
fn interleave(even: __m256i, odd: __m256i) -> __m256i {
    _mm256_or_si256(even, _mm256_slli_epi16::<8>(odd))
}

#[target_feature(enable = "avx2")]
pub(crate) fn h2v1(near: &[u8], count: usize, out: &mut [u8]) {
    let (one, two) = (_mm256_set1_epi16(1), _mm256_set1_epi16(2));
    for at in (0..count).step_by(16) {
        let middle = triple(wide(near, at + 1));
        let even = _mm256_add_epi16(_mm256_add_epi16(middle, wide(near, at)), one);
        let odd = _mm256_add_epi16(_mm256_add_epi16(middle, wide(near, at + 2)), two);
        let pixels = interleave(_mm256_srli_epi16::<2>(even), _mm256_srli_epi16::<2>(odd));
        store32(&mut out[2 * at..], pixels);
    }
}

#[target_feature(enable = "avx2")]
pub(crate) fn h2v2(near: &[u8], far: &[u8], count: usize, out: &mut [u8]) {
    let (seven, eight) = (_mm256_set1_epi16(7), _mm256_set1_epi16(8));
    for at in (0..count).step_by(16) {
        let left = _mm256_add_epi16(triple(wide(near, at)), wide(far, at));
        let middle = triple(_mm256_add_epi16(triple(wide(near, at + 1)), wide(far, at + 1)));
        let right = _mm256_add_epi16(triple(wide(near, at + 2)), wide(far, at + 2));
        let even = _mm256_add_epi16(_mm256_add_epi16(middle, left), eight);
        let odd = _mm256_add_epi16(_mm256_add_epi16(middle, right), seven);
        let pixels = interleave(_mm256_srli_epi16::<4>(even), _mm256_srli_epi16::<4>(odd));
        store32(&mut out[2 * at..], pixels);
    }
}

#[target_feature(enable = "avx2")]
pub(crate) fn h1v2(near: &[u8], far: &[u8], lower: bool, count: usize, out: &mut [u8]) {
    let bias = _mm256_set1_epi16(if lower { 2 } else { 1 });
    for at in (0..count).step_by(16) {
        let sum = _mm256_add_epi16(triple(wide(near, at + 1)), wide(far, at + 1));
        let wide = _mm256_srli_epi16::<2>(_mm256_add_epi16(sum, bias));
        let packed = _mm256_permute4x64_epi64::<0b00_00_10_00>(_mm256_packus_epi16(wide, wide));
        store16(&mut out[at..], _mm256_castsi256_si128(packed));
    }
}
