//! Upsampling with AVX-512, 64 samples at a time. See [`super::avx2`].

use core::arch::x86_64::*;

use crate::simd::avx512::{alternate_quarters, load64, store64};

type V = __m512i;

/// `x` and `y` side by side: the left eight of every sixteen samples, then the right eight.
#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn pairs(x: V, y: V) -> [V; 2] {
    [_mm512_unpacklo_epi8(x, y), _mm512_unpackhi_epi8(x, y)]
}

/// `a * x + b * y` of [`pairs`].
#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn weighted(pairs: V, a: i8, b: i8) -> V {
    _mm512_maddubs_epi16(pairs, _mm512_set1_epi16(i16::from_le_bytes([a as u8, b as u8])))
}

/// See [`super::avx2::h2v2`].
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
pub(crate) fn h2v2(near: &[u8], far: &[u8], count: usize, out: &mut [u8]) {
    let (scale, seven) = (_mm512_set1_epi16(1 << 11), _mm512_set1_epi16(7));
    // Moves bits 4 to 11 of every word to its upper byte.
    let drop = _mm512_set1_epi64(0x34_00_24_00_14_00_04_00);
    for at in (0..count).step_by(64) {
        let column = |at: usize| pairs(load64(&near[at..]), load64(&far[at..]));
        let (left, middle, right) = (column(at), column(at + 1), column(at + 2));
        let [low, high] = core::array::from_fn(|i| {
            let middle = weighted(middle[i], 9, 3);
            let even = _mm512_mulhrs_epi16(_mm512_add_epi16(middle, weighted(left[i], 3, 1)), scale);
            let odd = _mm512_add_epi16(_mm512_add_epi16(middle, seven), weighted(right[i], 3, 1));
            _mm512_mask_multishift_epi64_epi8(even, 0xaaaa_aaaa_aaaa_aaaa, drop, odd)
        });
        let [first, second] = alternate_quarters(low, high);
        store64(&mut out[2 * at..], first);
        store64(&mut out[2 * at + 64..], second);
    }
}
