//! Entropy decoding of progressive scans: from unstuffed bytes into blocks that earlier scans have begun. The format is
//! that of ITU-T T.81, annex G. Knows nothing of markers, rows or MCUs; portable and safe.
//!
//! Beside its coefficients every block has a word that tells which of them are not zero. A refining scan, which has a
//! bit for each of those and counts its runs in the others, finds both by counting bits of that word; blocks with
//! nothing to refine cost a load of it.

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::_pdep_u64;

use crate::jpeg::entropy::bit_reader::Bits;
use crate::jpeg::entropy::huffman::{DC, DcTable, END_OF_BLOCK, Entry, RunTable};
use crate::jpeg::format::markers::ZIGZAG;
use crate::simd::{self, Level};

/// One past the symbols that end a run of blocks: lengths of 1 to 2^15 - 1 take up to 14 more bits.
const PAST_RUNS: u8 = END_OF_BLOCK + 15;

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
    entry.advance == DC
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
    table: &RunTable,
    band: &Band,
    run: &mut u32,
    blocks: (&mut [[i16; 64]], &mut [u64]),
) -> bool {
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is only ever one that the processor has.
        Level::Avx2 | Level::Avx512 => unsafe { decode_bmi2(bits, table, band, run, blocks) },
        _ => decode_portable(bits, table, band, run, blocks),
    }
}

/// Refines a band likewise.
pub(crate) fn refine(
    level: Level,
    bits: &mut Bits<'_>,
    table: &RunTable,
    band: &Band,
    run: &mut u32,
    blocks: (&mut [[i16; 64]], &mut [u64]),
) -> bool {
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is only ever one that the processor has.
        Level::Avx2 | Level::Avx512 if simd::deposits_fast() => unsafe { refine_pdep(bits, table, band, run, blocks) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx2 | Level::Avx512 => unsafe { refine_bmi2(bits, table, band, run, blocks) },
        _ => refine_by(deposit, bits, table, band, run, blocks),
    }
}

/// The portable code, compiled with the variable shifts and bit counts of BMI.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,movbe")]
fn decode_bmi2(
    bits: &mut Bits<'_>,
    table: &RunTable,
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
    table: &RunTable,
    band: &Band,
    run: &mut u32,
    blocks: (&mut [[i16; 64]], &mut [u64]),
) -> bool {
    refine_by(deposit, bits, table, band, run, blocks)
}

/// The same with the instruction for what the portable code does in a loop.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,movbe")]
fn refine_pdep(
    bits: &mut Bits<'_>,
    table: &RunTable,
    band: &Band,
    run: &mut u32,
    blocks: (&mut [[i16; 64]], &mut [u64]),
) -> bool {
    refine_by(|number, mask| _pdep_u64(number, mask), bits, table, band, run, blocks)
}

