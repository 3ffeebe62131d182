//! Blocks are measured a block at a time, all profiles at once: a byte for each group of each of eight profiles.

use core::arch::x86_64::*;

use super::{
    Bits, CODES, GROUP_BITS, HIGHEST, Head, LISTS, Measured, ONES, RAW, ROW, RawMasks, count_in, first_bytes, own_bits,
    write_heads_by,
};
use crate::jpeg::coefficients::segment::{GROUPS, Kind, MASK_CODES, RUN, SEGMENT, WIDEST, WIDTHS, Widths};
use crate::jpeg::coefficients::tables::PROFILES;
use crate::jpeg::format::markers::ZIGZAG;
use crate::simd::avx512::{load_words, load64, store_words, store64};

/// What of a block's size in a run of each profile depends only on its kind. The last of 16 stands for the block's own
/// widths.
struct Profiles {
    /// Of each profile and group: where [`all_bits`] has the bits of the group at the least width.
    places: [u8; 128],
    /// The largest width of each group.
    widest: [u8; 128],
    /// By the number of groups that the block has.
    counts: [Counted; GROUPS + 1],
}

struct Counted {
    /// Groups that are written.
    groups: [u64; 2],
    /// Profiles that can say how many they are.
    possible: u16,
    /// Bits of the head, and of a head of its own.
    head: [u16; 16],
    own: [u16; 16],
}

static KINDS: [Profiles; 2] = [profiles(0), profiles(1)];

const fn profiles(kind: Kind) -> Profiles {
    let mut all = Profiles {
        places: [0; 128],
        widest: [0; 128],
        counts: [const {
            Counted {
                groups: [0, u64::MAX << 56],
                possible: 0,
                head: [0; 16],
                own: [0; 16],
            }
        }; GROUPS + 1],
    };
    let mut i = 0;
    while i < 128 {
        let (number, group) = (i / GROUPS, i % GROUPS);
        all.places[i] = (GROUPS * group) as u8;
        if number < 15 {
            let profile = &PROFILES[kind][number];
            all.places[i] += profile.least[group];
            all.widest[i] = profile.least[group] + (1 << profile.extra_bits[group]) - 1;
        }
        i += 1;
    }
    let mut i = 0;
    while i < 15 * (GROUPS + 1) {
        let (number, count) = (i % 15, i / 15);
        let (widths, counted) = (&WIDTHS[kind][number], &mut all.counts[count]);
        counted.own[number] = own_bits(widths, count, 0) as u16;
        if let Some(count) = count_in(widths, count) {
            counted.possible |= 1 << number;
            counted.head[number] = widths.count_bits as u16 + widths.head_bits[count] as u16;
            counted.groups[number / 8] |= ((1 << count) - 1) << (8 * (number % 8));
        }
        i += 1;
    }
    all
}

/// Words in zigzag order, the first 32 and the others.
const ORDER: [[i16; 32]; 2] = {
    let mut all = [[0; 32]; 2];
    let mut k = 0;
    while k < 64 {
        all[k / 32][k % 32] = ZIGZAG[k] as i16;
        k += 1;
    }
    all
};

