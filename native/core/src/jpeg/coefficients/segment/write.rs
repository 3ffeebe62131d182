//! The writer of segments: for each run the profile that takes the fewest bits.

use super::{GROUPS, Kind, MASK_CODES, RUN, WIDEST, WIDTHS, Widths};
use crate::jpeg::coefficients::position;
use crate::jpeg::coefficients::tables::{MASKS, PROFILES};

/// Appends the AC coefficients of a segment of at most [`super::SEGMENT`] blocks. Returns false, and appends nothing, if a
/// coefficient is too large.
pub(crate) fn write_segment(kind: Kind, blocks: &[[i16; 64]], out: &mut Vec<u8>) -> bool {
    let mut measured = [Measured::default(); super::SEGMENT];
    let measured = &mut measured[..blocks.len()];
    for (block, measured) in blocks.iter().zip(&mut *measured) {
        match Measured::new(kind, block) {
            Some(new) => *measured = new,
            None => return false,
        }
    }
    let start = out.len();
    out.resize(start + blocks.len().div_ceil(RUN).div_ceil(2), 0);
    let [mut heads, mut masks, mut values] = [const { Bits::new() }; 3];
    let mut raw = Vec::new();
    for (run, measured) in measured.chunks(RUN).enumerate() {
        let profile = best_profile(kind, measured);
        out[start + run / 2] |= (profile as u8) << (run % 2 * 4);
        let Some(widths) = profile.checked_sub(1).map(|number| &WIDTHS[kind][number]) else {
            continue;
        };
        let own = (1 << widths.count_bits) - 1;
        let heads_of_run: [Head; RUN] =
            core::array::from_fn(|i| measured.get(i).map_or(Head::default(), |block| block.head(widths)));
        for head in &heads_of_run[..measured.len()] {
            let code = if head.own {
                own
            } else {
                (head.count - widths.first_count) as u64
            };
            heads.put(code, widths.count_bits);
        }
        for (i, (head, measured)) in heads_of_run.iter().zip(measured).enumerate() {
            if head.own {
                heads.put(head.count as u64, 4);
            }
            for group in 0..head.count {
                let width = head.widths[group];
                if head.own {
                    heads.put(width.into(), 4);
                } else {
                    let added = (widths.added >> (8 * group) & 255).count_ones();
                    heads.put(u64::from(width) - (widths.least >> (8 * group) & 255), added);
                }
                if width == 0 {
                    continue;
                }
                let mask = measured.masks[group];
                match code_of(kind, group, width, mask) {
                    (bits, Some(code)) => masks.put(code, bits),
                    (bits, None) => {
                        masks.put((1 << bits) - 1, bits);
                        raw.push(mask);
                    }
                }
                let coefficients = group_of(&blocks[run * RUN + i], group);
                let mut rest = mask;
                while rest != 0 {
                    let value = i32::from(coefficients[rest.trailing_zeros() as usize]);
                    rest &= rest - 1;
                    let code = value + (1 << (width - 1)) - i32::from(value > 0);
                    values.put(code as u64, width.into());
                }
            }
        }
    }
    heads.append(&masks);
    heads.append(&values);
    out.extend_from_slice(&heads.finish());
    out.extend(raw.iter().rev());
    true
}

/// The largest of the least widths of groups.
const MOST_LEAST: usize = 4;

const _: () = {
    let mut i = 0;
    while i < 2 * 15 * GROUPS {
        assert!(PROFILES[i / GROUPS / 15][i / GROUPS % 15].least[i % GROUPS] as usize <= MOST_LEAST);
        i += 1;
    }
};

/// What a block's coefficients need.
#[derive(Clone, Copy, Default)]
struct Measured {
    /// Groups up to the last one with a coefficient.
    count: usize,
    widths: [u8; GROUPS],
    masks: [u8; GROUPS],
    /// Bits of the masks and values at these widths.
    bits: u32,
    /// Bits of each group at least this wide, for the least widths that profiles give.
    least_bits: [[u16; GROUPS]; MOST_LEAST + 1],
}

/// How a block is written.
#[derive(Clone, Copy, Default)]
struct Head {
    own: bool,
    count: usize,
    widths: [u8; GROUPS],
}

