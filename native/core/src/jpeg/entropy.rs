//! Entropy decoding of unstuffed bytes: a run of whole MCUs, from a bit position and DC predictors, into coefficients
//! (or past them). Knows nothing of markers, rows or regions; portable and safe.

use super::huffman::{self, Entry, Table, Tables};
use super::markers::ZIGZAG;
use super::header::Header;
use crate::simd::Level;

/// Zero bytes that must follow the data.
pub(crate) const PADDING: usize = 32;
/// i16s that must follow the last block of a coefficient buffer: blocks are written through a window of 256, so that an
/// 8-bit index needs no bounds check.
pub(crate) const SLACK: usize = 192;
/// No block takes more bytes: a DC symbol of 27 bits and 63 AC symbols of 26.
pub(crate) const MAX_BLOCK_BYTES: usize = (27 + 63 * 26usize).div_ceil(8) + 8;

/// Natural position by zigzag position plus one (the position *after* the coefficient is at hand when it is stored).
/// Past 64 (end of block, invalid symbols) 63, where nothing is stored but the 0 that a valid block has there then.
static NATURAL_BEFORE: [u8; 256] = {
    let mut table = [63u8; 256];
    let mut k = 0;
    while k < 64 {
        table[k + 1] = ZIGZAG[k];
        k += 1;
    }
    table
};

/// Tables and component of each block of an MCU.
pub(crate) struct Layout<'t> {
    slots: Vec<Slot<'t>>,
}

#[derive(Clone, Copy)]
struct Slot<'t> {
    dc: &'t Table,
    ac: &'t Table,
    component: usize,
}

impl<'t> Layout<'t> {
    pub fn new(header: &Header<'_>, tables: &'t Tables) -> Self {
        let mut slots = Vec::with_capacity(header.blocks_per_mcu);
        for (component, c) in header.components().iter().enumerate() {
            let slot = Slot { dc: tables.dc(c.dc), ac: tables.ac(c.ac), component };
            slots.extend(core::iter::repeat_n(slot, c.h * c.v));
        }
        Layout { slots }
    }

    pub fn blocks_per_mcu(&self) -> usize {
        self.slots.len()
    }
}

/// Where entropy decoding stands: a position in the data, and what it has to remember.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cursor {
    /// Next byte to be loaded.
    at: usize,
    /// Loaded bits, left-aligned; the first `count` are known.
    bits: u64,
    count: u32,
    /// DC predictor of each component.
    pub predictors: [i32; 3],
}

impl Cursor {
    /// Position of the next bit.
    pub fn position(&self) -> isize {
        8 * self.at as isize - self.count as isize
    }

    /// Bytes at the front of the data that are not needed any more.
    pub fn spent(&self) -> usize {
        self.at
    }

    /// Tells that `bytes` were dropped from the front of the data.
    pub fn rebase(&mut self, bytes: usize) {
        self.at -= bytes;
    }

    #[inline(always)]
    fn refill(&mut self, data: &[u8]) {
        let next = match data.get(self.at..).and_then(|rest| rest.first_chunk()) {
            Some(bytes) => u64::from_be_bytes(*bytes),
            None => 0, // past the end: only a corrupt stream gets here
        };
        self.bits |= next >> self.count;
        self.at += ((63 - self.count) >> 3) as usize;
        self.count |= 56;
    }

    #[inline(always)]
    fn take(&mut self, bits: u8) {
        self.bits <<= bits & 63;
        self.count -= u32::from(bits);
    }

    /// The first symbol's value.
    #[inline(always)]
    fn value(&self, entry: &Entry) -> i16 {
        let extra = self.bits.rotate_left(u32::from(entry.total)) & ((1u64 << (entry.extra & 63)) - 1);
        entry.base.wrapping_add(extra as i16)
    }
}

/// Decodes `used.len()` blocks (whole MCUs) from `data`, which holds all bits they can take and [`PADDING`].
/// `coefficients` gets 64 each, in natural order, and is [`SLACK`] longer; `used` the number of zigzag positions in use.
/// False: the data are corrupt.
#[must_use]
pub(crate) fn decode_blocks(
    level: Level,
    data: &[u8],
    layout: &Layout<'_>,
    cursor: &mut Cursor,
    coefficients: &mut [i16],
    used: &mut [u8],
) -> bool {
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is only ever one that the processor has.
        Level::Avx2 => unsafe { decode_blocks_bmi2(data, layout, cursor, coefficients, used) },
        _ => decode_blocks_portable(data, layout, cursor, coefficients, used),
    }
}