/// See [`super::measure_portable`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn measure(kind: Kind, blocks: &[[i16; 64]], ordered: &mut [[i16; 64]], measured: &mut [Measured]) -> bool {
    let [first_order, last_order] = ORDER.each_ref().map(|order| load_words(order));
    let profiles = &KINDS[kind];
    let halves = |bytes: &[u8; 128]| [load64(&bytes[..64]), load64(&bytes[64..])];
    let (places, widest) = (halves(&profiles.places), halves(&profiles.widest));
    let mut too_wide = 0;
    for ((block, ordered), measured) in blocks.iter().zip(ordered).zip(measured) {
        let (low, high) = halves_of(block);
        let first = _mm512_maskz_mov_epi16(!1, _mm512_permutex2var_epi16(low, first_order, high));
        let last = _mm512_permutex2var_epi16(low, last_order, high);
        let (to_first, to_last) = ordered.split_at_mut(32);
        store_words(to_first.first_chunk_mut().expect("32 words"), first);
        store_words(to_last.first_chunk_mut().expect("32 words"), last);
        let masks =
            u64::from(_mm512_test_epi16_mask(first, first)) | u64::from(_mm512_test_epi16_mask(last, last)) << 32;
        let masks_of_groups = _mm512_cvtepu8_epi64(_mm_cvtsi64_si128(masks.cast_signed()));
        let widths_of_groups = _mm512_maskz_mov_epi64(
            _mm512_test_epi64_mask(masks_of_groups, masks_of_groups),
            widths_of(first, last),
        );
        too_wide |= _mm512_cmpgt_epu64_mask(widths_of_groups, _mm512_set1_epi64(WIDEST.into()));
        let widths = _mm_cvtsi128_si64(_mm512_cvtepi64_epi8(widths_of_groups)).cast_unsigned();
        *measured = Measured {
            widths,
            masks,
            bits: [0; 16],
        };
        let bits = all_bits(kind, masks_of_groups, widths_of_groups);
        let counted = &profiles.counts[measured.count()];
        let zero = _mm512_setzero_si512();
        let sum = |half: usize| {
            let chosen = _mm512_maskz_permutexvar_epi8(counted.groups[half], places[half], bits);
            _mm512_cvtepi64_epi16(_mm512_sad_epu8(chosen, zero))
        };
        let sums = _mm256_set_m128i(sum(1), sum(0));
        let all_widths = _mm512_set1_epi64(widths.cast_signed());
        let fits = |half: usize| {
            let over = _mm512_subs_epu8(all_widths, widest[half]);
            u16::from(_mm512_testn_epi64_mask(over, over))
        };
        let fits = (fits(0) | fits(1) << 8) & counted.possible;
        let own_sum = _mm256_permutexvar_epi16(_mm256_set1_epi16(15), sums);
        let own = _mm256_add_epi16(own_sum, load16(&counted.own));
        let in_profiles = _mm256_mask_min_epu16(own, fits, own, _mm256_add_epi16(sums, load16(&counted.head)));
        store16(&mut measured.bits, in_profiles);
    }
    too_wide == 0
}

/// The width of each group of a block in zigzag order; not 0 where all coefficients are 0.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
fn widths_of(first: __m512i, last: __m512i) -> __m512i {
    // Of each coefficient its size less 1: 2^(width - 1) is the largest value.
    let less_1 = |words: __m512i| {
        let positive = _mm512_cmpgt_epi16_mask(words, _mm512_setzero_si512());
        let sizes = _mm512_xor_si512(words, _mm512_srai_epi16::<15>(words));
        let sizes = _mm512_mask_sub_epi16(sizes, positive, sizes, _mm512_set1_epi16(1));
        _mm512_or_si512(sizes, _mm512_shuffle_epi32::<0b01_00_11_10>(sizes))
    };
    let pairs = _mm512_unpacklo_epi64(less_1(first), less_1(last));
    let groups = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), pairs);
    let groups = _mm512_or_si512(groups, _mm512_srli_epi64::<32>(groups));
    let groups = _mm512_or_si512(groups, _mm512_srli_epi64::<16>(groups));
    let groups = _mm512_and_si512(groups, _mm512_set1_epi64(0xffff));
    // The exponent of 2 n + 1 is the number of bits of n.
    let odd = _mm512_add_epi64(_mm512_add_epi64(groups, groups), _mm512_set1_epi64(1));
    let exponents = _mm512_srli_epi64::<52>(_mm512_castpd_si512(_mm512_cvtepi64_pd(odd)));
    _mm512_sub_epi64(exponents, _mm512_set1_epi64(1022))
}

