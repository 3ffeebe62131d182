//! A segment is read in vectors: masks eight groups at a time, values block by block, a group in each quarter of 16
//! bytes. Where a value has more than 7 bits, its block is read group by group.

use core::arch::x86_64::*;
use core::ops::Range;

use super::avx2::{read_group, read_widths};
use super::{GROUPS, Kind, LOW, MASK_CODES, Scratch, WIDEST, WINDOW, Window};
use crate::jpeg::coefficients::{SEGMENT, position};
use crate::simd::avx512::{load64, store_words, store64};

/// The widths that do not fit in bytes have this bit.
const EIGHTS: u64 = 0x0808_0808_0808_0808;
/// The most bits of a block's values that are in a vector of 64 bytes, wherever they begin in its first byte.
const VECTOR_BITS: u16 = 505;
/// Groups of 8 blocks.
const CHUNK: usize = 8 * GROUPS;

/// Memory that is used for one segment after another.
pub(super) struct Blocks {
    widths: [u64; SEGMENT],
    masks: [u64; SEGMENT],
    /// For each block, the first bit of each group's values, and of those of the next block.
    starts: [[u16; GROUPS]; SEGMENT],
    sizes: [u16; SEGMENT],
    /// Of the groups that are there: `16 * group + width`, the bits of the mask's code, the mask.
    kinds: [u8; SEGMENT * GROUPS + CHUNK],
    bits: [u8; SEGMENT * GROUPS + CHUNK],
    listed: [u8; SEGMENT * GROUPS + CHUNK],
}

impl Blocks {
    pub fn new() -> Self {
        Blocks {
            widths: [0; SEGMENT],
            masks: [0; SEGMENT],
            starts: [[0; GROUPS]; SEGMENT],
            sizes: [0; SEGMENT],
            kinds: [0; SEGMENT * GROUPS + CHUNK],
            bits: [0; SEGMENT * GROUPS + CHUNK],
            listed: [0; SEGMENT * GROUPS + CHUNK],
        }
    }
}

/// `i` of each byte from [`bytes`].
macro_rules! bytes {
    ($i:ident => $value:expr) => {{
        const ALL: [u8; 64] = {
            let mut all = [0; 64];
            let mut $i = 0;
            while $i < 64 {
                all[$i] = $value as u8;
                $i += 1;
            }
            all
        };
        load64(&ALL)
    }};
}

/// Where each coefficient in natural order lies in the groups.
const NATURAL: [u8; 64] = {
    let mut all = [0; 64];
    let mut i = 0;
    while i < 64 {
        all[position(i / GROUPS, i % GROUPS)] = i as u8;
        i += 1;
    }
    all
};

/// See [`super::read_segment`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn read_segment(
    window: &Window,
    kind: Kind,
    needed: &Range<usize>,
    blocks: &mut [[i16; 64]],
    used: &mut [u8],
    scratch: &mut Scratch,
) -> bool {
    let count = blocks.len().min(SEGMENT);
    let scratch = &mut scratch.blocks;
    scratch.widths[count & !7..].fill(0);
    let Some(at) = read_widths(window, kind, &mut scratch.widths[..count]) else {
        return false;
    };
    let Some(groups) = list_groups(kind, scratch) else {
        return false;
    };
    let (at, raw) = read_masks(window, kind, at, groups, scratch);
    place_masks(&mut used[..count], scratch);
    window.is_read(read_values(window, at, needed, blocks, scratch), raw)
}

/// Lists the groups that are there. Returns their number.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
fn list_groups(kind: Kind, scratch: &mut Blocks) -> Option<usize> {
    let numbers = bytes!(i => 16 * (i % GROUPS));
    let codes = &MASK_CODES[kind].bits;
    let (low, high) = (load64(&codes[..64]), load64(&codes[64..]));
    let mut groups = 0;
    let mut too_wide = 0;
    for widths in scratch.widths.chunks_exact(8) {
        let widths = load_quads(widths);
        too_wide |= _mm512_cmpgt_epu8_mask(widths, _mm512_set1_epi8(WIDEST as i8));
        let present = _mm512_test_epi8_mask(widths, widths);
        let kinds = _mm512_maskz_compress_epi8(present, _mm512_or_si512(widths, numbers));
        store64(&mut scratch.kinds[groups..], kinds);
        store64(&mut scratch.bits[groups..], _mm512_permutex2var_epi8(low, kinds, high));
        groups += present.count_ones() as usize;
    }
    // The last vector of masks may be longer than the list.
    store64(&mut scratch.bits[groups..], _mm512_setzero_si512());
    (too_wide == 0).then_some(groups)
}

