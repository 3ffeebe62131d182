//! What kernels with AVX-512 share: loads, stores and the order of packed halves.

use core::arch::x86_64::*;

/// The first 64 bytes of `from`.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn load64(from: &[u8]) -> __m512i {
    let from: &[u8; 64] = from.first_chunk().expect("at least 64 bytes");
    // SAFETY: an array of 64 bytes.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

/// 32 words.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn load_words(from: &[i16; 32]) -> __m512i {
    // SAFETY: an array of 64 bytes.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

/// Writes the first 64 bytes of `out`.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn store64(out: &mut [u8], v: __m512i) {
    let out: &mut [u8; 64] = out.first_chunk_mut().expect("at least 64 bytes");
    // SAFETY: an array of 64 bytes.
    unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), v) }
}

/// Writes 32 words.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn store_words(out: &mut [i16; 32], v: __m512i) {
    // SAFETY: an array of 64 bytes.
    unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), v) }
}

/// Quarters of 16 bytes, one of `a` and one of `b` in turn: what unpacking within quarters separates, put in order.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn alternate_quarters(a: __m512i, b: __m512i) -> [__m512i; 2] {
    let first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    let second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    [
        _mm512_permutex2var_epi64(a, first, b),
        _mm512_permutex2var_epi64(a, second, b),
    ]
}
