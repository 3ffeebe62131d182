//! Huffman decoding tables: one lookup finds a whole symbol with its value, or two short symbols.

use crate::jpeg::entropy::lookup_entry::{DC, END_OF_BLOCK, ENDS_BLOCK, LookupEntry};
use crate::jpeg::entropy::skip_table::SkipTable;

/// Entries of a DC table. It is small, because it shares the first-level cache with the AC tables.
const DC_SIZE: usize = 1 << 8;
/// Entries of an AC table. With 10 bits, lookups find fewer pairs and decoding is slower (measured).
const AC_SIZE: usize = 1 << 11;
/// Entries of the AC table of a progressive scan. It is built for one scan only, so building it must be cheap.
const BAND_SIZE: usize = 1 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SymbolClass {
    Dc,
    Ac,
    /// AC of a progressive scan, where symbols end runs of blocks.
    Band,
}

impl SymbolClass {
    fn value_bits(self, symbol: u8) -> u32 {
        u32::from(if self == SymbolClass::Dc { symbol } else { symbol & 15 })
    }
}

/// One table of `SIZE` entries, ready for decoding.
#[derive(Debug)]
pub(crate) struct HuffmanTable<const SIZE: usize> {
    lookup: [LookupEntry; SIZE],
    /// `total` of every entry. In an array of its own it is small and stays in cache: the next lookup depends on it.
    total: [u8; SIZE],
    /// Bits of the first of two symbols.
    first: [u8; SIZE],
    /// For codes that are at least as long as a lookup, per length: the end of its codes (left-aligned to 16 bits), and
    /// what to add to a code to get its position in `long`.
    limit: [u32; 17],
    shift: [i32; 17],
    /// Per symbol, for each value of the sign bit.
    long: Vec<[LookupEntry; 2]>,
}

pub(crate) type DcTable = HuffmanTable<DC_SIZE>;
pub(crate) type AcTable = HuffmanTable<AC_SIZE>;
pub(crate) type BandTable = HuffmanTable<BAND_SIZE>;

impl<const SIZE: usize> HuffmanTable<SIZE> {
    /// Bits of a lookup.
    const BITS: u32 = SIZE.ilog2();

    const fn new() -> Self {
        HuffmanTable {
            lookup: [LookupEntry::NONE; SIZE],
            total: [0; SIZE],
            first: [0; SIZE],
            limit: [0; 17],
            shift: [0; 17],
            long: Vec::new(),
        }
    }

    /// Looks up the front of `bits` (left-aligned). Returns the bits to consume, modulo 64 (see [`ENDS_BLOCK`]), and
    /// the entry.
    #[inline(always)]
    pub fn look_up(&self, bits: u64) -> (u64, &LookupEntry) {
        let index = (bits >> (64 - Self::BITS)) as usize;
        // Widened here: a later conversion would delay the next lookup.
        let total = u64::from(self.total[index]);
        if total == 0 {
            return self.look_up_long(bits);
        }
        (total, &self.lookup[index])
    }

    /// Bits of the first symbol alone.
    #[inline(always)]
    pub fn first_total(&self, bits: u64, entry: &LookupEntry) -> u64 {
        u64::from(if entry.advance2 == 0 {
            entry.total
        } else {
            self.first[(bits >> (64 - Self::BITS)) as usize]
        })
    }

    #[cold]
    #[inline(never)]
    fn look_up_long(&self, bits: u64) -> (u64, &LookupEntry) {
        let code = (bits >> 48) as u32;
        let mut entry = &LookupEntry::BAD;
        for length in Self::BITS..=16 {
            if code < self.limit[length as usize] {
                let index = (code >> (16 - length)) as i32 + self.shift[length as usize];
                if let Some(both) = self.long.get(index as usize) {
                    entry = &both[(bits << length >> 63) as usize];
                }
                break;
            }
        }
        (entry.total.into(), entry)
    }

