//! A segment is read by `pdep`: widths of a block, and values of a group.

use core::arch::x86_64::*;

use super::{GROUPS, Kind, MASK_CODES, RUN, Scratch, WIDTHS, Window, is_low, positions_in_use};
use crate::jpeg::coefficients::{SEGMENT, position};
use crate::simd::avx2::{load8, load16, store_8_words, store_words};

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

/// 16 times the number of each group.
const NUMBERS: [u8; GROUPS] = [0, 16, 32, 48, 64, 80, 96, 112];

/// Memory that is used for one segment after another.
pub(super) struct Groups {
    /// The values of groups of a width below 8.
    narrow: [[[u8; 8]; GROUPS]; SEGMENT],
    wide: [WideGroup; SEGMENT * GROUPS],
}

/// A group whose values need words.
#[derive(Clone, Copy)]
struct WideGroup {
    /// Of the list of groups.
    number: u16,
    /// The first bit of its values.
    at: u32,
}

impl Groups {
    pub fn new() -> Self {
        Groups {
            narrow: [[[0; 8]; GROUPS]; SEGMENT],
            wide: [WideGroup { number: 0, at: 0 }; SEGMENT * GROUPS],
        }
    }
}

/// See [`super::read_segment`].
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn read_segment(
    window: &Window,
    kind: Kind,
    blocks: &mut [[i16; 64]],
    used: &mut [u8],
    scratch: &mut Scratch,
) -> bool {
    let mut widths = [0; SEGMENT];
    let widths = &mut widths[..used.len().min(SEGMENT)];
    let Some(at) = read_widths(window, kind, widths) else {
        return false;
    };
    let Some(groups) = list_groups(widths, scratch) else {
        return false;
    };
    let (values, raw) = read_masks(window, kind, Cursor { at, groups }, scratch);
    window.is_read(read_values(window, values, blocks, used, scratch), raw)
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

/// Lists the groups that are there: `128 * block + 16 * group + width`. Returns their number.
#[target_feature(enable = "avx2,popcnt")]
fn list_groups(widths: &[u64], scratch: &mut Scratch) -> Option<usize> {
    let numbers = load8(&NUMBERS);
    let mut groups = 0;
    let mut valid = true;
    for (i, &widths) in widths.iter().enumerate() {
        // No width is above 14.
        valid &= widths & widths >> 1 & widths >> 2 & widths >> 3 & 0x0101_0101_0101_0101 == 0;
        let present = _mm_cvtsi64_si128(widths as i64);
        let empty = _mm_movemask_epi8(_mm_cmpeq_epi8(present, _mm_setzero_si128())) as u8;
        let order = load16(&COMPACT[usize::from(!empty)]);
        let kinds = _mm_shuffle_epi8(_mm_or_si128(present, numbers), order);
        let kinds = _mm_or_si128(kinds, _mm_set1_epi16(128 * i as i16));
        if let Some(to) = scratch.kinds[groups.min(SEGMENT * GROUPS)..].first_chunk_mut::<8>() {
            store_8_words(to, kinds);
        }
        groups += (!empty).count_ones() as usize;
    }
    valid.then_some(groups)
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

/// Reads the values, and says which positions of each block are in use. Returns the position after them.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn read_values(
    window: &Window,
    from: Cursor,
    blocks: &mut [[i16; 64]],
    used: &mut [u8],
    scratch: &mut Scratch,
) -> usize {
    let Cursor { mut at, groups } = from;
    let Groups { narrow, wide } = &mut scratch.groups;
    let narrow = &mut narrow[..blocks.len().min(SEGMENT)];
    narrow.fill([[0; 8]; GROUPS]);
    let mut wide_count = 0;
    let parts = scratch.kinds[..groups.min(SEGMENT * GROUPS)].iter().zip(&scratch.masks);
    for (number, (&kind, &mask)) in parts.enumerate() {
        let (mask, width) = (mask as u8, u32::from(kind & 15));
        if width < 8 {
            if let Some(group) = narrow.as_flattened_mut().get_mut(usize::from(kind >> 4)) {
                *group = read_narrow_group(window.bits(at), mask, width).to_le_bytes();
            }
        } else if let Some(group) = wide.get_mut(wide_count) {
            *group = WideGroup {
                number: number as u16,
                at: at as u32,
            };
            wide_count += 1;
        }
        at += mask.count_ones() as usize * width as usize;
    }
    for ((block, used), groups) in blocks.iter_mut().zip(&mut *used).zip(&*narrow) {
        *used = place(groups, block);
    }
    for &WideGroup { number, at } in &wide[..wide_count] {
        let (kind, mask) = (scratch.kinds[usize::from(number)], scratch.masks[usize::from(number)]);
        let (number, group) = (usize::from(kind >> 7), usize::from(kind >> 4 & 7));
        let Some(block) = blocks.get_mut(number) else { break };
        let values = read_group(window, at as usize, mask as u8, (kind & 15).into());
        for (i, value) in values.into_iter().enumerate() {
            block[position(group, i)] = value;
        }
        used[number] = used[number].max(positions_in_use(u64::from(mask) << (8 * group)));
    }
    at
}

/// Where 16 coefficients in natural order are taken from: for each pair of rows, and each pair of groups.
static SHUFFLES: [[[u8; 16]; 4]; 4] = {
    let mut all = [[[0x80; 16]; 4]; 4];
    let mut k = 0;
    while k < 64 {
        let to = position(k / GROUPS, k % GROUPS);
        all[to / 16][k / 16][to % 16] = k as u8 % 16;
        k += 1;
    }
    all
};

/// The coefficients of a pair of rows that are not of the lowest frequencies, if the rows are the first or the second two.
static HIGH: [u8; 16] = {
    let mut all = [0; 16];
    let mut i = 0;
    while i < 16 {
        all[i] = if is_low(i) { 0 } else { 255 };
        i += 1;
    }
    all
};

/// Writes the coefficients of a block in natural order. Returns the positions in use.
#[inline]
#[target_feature(enable = "avx2")]
fn place(groups: &[[u8; 8]; GROUPS], block: &mut [i16; 64]) -> u8 {
    let groups = groups.as_flattened().as_chunks::<16>().0;
    let [a, b, c, d] = core::array::from_fn(|i| load16(&groups[i]));
    let take = |v, to: usize, from: usize| _mm_shuffle_epi8(v, load16(&SHUFFLES[to][from]));
    let [first, second, third, fourth] = [
        _mm_or_si128(_mm_or_si128(take(a, 0, 0), take(b, 0, 1)), take(c, 0, 2)),
        _mm_or_si128(
            _mm_or_si128(take(a, 1, 0), take(b, 1, 1)),
            _mm_or_si128(take(c, 1, 2), take(d, 1, 3)),
        ),
        _mm_or_si128(
            _mm_or_si128(take(a, 2, 0), take(b, 2, 1)),
            _mm_or_si128(take(c, 2, 2), take(d, 2, 3)),
        ),
        _mm_or_si128(_mm_or_si128(take(b, 3, 1), take(c, 3, 2)), take(d, 3, 3)),
    ];
    for (to, v) in block
        .as_chunks_mut::<16>()
        .0
        .iter_mut()
        .zip([first, second, third, fourth])
    {
        store_words(to, _mm256_cvtepi8_epi16(v));
    }
    let upper = _mm_or_si128(first, second);
    let lower = _mm_or_si128(third, fourth);
    let high = _mm_or_si128(_mm_and_si128(upper, load16(&HIGH)), lower);
    let all = _mm_or_si128(upper, lower);
    if _mm_testz_si128(high, high) == 0 {
        64
    } else if _mm_testz_si128(all, all) == 0 {
        10
    } else {
        1
    }
}

/// Reads the values of a group whose width is below 8.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn read_narrow_group(bits: u64, mask: u8, width: u32) -> i64 {
    let present = BYTES[usize::from(mask)];
    let lanes = u64::from(u8::MAX >> (8 - width)) * 0x0101_0101_0101_0101;
    let half = ((1u64 << width >> 1) * 0x0101_0101_0101_0101) & present;
    let v = _mm_cvtsi64_si128(_pdep_u64(bits, lanes & present) as i64);
    let v = _mm_sub_epi8(v, _mm_cvtsi64_si128(half as i64));
    let positive = _mm_cmpgt_epi8(v, _mm_set1_epi8(-1));
    _mm_cvtsi128_si64(_mm_sub_epi8(
        v,
        _mm_and_si128(positive, _mm_cvtsi64_si128(present as i64)),
    ))
}

/// Reads the values of a group.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn read_group(window: &Window, at: usize, mask: u8, width: u32) -> [i16; 8] {
    const WORDS: u64 = 0x0001_0001_0001_0001;
    let (low, high) = (u64::from(mask & 15), u64::from(mask >> 4));
    let present = [low, high].map(|mask| _pdep_u64(mask, WORDS) * 0xffff);
    let lanes = ((1 << width) - 1) * WORDS;
    let second = window.bits(at + low.count_ones() as usize * width as usize);
    let [low, high] = [
        _pdep_u64(window.bits(at), lanes & present[0]),
        _pdep_u64(second, lanes & present[1]),
    ];
    let v = _mm_set_epi64x(high as i64, low as i64);
    let present = _mm_set_epi64x(present[1] as i64, present[0] as i64);
    let half = _mm_and_si128(_mm_set1_epi16((1i32 << (width - 1)) as i16), present);
    let v = _mm_sub_epi16(v, half);
    let positive = _mm_cmpgt_epi16(v, _mm_set1_epi16(-1));
    let mut values = [0u16; 8];
    store_8_words(&mut values, _mm_sub_epi16(v, _mm_and_si128(positive, present)));
    values.map(|value| value as i16)
}
