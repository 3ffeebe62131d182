//! Entropy decoding of refining scans: one more bit of the coefficients that are not zero, and new coefficients.
//!
//! Every block has a word with a bit for each of its coefficients that is not zero. A refining scan sends a bit for
//! each of these and counts its runs in the others: both are found by counting bits of the word. A block without
//! anything to refine costs one load of the word.

use super::bit_reader::BitReader;
use super::huffman::BandTable;
use super::lookup_entry::END_OF_BLOCK;
use super::progressive::{PAST_RUNS, SpectralBand};
use crate::jpeg::format::markers::ZIGZAG;
use crate::simd::{Available, dispatch};

/// Refines a band of consecutive blocks. The arguments are those of [`super::progressive::decode_band`].
pub(crate) fn refine_band(
    level: Available,
    bits: &mut BitReader<&[u8]>,
    table: &BandTable,
    band: &SpectralBand,
    run: &mut u32,
    blocks: (&mut [[i16; 64]], &mut [u64]),
) -> bool {
    dispatch!(level, [Avx2], refine_band(bits, table, band, run, blocks))
}

mod scalar {
    use super::{BandTable, BitReader, SpectralBand, deposit, refine_by};

    pub(super) fn refine_band(
        bits: &mut BitReader<&[u8]>,
        table: &BandTable,
        band: &SpectralBand,
        run: &mut u32,
        blocks: (&mut [[i16; 64]], &mut [u64]),
    ) -> bool {
        refine_by(deposit, bits, table, band, run, blocks)
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use core::arch::x86_64::_pdep_u64;

    use super::{BandTable, BitReader, SpectralBand, deposit, refine_by};
    use crate::simd::has_fast_pdep;

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,movbe")]
    pub(super) fn refine_band(
        bits: &mut BitReader<&[u8]>,
        table: &BandTable,
        band: &SpectralBand,
        run: &mut u32,
        blocks: (&mut [[i16; 64]], &mut [u64]),
    ) -> bool {
        if has_fast_pdep() {
            refine_with_pdep(bits, table, band, run, blocks)
        } else {
            refine_without_pdep(bits, table, band, run, blocks)
        }
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,movbe")]
    fn refine_with_pdep(
        bits: &mut BitReader<&[u8]>,
        table: &BandTable,
        band: &SpectralBand,
        run: &mut u32,
        blocks: (&mut [[i16; 64]], &mut [u64]),
    ) -> bool {
        refine_by(|number, mask| _pdep_u64(number, mask), bits, table, band, run, blocks)
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,movbe")]
    fn refine_without_pdep(
        bits: &mut BitReader<&[u8]>,
        table: &BandTable,
        band: &SpectralBand,
        run: &mut u32,
        blocks: (&mut [[i16; 64]], &mut [u64]),
    ) -> bool {
        refine_by(deposit, bits, table, band, run, blocks)
    }
}

/// `deposit`: moves the low bits of a number to the set bits of a mask.
#[inline(always)]
fn refine_by(
    deposit: impl Fn(u64, u64) -> u64,
    bits: &mut BitReader<&[u8]>,
    table: &BandTable,
    band: &SpectralBand,
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
            *nonzero |= new.positions;
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

/// The symbols of a block in a refining scan.
struct NewCoefficients {
    /// A bit for each position that becomes nonzero.
    positions: u64,
    /// Bits for the coefficients that were not zero before, in order, up to the first of `rest`.
    corrections: u64,
    /// A bit for each position after the last symbol.
    rest: u64,
    /// The number of blocks in the run that begins with this block.
    run: u32,
}

/// Decodes the symbols of a block in a refining scan. Of the positions in `mask`, those in `before` are not zero. None:
/// the data are corrupt.
#[inline(always)]
fn new_coefficients(
    deposit: impl Fn(u64, u64) -> u64,
    bits: &mut BitReader<&[u8]>,
    (table, shift): (&BandTable, u8),
    (before, mask): (u64, u64),
    block: &mut [i16; 64],
) -> Option<NewCoefficients> {
    let mut at = *bits;
    let mut refined = NewCoefficients {
        positions: 0,
        corrections: 0,
        rest: mask,
        run: 0,
    };
    while refined.rest != 0 {
        at.refill();
        let (total, entry) = table.look_up(at.bits());
        let value = at.value(total, entry);
        at.take(total);
        if (END_OF_BLOCK..PAST_RUNS).contains(&entry.advance) {
            refined.run = at.run_length(entry.advance);
            break;
        }
        if entry.advance > 16 || !(-1..=1).contains(&value) {
            return None;
        }
        // The position where the run of zeros ends.
        let target = deposit(1 << (entry.advance - 1), refined.rest & !before);
        if target == 0 {
            return None;
        }
        let passed = target | (target - 1);
        refined.corrections = at.append(refined.corrections, refined.rest & passed & before);
        refined.rest &= !passed;
        if value != 0 {
            block[usize::from(ZIGZAG[target.trailing_zeros() as usize & 63] & 63)] = value << shift;
            refined.positions |= target;
        }
    }
    *bits = at;
    Some(refined)
}

/// Moves the coefficients at the zigzag positions in `which` one step away from zero.
#[inline(always)]
fn correct(block: &mut [i16; 64], mut which: u64, shift: u8) {
    while which != 0 {
        let coefficient = &mut block[usize::from(ZIGZAG[which.trailing_zeros() as usize & 63] & 63)];
        *coefficient = coefficient.wrapping_add((*coefficient >> 15 | 1) << shift);
        which &= which - 1;
    }
}

/// The specification of the instruction `pdep`. It takes one step for each bit of the number; numbers are short here. The
/// zeros before its first set bit take few instructions: they are all of a number that looks for one position.
#[inline(always)]
fn deposit(number: u64, mut mask: u64) -> u64 {
    let zeros = number.trailing_zeros();
    for _ in 0..zeros {
        mask &= mask.wrapping_sub(1);
    }
    let (mut left, mut deposited) = (number.unbounded_shr(zeros), 0);
    while left != 0 {
        let lowest = mask & mask.wrapping_neg();
        deposited |= lowest & (left & 1).wrapping_neg();
        mask ^= lowest;
        left >>= 1;
    }
    deposited
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use core::arch::x86_64::_pdep_u64;

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
            // SAFETY: the feature was detected above.
            let expected = unsafe { _pdep_u64(number, mask) };
            assert_eq!(deposit(number, mask), expected, "{number:x} {mask:x}");
        }
    }
}
