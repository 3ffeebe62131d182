//! The AC coefficients of a segment of blocks.
//!
//! ```text
//! profiles     a nibble for each run of 16 blocks, to a whole byte
//! heads        bits; for each run whose profile is not 0: the code of each block's number of groups; then for each block
//!              the bits that are added to the profile's widths, or the block's own head: its number of groups and the
//!              width of each, a nibble each
//! masks        bits; for each group of a width above 0: the code of its mask, if its kind has codes
//! values       bits, to a whole byte; for each coefficient that is not zero, in the order of the masks, as many bits as
//!              its group's width: value + 2^(width - 1), less 1 if the value is positive
//! raw masks    a byte for each mask without a code, from the last to the first
//! ```
//!
//! Bits are taken from the lowest of a byte to the highest.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
mod write;

use core::ops::Range;

use super::tables::{MASKS, PROFILES};
use super::{GROUPS, RUN, SEGMENT, position};
use crate::simd::{Available, dispatch};

pub(super) use write::write_segment;

/// Bytes of a window: more than a segment ever takes. A power of two, so that a mask replaces the bounds check of loads.
const WINDOW: usize = 16 * 1024;
/// Bytes after it, for the widest load.
const PADDING: usize = 64;
/// The most bits of a value: four of them are read at once. JPEGs of 8 bits need 11.
const WIDEST: u8 = 14;
/// The number of a component's kind: the first component of a picture, or another.
pub(crate) type Kind = usize;

/// The bytes of a segment, at most [`Window::MOST`].
pub(crate) struct Window {
    bytes: Box<[u8; WINDOW + PADDING]>,
    /// How many bytes the segment has.
    filled: usize,
}

impl Window {
    /// The most bytes of a segment: heads, masks and values of 14 bits of 64 blocks are fewer.
    pub const MOST: usize = WINDOW;

    pub fn new() -> Self {
        Window {
            bytes: Box::new([0; WINDOW + PADDING]),
            filled: 0,
        }
    }

    /// Takes in a segment.
    pub fn fill(&mut self, bytes: &[u8]) {
        self.filled = bytes.len().min(WINDOW);
        self.bytes[..self.filled].copy_from_slice(&bytes[..self.filled]);
        self.bytes[self.filled..][..PADDING].fill(0);
    }

    /// At least 57 bits from a bit on.
    #[inline(always)]
    fn bits(&self, at: usize) -> u64 {
        let bytes = self.bytes[(at / 8) & (WINDOW - 1)..].first_chunk();
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes) >> (at % 8))
    }

    #[inline(always)]
    fn byte(&self, at: usize) -> u8 {
        self.bytes[at & (WINDOW - 1)]
    }

    /// Eight bytes before the last `after`, from the last to the first.
    #[inline(always)]
    #[cfg(target_arch = "x86_64")]
    fn last_bytes(&self, after: usize) -> u64 {
        match self.filled.checked_sub(after + 8) {
            Some(from) => self.bytes[from & (WINDOW - 1)..]
                .first_chunk()
                .map_or(0, |bytes| u64::from_be_bytes(*bytes)),
            None => (0..8).fold(0, |all, i| {
                all | u64::from(self.byte(self.filled.wrapping_sub(after + i + 1))) << (8 * i)
            }),
        }
    }

    /// Whether the segment is what was read: bits up to `at`, and raw masks.
    fn is_read(&self, at: usize, raw: usize) -> bool {
        at.div_ceil(8) + raw == self.filled
    }
}

/// Memory that is used for one segment after another.
pub(crate) struct Scratch {
    /// For each group of a width above 0: its number and width (`16 * group + width`), its place, and its mask.
    kinds: [u16; SEGMENT * GROUPS],
    places: [u16; SEGMENT * GROUPS],
    masks: [u8; SEGMENT * GROUPS],
    #[cfg(target_arch = "x86_64")]
    groups: avx2::Groups,
    #[cfg(target_arch = "x86_64")]
    blocks: avx512::Blocks,
}

