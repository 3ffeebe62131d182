//! The writer of segments: for each run the profile that takes the fewest bits.

#[cfg(target_arch = "x86_64")]
mod avx512;

use super::{GROUPS, Kind, MASK_CODES, RUN, SEGMENT, WIDEST, WIDTHS, Widths};
use crate::jpeg::coefficients::tables::{MASKS, PROFILES};
use crate::jpeg::coefficients::{four_of, nonzero_of};
use crate::jpeg::format::markers::ZIGZAG;
use crate::simd::{Available, compile_versions, dispatch};

/// Appends the AC coefficients of a segment of at most [`SEGMENT`] blocks. Returns false, and appends nothing, if a
/// coefficient is too large.
pub(crate) fn write_segment(kind: Kind, blocks: &[[i16; 64]], out: &mut Vec<u8>) -> bool {
    write_segment_at(Available::best(), kind, blocks, out)
}

fn write_segment_at(level: Available, kind: Kind, blocks: &[[i16; 64]], out: &mut Vec<u8>) -> bool {
    let count = blocks.len();
    let mut measured = [Measured::default(); SEGMENT];
    let measured = &mut measured[..count];
    let mut ordered = [[0; 64]; SEGMENT];
    let ordered = &mut ordered[..count];
    if !dispatch!(level, [Avx512, Avx2], measure(kind, blocks, ordered, measured)) {
        return false;
    }
    let mut heads = [Head::default(); SEGMENT];
    let heads = &mut heads[..count];
    let numbers = &mut [0; SEGMENT / RUN];
    let nbits = dispatch!(level, [Avx2], choose(kind, measured, numbers, heads)) as usize;
    let profiles = numbers[..count.div_ceil(RUN)].chunks(2);
    out.extend(profiles.map(|pair| (pair[0] | pair.get(1).copied().unwrap_or(0) << 4) as u8));
    let start = out.len();
    // Bits are written by eight bytes, from their last whole byte on.
    out.resize(start + nbits / 8 + 8, 0);
    let mut bits = Bits {
        bytes: &mut out[start..],
        nbytes: 0,
        held: 0,
        count: 0,
    };
    let (to, raw) = (&mut bits, &mut RawMasks::default());
    dispatch!(level, [Avx512, Avx2], write_heads(kind, numbers, heads, to));
    dispatch!(level, [Avx512, Avx2], write_masks(kind, measured, heads, to, raw));
    dispatch!(level, [Avx512, Avx2], write_values(ordered, measured, heads, to));
    out.truncate(start + (nbits - 8 * raw.count).div_ceil(8));
    out.extend(raw.masks[..raw.count].iter().rev());
    true
}

/// Masks that follow as bytes, and their number.
struct RawMasks {
    masks: [u8; SEGMENT * GROUPS + GROUPS],
    count: usize,
}

impl Default for RawMasks {
    fn default() -> Self {
        RawMasks {
            masks: [0; SEGMENT * GROUPS + GROUPS],
            count: 0,
        }
    }
}

