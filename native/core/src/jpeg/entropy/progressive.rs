//! Entropy decoding of the first scans of a progressive file's DC coefficients and bands (ITU-T T.81, annex G).
//! Coefficients go to blocks that earlier scans may have filled in part.
//!
//! Every block has a word with a bit for each of its coefficients that is not zero; see [`super::refinement`].

use crate::jpeg::entropy::bit_reader::BitReader;
use crate::jpeg::entropy::huffman::{BandTable, DcTable};
use crate::jpeg::entropy::lookup_entry::{DC, END_OF_BLOCK, LookupEntry};
use crate::jpeg::format::markers::ZIGZAG;
use crate::simd::{Available, compile_versions, dispatch};

/// One above the symbols that end a run of blocks. Runs of 1 to 2^15 - 1 blocks take up to 14 more bits.
pub(super) const PAST_RUNS: u8 = END_OF_BLOCK + 15;

/// The zigzag positions of a scan and the lowest bit that it sends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpectralBand {
    first: u8,
    last: u8,
    pub(super) shift: u8,
    /// Natural position by zigzag position plus one. Zigzag positions are shifted so that the band ends at 63.
    positions: [u8; 128],
}

impl SpectralBand {
    pub fn new(first: u8, last: u8, shift: u8) -> Self {
        let mut positions = [0; 128];
        let lift = 63 - usize::from(last);
        for k in usize::from(first)..=usize::from(last) {
            positions[k + lift + 1] = ZIGZAG[k];
        }
        SpectralBand {
            first,
            last,
            shift,
            positions,
        }
    }

    /// A bit for each zigzag position of the band.
    pub(super) fn mask(&self) -> u64 {
        u64::MAX << self.first & u64::MAX >> (63 - self.last)
    }
}

/// Decodes a DC coefficient without its lowest bits. Returns false if the code is invalid.
#[inline(always)]
pub(crate) fn decode_dc(
    bits: &mut BitReader<&[u8]>,
    table: &DcTable,
    predictor: &mut i32,
    shift: u8,
    (block, nonzero): (&mut [i16; 64], &mut u64),
) -> bool {
    bits.refill();
    let (total, entry) = table.look_up(bits.bits());
    *predictor = predictor.wrapping_add(i32::from(bits.value(total, entry)));
    bits.take(total);
    block[0] = (*predictor as i16).wrapping_shl(u32::from(shift));
    *nonzero |= 1;
    entry.advance == DC
}

/// Reads one more bit of a DC coefficient.
#[inline(always)]
pub(crate) fn refine_dc(bits: &mut BitReader<&[u8]>, shift: u8, block: &mut [i16; 64]) {
    bits.refill();
    block[0] |= (bits.get(1) as i16) << shift;
}

/// Decodes a band of consecutive blocks. `run`: the number of blocks that the current run still covers. Returns false
/// if the data are corrupt.
pub(crate) fn decode_band(
    level: Available,
    bits: &mut BitReader<&[u8]>,
    table: &BandTable,
    band: &SpectralBand,
    run: &mut u32,
    blocks: (&mut [[i16; 64]], &mut [u64]),
) -> bool {
    dispatch!(level, [Avx2], decode_band(bits, table, band, run, blocks))
}

compile_versions! {
    fn decode_band(
        bits: &mut BitReader<&[u8]>,
        table: &BandTable,
        band: &SpectralBand,
        run: &mut u32,
        blocks: (&mut [[i16; 64]], &mut [u64]),
    ) -> bool = decode_band_portable;
}

#[inline(always)]
fn decode_band_portable(
    bits: &mut BitReader<&[u8]>,
    table: &BandTable,
    band: &SpectralBand,
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

/// Decodes the symbols of a block, from position `k` of the shifted band. Returns a bit for each shifted position that
/// is not zero, and the number of empty blocks after this one. None: the data are corrupt.
#[inline(always)]
fn decode_block(
    bits: &mut BitReader<&[u8]>,
    table: &BandTable,
    band: &SpectralBand,
    mut k: usize,
    block: &mut [i16; 64],
) -> Option<(u64, u32)> {
    let mut at = *bits;
    let mut found = 0u64;
    // `after`: the position after the coefficient, at most 64.
    macro_rules! put {
        ($after:expr, $value:expr) => {
            let value = i16::wrapping_shl($value, u32::from(band.shift));
            block[usize::from(band.positions[$after & 127] & 63)] = value;
            found |= u64::from(value != 0) << (($after - 1) & 63);
        };
    }
    macro_rules! symbols {
        () => {
            let (total, entry) = table.look_up(at.bits());
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
    // 56 bits are enough for two lookups of 26 bits, or for one lookup and the end of a run (30 bits).
    loop {
        at.refill();
        symbols!();
        symbols!();
    }
}

/// Consumes the last symbols of a block, whose positions are `first` and `second`. Returns the number of empty blocks
/// that follow.
#[inline(always)]
fn end_block(
    bits: &mut BitReader<&[u8]>,
    table: &BandTable,
    entry: &LookupEntry,
    first: usize,
    second: usize,
) -> Option<u32> {
    if first == 64 {
        // The block is full: a second symbol belongs to the next block.
        bits.take(table.first_total(bits.bits(), entry));
        return Some(0);
    }
    let last = if first < 64 { entry.advance2 } else { entry.advance };
    bits.take(entry.total.into());
    match last {
        END_OF_BLOCK..PAST_RUNS => Some(bits.run_length(last) - 1),
        _ if second == 64 => Some(0),
        _ => None,
    }
}
