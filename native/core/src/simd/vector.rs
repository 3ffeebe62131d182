//! Loads and stores of whole vectors from and to arrays of their size.

use core::arch::x86_64::*;

/// The first 16 bytes of `out`.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn store16(out: &mut [u8], v: __m128i) {
    let out: &mut [u8; 16] = out.first_chunk_mut().expect("room for a vector");
    // SAFETY: an array of 16 bytes.
    unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), v) }
}

/// The first 32 bytes of `out`.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn store32(out: &mut [u8], v: __m256i) {
    let out: &mut [u8; 32] = out.first_chunk_mut().expect("room for a vector");
    // SAFETY: an array of 32 bytes.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), v) }
}

/// The first 16 bytes of `from`.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn load16(from: &[u8]) -> __m128i {
    let from: &[u8; 16] = from.first_chunk().expect("a whole vector");
    // SAFETY: an array of 16 bytes.
    unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
}

/// The first 32 bytes of `from`.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn load32(from: &[u8]) -> __m256i {
    let from: &[u8; 32] = from.first_chunk().expect("a whole vector");
    // SAFETY: an array of 32 bytes.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

/// `low` in the low half, `high` in the high half.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn load_pair(low: &[i16; 8], high: &[i16; 8]) -> __m256i {
    // SAFETY: arrays of 16 bytes.
    let (low, high) = unsafe {
        (
            _mm_loadu_si128(low.as_ptr().cast()),
            _mm_loadu_si128(high.as_ptr().cast()),
        )
    };
    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high)
}

/// The first 64 bytes of `out`.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn store64(out: &mut [u8], v: __m512i) {
    let out: &mut [u8; 64] = out.first_chunk_mut().expect("room for a vector");
    // SAFETY: an array of 64 bytes.
    unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), v) }
}

/// The first 64 bytes of `from`.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn load64(from: &[u8]) -> __m512i {
    let from: &[u8; 64] = from.first_chunk().expect("a whole vector");
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
