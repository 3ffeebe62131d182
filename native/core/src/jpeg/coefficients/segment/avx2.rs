//! A segment is read by `pdep`: widths of a block, and values of a group.

use core::arch::x86_64::*;

use super::{GROUPS, Kind, MASK_CODES, RUN, Scratch, WIDTHS, Window, positions_in_use};
use crate::jpeg::coefficients::{CORNERS, SEGMENT};
use crate::simd::avx2::{load8, load16};

/// A byte of ones for each bit of a mask.
static BYTES: [u64; 256] = {
    let mut all = [0; 256];
    let mut bit = 0;
    while bit < 256 * 8 {
        let (mask, i) = (bit / 8, bit % 8);
        all[mask] |= (255 * (mask as u64 >> i & 1)) << (8 * i);
        bit += 1;
    }
    all
};

/// The numbers of the groups in a mask, as shuffle of 8 bytes to 8 words.
static COMPACT: [[u8; 16]; 256] = {
    let mut all = [[0x80; 16]; 256];
    let mut bit = 0;
    while bit < 256 * 8 {
        let (mask, i) = (bit / 8, bit % 8);
        if mask >> i & 1 == 1 {
            let before = (mask as u32 & ((1 << i) - 1)).count_ones() as usize;
            all[mask][2 * before] = i as u8;
        }
        bit += 1;
    }
    all
};

/// 16 times the number of each group, and its first coefficient.
const NUMBERS: [u8; GROUPS] = [0, 16, 32, 48, 64, 80, 96, 112];

/// See [`super::read_segment`].
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn read_segment(
    window: &Window,
    kind: Kind,
    blocks: &mut [[i16; 64]],
    used: &mut [u8],
    scratch: &mut Scratch,
) -> bool {
    blocks.as_flattened_mut().fill(0);
    let mut widths = [0; SEGMENT];
    let widths = &mut widths[..used.len().min(SEGMENT)];
    let Some(at) = read_widths(window, kind, widths) else {
        return false;
    };
    let Some(groups) = list_groups(widths, used, scratch) else {
        return false;
    };
    let (values, raw) = read_masks(window, kind, Cursor { at, groups }, scratch);
    read_values(window, values, blocks, scratch).is_some_and(|at| window.is_read(at, raw))
}

/// A position of bits, and the number of groups.
#[derive(Clone, Copy)]
struct Cursor {
    at: usize,
    groups: usize,
}

/// Reads the heads of the blocks: the widths of the groups of each, a byte each. Returns the position of the masks.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn read_widths(window: &Window, kind: Kind, widths: &mut [u64]) -> Option<usize> {
    let runs = widths.len().div_ceil(RUN);
    let mut at = 8 * runs.div_ceil(2);
    let mut valid = true;
    for (run, widths) in widths.chunks_mut(RUN).enumerate() {
        let number = usize::from(window.byte(run / 2) >> (run % 2 * 4) & 15);
        let Some(profile) = number.checked_sub(1).and_then(|number| WIDTHS[kind].get(number)) else {
            widths.fill(0);
            continue;
        };
        let own = (1u64 << profile.count_bits) - 1;
        let mut codes = window.bits(at);
        at += widths.len() * profile.count_bits as usize;
        for widths in widths {
            let code = codes & own;
            codes >>= profile.count_bits;
            let bits = window.bits(at);
            *widths = if code == own {
                let count = (bits & 15) as u32;
                valid &= count as usize <= GROUPS;
                at += 4 + 4 * count as usize;
                _bzhi_u64(_pdep_u64(bits >> 4, 0x0f0f_0f0f_0f0f_0f0f), 8 * count)
            } else {
                let count = profile.first_count + code as usize;
                let &head_bits = profile.head_bits.get(count)?;
                at += usize::from(head_bits);
                _bzhi_u64(profile.least + _pdep_u64(bits, profile.added), 8 * count as u32)
            };
        }
    }
    valid.then_some(at)
}

/// Lists the groups that are there: kinds and places. Returns their number.
#[target_feature(enable = "avx2,popcnt")]
fn list_groups(widths: &[u64], used: &mut [u8], scratch: &mut Scratch) -> Option<usize> {
    let numbers = load8(&NUMBERS);
    let corners = load8(&CORNERS);
    let mut groups = 0;
    let mut valid = true;
    for (i, (&widths, used)) in widths.iter().zip(used).enumerate() {
        // No width is above 14.
        valid &= widths & widths >> 1 & widths >> 2 & widths >> 3 & 0x0101_0101_0101_0101 == 0;
        *used = positions_in_use(widths);
        let present = _mm_cvtsi64_si128(widths as i64);
        let empty = _mm_movemask_epi8(_mm_cmpeq_epi8(present, _mm_setzero_si128())) as u8;
        let order = load16(&COMPACT[usize::from(!empty)]);
        let kinds = _mm_shuffle_epi8(_mm_or_si128(present, numbers), order);
        let places = _mm_or_si128(_mm_shuffle_epi8(corners, order), _mm_set1_epi16(64 * i as i16));
        store_words(&mut scratch.kinds, groups, kinds);
        store_words(&mut scratch.places, groups, places);
        groups += (!empty).count_ones() as usize;
    }
    valid.then_some(groups)
}

