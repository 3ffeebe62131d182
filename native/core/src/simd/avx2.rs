//! What kernels with AVX2 share: loads and stores of whole vectors.

use core::arch::x86_64::*;

/// The first 8 bytes of `from`, in the low half.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn load8(from: &[u8]) -> __m128i {
    let from: &[u8; 8] = from.first_chunk().expect("at least 8 bytes");
    // SAFETY: an array of 8 bytes.
    unsafe { _mm_loadl_epi64(from.as_ptr().cast()) }
}

/// The first 16 bytes of `from`.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn load16(from: &[u8]) -> __m128i {
    let from: &[u8; 16] = from.first_chunk().expect("at least 16 bytes");
    // SAFETY: an array of 16 bytes.
    unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
}

/// The first 32 bytes of `from`.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn load32(from: &[u8]) -> __m256i {
    let from: &[u8; 32] = from.first_chunk().expect("at least 32 bytes");
    // SAFETY: an array of 32 bytes.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

/// 16 words.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn load_words(from: &[i16; 16]) -> __m256i {
    // SAFETY: an array of 32 bytes.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

/// 8 words in the low half, 8 in the high half.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn load_word_pair(low: &[i16; 8], high: &[i16; 8]) -> __m256i {
    // SAFETY: arrays of 16 bytes.
    let [low, high] = [low, high].map(|words| unsafe { _mm_loadu_si128(words.as_ptr().cast()) });
    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high)
}

/// Writes the first 16 bytes of `out`.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn store16(out: &mut [u8], v: __m128i) {
    let out: &mut [u8; 16] = out.first_chunk_mut().expect("at least 16 bytes");
    // SAFETY: an array of 16 bytes.
    unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), v) }
}

/// Writes the first 32 bytes of `out`.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn store32(out: &mut [u8], v: __m256i) {
    let out: &mut [u8; 32] = out.first_chunk_mut().expect("at least 32 bytes");
    // SAFETY: an array of 32 bytes.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), v) }
}

/// Writes 8 words.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn store_8_words(out: &mut [u16; 8], v: __m128i) {
    // SAFETY: an array of 16 bytes.
    unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), v) }
}

/// Writes 16 words.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn store_words(out: &mut [i16; 16], v: __m256i) {
    // SAFETY: an array of 32 bytes.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), v) }
}

/// Eight floats.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn load_floats(from: &[f32; 8]) -> __m256 {
    // SAFETY: an array of 32 bytes.
    unsafe { _mm256_loadu_ps(from.as_ptr()) }
}

/// Writes eight floats.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn store_floats(out: &mut [f32; 8], v: __m256) {
    // SAFETY: an array of 32 bytes.
    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), v) }
}