impl Scratch {
    pub fn new() -> Self {
        Scratch {
            kinds: [0; SEGMENT * GROUPS],
            places: [0; SEGMENT * GROUPS],
            masks: [0; SEGMENT * GROUPS],
            #[cfg(target_arch = "x86_64")]
            groups: avx2::Groups::new(),
            #[cfg(target_arch = "x86_64")]
            blocks: avx512::Blocks::new(),
        }
    }
}

/// Reads the AC coefficients of a segment. `blocks` receives 64 coefficients for each needed block in natural order, the
/// first of them 0, and `used` the number of zigzag positions in use: 1, 10 or 64. For blocks that are not needed they have
/// no meaning. Returns false if the bytes are corrupt.
pub(crate) fn read_segment(
    level: Available,
    window: &Window,
    kind: Kind,
    needed: &Range<usize>,
    blocks: &mut [[i16; 64]],
    used: &mut [u8],
    scratch: &mut Scratch,
) -> bool {
    dispatch!(
        level,
        [Avx512, Avx2, Neon],
        read_segment(window, kind, needed, blocks, used, scratch)
    )
}

/// The widths that a profile gives, in the form that a `u64` of 8 bytes has.
struct Widths {
    count_bits: u32,
    first_count: usize,
    least: u64,
    /// The bits of each byte that a head may add.
    added: u64,
    /// Bits of the head of a block by its number of groups.
    head_bits: [u8; GROUPS + 1],
}

static WIDTHS: [[Widths; 15]; 2] = {
    let mut all = [const {
        [const {
            Widths {
                count_bits: 0,
                first_count: 0,
                least: 0,
                added: 0,
                head_bits: [0; GROUPS + 1],
            }
        }; 15]
    }; 2];
    let mut kind = 0;
    while kind < 2 {
        let mut number = 0;
        while number < 15 {
            let profile = &PROFILES[kind][number];
            let widths = &mut all[kind][number];
            widths.count_bits = profile.count_bits as u32;
            widths.first_count = profile.first_count as usize;
            let mut group = 0;
            while group < GROUPS {
                widths.least |= (profile.least[group] as u64) << (8 * group);
                widths.added |= ((1 << profile.extra_bits[group]) - 1) << (8 * group);
                widths.head_bits[group + 1] = widths.head_bits[group] + profile.extra_bits[group];
                group += 1;
            }
            number += 1;
        }
        kind += 1;
    }
    all
};

/// Codes of masks, by `16 * group + width`.
struct MaskCodes {
    bits: [u8; 16 * GROUPS],
    /// The mask of each code. 0 stands for a byte of its own.
    masks: [[u8; 64]; 16 * GROUPS],
}

static MASK_CODES: [MaskCodes; 2] = [mask_codes(0), mask_codes(1)];

const fn mask_codes(kind: Kind) -> MaskCodes {
    let mut codes = MaskCodes {
        bits: [0; 16 * GROUPS],
        masks: [[0; 64]; 16 * GROUPS],
    };
    let mut group = 0;
    while group < GROUPS {
        let mut width = 1;
        while width < 16 {
            let masks = MASKS[kind][group][if width < 8 { width - 1 } else { 7 }];
            let at = 16 * group + width;
            codes.bits[at] = (masks.len() + 1).trailing_zeros() as u8;
            let mut code = 0;
            while code < masks.len() {
                codes.masks[at][code] = masks[code];
                code += 1;
            }
            width += 1;
        }
        group += 1;
    }
    codes
}

/// Bit k: the coefficient at zigzag position k is one of the 4 x 4 of the lowest frequencies.
const LOW: u64 = {
    let (mut all, mut k) = (0, 0);
    while k < 64 {
        all |= (is_low(position(k / GROUPS, k % GROUPS)) as u64) << k;
        k += 1;
    }
    all
};

/// Zigzag positions in use of a block whose coefficients at the positions in `present` are not zero: 10 stands for the
/// 4 x 4 coefficients of the lowest frequencies.
#[inline]
fn positions_in_use(present: u64) -> u8 {
    if present == 0 {
        1
    } else if present & !LOW == 0 {
        10
    } else {
        64
    }
}

