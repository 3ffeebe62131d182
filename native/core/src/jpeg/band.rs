//! Entropy decoding of progressive scans: from unstuffed bytes into blocks that earlier scans have begun. The format is
//! that of ITU-T T.81, annex G. Knows nothing of markers, rows or MCUs; portable and safe.
//!
//! Beside its coefficients every block has a word that tells which of them are not zero. A refining scan, which has a
//! bit for each of those and counts its runs in the others, finds both by counting bits of that word; blocks with
//! nothing to refine cost a load of it.

use super::huffman::{AcTable, DcTable, END_OF_BLOCK, Entry};
use super::markers::ZIGZAG;
use crate::simd::Level;

/// Zeros that must follow the bytes of an interval.
pub(crate) const PADDING: usize = 8;

/// One past the symbols that end a run of blocks: lengths of 1 to 2^15 - 1 take up to 14 more bits.
const PAST_RUNS: u8 = END_OF_BLOCK + 15;

/// A position in the unstuffed bytes of a restart interval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bits<'a> {
    bytes: &'a [u8],
    /// Next byte to be loaded.
    at: usize,
    /// Loaded bits, left-aligned.
    bits: u64,
    /// How many of them are known, in its low 6 bits; the others are not to be relied upon.
    count: u64,
}

impl<'a> Bits<'a> {
    /// `bytes` end with [`PADDING`]. What is read past them is zeros.
    pub fn new(bytes: &'a [u8]) -> Self {
        Bits {
            bytes,
            at: 0,
            bits: 0,
            count: 0,
        }
    }

    /// Bits not read; negative: bits that were read but are not there.
    pub fn left(&self) -> isize {
        8 * (self.bytes.len() - PADDING) as isize - (8 * self.at as isize - (self.count & 63) as isize)
    }

    /// Makes at least 56 bits known.
    #[inline(always)]
    fn refill(&mut self) {
        let next = match self.bytes.get(self.at..).and_then(<[u8]>::first_chunk) {
            Some(bytes) => u64::from_be_bytes(*bytes),
            None => 0,
        };
        self.bits |= next >> (self.count & 63);
        self.at += (!self.count >> 3 & 7) as usize;
        self.count |= 56;
    }

    #[inline(always)]
    fn take(&mut self, bits: u8) {
        self.bits <<= bits & 63;
        self.count = self.count.wrapping_sub(u64::from(bits));
    }

    /// The next `count` bits, at most 16.
    #[inline(always)]
    fn get(&mut self, count: u8) -> u32 {
        let value = (self.bits.rotate_left(u32::from(count)) & ((1 << count) - 1)) as u32;
        self.take(count);
        value
    }

    /// The value of the symbol whose last bit is bit `total`.
    #[inline(always)]
    fn value(&self, total: u8, entry: &Entry) -> i16 {
        entry
            .base
            .wrapping_add((self.bits.rotate_left(u32::from(total)) as u16 & entry.mask) as i16)
    }

    /// The length of a run of blocks, in blocks, after its symbol.
    #[inline(always)]
    fn run(&mut self, advance: u8) -> u32 {
        let bits = advance - END_OF_BLOCK;
        (1 << bits) + self.get(bits)
    }
}

/// Zigzag positions of a scan and the lowest bit it sends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Band {
    first: u8,
    last: u8,
    shift: u8,
    /// Natural position by zigzag position, moved so that the band ends at 63, plus one.
    places: [u8; 128],
}

impl Band {
    pub fn new(first: u8, last: u8, shift: u8) -> Self {
        let mut places = [0; 128];
        let lift = 63 - usize::from(last);
        for k in usize::from(first)..=usize::from(last) {
            places[k + lift + 1] = ZIGZAG[k];
        }
        Band {
            first,
            last,
            shift,
            places,
        }
    }

    /// Its positions as bits.
    fn mask(&self) -> u64 {
        u64::MAX << self.first & u64::MAX >> (63 - self.last)
    }
}