/// Bits of each group's mask and values, eight bytes for each: at its width, at least at width 1, 2, ...
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
fn all_bits(kind: Kind, masks: __m512i, widths: __m512i) -> __m512i {
    let rows = eight(&const { multiples(256 * ROW) });
    let rows = _mm512_add_epi64(rows, _mm512_slli_epi64::<4>(masks));
    let at = _mm512_add_epi64(rows, _mm512_and_si512(widths, _mm512_set1_epi64(15)));
    // SAFETY: a row lies in the table, whose padding is as long as one: masks are bytes.
    let bits = unsafe { _mm512_i64gather_epi64::<1>(at, GROUP_BITS[kind].as_ptr().cast()) };
    // In each quarter: the lowest byte of each of two numbers, eight times.
    let lowest = _mm512_set4_epi32(0x0808_0808, 0x0808_0808, 0, 0);
    let widths = _mm512_shuffle_epi8(widths, lowest);
    let leasts = _mm512_set1_epi64(0x0706_0504_0302_0100);
    _mm512_shuffle_epi8(bits, _mm512_add_epi8(lowest, _mm512_subs_epu8(leasts, widths)))
}

/// See [`super::write_heads_portable`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn write_heads(kind: Kind, numbers: &[usize; SEGMENT / RUN], heads: &[Head], bits: &mut Bits<'_>) {
    let widths_in = |head: &Head, profile: &Widths| {
        let groups = first_bytes(head.count);
        let (widths, kept) = if head.own {
            (head.widths, groups & (15 * ONES))
        } else {
            (head.widths.wrapping_sub(profile.least), groups & profile.added)
        };
        (_pext_u64(widths, kept), kept.count_ones())
    };
    write_heads_by(widths_in, kind, numbers, heads, bits);
}

/// See [`super::write_masks_portable`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn write_masks(kind: Kind, measured: &[Measured], heads: &[Head], bits: &mut Bits<'_>, raw: &mut RawMasks) {
    let sizes = &MASK_CODES[kind].bits;
    let (low, high) = (load64(&sizes[..64]), load64(&sizes[64..]));
    let kinds = eight(&const { multiples(16) });
    let lists = eight(&const { multiples(256 * (LISTS + 1)) });
    let ones = _mm512_castsi512_si128(load64(&ONES_BY_WIDTH));
    for (head, block) in heads.iter().zip(measured) {
        let of_groups = |bytes: u64| _mm512_cvtepu8_epi64(_mm_cvtsi64_si128(bytes.cast_signed()));
        let widths = of_groups(head.widths);
        let list = _mm512_min_epu64(widths, _mm512_set1_epi64(LISTS as i64));
        let list = _mm512_add_epi64(lists, _mm512_slli_epi64::<8>(list));
        let at = _mm512_add_epi64(list, of_groups(block.masks));
        // SAFETY: masks are bytes, and no list is above the last: the place is that of a code, which padding follows.
        let codes = unsafe { _mm512_i64gather_epi64::<1>(at, CODES[kind].as_ptr().cast()) };
        let codes = _mm512_cvtepi64_epi8(codes);
        let sizes = _mm512_permutex2var_epi8(low, _mm512_add_epi64(kinds, widths), high);
        let kept = _mm_shuffle_epi8(ones, _mm512_cvtepi64_epi8(sizes));
        let kept = _mm_cvtsi128_si64(kept).cast_unsigned();
        bits.put(
            _pext_u64(_mm_cvtsi128_si64(codes).cast_unsigned(), kept),
            kept.count_ones(),
        );
        let is_raw = _mm_cmpeq_epi8_mask(codes, _mm_set1_epi8(RAW.cast_signed()));
        let masks = _mm_cvtsi64_si128(block.masks.cast_signed());
        let masks = _mm_cvtsi128_si64(_mm_maskz_compress_epi8(is_raw, masks));
        if let Some(to) = raw.masks.get_mut(raw.count..).and_then(|to| to.first_chunk_mut()) {
            *to = masks.to_le_bytes();
        }
        raw.count += is_raw.count_ones() as usize;
    }
}

/// As many ones as the position, up to 7.
const ONES_BY_WIDTH: [u8; 64] = {
    let mut all = [0; 64];
    let mut width = 0;
    while width < 8 {
        all[width] = (1 << width) - 1;
        width += 1;
    }
    all
};

const fn multiples(step: usize) -> [u64; GROUPS] {
    let mut all = [0; GROUPS];
    let mut i = 0;
    while i < GROUPS {
        all[i] = (i * step) as u64;
        i += 1;
    }
    all
}

