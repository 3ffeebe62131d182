//! Tables for blocks that are passed over. Values do not matter there, only the bits of symbols and how far they move,
//! so that one lookup passes all symbols whose codes it holds: 2 to 3 of a photograph, where decoding finds 1.4.

use crate::jpeg::entropy::lookup_entry::{END_OF_BLOCK, INVALID, LookupEntry};

/// Bits of a lookup.
const BITS: u32 = 12;
const SIZE: usize = 1 << BITS;
/// Bits of an entry that hold the bits to consume.
const TOTAL_BITS: u32 = 6;
const ENDS_BLOCK: u16 = 1 << 15;
/// The entry of codes that are longer than a lookup, or invalid: it moves past any block.
const OTHER: u16 = 65 << TOTAL_BITS;

/// What [`SkipTable::look_up`] adds to the positions to move, if the last symbol ends the block.
pub(crate) const END: usize = (ENDS_BLOCK >> TOTAL_BITS) as usize;

/// A table of AC symbols.
#[derive(Debug)]
pub(crate) struct SkipTable {
    /// From `1 << n` on: the entries of lookups of `n` bits, from which those of more bits are made. An entry is the
    /// sum, over its symbols, of their bits and of `positions << TOTAL_BITS`; 0 without a symbol. At most 12 symbols of
    /// 16 positions leave [`ENDS_BLOCK`] alone.
    entries: Box<[u16; 2 * SIZE]>,
}

impl SkipTable {
    pub fn new() -> Self {
        SkipTable {
            entries: Box::new([0; 2 * SIZE]),
        }
    }

    /// Looks up the front of `bits` (left-aligned). Returns the bits to consume, modulo 64, and the zigzag positions to
    /// move. Where these lead past the end of a block, the symbols must be read one by one.
    #[inline(always)]
    pub fn look_up(&self, bits: u64) -> (u64, usize) {
        let entry = self.entries[SIZE | (bits >> (64 - BITS)) as usize];
        (entry.into(), (entry >> TOTAL_BITS).into())
    }

    /// Builds the table of `codes`, which are in the order of their declaration: the length of each, and an entry with
    /// the bits and positions of the whole symbol.
    ///
    /// A lookup of `n` bits whose first symbol has `t` bits continues as a lookup of `n - t` bits, whatever the value of
    /// the symbol. Its entries are those of the smaller table plus the symbol's own.
    pub fn build(&mut self, codes: &[(u32, LookupEntry)]) {
        for bits in 0..=BITS {
            let (smaller, entries) = self.entries.split_at_mut(1 << bits);
            let mut rest = &mut entries[..1 << bits];
            for &(length, symbol) in codes.iter().take_while(|code| code.0 <= bits) {
                let (own, after) = rest.split_at_mut(1 << (bits - length));
                rest = after;
                let total = u32::from(symbol.total);
                let entry = match symbol.advance {
                    INVALID => 0,
                    END_OF_BLOCK => u16::from(symbol.total) | ENDS_BLOCK,
                    positions => u16::from(symbol.total) | u16::from(positions) << TOTAL_BITS,
                };
                if symbol.advance >= END_OF_BLOCK || total >= bits {
                    own.fill(entry);
                    continue;
                }
                let following = &smaller[1 << (bits - total)..][..1 << (bits - total)];
                for own in own.chunks_exact_mut(following.len()) {
                    for (own, following) in own.iter_mut().zip(following) {
                        *own = entry + following;
                    }
                }
            }
            rest.fill(0);
        }
        for entry in &mut self.entries[SIZE..] {
            *entry = if *entry == 0 { OTHER } else { *entry };
        }
    }
}