/// A DC coefficient without its lowest bits; false: invalid.
#[inline(always)]
pub(crate) fn dc(
    bits: &mut Bits<'_>,
    table: &DcTable,
    predictor: &mut i32,
    shift: u8,
    (block, nonzero): (&mut [i16; 64], &mut u64),
) -> bool {
    bits.refill();
    let (total, entry) = table.look(bits.bits);
    *predictor = predictor.wrapping_add(i32::from(bits.value(total, entry)));
    bits.take(total);
    block[0] = (*predictor as i16).wrapping_shl(u32::from(shift));
    *nonzero |= 1;
    entry.advance == super::huffman::DC
}

/// One more bit of a DC coefficient.
#[inline(always)]
pub(crate) fn dc_bit(bits: &mut Bits<'_>, shift: u8, block: &mut [i16; 64]) {
    bits.refill();
    block[0] |= (bits.get(1) as i16) << shift;
}

/// Decodes a band of blocks that stand in a row. `run`: how many blocks the current run still covers. False: the data
/// are corrupt.
pub(crate) fn decode(
    level: Level,
    bits: &mut Bits<'_>,
    table: &AcTable,
    band: &Band,
    run: &mut u32,
    blocks: (&mut [[i16; 64]], &mut [u64]),
) -> bool {
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is only ever one that the processor has.
        Level::Avx2 => unsafe { decode_bmi2(bits, table, band, run, blocks) },
        _ => decode_portable(bits, table, band, run, blocks),
    }
}

/// Refines a band likewise.
pub(crate) fn refine(
    level: Level,
    bits: &mut Bits<'_>,
    table: &AcTable,
    band: &Band,
    run: &mut u32,
    blocks: (&mut [[i16; 64]], &mut [u64]),
) -> bool {
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is only ever one that the processor has.
        Level::Avx2 => unsafe { refine_bmi2(bits, table, band, run, blocks) },
        _ => refine_portable(bits, table, band, run, blocks),
    }
}

/// The portable code, compiled with the variable shifts and bit counts of BMI.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,movbe")]
fn decode_bmi2(
    bits: &mut Bits<'_>,
    table: &AcTable,
    band: &Band,
    run: &mut u32,
    blocks: (&mut [[i16; 64]], &mut [u64]),
) -> bool {
    decode_portable(bits, table, band, run, blocks)
}

/// The portable code, compiled with the variable shifts and bit counts of BMI.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,movbe")]
fn refine_bmi2(
    bits: &mut Bits<'_>,
    table: &AcTable,
    band: &Band,
    run: &mut u32,
    blocks: (&mut [[i16; 64]], &mut [u64]),
) -> bool {
    refine_portable(bits, table, band, run, blocks)
}

#[inline(always)]
fn decode_portable(
    bits: &mut Bits<'_>,
    table: &AcTable,
    band: &Band,
    run: &mut u32,
    (blocks, nonzero): (&mut [[i16; 64]], &mut [u64]),
) -> bool {
    let lift = 63 - band.last;
    let mut at = *bits;
    let mut next = 0;
    while next < blocks.len() {
        if *run > 0 {
            let skipped = (*run as usize).min(blocks.len() - next);
            *run -= skipped as u32;
            next += skipped;
            continue;
        }
        let Some((found, more)) = decode_block(&mut at, table, band, usize::from(band.first + lift), &mut blocks[next])
        else {
            return false;
        };
        nonzero[next] |= found >> lift;
        *run = more;
        next += 1;
    }
    *bits = at;
    true
}