/// Reads the masks of the listed groups. Returns the position of the values, and the number of raw masks.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt")]
fn read_masks(window: &Window, kind: Kind, mut at: usize, groups: usize, scratch: &mut Blocks) -> (usize, usize) {
    let table = MASK_CODES[kind].masks.as_flattened();
    let lanes = _mm_setr_epi8(0, 1, 3, 7, 15, 31, 63, 127, 0, 0, 0, 0, 0, 0, 0, 0);
    let mut raw = 0;
    let lists = scratch
        .kinds
        .as_chunks::<8>()
        .0
        .iter()
        .zip(scratch.bits.as_chunks::<8>().0);
    let lists = lists.zip(scratch.listed.as_chunks_mut::<8>().0);
    for (first, ((kinds, bits), listed)) in (0..groups).step_by(8).zip(lists) {
        let bits = u64::from_le_bytes(*bits);
        let ends = bits.wrapping_mul(0x0101_0101_0101_0101);
        let starts = _mm_cvtsi64_si128((ends << 8) as i64);
        let codes = _mm_multishift_epi64_epi8(starts, _mm_set1_epi64x(window.bits(at) as i64));
        let codes = _mm_and_si128(codes, _mm_shuffle_epi8(lanes, _mm_cvtsi64_si128(bits as i64)));
        at += (ends >> 56) as usize;
        let kinds = _mm_cvtepu8_epi16(_mm_cvtsi64_si128(i64::from_le_bytes(*kinds)));
        let entries = _mm_or_si128(_mm_slli_epi16(kinds, 6), _mm_cvtepu8_epi16(codes));
        let mut numbers = [0; 8];
        crate::simd::avx2::store_8_words(&mut numbers, entries);
        let masks = numbers.map(|number| table[usize::from(number) % (64 * 16 * GROUPS)]);
        let masks = _mm_cvtsi64_si128(i64::from_le_bytes(masks));
        let here = (1u32 << (groups - first).min(8)) - 1;
        let without = _mm_cmpeq_epi8_mask(masks, _mm_setzero_si128()) & here as u16;
        let own = _mm_cvtsi64_si128(window.last_bytes(raw) as i64);
        let masks = _mm_mask_expand_epi8(masks, without, own);
        raw += without.count_ones() as usize;
        *listed = _mm_cvtsi128_si64(masks).to_le_bytes();
    }
    (at, raw)
}

/// Gives the listed masks to the groups of the blocks, says which positions of each block are in use, and finds where the
/// values of each group begin.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
fn place_masks(used: &mut [u8], scratch: &mut Blocks) {
    let nibbles = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    let low = _mm512_set1_epi8(15);
    let mut groups = 0;
    for (first, used) in (0..).step_by(8).zip(used.chunks_mut(8)) {
        let widths = load_quads(&scratch.widths[first..]);
        let present = _mm512_test_epi8_mask(widths, widths);
        let masks = _mm512_maskz_expand_epi8(present, load64(&scratch.listed[groups..]));
        groups += present.count_ones() as usize;
        store_quads(&mut scratch.masks[first..], masks);
        let some = _mm512_test_epi64_mask(masks, masks);
        let many = _mm512_test_epi64_mask(masks, _mm512_set1_epi64(!LOW as i64));
        let positions = _mm_mask_blend_epi8(some.into(), _mm_set1_epi8(1), _mm_set1_epi8(10));
        let positions = _mm_mask_blend_epi8(many.into(), positions, _mm_set1_epi8(64));
        let positions = (_mm_cvtsi128_si64(positions) as u64).to_le_bytes();
        used.copy_from_slice(&positions[..used.len()]);
        let counts = _mm512_add_epi8(
            _mm512_shuffle_epi8(nibbles, _mm512_and_si512(masks, low)),
            _mm512_shuffle_epi8(nibbles, _mm512_and_si512(_mm512_srli_epi16(masks, 4), low)),
        );
        let halves = |v| {
            [
                _mm512_cvtepu8_epi16(_mm512_castsi512_si256(v)),
                _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(v, 1)),
            ]
        };
        let [counts, widths] = [halves(counts), halves(widths)];
        for half in 0..2 {
            let sizes = _mm512_mullo_epi16(counts[half], widths[half]);
            let ends = _mm512_add_epi16(sizes, _mm512_bslli_epi128(sizes, 2));
            let ends = _mm512_add_epi16(ends, _mm512_bslli_epi128(ends, 4));
            let ends = _mm512_add_epi16(ends, _mm512_bslli_epi128(ends, 8));
            let starts = _mm512_sub_epi16(ends, sizes);
            let from = first + 4 * half;
            store_starts(&mut scratch.starts[from..], starts);
            let sizes = _mm512_cvtepi64_epi16(_mm512_srli_epi64(ends, 48));
            let sizes = [
                _mm_extract_epi16(sizes, 1),
                _mm_extract_epi16(sizes, 3),
                _mm_extract_epi16(sizes, 5),
                _mm_extract_epi16(sizes, 7),
            ];
            for (to, size) in scratch.sizes[from..].iter_mut().zip(sizes) {
                *to = size as u16;
            }
        }
    }
}