/// Writes 8 words from a group on.
#[inline]
#[target_feature(enable = "avx2")]
fn store_words(words: &mut [u16; SEGMENT * GROUPS + GROUPS], at: usize, v: __m128i) {
    if let Some(to) = words[at.min(SEGMENT * GROUPS)..].first_chunk_mut::<8>() {
        crate::simd::avx2::store_8_words(to, v);
    }
}

/// Reads the masks of the groups. Returns the position of the values, and the number of raw masks.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn read_masks(window: &Window, kind: Kind, heads: Cursor, scratch: &mut Scratch) -> (Cursor, usize) {
    let codes = &MASK_CODES[kind];
    let Cursor { mut at, groups } = heads;
    let kinds = &scratch.kinds[..groups.min(SEGMENT * GROUPS)];
    let mut raw = 0;
    for (&kind, mask) in kinds.iter().zip(&mut scratch.masks) {
        let kind = usize::from(kind & 127);
        let count = u32::from(codes.bits[kind]);
        let code = _bzhi_u64(window.bits(at), count) as usize;
        at += count as usize;
        let entry = codes.masks[kind][code & 63];
        let is_raw = entry >> 8;
        // Without a branch: which masks have codes cannot be foreseen.
        let byte = window.byte(window.filled.wrapping_sub(raw + 1));
        *mask = entry & 255 | u16::from(byte) & is_raw.wrapping_neg();
        raw += usize::from(is_raw);
    }
    (Cursor { at, groups }, raw)
}

/// Reads the values. Returns the position after them.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn read_values(window: &Window, from: Cursor, blocks: &mut [[i16; 64]], scratch: &Scratch) -> Option<usize> {
    let Cursor { mut at, groups } = from;
    let groups = groups.min(SEGMENT * GROUPS);
    let coefficients = blocks.as_flattened_mut();
    let parts = scratch.kinds[..groups].iter().zip(&scratch.places).zip(&scratch.masks);
    for ((&kind, &place), &mask) in parts {
        let (mask, width) = (mask as u8, u32::from(kind & 15));
        let block = coefficients.get_mut(usize::from(place)..)?;
        read_group(window, at, mask, width, block);
        at += mask.count_ones() as usize * width as usize;
    }
    Some(at)
}

/// Reads the values of a group into two rows of four coefficients, of which `block` begins with the first.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn read_group(window: &Window, at: usize, mask: u8, width: u32, block: &mut [i16]) {
    let bits = window.bits(at);
    let low = u64::from(mask);
    let values = if width < 8 {
        let present = BYTES[usize::from(mask)];
        let lanes = u64::from(u8::MAX >> (8 - width)) * 0x0101_0101_0101_0101;
        let half = ((1u64 << width >> 1) * 0x0101_0101_0101_0101) & present;
        let v = _mm_cvtsi64_si128(_pdep_u64(bits, lanes & present) as i64);
        let v = _mm_sub_epi8(v, _mm_cvtsi64_si128(half as i64));
        let positive = _mm_cmpgt_epi8(v, _mm_set1_epi8(-1));
        let v = _mm_sub_epi8(v, _mm_and_si128(positive, _mm_cvtsi64_si128(present as i64)));
        _mm_cvtepi8_epi16(v)
    } else {
        const WORDS: u64 = 0x0001_0001_0001_0001;
        let present = [low & 15, low >> 4].map(|mask| _pdep_u64(mask, WORDS) * 0xffff);
        let lanes = ((1 << width) - 1) * WORDS;
        let second = window.bits(at + (low & 15).count_ones() as usize * width as usize);
        let [low, high] = [
            _pdep_u64(bits, lanes & present[0]),
            _pdep_u64(second, lanes & present[1]),
        ];
        let v = _mm_set_epi64x(high as i64, low as i64);
        let present = _mm_set_epi64x(present[1] as i64, present[0] as i64);
        let half = _mm_and_si128(_mm_set1_epi16((1i32 << (width - 1)) as i16), present);
        let v = _mm_sub_epi16(v, half);
        let positive = _mm_cmpgt_epi16(v, _mm_set1_epi16(-1));
        _mm_sub_epi16(v, _mm_and_si128(positive, present))
    };
    let Some(block) = block.first_chunk_mut::<12>() else {
        return;
    };
    // SAFETY: two rows of four coefficients, the second 8 coefficients after the first, of 12.
    unsafe {
        _mm_storel_epi64(block.as_mut_ptr().cast(), values);
        _mm_storeh_pd(block.as_mut_ptr().add(8).cast(), _mm_castsi128_pd(values));
    }
}
