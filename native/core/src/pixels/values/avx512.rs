//! [`super::scalar`] with AVX-512, where that is faster than AVX2.

use core::arch::x86_64::*;

use super::{LookupTable, STEP};
use crate::simd::avx2::{load32, store32};
use crate::simd::avx512::{load64, store64};

/// Keeps the whole table in four registers. A permutation looks 64 values up in two of them.
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
pub fn lookup(plane: &mut [u8], table: &LookupTable) {
    let part = |i: usize| load64(&table[64 * i..]);
    let [a, b, c, d] = [part(0), part(1), part(2), part(3)];
    let found = |values: __m512i| {
        let low = _mm512_permutex2var_epi8(a, values, b);
        let high = _mm512_permutex2var_epi8(c, values, d);
        _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(values), high)
    };
    let (pairs, rest) = plane.as_chunks_mut::<{ 2 * STEP }>();
    for pair in pairs {
        let values = found(load64(pair));
        store64(pair, values);
    }
    for values in rest.as_chunks_mut::<STEP>().0 {
        let wide = _mm512_castsi256_si512(load32(values));
        store32(values, _mm512_castsi512_si256(found(wide)));
    }
}