#[inline(always)]
fn decode_portable(
    bits: &mut Bits<'_>,
    table: &RunTable,
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
    table: &RunTable,
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
fn end_block(bits: &mut Bits<'_>, table: &RunTable, entry: &Entry, first: usize, second: usize) -> Option<u32> {
    if first == 64 {
        // the block is full: a second symbol belongs to the next one
        bits.take(table.first_total(bits.bits, entry));
        return Some(0);
    }
    let last = if first < 64 { entry.advance2 } else { entry.advance };
    bits.take(entry.total.into());
    match last {
        END_OF_BLOCK..PAST_RUNS => Some(bits.run(last) - 1),
        _ if second == 64 => Some(0),
        _ => None,
    }
}

/// `deposit`: the low bits of a number, at the places of a mask's bits.
#[inline(always)]
fn refine_by(
    deposit: impl Fn(u64, u64) -> u64,
    bits: &mut Bits<'_>,
    table: &RunTable,
    band: &Band,
    run: &mut u32,
    (blocks, nonzero): (&mut [[i16; 64]], &mut [u64]),
) -> bool {
    let mask = band.mask();
    let (mut at, mut left) = (*bits, *run);
    for (block, nonzero) in blocks.iter_mut().zip(nonzero) {
        let before = *nonzero & mask;
        let (mut corrections, mut rest) = (0, mask);
        if left == 0 {
            let Some(new) = new_coefficients(&deposit, &mut at, (table, band.shift), (before, mask), block) else {
                return false;
            };
            *nonzero |= new.places;
            (corrections, rest, left) = (new.corrections, new.rest, new.run);
        }
        if left > 0 {
            at.refill();
            corrections = at.append(corrections, rest & before);
            left -= 1;
        }
        if corrections != 0 {
            let in_order = corrections.reverse_bits() >> (64 - before.count_ones());
            correct(block, deposit(in_order, before), band.shift);
        }
    }
    (*bits, *run) = (at, left);
    true
}

/// What a block's symbols told in a refining scan.
struct Refined {
    /// Positions that are not zero any more.
    places: u64,
    /// Bits for the coefficients that were not zero before, in order, up to the first of `rest`.
    corrections: u64,
    /// Positions that the symbols did not reach.
    rest: u64,
    /// Blocks of the run that begins with this one.
    run: u32,
}

/// Symbols of a block in a refining scan, where of the positions `mask` those of `before` are not zero; None: invalid.
#[inline(always)]
fn new_coefficients(
    deposit: impl Fn(u64, u64) -> u64,
    bits: &mut Bits<'_>,
    (table, shift): (&RunTable, u8),
    (before, mask): (u64, u64),
    block: &mut [i16; 64],
) -> Option<Refined> {
    let mut at = *bits;
    let mut refined = Refined {
        places: 0,
        corrections: 0,
        rest: mask,
        run: 0,
    };
    while refined.rest != 0 {
        at.refill();
        let (total, entry) = table.look(at.bits);
        let value = at.value(total, entry);
        at.take(total);
        if (END_OF_BLOCK..PAST_RUNS).contains(&entry.advance) {
            refined.run = at.run(entry.advance);
            break;
        }
        if entry.advance > 16 || !(-1..=1).contains(&value) {
            return None;
        }
        // where the run of zeros ends
        let target = deposit(1 << (entry.advance - 1), refined.rest & !before);
        if target == 0 {
            return None;
        }
        let passed = target | (target - 1);
        refined.corrections = at.append(refined.corrections, refined.rest & passed & before);
        refined.rest &= !passed;
        if value != 0 {
            block[usize::from(ZIGZAG[target.trailing_zeros() as usize & 63] & 63)] = value << shift;
            refined.places |= target;
        }
    }
    *bits = at;
    Some(refined)
}

/// Takes the coefficients at the zigzag positions `which` a step away from zero.
#[inline(always)]
fn correct(block: &mut [i16; 64], mut which: u64, shift: u8) {
    while which != 0 {
        let coefficient = &mut block[usize::from(ZIGZAG[which.trailing_zeros() as usize & 63] & 63)];
        *coefficient = coefficient.wrapping_add((*coefficient >> 15 | 1) << shift);
        which &= which - 1;
    }
}

/// The specification of `pdep`, the instruction. Takes as long as the number has bits, which are few here.
#[inline(always)]
fn deposit(mut number: u64, mut mask: u64) -> u64 {
    let mut deposited = 0;
    while number != 0 && mask != 0 {
        if number & 1 != 0 {
            deposited |= mask & mask.wrapping_neg();
        }
        mask &= mask - 1;
        number >>= 1;
    }
    deposited
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn deposits_are_those_of_the_instruction() {
        if !is_x86_feature_detected!("bmi2") {
            return;
        }
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state ^ state >> 29
        };
        for round in 0..100_000 {
            let (number, mask) = (next() >> (round % 64), next() & next() >> (round % 37));
            // SAFETY: looked up above.
            let expected = unsafe { _pdep_u64(number, mask) };
            assert_eq!(deposit(number, mask), expected, "{number:x} {mask:x}");
        }
    }
}
