//! A segment is read by shuffles: a head and eight masks at a time, and the values of a group. Nothing needs `pdep`, which
//! is slow on AMD's processors before Zen 3.

use core::arch::x86_64::*;
use core::ops::Range;

use super::{GROUPS, Kind, MASK_CODES, RUN, Scratch, WIDTHS, Window, is_low, positions_in_use};
use crate::jpeg::coefficients::{SEGMENT, position};
use crate::simd::avx2::{load8, load16, load32, store_8_words, store_words};

/// For each byte that a mask stands for, its number among them; 128 for the others. A shuffle by it gives each its place.
static EXPAND: [[u8; 8]; 256] = {
    let mut all = [[0x80; 8]; 256];
    let mut bit = 0;
    while bit < 256 * 8 {
        let (mask, i) = (bit / 8, bit % 8);
        if mask >> i & 1 == 1 {
            all[mask][i] = (mask as u32 & ((1 << i) - 1)).count_ones() as u8;
        }
        bit += 1;
    }
    all
};

/// The numbers of the groups in a mask. A shuffle by it brings them together.
static COMPACT: [[u8; 8]; 256] = {
    let mut all = [[0x80; 8]; 256];
    let mut bit = 0;
    while bit < 256 * 8 {
        let (mask, i) = (bit / 8, bit % 8);
        if mask >> i & 1 == 1 {
            all[mask][EXPAND[mask][i] as usize] = i as u8;
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
    /// For each group of a width above 0: its number and width (`16 * group + width`), its number among all groups, and
    /// its mask.
    kinds: [u8; LIST],
    places: [u16; LIST],
    masks: [u8; LIST],
    /// Where the groups of each block begin in these lists.
    firsts: [u16; SEGMENT + 1],
}

/// The most groups, and space for eight more.
const LIST: usize = SEGMENT * GROUPS + 8;

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
            kinds: [0; LIST],
            places: [0; LIST],
            masks: [0; LIST],
            firsts: [0; SEGMENT + 1],
        }
    }
}

/// See [`super::read_segment`].
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn read_segment(
    window: &Window,
    kind: Kind,
    needed: &Range<usize>,
    blocks: &mut [[i16; 64]],
    used: &mut [u8],
    scratch: &mut Scratch,
) -> bool {
    let scratch = &mut scratch.groups;
    let mut widths = [0; SEGMENT];
    let widths = &mut widths[..used.len().min(SEGMENT)];
    let Some(at) = read_widths(window, kind, widths) else {
        return false;
    };
    let Some(groups) = list_groups(widths, scratch) else {
        return false;
    };
    let (values, raw) = read_masks(window, kind, Cursor { at, groups }, scratch);
    window.is_read(read_values(window, values, needed, blocks, used, scratch), raw)
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
                let pairs = _mm_cvtsi64_si128((bits >> 4) as i64);
                let nibbles = _mm_unpacklo_epi8(pairs, _mm_srli_epi16(pairs, 4));
                let nibbles = _mm_cvtsi128_si64(nibbles) as u64 & 0x0f0f_0f0f_0f0f_0f0f;
                _bzhi_u64(nibbles, 8 * count)
            } else {
                let count = profile.first_count + code as usize;
                let &head_bits = profile.head_bits.get(count)?;
                at += usize::from(head_bits);
                // At most three bits of each group.
                let starts = _mm256_cvtepu8_epi32(load8(&profile.head_bits));
                let added = _mm256_srlv_epi32(_mm256_set1_epi32(bits as i32), starts);
                let added = _mm256_and_si256(added, _mm256_set1_epi32(7));
                let added = _mm_packus_epi32(_mm256_castsi256_si128(added), _mm256_extracti128_si256(added, 1));
                let added = _mm_cvtsi128_si64(_mm_packus_epi16(added, added)) as u64;
                _bzhi_u64(profile.least + (added & profile.added), 8 * count as u32)
            };
        }
    }
    valid.then_some(at)
}