/// Passes over `count` blocks (whole MCUs): only the predictors change.
#[must_use]
pub(crate) fn skip_blocks(
    level: Level,
    data: &[u8],
    layout: &Layout<'_>,
    cursor: &mut Cursor,
    count: usize,
) -> bool {
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is only ever one that the processor has.
        Level::Avx2 => unsafe { skip_blocks_bmi2(data, layout, cursor, count) },
        _ => skip_blocks_portable(data, layout, cursor, count),
    }
}

/// The portable code, compiled with the variable shifts of BMI2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,movbe")]
fn decode_blocks_bmi2(
    data: &[u8],
    layout: &Layout<'_>,
    cursor: &mut Cursor,
    coefficients: &mut [i16],
    used: &mut [u8],
) -> bool {
    decode_blocks_portable(data, layout, cursor, coefficients, used)
}

/// The portable code, compiled with the variable shifts of BMI2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,movbe")]
fn skip_blocks_bmi2(data: &[u8], layout: &Layout<'_>, cursor: &mut Cursor, count: usize) -> bool {
    skip_blocks_portable(data, layout, cursor, count)
}

/// Zigzag position after a block: 64 (full) or 129 to 191 (ended by a symbol); all else is corrupt.
#[inline(always)]
fn ends_well(k: u8) -> bool {
    k == 64 || (129..192).contains(&k)
}

/// Consumes the symbols that `entry` holds; true: they end the block.
#[inline(always)]
fn advance(cursor: &mut Cursor, entry: &Entry, k: &mut u8) -> bool {
    let first = k.wrapping_add(entry.advance);
    *k = first.wrapping_add(entry.advance2);
    if *k < 64 {
        cursor.take(entry.total);
        return false;
    }
    if first & 0xc0 == 0x40 {
        // the first symbol filled the block: the second belongs to the next one
        cursor.take(entry.total - entry.back);
        *k = first;
    } else {
        cursor.take(entry.total);
    }
    true
}

/// The first DC symbol; false: invalid.
#[inline(always)]
fn dc_symbol(cursor: &mut Cursor, slot: &Slot<'_>) -> bool {
    let entry = slot.dc.look(cursor.bits);
    cursor.predictors[slot.component] = cursor.predictors[slot.component].wrapping_add(cursor.value(entry) as i32);
    cursor.take(entry.total);
    entry.advance == huffman::DC
}

#[inline(always)]
fn decode_blocks_portable(
    data: &[u8],
    layout: &Layout<'_>,
    cursor: &mut Cursor,
    coefficients: &mut [i16],
    used: &mut [u8],
) -> bool {
    let mut at = *cursor;
    let mut good = true;
    let slots = &layout.slots[..];
    let mut start = 0;
    for mcu in used.chunks_exact_mut(slots.len()) {
        for (slot, used) in slots.iter().zip(mcu) {
            let Some(block) = coefficients.get_mut(start..).and_then(|c| c.first_chunk_mut::<256>()) else {
                return false;
            };
            start += 64;
            block[..64].fill(0);
            at.refill(data);
            good &= dc_symbol(&mut at, slot);
            block[0] = at.predictors[slot.component] as i16;
            let mut k = 1u8;
            macro_rules! symbols {
                () => {{
                    let entry = slot.ac.look(at.bits);
                    let first = k.wrapping_add(entry.advance);
                    let second = first.wrapping_add(entry.advance2);
                    let value = at.value(entry);
                    block[NATURAL_BEFORE[second as usize] as usize] = i16::from(entry.base2);
                    // stored last: it wins where there is no second symbol
                    block[NATURAL_BEFORE[first as usize] as usize] = value;
                    if advance(&mut at, entry, &mut k) {
                        break;
                    }
                }};
            }
            // 56 bits are enough for DC (27) and one lookup (26), or for two lookups
            loop {
                symbols!();
                at.refill(data);
                symbols!();
                symbols!();
                at.refill(data);
                symbols!();
            }
            good &= ends_well(k);
            *used = if k >= 128 { k & 127 } else { 64 };
        }
    }
    *cursor = at;
    good
}

#[inline(always)]
fn skip_blocks_portable(data: &[u8], layout: &Layout<'_>, cursor: &mut Cursor, count: usize) -> bool {
    let mut at = *cursor;
    let mut good = true;
    for _ in 0..count / layout.slots.len() {
        for slot in &layout.slots {
            at.refill(data);
            good &= dc_symbol(&mut at, slot);
            let mut k = 1u8;
            macro_rules! symbols {
                () => {
                    let entry = slot.ac.look(at.bits);
                    if advance(&mut at, entry, &mut k) {
                        break;
                    }
                };
            }
            loop {
                symbols!();
                at.refill(data);
                symbols!();
                symbols!();
                at.refill(data);
                symbols!();
            }
            good &= ends_well(k);
        }
    }
    *cursor = at;
    good
}
