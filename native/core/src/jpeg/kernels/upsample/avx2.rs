//! Upsampling with AVX2, 32 samples at a time.
//!
//! Two neighbouring samples are multiplied by two factors and summed in 16 bits, first the left eight of both halves of
//! a vector, then the right eight. Each half of a result is 16 bytes of output, and the halves are stored separately.

use core::arch::x86_64::*;

use crate::simd::avx2::{load32, store16, store32};

type V = __m256i;

/// `x` and `y` side by side: samples 0 to 7 and 16 to 23, then the others.
#[inline]
#[target_feature(enable = "avx2")]
fn pairs(x: V, y: V) -> [V; 2] {
    [_mm256_unpacklo_epi8(x, y), _mm256_unpackhi_epi8(x, y)]
}

/// `a * x + b * y` of [`pairs`]. The factors may sum to at most 128.
#[inline]
#[target_feature(enable = "avx2")]
fn weighted(pairs: V, a: i8, b: i8) -> V {
    _mm256_maddubs_epi16(pairs, _mm256_set1_epi16(i16::from_le_bytes([a as u8, b as u8])))
}

/// Stores the first 64 bytes of `out`: the low halves, then the high halves, of `left` and `right` in turn.
#[inline]
#[target_feature(enable = "avx2")]
fn store_halves(out: &mut [u8], [left, right]: [V; 2]) {
    let out: &mut [u8; 64] = out.first_chunk_mut().expect("at least 64 bytes");
    store16(out, _mm256_castsi256_si128(left));
    store16(&mut out[16..], _mm256_castsi256_si128(right));
    store16(&mut out[32..], _mm256_extracti128_si256::<1>(left));
    store16(&mut out[48..], _mm256_extracti128_si256::<1>(right));
}

#[target_feature(enable = "avx2")]
pub(crate) fn h2v1(near: &[u8], count: usize, out: &mut [u8]) {
    let (one, two) = (_mm256_set1_epi16(1), _mm256_set1_epi16(2));
    for at in (0..count).step_by(32) {
        let middle = load32(&near[at + 1..]);
        let left = pairs(middle, load32(&near[at..]));
        let right = pairs(middle, load32(&near[at + 2..]));
        let pixels = core::array::from_fn(|i| {
            let even = _mm256_srli_epi16::<2>(_mm256_add_epi16(weighted(left[i], 3, 1), one));
            let odd = _mm256_srli_epi16::<2>(_mm256_add_epi16(weighted(right[i], 3, 1), two));
            _mm256_or_si256(even, _mm256_slli_epi16::<8>(odd))
        });
        store_halves(&mut out[2 * at..], pixels);
    }
}

#[target_feature(enable = "avx2")]
pub(crate) fn h2v2(near: &[u8], far: &[u8], count: usize, out: &mut [u8]) {
    // Multiplication by 2^11 with rounding adds 8 and drops 4 bits.
    let (scale, seven) = (_mm256_set1_epi16(1 << 11), _mm256_set1_epi16(7));
    for at in (0..count).step_by(32) {
        let column = |at: usize| pairs(load32(&near[at..]), load32(&far[at..]));
        let (left, middle, right) = (column(at), column(at + 1), column(at + 2));
        let pixels = core::array::from_fn(|i| {
            let middle = weighted(middle[i], 9, 3);
            let even = _mm256_mulhrs_epi16(_mm256_add_epi16(middle, weighted(left[i], 3, 1)), scale);
            let odd = _mm256_add_epi16(_mm256_add_epi16(middle, seven), weighted(right[i], 3, 1));
            _mm256_or_si256(even, _mm256_slli_epi16::<8>(_mm256_srli_epi16::<4>(odd)))
        });
        store_halves(&mut out[2 * at..], pixels);
    }
}

#[target_feature(enable = "avx2")]
pub(crate) fn h1v2(near: &[u8], far: &[u8], lower: bool, count: usize, out: &mut [u8]) {
    let bias = _mm256_set1_epi16(if lower { 2 } else { 1 });
    for at in (0..count).step_by(32) {
        let [left, right] = pairs(load32(&near[at + 1..]), load32(&far[at + 1..]))
            .map(|pairs| _mm256_srli_epi16::<2>(_mm256_add_epi16(weighted(pairs, 3, 1), bias)));
        store32(&mut out[at..], _mm256_packus_epi16(left, right));
    }
}
