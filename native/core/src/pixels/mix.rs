//! Mixing of whole batches: each picture with the one before it.
//!
//! A large batch is written past the cache, as in [`crate::concat`].

use crate::concat::STREAMED;
use crate::simd::{Available, dispatch, fence_streaming_stores};

/// Computes `out[i] = before[i] * before_weight + own[i] * own_weight` in single precision with three roundings. `before`
/// is the previous row; for the first row, the last one.
///
/// # Panics
/// If lengths differ or are not whole rows.
pub fn mix(images: &[f32], rows: usize, own_weight: f32, before_weight: f32, out: &mut [f32], level: Available) {
    assert_eq!(images.len(), out.len(), "out must be as long as the batch");
    if images.is_empty() {
        return;
    }
    assert!(
        images.len().is_multiple_of(rows),
        "the batch must consist of whole rows"
    );
    let row_len = images.len() / rows;
    let streamed = size_of_val(out) >= STREAMED;
    for (i, out) in out.chunks_exact_mut(row_len).enumerate() {
        let own = &images[i * row_len..][..row_len];
        let before = &images[(i + rows - 1) % rows * row_len..][..row_len];
        if streamed {
            dispatch!(
                level,
                [Avx2],
                mix_past_cache(own, before, own_weight, before_weight, out)
            );
        } else {
            scalar::mix(own, before, own_weight, before_weight, out);
        }
    }
    if streamed {
        fence_streaming_stores();
    }
}

mod scalar {
    pub(super) use mix as mix_past_cache;

    pub(super) fn mix(own: &[f32], before: &[f32], own_weight: f32, before_weight: f32, out: &mut [f32]) {
        for ((out, own), before) in out.iter_mut().zip(own).zip(before) {
            *out = before * before_weight + own * own_weight;
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use core::arch::x86_64::*;

    use crate::simd::avx2::load_floats;

    /// See [`super::scalar::mix`]. Other processors may see later stores first, until a fence.
    #[target_feature(enable = "avx2")]
    pub(super) fn mix_past_cache(own: &[f32], before: &[f32], own_weight: f32, before_weight: f32, out: &mut [f32]) {
        assert!(
            own.len() == out.len() && before.len() == out.len(),
            "rows must have one length"
        );
        let head = out.as_ptr().align_offset(32).min(out.len());
        super::scalar::mix(
            &own[..head],
            &before[..head],
            own_weight,
            before_weight,
            &mut out[..head],
        );
        let (wide, tail) = out[head..].as_chunks_mut::<8>();
        let done = head + 8 * wide.len();
        super::scalar::mix(&own[done..], &before[done..], own_weight, before_weight, tail);
        let (own_weight, before_weight) = (_mm256_set1_ps(own_weight), _mm256_set1_ps(before_weight));
        let parts = own[head..]
            .as_chunks::<8>()
            .0
            .iter()
            .zip(before[head..].as_chunks::<8>().0);
        for ((own, before), out) in parts.zip(wide) {
            let own = _mm256_mul_ps(load_floats(own), own_weight);
            let before = _mm256_mul_ps(load_floats(before), before_weight);
            // SAFETY: an array of 32 bytes, at a multiple of 32.
            unsafe { _mm256_stream_ps(out.as_mut_ptr(), _mm256_add_ps(before, own)) }
        }
    }
}