/// Reads the values. Returns the position after them.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,bmi1,bmi2,lzcnt,popcnt")]
fn read_values(
    window: &Window,
    mut at: usize,
    needed: &Range<usize>,
    blocks: &mut [[i16; 64]],
    scratch: &Blocks,
) -> usize {
    let (before, sizes) = scratch.sizes[..blocks.len()].split_at(needed.start);
    let (sizes, after) = sizes.split_at(needed.len());
    let sum = |sizes: &[u16]| sizes.iter().map(|size| usize::from(*size)).sum::<usize>();
    at += sum(before);

    let spread = bytes!(i => i & 8);
    let following = bytes!(i => i % 8);
    let products = bytes!(i => (i / 8) * (i % 8));
    let lanes = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 3, 7, 15, 31, 63, 127, 0, 0, 0, 0, 0, 0, 0, 0));
    let halves = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 4, 8, 16, 32, 64, 0, 0, 0, 0, 0, 0, 0, 0));
    let natural = load64(&NATURAL);
    let of_blocks = scratch.widths[needed.clone()]
        .iter()
        .zip(&scratch.masks[needed.start..])
        .zip(scratch.starts[needed.start..].iter().zip(sizes));
    for (block, ((&widths, &masks), (starts, &size))) in blocks[needed.clone()].iter_mut().zip(of_blocks) {
        if masks == 0 {
            *block = [0; 64];
            continue;
        }
        // Groups of a width of 8 and more, or all if they do not fit in a vector.
        let wide = if size > VECTOR_BITS { EIGHTS } else { widths & EIGHTS };
        let wide_masks = masks & ((wide >> 3) * 255);
        let masks = masks & !wide_masks;
        let firsts = _mm512_add_epi64(load_starts(starts), _mm512_set1_epi64((at % 8) as i64));
        let first = _mm512_shuffle_epi8(_mm512_srli_epi64(firsts, 3), spread);
        let bytes = load64(&window.bytes[(at / 8) & (WINDOW - 1)..]);
        let bytes = _mm512_permutexvar_epi8(_mm512_add_epi8(first, following), bytes);
        // The rank of each coefficient among those of its group, times the width, is where its value begins.
        let ones = _mm512_maskz_set1_epi8(masks, 1);
        let ranks = _mm512_add_epi8(ones, _mm512_slli_epi64(ones, 8));
        let ranks = _mm512_add_epi8(ranks, _mm512_slli_epi64(ranks, 16));
        let ranks = _mm512_add_epi8(ranks, _mm512_slli_epi64(ranks, 32));
        let ranks = _mm512_sub_epi8(ranks, ones);
        let bits = _mm512_cvtepu8_epi64(_mm_cvtsi64_si128(widths as i64));
        let bits = _mm512_shuffle_epi8(bits, spread);
        let products = _mm512_permutexvar_epi8(_mm512_or_si512(ranks, _mm512_slli_epi16(bits, 3)), products);
        let within = _mm512_shuffle_epi8(_mm512_and_si512(firsts, _mm512_set1_epi64(7)), spread);
        let v = _mm512_multishift_epi64_epi8(_mm512_add_epi8(products, within), bytes);
        let v = _mm512_and_si512(v, _mm512_shuffle_epi8(lanes, bits));
        let v = _mm512_maskz_sub_epi8(masks, v, _mm512_shuffle_epi8(halves, bits));
        let positive = masks & !_mm512_movepi8_mask(v);
        let v = _mm512_mask_add_epi8(v, positive, v, _mm512_set1_epi8(1));
        let v = _mm512_permutexvar_epi8(natural, v);
        let [upper, lower] = block.as_chunks_mut::<32>().0 else {
            unreachable!("a block has two halves");
        };
        store_words(upper, _mm512_cvtepi8_epi16(_mm512_castsi512_si256(v)));
        store_words(lower, _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(v, 1)));
        if wide_masks != 0 {
            read_wide(window, at, (widths, wide_masks), starts, block);
        }
        at += usize::from(size);
    }
    at + sum(after)
}

/// Reads the values of those groups of a block that have masks.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,bmi1,bmi2,lzcnt,popcnt")]
fn read_wide(window: &Window, at: usize, (widths, masks): (u64, u64), starts: &[u16; GROUPS], block: &mut [i16; 64]) {
    for (group, &start) in starts.iter().enumerate() {
        let (width, mask) = ((widths >> (8 * group)) as u8, (masks >> (8 * group)) as u8);
        if mask != 0 {
            let values = read_group(window, at + usize::from(start), mask, width.into());
            for (i, value) in values.into_iter().enumerate() {
                block[position(group, i)] = value;
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_quads(from: &[u64]) -> __m512i {
    let from: &[u64; 8] = from.first_chunk().expect("8 blocks");
    // SAFETY: an array of 64 bytes.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store_quads(to: &mut [u64], v: __m512i) {
    let to: &mut [u64; 8] = to.first_chunk_mut().expect("8 blocks");
    // SAFETY: an array of 64 bytes.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), v) }
}

/// The words of a block's groups, each widened to 64 bits.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_starts(from: &[u16; GROUPS]) -> __m512i {
    // SAFETY: an array of 16 bytes.
    _mm512_cvtepu16_epi64(unsafe { _mm_loadu_si128(from.as_ptr().cast()) })
}

/// Writes the words of four blocks.
#[inline]
#[target_feature(enable = "avx512f")]
fn store_starts(to: &mut [[u16; GROUPS]], v: __m512i) {
    let to: &mut [[u16; GROUPS]; 4] = to.first_chunk_mut().expect("4 blocks");
    // SAFETY: an array of 64 bytes.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), v) }
}
