//! Copies of many buffers one after another, as stacking samples into a batch needs.
//!
//! A large batch is written with streaming stores, past the cache. Ordinary stores would read each line of the target
//! before they overwrite it, and would evict source lines that are still needed. This takes little more than half of
//! the time.

use crate::simd::{Available, dispatch, fence_streaming_stores};

/// Targets of at least this size are written past the cache: they would fill the cache of a core.
pub const STREAMED: usize = 4 << 20;

/// Writes `parts`, one after another, to `out`.
///
/// # Panics
/// If the parts do not have as many bytes as `out`.
pub fn concat<'a>(parts: impl Iterator<Item = &'a [u8]>, out: &mut [u8], level: Available) {
    let streamed = out.len() >= STREAMED;
    let mut rest = out;
    for part in parts {
        let (target, behind) = rest.split_at_mut(part.len());
        if streamed {
            dispatch!(level, [Avx2], copy_past_cache(part, target));
        } else {
            target.copy_from_slice(part);
        }
        rest = behind;
    }
    assert!(rest.is_empty(), "{} bytes of the target are left", rest.len());
    if streamed {
        fence_streaming_stores();
    }
}

mod scalar {
    pub(super) fn copy_past_cache(part: &[u8], target: &mut [u8]) {
        target.copy_from_slice(part);
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use core::arch::x86_64::*;

    use crate::simd::avx2::load32;

    const LINE: usize = 64;

    /// Copies `part` to `target`. Other processors may see later stores first, until a fence.
    #[target_feature(enable = "avx2")]
    pub(super) fn copy_past_cache(part: &[u8], target: &mut [u8]) {
        assert_eq!(part.len(), target.len(), "the part must be as long as its target");
        let head = target.as_ptr().align_offset(LINE).min(part.len());
        target[..head].copy_from_slice(&part[..head]);
        let (lines, tail) = part[head..].as_chunks::<LINE>();
        let (targets, target_tail) = target[head..].as_chunks_mut::<LINE>();
        for (line, target) in lines.iter().zip(targets) {
            let (low, high) = (load32(line), load32(&line[32..]));
            let target: *mut __m256i = target.as_mut_ptr().cast();
            // SAFETY: an array of 64 bytes, at a multiple of 64.
            unsafe {
                _mm256_stream_si256(target, low);
                _mm256_stream_si256(target.add(1), high);
            }
        }
        target_tail.copy_from_slice(tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streamed_and_stored_are_the_same() {
        let source: Vec<u8> = (0..STREAMED + 4096).map(|i| (i * 7 + i / 251) as u8).collect();
        for (start, sizes) in [
            (0, vec![STREAMED]),
            (1, vec![STREAMED / 2 + 3, 0, 1, 62, 64, 65, STREAMED / 2]),
            (33, vec![1000; 5000]),
        ] {
            let mut at = 0;
            let parts: Vec<&[u8]> = sizes
                .iter()
                .map(|&size| {
                    at = (at + 4099) % (source.len() - size + 1);
                    &source[at..at + size]
                })
                .collect();
            let total: usize = sizes.iter().sum();
            let mut out = vec![0xA5; start + total + 1];

            concat(parts.iter().copied(), &mut out[start..start + total], Available::best());

            assert!(out[start..start + total] == parts.concat());
            assert!(
                out[..start]
                    .iter()
                    .chain(&out[start + total..])
                    .all(|&byte| byte == 0xA5)
            );
        }
    }

    #[test]
    #[should_panic(expected = "3 bytes of the target are left")]
    fn parts_fill_their_target() {
        concat([&[1u8, 2][..]].into_iter(), &mut [0; 5], Available::SCALAR);
    }
}