impl Measured {
    fn new(kind: Kind, block: &[i16; 64]) -> Option<Self> {
        let mut measured = Measured {
            least_bits: EMPTY_BITS[kind],
            ..Measured::default()
        };
        for group in 0..GROUPS {
            let values = group_of(block, group);
            let mask = (0..8).fold(0, |mask, i| mask | u8::from(values[i] != 0) << i);
            if mask == 0 {
                continue;
            }
            let largest = values
                .iter()
                .fold(0, |largest, value| value.unsigned_abs().max(largest));
            // 2^(width - 1) is the largest value.
            let width = (17 - (largest - 1).leading_zeros()) as u8;
            if width > WIDEST {
                return None;
            }
            let own = group_bits(kind, group, width, mask);
            measured.masks[group] = mask;
            measured.widths[group] = width;
            measured.count = group + 1;
            measured.bits += own;
            for (least, bits) in (0..).zip(&mut measured.least_bits) {
                let bits_at_least = if least <= width {
                    own
                } else {
                    group_bits(kind, group, least, mask)
                };
                bits[group] = bits_at_least as u16;
            }
        }
        Some(measured)
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
    fn bits_in(&self, profile: &Widths) -> u32 {
        let own = self.own_bits(profile);
        let Some(count) = self.count_in(profile) else {
            return own;
        };
        let least = profile.least.to_le_bytes();
        let most = (profile.least + profile.added).to_le_bytes();
        let mut bits = profile.count_bits + u32::from(profile.head_bits[count]);
        let mut fits = true;
        for group in 0..count {
            fits &= self.widths[group] <= most[group];
            bits += u32::from(self.least_bits[usize::from(least[group]) % (MOST_LEAST + 1)][group]);
        }
        if fits { bits.min(own) } else { own }
    }

    /// The cheapest way to write the block in a run of a profile.
    fn head(&self, profile: &Widths) -> Head {
        let own = Head {
            own: true,
            count: self.count,
            widths: self.widths,
        };
        let Some(count) = self
            .count_in(profile)
            .filter(|_| self.bits_in(profile) < self.own_bits(profile))
        else {
            return own;
        };
        let least = profile.least.to_le_bytes();
        let widths = core::array::from_fn(|i| if i < count { self.widths[i].max(least[i]) } else { 0 });
        Head {
            own: false,
            count,
            widths,
        }
    }
}

/// The number of the profile that writes a run in the fewest bits. 0: there are no AC coefficients.
fn best_profile(kind: Kind, run: &[Measured]) -> usize {
    if run.iter().all(|block| block.count == 0) {
        return 0;
    }
    let bits = |profile: &Widths| -> u32 { run.iter().map(|block| block.bits_in(profile)).sum() };
    (1..=15)
        .min_by_key(|number| bits(&WIDTHS[kind][number - 1]))
        .unwrap_or(1)
}

/// The coefficients of a group, the first of all as 0.
#[inline]
fn group_of(block: &[i16; 64], group: usize) -> [i16; 8] {
    let mut values = core::array::from_fn(|i| block[position(group, i)]);
    if group == 0 {
        values[0] = 0;
    }
    values
}

/// Bits of the mask of a group without coefficients, by kind, least width and group.
static EMPTY_BITS: [[[u16; GROUPS]; MOST_LEAST + 1]; 2] = {
    let mut all = [[[0; GROUPS]; MOST_LEAST + 1]; 2];
    let mut i = 0;
    while i < 2 * GROUPS * MOST_LEAST {
        let (kind, group, width) = (i / (GROUPS * MOST_LEAST), i % GROUPS, i / GROUPS % MOST_LEAST + 1);
        let is_listed = CODES[kind][group][width - 1][0] != NONE;
        all[kind][width][group] = MASK_CODES[kind].bits[16 * group + width] as u16 + if is_listed { 0 } else { 8 };
        i += 1;
    }
    all
};

/// Bits of a group's mask and values.
fn group_bits(kind: Kind, group: usize, width: u8, mask: u8) -> u32 {
    let (bits, code) = code_of(kind, group, width, mask);
    u32::from(width) * mask.count_ones() + bits + if code.is_some() { 0 } else { 8 }
}

/// The bits of a mask's code, and the code; None: the mask follows as a byte.
fn code_of(kind: Kind, group: usize, width: u8, mask: u8) -> (u32, Option<u64>) {
    let bits = MASK_CODES[kind].bits[16 * group + usize::from(width)];
    let code = CODES[kind][group][usize::from(width.min(8)) - 1][usize::from(mask)];
    (bits.into(), (code != NONE).then_some(code.into()))
}

const NONE: u8 = 255;

/// The codes of all masks, by kind, group and width.
static CODES: [[[[u8; 256]; 8]; GROUPS]; 2] = {
    let mut all = [[[[NONE; 256]; 8]; GROUPS]; 2];
    let mut list = 0;
    while list < 2 * GROUPS * 8 {
        let (kind, group, width) = (list / 64, list / 8 % 8, list % 8);
        let masks = MASKS[kind][group][width];
        let mut code = 0;
        while code < masks.len() {
            all[kind][group][width][masks[code] as usize] = code as u8;
            code += 1;
        }
        list += 1;
    }
    all
};

/// Bits, from the lowest of a byte to the highest.
struct Bits {
    bytes: Vec<u8>,
    held: u64,
    count: u32,
}

impl Bits {
    const fn new() -> Self {
        Bits {
            bytes: Vec::new(),
            held: 0,
            count: 0,
        }
    }

    /// Appends up to 32 bits.
    #[inline]
    fn put(&mut self, bits: u64, count: u32) {
        self.held |= bits << self.count;
        self.count += count;
        if self.count >= 32 {
            self.bytes.extend_from_slice(&(self.held as u32).to_le_bytes());
            self.held >>= 32;
            self.count -= 32;
        }
    }

    fn append(&mut self, other: &Bits) {
        for word in other.bytes.as_chunks().0 {
            self.put(u32::from_le_bytes(*word).into(), 32);
        }
        self.put(other.held, other.count);
    }

    fn finish(mut self) -> Vec<u8> {
        let nbytes = self.count.div_ceil(8) as usize;
        self.bytes.extend_from_slice(&self.held.to_le_bytes()[..nbytes]);
        self.bytes
    }
}