/// Symbols of a block, from position `k` of a band moved up to 63. Gives the positions (so moved) of what is not zero,
/// and how many blocks after this one are empty; None: invalid.
#[inline(always)]
fn decode_block(
    bits: &mut Bits<'_>,
    table: &AcTable,
    band: &Band,
    mut k: usize,
    block: &mut [i16; 64],
) -> Option<(u64, u32)> {
    let mut at = *bits;
    let mut found = 0u64;
    // `after`: the position after the coefficient, at most 64
    macro_rules! put {
        ($after:expr, $value:expr) => {
            let value = i16::wrapping_shl($value, u32::from(band.shift));
            block[usize::from(band.places[$after & 127] & 63)] = value;
            found |= u64::from(value != 0) << (($after - 1) & 63);
        };
    }
    macro_rules! symbols {
        () => {
            let (total, entry) = table.look(at.bits);
            let first = k + usize::from(entry.advance);
            let second = first + usize::from(entry.advance2);
            let value = at.value(total, entry);
            if second >= 64 {
                let end = end_block(&mut at, table, entry, first, second)?;
                if first <= 64 {
                    put!(first, value);
                }
                if first < 64 && second == 64 {
                    put!(second, i16::from(entry.base2));
                }
                *bits = at;
                return Some((found, end));
            }
            if entry.advance2 != 0 {
                put!(second, i16::from(entry.base2));
            }
            put!(first, value);
            k = second;
            at.take(total);
        };
    }
    // 56 bits are enough for two lookups of 26, or for one and a run's end of 30
    loop {
        at.refill();
        symbols!();
        symbols!();
    }
}

/// Consumes the last symbols of a block, found at `first` and `second`; gives how many empty blocks follow.
#[inline(always)]
fn end_block(bits: &mut Bits<'_>, table: &AcTable, entry: &Entry, first: usize, second: usize) -> Option<u32> {
    if first == 64 {
        // the block is full: a second symbol belongs to the next one
        bits.take(table.first_total(bits.bits, entry));
        return Some(0);
    }
    let last = if first < 64 { entry.advance2 } else { entry.advance };
    bits.take(entry.total);
    match last {
        END_OF_BLOCK..PAST_RUNS => Some(bits.run(last) - 1),
        _ if second == 64 => Some(0),
        _ => None,
    }
}

#[inline(always)]
fn refine_portable(
    bits: &mut Bits<'_>,
    table: &AcTable,
    band: &Band,
    run: &mut u32,
    (blocks, nonzero): (&mut [[i16; 64]], &mut [u64]),
) -> bool {
    let mask = band.mask();
    let mut at = *bits;
    for (block, nonzero) in blocks.iter_mut().zip(nonzero) {
        // positions that the scan has not passed yet
        let mut rest = mask;
        while *run == 0 && rest != 0 {
            at.refill();
            let (total, entry) = table.look(at.bits);
            let value = at.value(total, entry);
            at.take(total);
            if (END_OF_BLOCK..PAST_RUNS).contains(&entry.advance) {
                *run = at.run(entry.advance);
                break;
            }
            if entry.advance > 16 || !(-1..=1).contains(&value) {
                return false;
            }
            let mut zeros = rest & !*nonzero;
            for _ in 1..entry.advance {
                zeros &= zeros.wrapping_sub(1);
            }
            if zeros == 0 {
                return false;
            }
            let target = zeros & zeros.wrapping_neg();
            let passed = target | (target - 1);
            correct(&mut at, block, rest & passed & *nonzero, band.shift);
            if value != 0 {
                block[usize::from(ZIGZAG[target.trailing_zeros() as usize & 63] & 63)] = value << band.shift;
                *nonzero |= target;
            }
            rest &= !passed;
        }
        if *run > 0 {
            correct(&mut at, block, rest & *nonzero, band.shift);
            *run -= 1;
        }
    }
    *bits = at;
    true
}

/// One more bit of the coefficients at the zigzag positions `which`: away from zero where it is set.
#[inline(always)]
fn correct(bits: &mut Bits<'_>, block: &mut [i16; 64], mut which: u64, shift: u8) {
    while which != 0 {
        bits.refill();
        let count = which.count_ones().min(56) as u8;
        let mut ahead = bits.bits;
        for _ in 0..count {
            let place = ZIGZAG[which.trailing_zeros() as usize & 63] & 63;
            which &= which - 1;
            let coefficient = &mut block[usize::from(place)];
            let sign = *coefficient >> 15;
            let step = ((ahead >> 63) as i16) << shift;
            *coefficient = coefficient.wrapping_add((step ^ sign) - sign);
            ahead <<= 1;
        }
        bits.take(count);
    }
}