/// Lists the groups that are there. Returns their number.
#[target_feature(enable = "avx2,popcnt")]
fn list_groups(widths: &[u64], scratch: &mut Groups) -> Option<usize> {
    let numbers = load8(&NUMBERS);
    let mut groups = 0;
    let mut valid = true;
    for (i, &widths) in widths.iter().enumerate() {
        // No width is above 14.
        valid &= widths & widths >> 1 & widths >> 2 & widths >> 3 & 0x0101_0101_0101_0101 == 0;
        let present = _mm_cvtsi64_si128(widths as i64);
        let empty = _mm_movemask_epi8(_mm_cmpeq_epi8(present, _mm_setzero_si128())) as u8;
        let order = load8(&COMPACT[usize::from(!empty)]);
        let kinds = _mm_shuffle_epi8(_mm_or_si128(present, numbers), order);
        let places = _mm_or_si128(_mm_cvtepu8_epi16(order), _mm_set1_epi16((GROUPS * i) as i16));
        if let (Some(to_kinds), Some(to_places)) = (
            scratch.kinds[groups..].first_chunk_mut(),
            scratch.places[groups..].first_chunk_mut(),
        ) {
            *to_kinds = _mm_cvtsi128_si64(kinds).to_le_bytes();
            store_8_words(to_places, places);
        }
        groups += (!empty).count_ones() as usize;
        scratch.firsts[i + 1] = groups as u16;
    }
    // The last eight masks may be more than the list has: those of width 0 take no bits.
    scratch.kinds[groups..][..8].fill(0);
    valid.then_some(groups)
}

/// Reads the masks of the groups. Returns the position of the values, and the number of raw masks.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn read_masks(window: &Window, kind: Kind, heads: Cursor, scratch: &mut Groups) -> (Cursor, usize) {
    let codes = &MASK_CODES[kind];
    let Cursor { mut at, groups } = heads;
    let mut raw = 0;
    let lists = scratch
        .kinds
        .as_chunks::<8>()
        .0
        .iter()
        .zip(scratch.masks.as_chunks_mut::<8>().0);
    for (first, (kinds, masks)) in (0..groups).step_by(8).zip(lists) {
        let (mut bits, kinds, mut listed) = (window.bits(at), u64::from_le_bytes(*kinds), 0);
        for i in 0..8 {
            let kind = (kinds >> (8 * i)) as usize & 127;
            let count = u32::from(codes.bits[kind]);
            let mask = codes.masks[kind][_bzhi_u64(bits, count) as usize & 63];
            listed |= i64::from(mask) << (8 * i);
            bits >>= count;
            at += count as usize;
        }
        let listed = _mm_cvtsi64_si128(listed);
        let here = (1u32 << (groups - first).min(8)) - 1;
        let without = _mm_movemask_epi8(_mm_cmpeq_epi8(listed, _mm_setzero_si128())) as u32 & here;
        let own = _mm_cvtsi64_si128(window.last_bytes(raw) as i64);
        let own = _mm_shuffle_epi8(own, load8(&EXPAND[without as usize]));
        raw += without.count_ones() as usize;
        *masks = _mm_cvtsi128_si64(_mm_or_si128(listed, own)).to_le_bytes();
    }
    (Cursor { at, groups }, raw)
}

