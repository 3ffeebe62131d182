//! Whole batches: each picture mixed with the one before it.
//!
//! A batch is larger than the caches: the result is written past them, as [`crate::concat`] does.

use crate::concat::STREAMED;
use crate::simd::Level;

/// `out[i] = before[i] * rest + own[i] * share` in single precision with three roundings, where `before` is the row in
/// front, of the first the last.
///
/// # Panics
/// If lengths differ or are not whole rows.
pub fn mix(images: &[f32], rows: usize, share: f32, rest: f32, out: &mut [f32], level: Level) {
    assert_eq!(images.len(), out.len(), "as long as the batch");
    if images.is_empty() {
        return;
    }
    assert!(images.len().is_multiple_of(rows), "whole rows");
    let row_len = images.len() / rows;
    let streamed = size_of_val(out) >= STREAMED;
    for (i, out) in out.chunks_exact_mut(row_len).enumerate() {
        let own = &images[i * row_len..][..row_len];
        let before = &images[(i + rows - 1) % rows * row_len..][..row_len];
        match level.available() {
            // SAFETY: this level is available
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::Avx512 if streamed => unsafe { avx2::mix(own, before, share, rest, out) },
            _ => mixed(own, before, share, rest, out),
        }
    }
    #[cfg(target_arch = "x86_64")]
    if streamed {
        // SAFETY: every x86-64 processor has it. Streamed stores are ordered before whatever follows, as others are.
        unsafe { core::arch::x86_64::_mm_sfence() }
    }
}

fn mixed(own: &[f32], before: &[f32], share: f32, rest: f32, out: &mut [f32]) {
    for ((out, own), before) in out.iter_mut().zip(own).zip(before) {
        *out = before * rest + own * share;
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use core::arch::x86_64::*;

    /// See [`super::mixed`]; not ordered with later stores of other processors until a fence.
    #[target_feature(enable = "avx2")]
    pub(super) fn mix(own: &[f32], before: &[f32], share: f32, rest: f32, out: &mut [f32]) {
        assert!(
            own.len() == out.len() && before.len() == out.len(),
            "rows of one length"
        );
        let head = out.as_ptr().align_offset(32).min(out.len());
        super::mixed(&own[..head], &before[..head], share, rest, &mut out[..head]);
        let (wide, tail) = out[head..].as_chunks_mut::<8>();
        let done = head + 8 * wide.len();
        super::mixed(&own[done..], &before[done..], share, rest, tail);
        let (share, rest) = (_mm256_set1_ps(share), _mm256_set1_ps(rest));
        let parts = own[head..]
            .as_chunks::<8>()
            .0
            .iter()
            .zip(before[head..].as_chunks::<8>().0);
        for ((own, before), out) in parts.zip(wide) {
            // SAFETY: all are 32 bytes, and the target lies at a multiple of 32
            unsafe {
                let own = _mm256_mul_ps(_mm256_loadu_ps(own.as_ptr()), share);
                let before = _mm256_mul_ps(_mm256_loadu_ps(before.as_ptr()), rest);
                _mm256_stream_ps(out.as_mut_ptr(), _mm256_add_ps(before, own));
            }
        }
    }
}