/// Whether a coefficient is one of the 4 x 4 of the lowest frequencies, by its natural position.
const fn is_low(position: usize) -> bool {
    position % 8 < 4 && position < 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_of_masks_fills_a_code_but_its_last() {
        for masks in MASKS.iter().flatten().flatten() {
            assert!((masks.len() + 1).is_power_of_two() && masks.len() < 64);
        }
    }

    /// Blocks as photographs have them, and worse ones.
    fn blocks(seed: u32, count: usize, spread: i32, present: u32) -> Vec<[i16; 64]> {
        let mut state = seed.wrapping_mul(2_654_435_761);
        let mut random = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 8
        };
        let mut blocks = vec![[0; 64]; count];
        for block in &mut blocks {
            let last = random() % 64;
            for (i, value) in block.iter_mut().enumerate().skip(1) {
                let frequency = (i / 8 + i % 8) as u32;
                if frequency * 4 <= last && random() % 100 < present {
                    let spread = (spread >> (frequency / 2)).max(1);
                    let size = (random() % spread as u32) as i32 + 1;
                    *value = if random() % 2 == 0 { size } else { -size } as i16;
                }
            }
        }
        blocks
    }

    #[test]
    fn segments_come_back_at_every_level() {
        let mut window = Window::new();
        let mut scratch = Scratch::new();
        for seed in 0..6000 {
            let count = [64, 63, 33, 17, 16, 1, 8, 61][seed as usize % 8];
            let spread = [1, 4, 30, 64, 129, 200, 1023, 8192][seed as usize / 8 % 8];
            let blocks = blocks(seed, count, spread, seed * 7 % 101);
            for kind in 0..2 {
                let mut bytes = Vec::new();
                assert!(write_segment(kind, &blocks, &mut bytes));
                assert!(bytes.len() <= Window::MOST);
                window.fill(&bytes);
                let mut all_used: Vec<Vec<u8>> = Vec::new();
                for &level in Available::all() {
                    let (mut back, mut used) = (vec![[7; 64]; count], vec![0; count]);
                    let read = read_segment(level, &window, kind, &(0..count), &mut back, &mut used, &mut scratch);
                    assert!(read, "{} {seed}", level.level().name());
                    assert!(back == blocks, "{} {seed}", level.level().name());
                    for (block, used) in blocks.iter().zip(&used) {
                        let in_use = |wanted: bool| (1..64).any(|i| is_low(i) == wanted && block[i] != 0);
                        assert_eq!(
                            *used,
                            [[1, 10], [64, 64]][usize::from(in_use(false))][usize::from(in_use(true))]
                        );
                    }
                    let needed = seed as usize % 3 * count / 4..count - seed as usize % 2 * count / 4;
                    let (mut part, mut used_part) = (vec![[7; 64]; count], vec![0; count]);
                    assert!(read_segment(
                        level,
                        &window,
                        kind,
                        &needed,
                        &mut part,
                        &mut used_part,
                        &mut scratch
                    ));
                    assert!(
                        part[needed.clone()] == blocks[needed.clone()],
                        "{} {seed}",
                        level.level().name()
                    );
                    assert_eq!(used_part[needed.clone()], used[needed]);
                    all_used.push(used);
                }
                assert!(all_used.iter().all(|used| *used == all_used[0]));
            }
        }
    }

    #[test]
    fn any_bytes_end_without_a_panic() {
        let mut window = Window::new();
        let mut scratch = Scratch::new();
        let mut state = 1u64;
        for _ in 0..3000 {
            let bytes: Vec<u8> = (0..600)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 56) as u8
                })
                .collect();
            window.fill(&bytes);
            for &level in Available::all() {
                let (mut back, mut used) = ([[0; 64]; 64], [0; 64]);
                read_segment(level, &window, 0, &(3..60), &mut back, &mut used, &mut scratch);
            }
        }
    }
}
