//! Byte stuffing: in entropy-coded data FF00 stands for FF; FF before any other byte begins a marker.

use crate::simd::{Available, dispatch};

/// Bytes per step.
const STEP: usize = 32;

/// The result of [`unstuff`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unstuffed {
    pub read: usize,
    pub written: usize,
    /// Whether `source[read..]` begins with a marker or is empty.
    pub ended: bool,
}

/// Copies entropy-coded data from `source` to `target` without the stuffing. Stops at a marker, at the end of `source`,
/// or when `target` has no space for another step.
pub(crate) fn unstuff(level: Available, source: &[u8], target: &mut [u8]) -> Unstuffed {
    dispatch!(level, [Avx512, Avx2, Neon], unstuff(source, target))
}

mod scalar {
    use super::{Unstuffed, find_ff, unstuff_by};

    pub(super) fn unstuff(source: &[u8], target: &mut [u8]) -> Unstuffed {
        unstuff_by(find_ff, source, target, (0, 0))
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use core::arch::x86_64::*;

    use super::{STEP, Unstuffed, unstuff_by};
    use crate::simd::avx2::load32;

    #[target_feature(enable = "avx2,bmi1")]
    pub(super) fn unstuff(source: &[u8], target: &mut [u8]) -> Unstuffed {
        unstuff_from(source, target, (0, 0))
    }

    /// The same after the first bytes, which are already copied: how many are read, and how many are written.
    #[inline]
    #[target_feature(enable = "avx2,bmi1")]
    pub(super) fn unstuff_from(source: &[u8], target: &mut [u8], done: (usize, usize)) -> Unstuffed {
        let find_ff = |bytes: &[u8; STEP]| {
            let equal = _mm256_cmpeq_epi8(load32(bytes), _mm256_set1_epi8(-1));
            let mask = _mm256_movemask_epi8(equal) as u32;
            (mask != 0).then(|| mask.trailing_zeros() as usize)
        };
        unstuff_by(find_ff, source, target, done)
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use core::arch::x86_64::*;

    use super::{Unstuffed, avx2};
    use crate::simd::avx512::{load64, store64};

    /// Bytes per step.
    const STEP: usize = 64;

    #[target_feature(enable = "avx512vl,avx512bw,avx512vbmi2,bmi1,popcnt")]
    pub(super) fn unstuff(source: &[u8], target: &mut [u8]) -> Unstuffed {
        let (mut read, mut written) = (0, 0);
        // Bit 0: whether the byte before `read` is FF.
        let mut after_ff = 0;
        while let Some(out) = target.get_mut(written..).and_then(|t| t.first_chunk_mut::<STEP>())
            && let Some(bytes) = source.get(read..).and_then(|s| s.first_chunk::<STEP>())
        {
            let bytes = load64(bytes);
            let ff = _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(-1));
            let stuffed = ff << 1 | after_ff;
            if stuffed & _mm512_test_epi8_mask(bytes, bytes) != 0 {
                break; // a marker
            }
            store64(out, _mm512_maskz_compress_epi8(!stuffed, bytes));
            read += STEP;
            written += STEP - stuffed.count_ones() as usize;
            after_ff = ff >> (STEP - 1);
        }
        let open = after_ff as usize;
        avx2::unstuff_from(source, target, (read - open, written - open))
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use core::arch::aarch64::*;

    use super::{STEP, Unstuffed, unstuff_by};
    use crate::simd::neon::load16;

    #[target_feature(enable = "neon")]
    pub(super) fn unstuff(source: &[u8], target: &mut [u8]) -> Unstuffed {
        // Four bits for each of 16 bytes, set where a byte is FF.
        let mask = |bytes: &[u8]| {
            let equal = vreinterpretq_u16_u8(vceqq_u8(load16(bytes), vdupq_n_u8(0xff)));
            vget_lane_u64::<0>(vreinterpret_u64_u8(vshrn_n_u16::<4>(equal)))
        };
        let find_ff = |bytes: &[u8; STEP]| {
            let (low, high) = (mask(bytes), mask(&bytes[16..]));
            if low | high == 0 {
                return None;
            }
            let zeros = if low != 0 {
                low.trailing_zeros()
            } else {
                64 + high.trailing_zeros()
            };
            Some(zeros as usize / 4)
        };
        unstuff_by(find_ff, source, target, (0, 0))
    }
}

/// `find_ff`: the position of the first FF. The last argument: how many bytes are already read and written.
#[inline(always)]
fn unstuff_by(
    find_ff: impl Fn(&[u8; STEP]) -> Option<usize>,
    source: &[u8],
    target: &mut [u8],
    (mut read, mut written): (usize, usize),
) -> Unstuffed {
    while let Some(out) = target.get_mut(written..).and_then(|t| t.first_chunk_mut::<STEP>()) {
        let Some(bytes) = source.get(read..).and_then(|s| s.first_chunk::<STEP>()) else {
            return unstuff_tail(source, target, read, written);
        };
        *out = *bytes;
        let Some(plain) = find_ff(bytes) else {
            read += STEP;
            written += STEP;
            continue;
        };
        read += plain;
        written += plain;
        if source.get(read + 1) != Some(&0) {
            return Unstuffed {
                read: skip_fill_bytes(source, read),
                written,
                ended: true,
            };
        }
        // The FF is already copied.
        written += 1;
        read += 2;
    }
    Unstuffed {
        read,
        written,
        ended: false,
    }
}

/// Copies the last bytes one by one.
fn unstuff_tail(source: &[u8], target: &mut [u8], mut read: usize, mut written: usize) -> Unstuffed {
    while let Some(&byte) = source.get(read) {
        if byte == 0xff && source.get(read + 1) != Some(&0) {
            read = skip_fill_bytes(source, read);
            break;
        }
        target[written] = byte;
        written += 1;
        read += if byte == 0xff { 2 } else { 1 };
    }
    Unstuffed {
        read,
        written,
        ended: true,
    }
}

/// Counts the bytes that are FF. In unstuffed data these are the bytes that were stuffed.
pub(crate) fn count_ff(bytes: &[u8]) -> usize {
    // As long as counts of a byte hold, so that sums of vectors are added up rarely.
    let (steps, rest) = bytes.as_chunks::<{ 7 * STEP }>();
    let count = |bytes: &[u8]| bytes.iter().map(|&byte| u8::from(byte == 0xff)).sum::<u8>();
    steps.iter().map(|bytes| usize::from(count(bytes))).sum::<usize>() + usize::from(count(rest))
}

/// Offset of the marker that ends the entropy-coded data at the start of `source`, or the length of `source` if there
/// is none.
pub(crate) fn find_marker(source: &[u8]) -> usize {
    let mut at = 0;
    while at < source.len() {
        if let Some(None) = source[at..].first_chunk::<STEP>().map(find_ff) {
            at += STEP;
            continue;
        }
        match (source[at], source.get(at + 1)) {
            (0xff, Some(0)) => at += 2,
            (0xff, _) => return skip_fill_bytes(source, at),
            _ => at += 1,
        }
    }
    at
}

/// The position of the last of the FF bytes before a marker, from the first one at `at`. Returns `at` where no marker
/// follows (libjpeg reads FFFF00 in two ways); the caller finds no valid marker there.
fn skip_fill_bytes(source: &[u8], at: usize) -> usize {
    let fill = source[at..].iter().take_while(|&&byte| byte == 0xff).count();
    match source.get(at + fill) {
        Some(0) | None => at,
        Some(_) => at + fill - 1,
    }
}

#[inline(always)]
fn find_ff(bytes: &[u8; STEP]) -> Option<usize> {
    if bytes.iter().fold(0, |any, &byte| any | u8::from(byte == 0xff)) == 0 {
        return None;
    }
    bytes.iter().position(|&byte| byte == 0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_ff_are_counted() {
        for len in [0, 1, 31, 32, 33, 1000, STEP * 255, STEP * 600 + 7] {
            for period in [1, 2, 3, 40] {
                let bytes: Vec<u8> = (0..len)
                    .map(|i| if i % period == 0 { 0xff } else { i as u8 | 1 })
                    .collect();
                let expected = bytes.iter().filter(|&&byte| byte == 0xff).count();
                assert_eq!(count_ff(&bytes), expected, "{len} bytes");
            }
        }
    }
}