/// See [`super::write_values_portable`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn write_values(ordered: &[[i16; 64]], measured: &[Measured], heads: &[Head], bits: &mut Bits<'_>) {
    let ones = load64(&ONES_BY_WIDTH);
    let groups = groups_of_bytes();
    let zero = _mm512_setzero_si512();
    let less_1 = |words: __m512i| {
        let positive = _mm512_cmpgt_epi16_mask(words, zero);
        _mm512_mask_sub_epi16(words, positive, words, _mm512_set1_epi16(1))
    };
    let (mut values, mut kept) = ([0; 128], [0; 128]);
    for ((head, block), ordered) in heads.iter().zip(measured).zip(ordered) {
        let (first, last) = halves_of(ordered);
        let (first, last) = (less_1(first), less_1(last));
        let widths = _mm512_zextsi128_si512(_mm_cvtsi64_si128(head.widths.cast_signed()));
        let widths = _mm512_permutexvar_epi8(groups, widths);
        // Widths above 7 have a high bit then.
        let is_wide = (head.widths + 0x78 * ONES) & HIGHEST != 0;
        let parts = if is_wide {
            let widths = [_mm512_castsi512_si256(widths), _mm512_extracti64x4_epi64::<1>(widths)];
            for (half, words) in [first, last].into_iter().enumerate() {
                let widths = _mm512_cvtepu8_epi16(widths[half]);
                let beyond = _mm512_sllv_epi16(_mm512_set1_epi16(1), widths);
                let all = _mm512_sub_epi16(beyond, _mm512_set1_epi16(1));
                let words = _mm512_add_epi16(words, _mm512_srli_epi16::<1>(beyond));
                store64(&mut values[64 * half..], words);
                let present = (block.masks >> (32 * half)) as u32;
                store64(&mut kept[64 * half..], _mm512_maskz_mov_epi16(present, all));
            }
            2 * head.count
        } else {
            let bytes = _mm512_castsi256_si512(_mm512_cvtepi16_epi8(first));
            let bytes = _mm512_inserti64x4::<1>(bytes, _mm512_cvtepi16_epi8(last));
            let all = _mm512_permutexvar_epi8(widths, ones);
            // Half of 2^width is the highest of as many ones.
            let lower = _mm512_and_si512(_mm512_srli_epi16::<1>(all), _mm512_set1_epi8(0x7f));
            store64(&mut values, _mm512_add_epi8(bytes, _mm512_sub_epi8(all, lower)));
            store64(&mut kept, _mm512_maskz_mov_epi8(block.masks, all));
            head.count
        };
        for (values, kept) in values.as_chunks().0.iter().zip(kept.as_chunks().0).take(parts) {
            let kept = u64::from_le_bytes(*kept);
            bits.put(_pext_u64(u64::from_le_bytes(*values), kept), kept.count_ones());
        }
    }
}

/// For each byte the number of its group.
#[inline]
#[target_feature(enable = "avx512f")]
fn groups_of_bytes() -> __m512i {
    let mut groups = [0; 64];
    for (i, group) in groups.iter_mut().enumerate() {
        *group = (i / GROUPS) as u8;
    }
    load64(&groups)
}

/// The coefficients of a block.
#[inline]
#[target_feature(enable = "avx512f")]
fn halves_of(block: &[i16; 64]) -> (__m512i, __m512i) {
    let (low, high) = block.split_at(32);
    (
        load_words(low.first_chunk().expect("32 words")),
        load_words(high.first_chunk().expect("32 words")),
    )
}

#[inline]
#[target_feature(enable = "avx512f")]
fn eight(numbers: &[u64; GROUPS]) -> __m512i {
    // SAFETY: an array of 64 bytes.
    unsafe { _mm512_loadu_si512(numbers.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load16(from: &[u16; 16]) -> __m256i {
    // SAFETY: an array of 32 bytes.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store16(to: &mut [u16; 16], v: __m256i) {
    // SAFETY: an array of 32 bytes.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), v) }
}
