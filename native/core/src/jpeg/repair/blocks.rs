//! The blocks of a damaged scan: what libjpeg makes of their bits, valid or not.

use super::bits::{DamagedBits, SymbolTable};
use crate::jpeg::format::markers::ZIGZAG;

/// The position that a zigzag position means. Damaged runs end up to 15 positions behind a block, in its last one.
fn natural(k: usize) -> usize {
    ZIGZAG.get(k).map_or(63, |&position| usize::from(position))
}

/// A block of a sequential scan: all coefficients. Returns the DC coefficient, which is the next predictor.
pub(crate) fn read_all(
    bits: &mut DamagedBits<'_>,
    (dc, ac): (&SymbolTable<'_>, &SymbolTable<'_>),
    predictor: i32,
    block: &mut [i16; 64],
) -> i32 {
    let predictor = read_dc(bits, dc, predictor, 0, block);
    let mut k = 1;
    while k < 64 {
        let symbol = bits.symbol(ac);
        let (run, size) = (usize::from(symbol >> 4), symbol & 15);
        if size == 0 {
            if run != 15 {
                break;
            }
            k += 16;
            continue;
        }
        k += run;
        block[natural(k)] = bits.value(size) as i16;
        k += 1;
    }
    predictor
}

/// The DC coefficient without its lowest `shift` bits. Returns the next predictor.
pub(crate) fn read_dc(
    bits: &mut DamagedBits<'_>,
    table: &SymbolTable<'_>,
    predictor: i32,
    shift: u8,
    block: &mut [i16; 64],
) -> i32 {
    let size = bits.symbol(table);
    let value = predictor.wrapping_add(bits.value(size));
    block[0] = (value << shift) as i16;
    value
}

/// One more bit of the DC coefficient.
pub(crate) fn refine_dc(bits: &mut DamagedBits<'_>, shift: u8, block: &mut [i16; 64]) {
    if bits.get(1) != 0 {
        block[0] |= 1 << shift;
    }
}

/// The band of a scan of one component.
#[derive(Clone, Copy)]
pub(crate) struct Band {
    pub first: usize,
    pub last: usize,
    pub shift: u8,
}

/// The number of blocks in a run that ends the band, this block included.
fn read_run(bits: &mut DamagedBits<'_>, run: usize) -> u32 {
    (1 << run) + bits.get(run as u32) as u32
}

/// The coefficients of a band without their lowest bits. `run`: blocks without coefficients that are still to come.
pub(crate) fn read_band(
    bits: &mut DamagedBits<'_>,
    table: &SymbolTable<'_>,
    band: Band,
    run: &mut u32,
    block: &mut [i16; 64],
) {
    if *run > 0 {
        *run -= 1;
        return;
    }
    let mut k = band.first;
    while k <= band.last {
        let symbol = bits.symbol(table);
        let (zeros, size) = (usize::from(symbol >> 4), symbol & 15);
        if size == 0 {
            if zeros != 15 {
                *run = read_run(bits, zeros) - 1;
                break;
            }
            k += 16;
            continue;
        }
        k += zeros;
        block[natural(k)] = (bits.value(size) << band.shift) as i16;
        k += 1;
    }
}

/// One more bit of the coefficients of a band that are not zero, and new coefficients.
pub(crate) fn refine_band(
    bits: &mut DamagedBits<'_>,
    table: &SymbolTable<'_>,
    band: Band,
    run: &mut u32,
    block: &mut [i16; 64],
) {
    let mut k = band.first;
    if *run == 0 {
        while k <= band.last {
            let symbol = bits.symbol(table);
            let (mut zeros, size) = (i32::from(symbol >> 4), symbol & 15);
            if size == 0 && zeros != 15 {
                *run = read_run(bits, zeros as usize);
                break;
            }
            let new = match size {
                0 => 0,
                _ if bits.get(1) != 0 => 1i16 << band.shift,
                _ => -1i16 << band.shift,
            };
            // Past the coefficients that are not zero, and as many zeros as the symbol says.
            loop {
                let coefficient = &mut block[natural(k)];
                if *coefficient != 0 {
                    correct(bits, band.shift, coefficient);
                } else {
                    zeros -= 1;
                    if zeros < 0 {
                        break;
                    }
                }
                k += 1;
                if k > band.last {
                    break;
                }
            }
            if new != 0 {
                block[natural(k)] = new;
            }
            k += 1;
        }
    }
    if *run > 0 {
        for k in k..=band.last {
            let coefficient = &mut block[natural(k)];
            if *coefficient != 0 {
                correct(bits, band.shift, coefficient);
            }
        }
        *run -= 1;
    }
}

/// Moves a coefficient one step away from zero if the next bit says so, unless it has this bit already.
fn correct(bits: &mut DamagedBits<'_>, shift: u8, coefficient: &mut i16) {
    let step = 1i16 << shift;
    if bits.get(1) != 0 && *coefficient & step == 0 {
        *coefficient = coefficient.wrapping_add(if *coefficient >= 0 { step } else { -step });
    }
}