    /// Builds the table of a DHT segment's body: 16 counts, then the symbols. Returns false if these make no valid
    /// code.
    fn build(&mut self, class: SymbolClass, raw: &[u8]) -> bool {
        let Some((counts, mut symbols)) = raw.split_first_chunk::<16>() else {
            return false;
        };
        self.long.clear();
        let (mut code, mut fill) = (0u32, 0usize);
        for (length, &count) in (1u32..).zip(counts) {
            let Some((here, rest)) = symbols.split_at_checked(count as usize) else {
                return false;
            };
            symbols = rest;
            // As in libjpeg, no code consists of ones only.
            if count > 0 && code + u32::from(count) >= 1 << length {
                return false;
            }
            self.shift[length as usize] = self.long.len() as i32 - code as i32;
            for &symbol in here {
                if class == SymbolClass::Dc && symbol > 15 {
                    return false;
                }
                if length >= Self::BITS {
                    self.long
                        .push([0, 0x8000].map(|sign| make_entry(class, symbol, length, sign, 1)));
                }
                if length <= Self::BITS {
                    // Runs of equal entries, one for each value of the value bits inside the lookup.
                    let seen = class.value_bits(symbol).min(Self::BITS - length);
                    let run = 1usize << (Self::BITS - length - seen);
                    for value in 0..1u32 << seen {
                        self.lookup[fill..fill + run].fill(make_entry(
                            class,
                            symbol,
                            length,
                            value << (16 - seen),
                            seen,
                        ));
                        fill += run;
                    }
                }
            }
            code += u32::from(count);
            self.limit[length as usize] = code << (16 - length);
            code <<= 1;
        }
        self.lookup[fill..].fill(LookupEntry::NONE);
        for (total, entry) in self.total.iter_mut().zip(&self.lookup) {
            *total = entry.total | if entry.advance == END_OF_BLOCK { ENDS_BLOCK } else { 0 };
        }
        true
    }

    /// Joins each symbol with its successor where the lookup holds both.
    fn join_pairs(&mut self, singles: &mut [LookupEntry; SIZE]) {
        singles.copy_from_slice(&self.lookup);
        self.first = self.total;
        for (i, (entry, total)) in self.lookup.iter_mut().zip(&mut self.total).enumerate() {
            let second = singles[(i << (entry.total & 31)) & (SIZE - 1)];
            if entry.is_whole()
                & (entry.advance <= 16)
                & second.is_whole()
                & (u32::from(entry.total + second.total) <= Self::BITS)
                & (second.base as i8 as i16 == second.base)
            {
                entry.total += second.total;
                *total = entry.total | if second.advance == END_OF_BLOCK { ENDS_BLOCK } else { 0 };
                entry.advance2 = second.advance;
                entry.base2 = second.base as i8;
            }
        }
    }
}

/// The entry of a symbol. `value`: the 16 bits after the code, left-aligned, of which the first `seen` are known.
fn make_entry(class: SymbolClass, symbol: u8, length: u32, value: u32, seen: u32) -> LookupEntry {
    let bits = class.value_bits(symbol);
    // 8-bit files have no larger values.
    if bits > (if class == SymbolClass::Dc { 11 } else { 10 }) {
        return LookupEntry::BAD;
    }
    let advance = match (class, bits, symbol >> 4) {
        (SymbolClass::Dc, ..) => DC,
        (_, 0, 15) => 16,
        (SymbolClass::Band, 0, bits) => END_OF_BLOCK + bits,
        (_, 0, _) => END_OF_BLOCK, // as in libjpeg, a run without a value ends the block, whatever its length
        (_, _, run) => run + 1,
    };
    let whole = LookupEntry {
        total: (length + bits) as u8,
        advance,
        ..LookupEntry::NONE
    };
    if bits == 0 {
        return whole;
    }
    if seen == 0 {
        return LookupEntry::NONE; // the sign is unknown
    }
    let low = if value >> 15 & 1 == 0 { 1 - (1i32 << bits) } else { 0 };
    if seen >= bits {
        return LookupEntry {
            base: (low + (value >> (16 - bits)) as i32) as i16,
            ..whole
        };
    }
    LookupEntry {
        base: low as i16,
        mask: (1 << bits) - 1,
        ..whole
    }
}

/// The AC codes of a valid DHT segment's body, in order: the length of each, and an entry with the bits and positions of
/// the whole symbol.
fn ac_codes(raw: &[u8]) -> Vec<(u32, LookupEntry)> {
    let Some((counts, symbols)) = raw.split_first_chunk::<16>() else {
        return Vec::new();
    };
    let lengths = (1u32..).zip(counts);
    let lengths = lengths.flat_map(|(length, &count)| core::iter::repeat_n(length, count.into()));
    let whole = |(length, &symbol): (u32, &u8)| {
        let bits = SymbolClass::Ac.value_bits(symbol);
        (length, make_entry(SymbolClass::Ac, symbol, length, 0, bits))
    };
    lengths.zip(symbols).map(whole).collect()
}

