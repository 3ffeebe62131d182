//! [`super::scalar`] with AVX-512, where that is quicker than AVX2: the same levels.

use super::{STEP, Table};
use core::arch::x86_64::*;

/// A whole table lies in four registers; a permutation looks 64 levels up in two of them.
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
pub fn lookup(plane: &mut [u8], table: &Table) {
    // SAFETY: arrays of 64 bytes
    let part = |i: usize| unsafe { _mm512_loadu_si512(table.as_chunks::<64>().0[i].as_ptr().cast()) };
    let [a, b, c, d] = [part(0), part(1), part(2), part(3)];
    let found = |levels: __m512i| {
        let low = _mm512_permutex2var_epi8(a, levels, b);
        let high = _mm512_permutex2var_epi8(c, levels, d);
        _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(levels), high)
    };
    let (pairs, rest) = plane.as_chunks_mut::<{ 2 * STEP }>();
    for pair in pairs {
        let pair: *mut __m512i = pair.as_mut_ptr().cast();
        // SAFETY: an array of 64 bytes
        unsafe { _mm512_storeu_si512(pair, found(_mm512_loadu_si512(pair))) }
    }
    for levels in rest.as_chunks_mut::<STEP>().0 {
        let levels: *mut __m256i = levels.as_mut_ptr().cast();
        // SAFETY: an array of 32 bytes
        unsafe {
            let wide = _mm512_castsi256_si512(_mm256_loadu_si256(levels));
            _mm256_storeu_si256(levels, _mm512_castsi512_si256(found(wide)));
        }
    }
}
