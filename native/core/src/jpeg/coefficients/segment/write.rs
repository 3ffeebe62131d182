//! The writer of segments: for each run the profile that takes the fewest bits.

use super::{GROUPS, Kind, MASK_CODES, RUN, WIDEST, WIDTHS, WINDOW, Widths};
use crate::jpeg::coefficients::tables::{MASKS, PROFILES};
use crate::jpeg::coefficients::{four_of, nonzero_of};
use crate::jpeg::format::markers::ZIGZAG;

/// Appends the AC coefficients of a segment of at most [`super::SEGMENT`] blocks. Returns false, and appends nothing, if a
/// coefficient is too large.
pub(crate) fn write_segment(kind: Kind, blocks: &[[i16; 64]], out: &mut Vec<u8>) -> bool {
    let mut measured = [Measured::default(); super::SEGMENT];
    let measured = &mut measured[..blocks.len()];
    let mut ordered = [[0; 64]; super::SEGMENT];
    let ordered = &mut ordered[..blocks.len()];
    for ((block, ordered), measured) in blocks.iter().zip(&mut *ordered).zip(&mut *measured) {
        *ordered = ZIGZAG.map(|position| block[usize::from(position)]);
        ordered[0] = 0;
        match Measured::new(kind, ordered) {
            Some(new) => *measured = new,
            None => return false,
        }
    }
    let start = out.len();
    out.resize(start + blocks.len().div_ceil(RUN).div_ceil(2), 0);
    let [mut heads, mut masks, mut values] = [const { Bits::new() }; 3];
    let (mut raw, mut raws) = ([0; super::SEGMENT * GROUPS + 1], 0);
    for (run, (measured, blocks)) in measured.chunks(RUN).zip(ordered.chunks(RUN)).enumerate() {
        let number = best_profile(kind, measured);
        out[start + run / 2] |= (number as u8) << (run % 2 * 4);
        let Some(profile) = number.checked_sub(1).map(|number| Profile::new(kind, number)) else {
            continue;
        };
        let widths = profile.widths;
        let own = (1 << widths.count_bits) - 1;
        let heads_of_run: [Head; RUN] =
            core::array::from_fn(|i| measured.get(i).map_or(Head::default(), |block| block.head(profile)));
        for head in &heads_of_run[..measured.len()] {
            let code = if head.own {
                own
            } else {
                (head.count - widths.first_count) as u64
            };
            heads.put(code, widths.count_bits);
        }
        for (head, (measured, block)) in heads_of_run.iter().zip(measured.iter().zip(blocks)) {
            heads.put_head(head, widths);
            let (widths, present) = (head.widths.to_le_bytes(), measured.masks.to_le_bytes());
            // Without branches: what groups hold cannot be foreseen.
            for group in 0..head.count {
                let (width, mask) = (widths[group], present[group]);
                let bits = u32::from(MASK_CODES[kind].bits[16 * group + usize::from(width & 15)]);
                let code = CODES[kind][group][usize::from(width.min(8))][usize::from(mask)];
                masks.put(u64::from(code) & ((1 << bits) - 1), bits);
                raw[raws] = mask;
                raws += usize::from(code == RAW);
                values.put_values(block, group, width.into(), mask);
            }
        }
    }
    heads.append(&masks);
    heads.append(&values);
    out.extend_from_slice(heads.finish());
    out.extend(raw[..raws].iter().rev());
    true
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
    /// Groups up to the last one with a coefficient.
    count: usize,
    widths: u64,
    masks: u64,
    /// Bits of the masks and values at these widths.
    bits: u32,
    /// Bits of each group at least this wide, for the least widths that profiles give.
    least_bits: [u64; MOST_LEAST + 1],
}

/// How a block is written.
#[derive(Clone, Copy, Default)]
struct Head {
    own: bool,
    count: usize,
    widths: u64,
}

impl Measured {
    fn new(kind: Kind, block: &[i16; 64]) -> Option<Self> {
        let mut measured = Measured::default();
        let mut is_too_wide = false;
        for (group, bits) in GROUP_BITS[kind].iter().enumerate() {
            let rows = [four_of(block, GROUPS * group), four_of(block, GROUPS * group + 4)];
            let mask = nonzero_of(rows[0]) | nonzero_of(rows[1]) << 4;
            // 2^(width - 1) is the largest value.
            let sizes = sizes_less_1(rows[0]) | sizes_less_1(rows[1]);
            let sizes = sizes | sizes >> 32;
            let width = 17 - ((sizes | sizes >> 16) as u16).leading_zeros();
            let width = if mask == 0 { 0 } else { width as u8 };
            is_too_wide |= width > WIDEST;
            let bits = &bits[mask as usize & 255];
            measured.masks |= mask << (8 * group);
            measured.widths |= u64::from(width) << (8 * group);
            measured.bits += u32::from(bits[usize::from(width & 15)]);
            for (least, all) in (0..).zip(&mut measured.least_bits) {
                *all |= u64::from(bits[usize::from(width.max(least) & 15)]) << (8 * group);
            }
        }
        measured.count = GROUPS - measured.widths.leading_zeros() as usize / 8;
        (!is_too_wide).then_some(measured)
    }

    /// How many groups the block has in a run of a profile; None if that cannot be said.
    fn count_in(&self, profile: &Widths) -> Option<usize> {
        let code = self.count.saturating_sub(profile.first_count);
        (code + 1 < 1 << profile.count_bits).then_some(profile.first_count + code)
    }

    /// Bits of a head of its own, and of all that follows it.
    fn own_bits(&self, profile: &Widths) -> u32 {
        profile.count_bits + 4 + 4 * self.count as u32 + self.bits
    }