/// Reads the values, and says which positions of each block are in use. Returns the position after them.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn read_values(
    window: &Window,
    from: Cursor,
    needed: &Range<usize>,
    blocks: &mut [[i16; 64]],
    used: &mut [u8],
    scratch: &mut Groups,
) -> usize {
    let Cursor { mut at, groups } = from;
    let size = |kinds: &[u8], masks: &[u8]| -> usize {
        let groups = kinds.iter().zip(masks);
        groups
            .map(|(kind, mask)| mask.count_ones() as usize * usize::from(kind & 15))
            .sum()
    };
    let [first, end] = [needed.start, needed.end].map(|block| usize::from(scratch.firsts[block]));
    at += size(&scratch.kinds[..first], &scratch.masks[..first]);
    let narrow = &mut scratch.narrow[..needed.end];
    narrow[needed.start..].fill([[0; 8]; GROUPS]);
    let mut wide_count = 0;
    let list = first..end;
    let kinds = scratch.kinds[list.clone()].iter();
    let parts = kinds.zip(&scratch.places[list.clone()]).zip(&scratch.masks[list]);
    for (number, ((&kind, &place), &mask)) in (first..).zip(parts) {
        let width = usize::from(kind & 15);
        if let Some(group) = narrow.as_flattened_mut().get_mut(usize::from(place)) {
            *group = read_narrow_group(window.bits(at), mask, width);
        }
        // Without a branch: which groups are wide cannot be foreseen.
        if let Some(group) = scratch.wide.get_mut(wide_count) {
            *group = WideGroup {
                number: number as u16,
                at: at as u32,
            };
        }
        wide_count += width / 8;
        at += mask.count_ones() as usize * width;
    }
    let places = blocks.iter_mut().zip(&mut *used).zip(&*narrow);
    for ((block, used), groups) in places.skip(needed.start) {
        *used = place(groups, block);
    }
    for &WideGroup { number, at } in &scratch.wide[..wide_count] {
        let number = usize::from(number);
        let (width, place, mask) = (
            scratch.kinds[number] & 15,
            scratch.places[number],
            scratch.masks[number],
        );
        let (number, group) = (usize::from(place) / GROUPS, usize::from(place) % GROUPS);
        let Some(block) = blocks.get_mut(number) else { break };
        let values = read_group(window, at as usize, mask, width.into());
        for (i, value) in values.into_iter().enumerate() {
            block[position(group, i)] = value;
        }
        used[number] = used[number].max(positions_in_use(u64::from(mask) << (8 * group)));
    }
    at + size(&scratch.kinds[end..groups], &scratch.masks[end..groups])
}

/// Where 32 coefficients in natural order are taken from: for each half of a block, and each pair of groups.
static SHUFFLES: [[[u8; 32]; 4]; 2] = {
    let mut all = [[[0x80; 32]; 4]; 2];
    let mut k = 0;
    while k < 64 {
        let to = position(k / GROUPS, k % GROUPS);
        all[to / 32][k / 16][to % 32] = k as u8 % 16;
        k += 1;
    }
    all
};

/// The coefficients of the upper half of a block that are not of the lowest frequencies.
static HIGH: [u8; 32] = {
    let mut all = [0; 32];
    let mut i = 0;
    while i < 32 {
        all[i] = if is_low(i) { 0 } else { 255 };
        i += 1;
    }
    all
};

/// Writes the coefficients of a block in natural order. Returns the positions in use.
#[inline]
#[target_feature(enable = "avx2")]
fn place(groups: &[[u8; 8]; GROUPS], block: &mut [i16; 64]) -> u8 {
    let pairs = groups.as_flattened().as_chunks::<16>().0;
    let pairs: [_; 4] = core::array::from_fn(|i| _mm256_broadcastsi128_si256(load16(&pairs[i])));
    let [upper, lower] = [0, 1].map(|half| {
        let [a, b, c, d] = core::array::from_fn(|i| _mm256_shuffle_epi8(pairs[i], load32(&SHUFFLES[half][i])));
        _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d))
    });
    let quarters = [
        _mm256_castsi256_si128(upper),
        _mm256_extracti128_si256(upper, 1),
        _mm256_castsi256_si128(lower),
        _mm256_extracti128_si256(lower, 1),
    ];
    for (to, v) in block.as_chunks_mut::<16>().0.iter_mut().zip(quarters) {
        store_words(to, _mm256_cvtepi8_epi16(v));
    }
    let high = _mm256_or_si256(_mm256_and_si256(upper, load32(&HIGH)), lower);
    let all = _mm256_or_si256(upper, lower);
    if _mm256_testz_si256(high, high) == 0 {
        64
    } else if _mm256_testz_si256(all, all) == 0 {
        10
    } else {
        1
    }
}