/// All tables of a file. They are kept from one image to the next: equal tables are not built again.
#[derive(Debug)]
pub(crate) struct HuffmanTables {
    dc: Box<[DcTable; 4]>,
    ac: Box<[AcTable; 4]>,
    /// Made where they are first asked for.
    skip: [Option<SkipTable>; 4],
    /// The bytes that each table was built from.
    dc_raw: [Vec<u8>; 4],
    ac_raw: [Vec<u8>; 4],
    skip_raw: [Vec<u8>; 4],
    scratch: Box<[LookupEntry; AC_SIZE]>,
}

impl HuffmanTables {
    pub fn new() -> Self {
        HuffmanTables {
            dc: Box::new([const { HuffmanTable::new() }; 4]),
            ac: Box::new([const { HuffmanTable::new() }; 4]),
            skip: Default::default(),
            dc_raw: Default::default(),
            ac_raw: Default::default(),
            skip_raw: Default::default(),
            scratch: Box::new([LookupEntry::NONE; AC_SIZE]),
        }
    }

    /// Builds DC table `id` from the body of its declaration. Returns false if that is not valid.
    #[must_use]
    pub fn set_dc(&mut self, id: usize, raw: &[u8]) -> bool {
        let table = &mut self.dc[id];
        rebuild(&mut self.dc_raw[id], raw, || table.build(SymbolClass::Dc, raw))
    }

    /// Builds AC table `id` from the body of its declaration. Returns false if that is not valid.
    #[must_use]
    pub fn set_ac(&mut self, id: usize, raw: &[u8]) -> bool {
        let (table, scratch) = (&mut self.ac[id], &mut self.scratch);
        rebuild(&mut self.ac_raw[id], raw, || {
            let good = table.build(SymbolClass::Ac, raw);
            table.join_pairs(scratch);
            good
        })
    }

    /// Builds the table that passes over blocks with AC table `id`.
    pub fn prepare_skip(&mut self, id: usize) {
        let table = self.skip[id].get_or_insert_with(SkipTable::new);
        let raw = &self.ac_raw[id];
        rebuild(&mut self.skip_raw[id], raw, || {
            table.build(&ac_codes(raw));
            true
        });
    }

    /// The table that passes over blocks with AC table `id`, if it was prepared.
    pub fn skip(&self, id: usize) -> Option<&SkipTable> {
        self.skip[id].as_ref().filter(|_| self.skip_raw[id] == self.ac_raw[id])
    }

    pub fn dc(&self, id: usize) -> &DcTable {
        &self.dc[id]
    }

    pub fn ac(&self, id: usize) -> &AcTable {
        &self.ac[id]
    }
}

/// Builds a table, unless it was built from the same bytes before.
fn rebuild(built: &mut Vec<u8>, raw: &[u8], build: impl FnOnce() -> bool) -> bool {
    if built == raw {
        return true;
    }
    built.clear();
    let good = build();
    if good {
        built.extend_from_slice(raw);
    }
    good
}

/// Builds the AC table of a progressive scan. Such files have a different table for nearly every scan.
#[derive(Debug)]
pub(crate) struct BandTableBuilder {
    table: Box<BandTable>,
    scratch: Box<[LookupEntry; BAND_SIZE]>,
}

impl BandTableBuilder {
    pub fn new() -> Self {
        BandTableBuilder {
            table: Box::new(HuffmanTable::new()),
            scratch: Box::new([LookupEntry::NONE; BAND_SIZE]),
        }
    }

    /// The table of a declaration's body, or None if that is not valid. `pairs`: join two symbols in one entry; not
    /// allowed where other bits lie between symbols.
    pub fn build(&mut self, raw: &[u8], pairs: bool) -> Option<&BandTable> {
        if !self.table.build(SymbolClass::Band, raw) {
            return None;
        }
        if pairs {
            self.table.join_pairs(&mut self.scratch);
        }
        Some(&self.table)
    }
}