compile_versions! {
    fn measure(kind: Kind, blocks: &[[i16; 64]], ordered: &mut [[i16; 64]], measured: &mut [Measured]) -> bool
        = measure_portable;
    fn choose(kind: Kind, measured: &[Measured], numbers: &mut [usize; SEGMENT / RUN], heads: &mut [Head]) -> u32
        = choose_portable;
    fn write_heads(kind: Kind, numbers: &[usize; SEGMENT / RUN], heads: &[Head], bits: &mut Bits<'_>)
        = write_heads_portable;
    fn write_masks(kind: Kind, measured: &[Measured], heads: &[Head], bits: &mut Bits<'_>, raw: &mut RawMasks)
        = write_masks_portable;
    fn write_values(ordered: &[[i16; 64]], measured: &[Measured], heads: &[Head], bits: &mut Bits<'_>)
        = write_values_portable;
}

/// Puts blocks in zigzag order, without DC coefficients, and measures them. Returns false if a coefficient is too large.
#[inline(always)]
fn measure_portable(kind: Kind, blocks: &[[i16; 64]], ordered: &mut [[i16; 64]], measured: &mut [Measured]) -> bool {
    let mut is_good = true;
    for ((block, ordered), measured) in blocks.iter().zip(ordered).zip(measured) {
        *ordered = ZIGZAG.map(|position| block[usize::from(position)]);
        ordered[0] = 0;
        let new = Measured::new(kind, ordered);
        is_good &= new.is_some();
        *measured = new.unwrap_or_default();
    }
    is_good
}

/// Chooses the profile that writes each run in the fewest bits, and how each block is written. Returns the bits of all
/// runs, raw masks included.
#[inline(always)]
fn choose_portable(kind: Kind, measured: &[Measured], numbers: &mut [usize; SEGMENT / RUN], heads: &mut [Head]) -> u32 {
    let mut all = 0;
    for ((run, heads), number) in measured.chunks(RUN).zip(heads.chunks_mut(RUN)).zip(numbers) {
        if run.iter().all(|block| block.masks == 0) {
            continue; // profile 0
        }
        let mut sums = [0u16; 16];
        for block in run {
            for (sum, bits) in sums.iter_mut().zip(block.bits) {
                *sum += bits;
            }
        }
        let (best, fewest) = sums[..15]
            .iter()
            .enumerate()
            .min_by_key(|&(_, bits)| bits)
            .map_or((0, 0), |(best, &bits)| (best, bits));
        *number = best + 1;
        all += u32::from(fewest);
        for (block, head) in run.iter().zip(heads) {
            *head = block.head(&WIDTHS[kind][best], best);
        }
    }
    all
}

/// Writes the heads of the blocks.
#[inline(always)]
fn write_heads_portable(kind: Kind, numbers: &[usize; SEGMENT / RUN], heads: &[Head], bits: &mut Bits<'_>) {
    write_heads_by(Head::widths_in, kind, numbers, heads, bits);
}

/// `widths_in`: see [`Head::widths_in`].
#[inline(always)]
fn write_heads_by(
    widths_in: impl Fn(&Head, &Widths) -> (u64, u32),
    kind: Kind,
    numbers: &[usize; SEGMENT / RUN],
    heads: &[Head],
    bits: &mut Bits<'_>,
) {
    for (heads, number) in heads.chunks(RUN).zip(numbers) {
        let Some(profile) = number.checked_sub(1).map(|number| &WIDTHS[kind][number]) else {
            continue;
        };
        let own = (1 << profile.count_bits) - 1;
        for head in heads {
            let code = if head.own {
                own
            } else {
                (head.count - profile.first_count) as u64
            };
            bits.put(code, profile.count_bits);
        }
        for head in heads {
            let (widths, count) = widths_in(head, profile);
            if head.own {
                bits.put(head.count as u64 | widths << 4, 4 + count);
            } else {
                bits.put(widths, count);
            }
        }
    }
}

/// Writes the masks of groups, but those that follow as bytes.
#[inline(always)]
fn write_masks_portable(kind: Kind, measured: &[Measured], heads: &[Head], bits: &mut Bits<'_>, raw: &mut RawMasks) {
    for (head, block) in heads.iter().zip(measured) {
        let (widths, present) = (head.widths.to_le_bytes(), block.masks.to_le_bytes());
        let (mut codes, mut count) = (0, 0);
        // Without branches: what groups hold cannot be foreseen.
        for group in 0..head.count {
            let (width, mask) = (widths[group], present[group]);
            let bits = u32::from(MASK_CODES[kind].bits[16 * group + usize::from(width & 15)]);
            let code = CODES[kind][place_of_code(group, width.into(), mask.into())];
            codes |= (u64::from(code) & ((1 << bits) - 1)) << count;
            count += bits;
            raw.masks[raw.count] = mask;
            raw.count += usize::from(code == RAW);
        }
        bits.put(codes, count);
    }
}

/// Writes the values of groups.
#[inline(always)]
fn write_values_portable(ordered: &[[i16; 64]], measured: &[Measured], heads: &[Head], bits: &mut Bits<'_>) {
    for ((head, block), ordered) in heads.iter().zip(measured).zip(ordered) {
        let (widths, present) = (head.widths.to_le_bytes(), block.masks.to_le_bytes());
        for group in 0..head.count {
            bits.put_values(ordered, group, widths[group].into(), present[group]);
        }
    }
}

/// The largest of the least widths of groups.
const MOST_LEAST: usize = 4;

/// A profile, and for each least width ones in the bytes of the groups that have it.
#[derive(Clone, Copy)]
struct Profile {
    widths: &'static Widths,
    at_least: &'static [u64; MOST_LEAST + 1],
}

impl Profile {
    fn new(kind: Kind, number: usize) -> Self {
        Profile {
            widths: &WIDTHS[kind][number],
            at_least: &AT_LEAST[kind][number],
        }
    }
}

static AT_LEAST: [[[u64; MOST_LEAST + 1]; 15]; 2] = {
    let mut all = [[[0; MOST_LEAST + 1]; 15]; 2];
    let mut i = 0;
    while i < 2 * 15 * GROUPS {
        let (kind, number, group) = (i / GROUPS / 15, i / GROUPS % 15, i % GROUPS);
        all[kind][number][PROFILES[kind][number].least[group] as usize] |= 255 << (8 * group);
        i += 1;
    }
    all
};

/// A one, and the highest bit, of each byte.
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHEST: u64 = ONES << 7;

/// What a block's coefficients need. Of numbers in a `u64`, each group has a byte.
#[derive(Clone, Copy, Default)]
struct Measured {
    widths: u64,
    masks: u64,
    /// The fewest bits of the block in a run of each profile, and last those of its masks and values at these widths.
    bits: [u16; 16],
}

/// The bits of a block's masks and values.
struct Sizes {
    /// At its own widths.
    own: u32,
    /// Of each group at least this wide, for the least widths that profiles give.
    at_least: [u64; MOST_LEAST + 1],
}

/// How a block is written.
#[derive(Clone, Copy, Default)]
struct Head {
    own: bool,
    count: usize,
    widths: u64,
}

impl Head {
    /// The bits of the widths of the groups: those that are added to a profile's, or a nibble each; and their number.
    #[inline(always)]
    fn widths_in(&self, profile: &Widths) -> (u64, u32) {
        let (mut bits, mut count) = (0, 0);
        for group in 0..self.count {
            let (width, least) = (self.widths >> (8 * group) & 255, profile.least >> (8 * group) & 255);
            let added = profile.head_bits[group + 1] - profile.head_bits[group];
            let (value, size) = if self.own {
                (width, 4)
            } else {
                (width - least, added.into())
            };
            bits |= value << count;
            count += size;
        }
        (bits, count)
    }
}

impl Measured {
    #[inline(always)]
    fn new(kind: Kind, block: &[i16; 64]) -> Option<Self> {
        let mut measured = Measured::default();
        let mut sizes = Sizes {
            own: 0,
            at_least: [0; MOST_LEAST + 1],
        };
        let mut is_too_wide = false;
        for group in 0..GROUPS {
            let rows = [four_of(block, GROUPS * group), four_of(block, GROUPS * group + 4)];
            let mask = nonzero_of(rows[0]) | nonzero_of(rows[1]) << 4;
            // 2^(width - 1) is the largest value.
            let less_1 = sizes_less_1(rows[0]) | sizes_less_1(rows[1]);
            let less_1 = less_1 | less_1 >> 32;
            let width = 17 - ((less_1 | less_1 >> 16) as u16).leading_zeros();
            let width = if mask == 0 { 0 } else { width as u8 };
            is_too_wide |= width > WIDEST;
            let bits = &GROUP_BITS[kind][ROW * (256 * group + (mask as usize & 255))..][..ROW];
            measured.masks |= mask << (8 * group);
            measured.widths |= u64::from(width) << (8 * group);
            sizes.own += u32::from(bits[usize::from(width & 15)]);
            for (least, all) in (0..).zip(&mut sizes.at_least) {
                *all |= u64::from(bits[usize::from(width.max(least) & 15)]) << (8 * group);
            }
        }
        for number in 0..15 {
            measured.bits[number] = measured.bits_in(&sizes, Profile::new(kind, number)) as u16;
        }
        measured.bits[15] = sizes.own as u16;
        (!is_too_wide).then_some(measured)
    }

    /// Groups up to the last one with a coefficient.
    #[inline(always)]
    fn count(&self) -> usize {
        GROUPS - self.widths.leading_zeros() as usize / 8
    }

    /// The fewest bits of the block in a run of a profile.
    #[inline(always)]
    fn bits_in(&self, sizes: &Sizes, profile: Profile) -> u32 {
        let Profile { widths, at_least } = profile;
        let own = own_bits(widths, self.count(), sizes.own);
        let Some(count) = count_in(widths, self.count()) else {
            return own;
        };
        let fits = (((widths.least + widths.added) | HIGHEST) - self.widths) & HIGHEST == HIGHEST;
        let of_groups = at_least
            .iter()
            .zip(&sizes.at_least)
            .fold(0, |all, (at, bits)| all | at & bits);
        let of_groups = of_groups & first_bytes(count);
        // A sum of bytes may be more than a byte.
        let pairs = (of_groups & 0x00ff_00ff_00ff_00ff) + (of_groups >> 8 & 0x00ff_00ff_00ff_00ff);
        let sum = (pairs.wrapping_mul(0x0001_0001_0001_0001) >> 48) as u32;
        let bits = widths.count_bits + u32::from(widths.head_bits[count]) + sum;
        if fits { bits.min(own) } else { own }
    }

    /// The cheapest way to write the block in a run of the profile of a number, whose widths are given.
    #[inline(always)]
    fn head(&self, profile: &Widths, number: usize) -> Head {
        let own = own_bits(profile, self.count(), self.bits[15].into());
        if u32::from(self.bits[number]) == own {
            return Head {
                own: true,
                count: self.count(),
                widths: self.widths,
            };
        }
        let count = self.count().max(profile.first_count);
        let least = profile.least;
        let wider = ((((self.widths | HIGHEST) - least) & HIGHEST) >> 7) * 255;
        Head {
            own: false,
            count,
            widths: (self.widths & wider | least & !wider) & first_bytes(count),
        }
    }
}

/// How many groups a block of `count` groups has in a run of a profile; None if that cannot be said.
const fn count_in(profile: &Widths, count: usize) -> Option<usize> {
    let code = count.saturating_sub(profile.first_count);
    if code + 1 < 1 << profile.count_bits {
        Some(profile.first_count + code)
    } else {
        None
    }
}

/// Bits of a head of its own for a block of `count` groups, and of all that follows it.
const fn own_bits(profile: &Widths, count: usize, bits: u32) -> u32 {
    profile.count_bits + 4 + 4 * count as u32 + bits
}

/// Ones in the bytes of the first `count` groups.
const fn first_bytes(count: usize) -> u64 {
    match count {
        0 => 0,
        _ => u64::MAX >> (64 - 8 * count),
    }
}

/// A one in the lowest bit of each coefficient of four.
const FOUR: u64 = 0x0001_0001_0001_0001;
const LOW: u64 = 0x7fff * FOUR;

/// Of each coefficient its size less 1; 0 of 0.
#[inline]
fn sizes_less_1(four: u64) -> u64 {
    let negative = four >> 15 & FOUR;
    let nonzero = (((four & LOW) + LOW) | four) >> 15 & FOUR;
    (four ^ (negative * 0xffff)) - (nonzero & !negative)
}

/// Widths of a row of [`GROUP_BITS`].
const ROW: usize = 16;

/// Bits of a group's mask and values, by kind; group, mask and width. Padded, such that eight bytes are read from each.
static GROUP_BITS: [[u8; GROUPS * 256 * ROW + 16]; 2] = {
    let mut all = [[0; GROUPS * 256 * ROW + 16]; 2];
    let mut i = 0;
    while i < 2 * GROUPS * 256 {
        let (kind, group, mask) = (i / GROUPS / 256, i / 256 % GROUPS, i % 256);
        let mut width = 1;
        while width < ROW {
            let raw = CODES[kind][place_of_code(group, width, mask)] == RAW;
            all[kind][ROW * (256 * group + mask) + width] = MASK_CODES[kind].bits[16 * group + width]
                + if raw { 8 } else { 0 }
                + width as u8 * mask.count_ones() as u8;
            width += 1;
        }
        i += 1;
    }
    all
};

/// In place of a code, as many ones: the mask follows as a byte.
const RAW: u8 = 255;

/// The codes of all masks, by kind; group, width (at most [`LISTS`]) and mask. Padded, such that eight bytes are read from
/// each.
static CODES: [[u8; GROUPS * (LISTS + 1) * 256 + 8]; 2] = {
    let mut all = [[0; GROUPS * (LISTS + 1) * 256 + 8]; 2];
    let mut list = 0;
    while list < 2 * GROUPS * LISTS {
        let (kind, group, width) = (list / 64, list / 8 % 8, list % 8);
        let masks = MASKS[kind][group][width];
        let mut i = 0;
        while i < 256 {
            all[kind][place_of_code(group, width + 1, i)] = RAW;
            i += 1;
        }
        let mut code = 0;
        while code < masks.len() {
            all[kind][place_of_code(group, width + 1, masks[code] as usize)] = code as u8;
            code += 1;
        }
        list += 1;
    }
    all
};

/// Lists of masks of a group: larger widths have the last one.
const LISTS: usize = 8;

#[inline(always)]
const fn place_of_code(group: usize, width: usize, mask: usize) -> usize {
    256 * ((LISTS + 1) * group + if width < LISTS { width } else { LISTS }) + mask
}

/// Bits, from the lowest of a byte to the highest.
struct Bits<'a> {
    bytes: &'a mut [u8],
    nbytes: usize,
    /// The last bits, which are fewer than 8, and their number.
    held: u64,
    count: u32,
}

impl Bits<'_> {
    /// Appends up to 56 bits.
    #[inline]
    fn put(&mut self, bits: u64, count: u32) {
        self.held |= bits << self.count;
        self.count += count;
        if let Some(bytes) = self
            .bytes
            .get_mut(self.nbytes..)
            .and_then(|bytes| bytes.first_chunk_mut())
        {
            *bytes = self.held.to_le_bytes();
        }
        self.nbytes += self.count as usize / 8;
        self.held >>= self.count & !7;
        self.count %= 8;
    }

    /// Appends the values of a group.
    #[inline]
    fn put_values(&mut self, block: &[i16; 64], group: usize, width: u32, mask: u8) {
        let half = (1 << width) >> 1;
        let (mut bits, mut count) = (0, 0);
        for i in 0..GROUPS {
            if i == 4 && width > 7 {
                self.put(bits, count);
                (bits, count) = (0, 0);
            }
            let value = i32::from(block[GROUPS * group + i]);
            let present = u32::from(mask >> i & 1);
            bits |= u64::from((value + half - i32::from(value > 0)) as u32 * present) << count;
            count += width * present;
        }
        self.put(bits, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_the_same_at_every_level() {
        let mut state = 1u32;
        let mut random = move |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        for seed in 0..4000 {
            let spread = [1, 2, 5, 30, 64, 129, 600, 8192, 8193, 20_000][seed as usize % 10];
            let mut blocks = vec![[0; 64]; [64, 63, 33, 16, 1][seed as usize % 5]];
            for block in &mut blocks {
                let (last, present) = (random(40), random(100));
                for (i, value) in block.iter_mut().enumerate() {
                    let frequency = (i / 8 + i % 8) as u32;
                    if frequency * 2 <= last && random(100) < present {
                        let size = random((spread >> (frequency / 2)) + 1) as i16;
                        *value = if random(2) == 0 { size } else { -size };
                    }
                }
            }
            for kind in 0..2 {
                let written = Available::all().iter().map(|&level| {
                    let mut bytes = Vec::new();
                    (write_segment_at(level, kind, &blocks, &mut bytes), bytes)
                });
                let written: Vec<_> = written.collect();
                assert!(written.iter().all(|other| *other == written[0]), "{seed} {kind}");
                assert!(written[0].0 || spread > 8192);
            }
        }
    }
}