/// How values of a width below 8 are taken from bits, one after the other. Those of other widths become 0.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Unpack {
    /// The two bytes of each value.
    pairs: [u8; 16],
    /// What moves each value to the upper end of its word, as little-endian words.
    up: [u8; 16],
    /// What moves it down again.
    down: [u8; 16],
}

static UNPACK: [Unpack; 16] = {
    let mut all = [Unpack {
        pairs: [0; 16],
        up: [0; 16],
        down: [0; 16],
    }; 16];
    let mut i = 8;
    while i < 64 {
        let (width, value) = (i / 8, i % 8);
        let start = width * value;
        let [up, down] = [1u16 << (16 - width - start % 8), 1 << width];
        let mut byte = 0;
        while byte < 2 {
            all[width].pairs[2 * value + byte] = (start / 8 + byte) as u8;
            all[width].up[2 * value + byte] = (up >> (8 * byte)) as u8;
            all[width].down[2 * value + byte] = (down >> (8 * byte)) as u8;
            byte += 1;
        }
        i += 1;
    }
    all
};

/// Reads the values of a group whose width is below 8. Those of a wider one are 0.
#[inline]
#[target_feature(enable = "avx2")]
fn read_narrow_group(bits: u64, mask: u8, width: usize) -> [u8; 8] {
    let unpack = &UNPACK[width & 15];
    let v = _mm_shuffle_epi8(_mm_cvtsi64_si128(bits as i64), load16(&unpack.pairs));
    let v = _mm_mullo_epi16(v, load16(&unpack.up));
    // Less half of what the width allows, with a sign.
    let v = _mm_xor_si128(v, _mm_set1_epi16(i16::MIN));
    let positive = _mm_cmpgt_epi16(v, _mm_set1_epi16(-1));
    let v = _mm_sub_epi16(_mm_mulhi_epi16(v, load16(&unpack.down)), positive);
    let v = _mm_packs_epi16(v, v);
    let v = _mm_shuffle_epi8(v, load8(&EXPAND[usize::from(mask)]));
    _mm_cvtsi128_si64(v).to_le_bytes()
}

/// Reads the values of a group.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn read_group(window: &Window, at: usize, mask: u8, width: usize) -> [i16; 8] {
    let [low, high] = [at, at + 4 * width].map(|at| window.bits(at) as i64);
    let width = width as i32;
    let starts = _mm256_mullo_epi16(_mm256_setr_epi32(0, 1, 2, 3, 0, 1, 2, 3), _mm256_set1_epi32(width));
    let bytes = _mm256_add_epi8(
        _mm256_mullo_epi32(_mm256_srli_epi32(starts, 3), _mm256_set1_epi32(0x0101_0101)),
        _mm256_set1_epi32(0x0302_0100),
    );
    let v = _mm256_shuffle_epi8(_mm256_set_epi64x(0, high, 0, low), bytes);
    let within = _mm256_and_si256(starts, _mm256_set1_epi32(7));
    let v = _mm256_sllv_epi32(v, _mm256_sub_epi32(_mm256_set1_epi32(32 - width), within));
    let v = _mm256_xor_si256(v, _mm256_set1_epi32(i32::MIN));
    let v = _mm256_sra_epi32(v, _mm_cvtsi32_si128(32 - width));
    let v = _mm256_sub_epi32(v, _mm256_cmpgt_epi32(v, _mm256_set1_epi32(-1)));
    let v = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    let numbers = load8(&EXPAND[usize::from(mask)]);
    let numbers = _mm_adds_epu8(numbers, numbers);
    let numbers = _mm_unpacklo_epi8(numbers, _mm_adds_epu8(numbers, _mm_set1_epi8(1)));
    let mut values = [0u16; 8];
    store_8_words(&mut values, _mm_shuffle_epi8(v, numbers));
    values.map(|value| value as i16)
}