    /// The fewest bits of the block in a run of a profile.
    fn bits_in(&self, profile: Profile) -> u32 {
        let Profile { widths, at_least } = profile;
        let own = self.own_bits(widths);
        let Some(count) = self.count_in(widths) else {
            return own;
        };
        let fits = (((widths.least + widths.added) | HIGHEST) - self.widths) & HIGHEST == HIGHEST;
        let of_groups = at_least
            .iter()
            .zip(&self.least_bits)
            .fold(0, |all, (at, bits)| all | at & bits);
        let of_groups = of_groups & first_bytes(count);
        // A sum of bytes may be more than a byte.
        let pairs = (of_groups & 0x00ff_00ff_00ff_00ff) + (of_groups >> 8 & 0x00ff_00ff_00ff_00ff);
        let sum = (pairs.wrapping_mul(0x0001_0001_0001_0001) >> 48) as u32;
        let bits = widths.count_bits + u32::from(widths.head_bits[count]) + sum;
        if fits { bits.min(own) } else { own }
    }

    /// The cheapest way to write the block in a run of a profile.
    fn head(&self, profile: Profile) -> Head {
        let own = Head {
            own: true,
            count: self.count,
            widths: self.widths,
        };
        let Some(count) = self
            .count_in(profile.widths)
            .filter(|_| self.bits_in(profile) < self.own_bits(profile.widths))
        else {
            return own;
        };
        let least = profile.widths.least;
        let wider = ((((self.widths | HIGHEST) - least) & HIGHEST) >> 7) * 255;
        Head {
            own: false,
            count,
            widths: (self.widths & wider | least & !wider) & first_bytes(count),
        }
    }
}

/// Ones in the bytes of the first `count` groups.
fn first_bytes(count: usize) -> u64 {
    u64::MAX.checked_shr(64 - 8 * count as u32).unwrap_or(0)
}

/// The number of the profile that writes a run in the fewest bits. 0: there are no AC coefficients.
fn best_profile(kind: Kind, run: &[Measured]) -> usize {
    if run.iter().all(|block| block.count == 0) {
        return 0;
    }
    let (mut best, mut fewest) = (1, u32::MAX);
    for number in 0..15 {
        let profile = Profile::new(kind, number);
        let mut bits = 0;
        let is_fewer = run.iter().all(|block| {
            bits += block.bits_in(profile);
            bits < fewest
        });
        if is_fewer {
            (best, fewest) = (number + 1, bits);
        }
    }
    best
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

/// Bits of a group's mask and values, by kind, group, mask and width.
static GROUP_BITS: [[[[u8; 16]; 256]; GROUPS]; 2] = {
    let mut all = [[[[0; 16]; 256]; GROUPS]; 2];
    let mut i = 0;
    while i < 2 * GROUPS * 256 {
        let (kind, group, mask) = (i / GROUPS / 256, i / 256 % GROUPS, i % 256);
        let mut width = 1;
        while width < 16 {
            let raw = CODES[kind][group][if width < 8 { width } else { 8 }][mask] == RAW;
            all[kind][group][mask][width] = MASK_CODES[kind].bits[16 * group + width]
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

/// The codes of all masks, by kind, group and width.
static CODES: [[[[u8; 256]; 9]; GROUPS]; 2] = {
    let mut all = [[[[0; 256]; 9]; GROUPS]; 2];
    let mut list = 0;
    while list < 2 * GROUPS * 8 {
        let (kind, group, width) = (list / 64, list / 8 % 8, list % 8);
        let masks = MASKS[kind][group][width];
        let codes = &mut all[kind][group][width + 1];
        *codes = [RAW; 256];
        let mut code = 0;
        while code < masks.len() {
            codes[masks[code] as usize] = code as u8;
            code += 1;
        }
        list += 1;
    }
    all
};

/// Bits, from the lowest of a byte to the highest.
struct Bits {
    bytes: [u8; WINDOW],
    nbytes: usize,
    /// The last bits, which are fewer than 8, and their number.
    held: u64,
    count: u32,
}

impl Bits {
    const fn new() -> Self {
        Bits {
            bytes: [0; WINDOW],
            nbytes: 0,
            held: 0,
            count: 0,
        }
    }

    /// Appends up to 56 bits.
    #[inline]
    fn put(&mut self, bits: u64, count: u32) {
        self.held |= bits << self.count;
        self.count += count;
        self.bytes[self.nbytes..][..8].copy_from_slice(&self.held.to_le_bytes());
        self.nbytes += self.count as usize / 8;
        self.held >>= self.count & !7;
        self.count %= 8;
    }

    /// Appends the head of a block without the code of its number of groups.
    #[inline]
    fn put_head(&mut self, head: &Head, profile: &Widths) {
        let (mut bits, mut count) = if head.own { (head.count as u64, 4) } else { (0, 0) };
        for group in 0..head.count {
            let width = head.widths >> (8 * group) & 255;
            let (value, size) = if head.own {
                (width, 4)
            } else {
                let added = profile.head_bits[group + 1] - profile.head_bits[group];
                (width - (profile.least >> (8 * group) & 255), added.into())
            };
            bits |= value << count;
            count += size;
        }
        self.put(bits, count);
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

    fn append(&mut self, other: &Bits) {
        let (words, rest) = other.bytes[..other.nbytes].as_chunks();
        for word in words {
            self.put(u32::from_le_bytes(*word).into(), 32);
        }
        for byte in rest {
            self.put((*byte).into(), 8);
        }
        self.put(other.held, other.count);
    }

    /// All bytes, the last of them filled with zeros.
    fn finish(&self) -> &[u8] {
        &self.bytes[..self.nbytes + usize::from(self.count > 0)]
    }
}
