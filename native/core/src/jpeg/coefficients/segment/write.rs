//! The writer of segments: for each run the profile that takes the fewest bits.

use super::{GROUPS, Kind, MASK_CODES, RUN, WIDEST, WIDTHS, Widths};
use crate::jpeg::coefficients::position;
use crate::jpeg::coefficients::tables::MASKS;

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
        let heads_of_run: [Head; RUN] = core::array::from_fn(|i| {
            measured
                .get(i)
                .map_or(Head::default(), |block| block.head(kind, widths))
        });
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
                for coefficient in (0..8).filter(|coefficient| mask >> coefficient & 1 == 1) {
                    let value = i32::from(blocks[run * RUN + i][position(group, coefficient)]);
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

/// What a block's coefficients need.
#[derive(Clone, Copy, Default)]
struct Measured {
    /// Groups up to the last one with a coefficient.
    count: usize,
    widths: [u8; GROUPS],
    masks: [u8; GROUPS],
    /// Bits of the masks and values at these widths.
    bits: u32,
}

/// How a block is written.
#[derive(Clone, Copy, Default)]
struct Head {
    own: bool,
    count: usize,
    widths: [u8; GROUPS],
    bits: u32,
}

impl Measured {
    fn new(kind: Kind, block: &[i16; 64]) -> Option<Self> {
        let mut measured = Measured::default();
        for group in 0..GROUPS {
            let mut largest = 0;
            for i in usize::from(group == 0)..8 {
                let value = block[position(group, i)];
                measured.masks[group] |= u8::from(value != 0) << i;
                largest = largest.max(value.unsigned_abs());
            }
            if largest > 0 {
                // 2^(width - 1) is the largest value.
                let width = 17 - (largest - 1).leading_zeros();
                if width > u32::from(WIDEST) {
                    return None;
                }
                measured.widths[group] = width as u8;
                measured.count = group + 1;
                measured.bits += group_bits(kind, group, width as u8, measured.masks[group]);
            }
        }
        Some(measured)
    }

    /// The cheapest way to write the block in a run of a profile.
    fn head(&self, kind: Kind, profile: &Widths) -> Head {
        let own = Head {
            own: true,
            count: self.count,
            widths: self.widths,
            bits: profile.count_bits + 4 + 4 * self.count as u32 + self.bits,
        };
        let code = self.count.saturating_sub(profile.first_count);
        if code + 1 >= 1 << profile.count_bits {
            return own;
        }
        let mut head = Head {
            own: false,
            count: profile.first_count + code,
            ..Head::default()
        };
        head.bits = profile.count_bits + u32::from(profile.head_bits[head.count]);
        for group in 0..head.count {
            let least = (profile.least >> (8 * group)) as u8;
            let added = (profile.added >> (8 * group)) as u8;
            if self.widths[group] > least + added {
                return own;
            }
            let width = self.widths[group].max(least);
            head.widths[group] = width;
            if width > 0 {
                head.bits += group_bits(kind, group, width, self.masks[group]);
            }
        }
        if head.bits < own.bits { head } else { own }
    }
}

/// The number of the profile that writes a run in the fewest bits. 0: there are no AC coefficients.
fn best_profile(kind: Kind, run: &[Measured]) -> usize {
    if run.iter().all(|block| block.count == 0) {
        return 0;
    }
    let bits = |profile: &Widths| -> u32 { run.iter().map(|block| block.head(kind, profile).bits).sum() };
    (1..=15)
        .min_by_key(|number| bits(&WIDTHS[kind][number - 1]))
        .unwrap_or(1)
}

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
    fn put(&mut self, bits: u64, count: u32) {
        self.held |= bits << self.count;
        self.count += count;
        while self.count >= 8 {
            self.bytes.push(self.held as u8);
            self.held >>= 8;
            self.count -= 8;
        }
    }

    fn append(&mut self, other: &Bits) {
        for &byte in &other.bytes {
            self.put(byte.into(), 8);
        }
        self.put(other.held, other.count);
    }

    fn finish(mut self) -> Vec<u8> {
        if self.count > 0 {
            self.bytes.push(self.held as u8);
        }
        self.bytes
    }
}
