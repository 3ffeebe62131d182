//! Huffman decoding tables: one lookup of [`LOOKUP_BITS`] gives a whole symbol with its value, or two short ones.

use crate::error::Error;

/// Bits of a lookup. Measured: 9 and 11 are slower (fewer pairs, and first-level cache, respectively).
pub(crate) const LOOKUP_BITS: u32 = 10;
const SIZE: usize = 1 << LOOKUP_BITS;

/// `advance` of the symbol that ends a block.
pub(crate) const END_OF_BLOCK: u8 = 128;
/// `advance` of a DC symbol.
pub(crate) const DC: u8 = 129;
/// `advance` of what is no symbol: takes any position to 192 or more.
const INVALID: u8 = 192;

/// What a lookup finds. Consume `total` bits; then
/// - move `advance` zigzag positions: run + 1, or [`END_OF_BLOCK`];
/// - the coefficient there is `base` plus the last `extra` of the consumed bits (0: the lookup saw them all);
/// - if `advance2` is not 0, a second symbol follows: its coefficient is `base2`, and it took `back` of the bits, to be
///   given back where the first symbol fills the block.
///
/// `total` 0: the code is longer than a lookup, or invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(8))]
pub(crate) struct Entry {
    pub total: u8,
    pub extra: u8,
    pub advance: u8,
    pub advance2: u8,
    pub base: i16,
    pub base2: i8,
    pub back: u8,
}

const NONE: Entry = Entry { total: 0, extra: 0, advance: 0, advance2: 0, base: 0, base2: 0, back: 0 };
static BAD: Entry = Entry { total: 1, advance: INVALID, ..NONE };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Dc,
    Ac,
}

/// One table, ready for decoding.
#[derive(Debug)]
pub(crate) struct Table {
    lookup: [Entry; SIZE],
    /// Codes of `LOOKUP_BITS` or more: per length, the end of its codes (left-aligned to 16 bits) and what to add to
    /// a code to get its place in `long`.
    limit: [u32; 17],
    shift: [i32; 17],
    /// Per symbol, for either sign bit.
    long: Vec<[Entry; 2]>,
}

impl Table {
    const fn new() -> Self {
        Table { lookup: [NONE; SIZE], limit: [0; 17], shift: [0; 17], long: Vec::new() }
    }

    /// The entry for the symbol at the front of `bits` (left-aligned).
    #[inline(always)]
    pub fn look(&self, bits: u64) -> &Entry {
        let entry = &self.lookup[(bits >> (64 - LOOKUP_BITS)) as usize];
        if entry.total == 0 { self.look_long(bits) } else { entry }
    }

    #[cold]
    #[inline(never)]
    fn look_long(&self, bits: u64) -> &Entry {
        let code = (bits >> 48) as u32;
        for length in LOOKUP_BITS..=16 {
            if code < self.limit[length as usize] {
                let place = (code >> (16 - length)) as i32 + self.shift[length as usize];
                return self.long.get(place as usize).map_or(&BAD, |e| &e[(bits << length >> 63) as usize]);
            }
        }
        &BAD
    }

    /// `raw`: 16 counts, then the symbols (the body of a DHT segment). `singles` is scratch. False: no valid code.
    fn build(&mut self, class: Class, raw: &[u8], singles: &mut [Entry; SIZE]) -> bool {
        let Some((counts, mut symbols)) = raw.split_first_chunk::<16>() else { return false };
        self.long.clear();
        let (mut code, mut fill) = (0u32, 0usize);
        for (length, &count) in (1u32..).zip(counts) {
            let Some((here, rest)) = symbols.split_at_checked(count as usize) else { return false };
            symbols = rest;
            // as in libjpeg, no code is all ones
            if count > 0 && code + u32::from(count) >= 1 << length {
                return false;
            }
            self.shift[length as usize] = self.long.len() as i32 - code as i32;
            for &symbol in here {
                if class == Class::Dc && symbol > 15 {
                    return false;
                }
                if length >= LOOKUP_BITS {
                    self.long.push(long_entries(class, symbol, length));
                }
                if length <= LOOKUP_BITS {
                    // runs of equal entries, one per value of those value bits that the lookup sees
                    let seen = value_bits(class, symbol).min(LOOKUP_BITS - length);
                    let run = 1usize << (LOOKUP_BITS - length - seen);
                    for value in 0..1u32 << seen {
                        singles[fill..fill + run].fill(entry(class, symbol, length, value << (16 - seen), seen));
                        fill += run;
                    }
                }
            }
            code += u32::from(count);
            self.limit[length as usize] = code << (16 - length);
            code <<= 1;
        }
        singles[fill..].fill(NONE);
        match class {
            Class::Dc => self.lookup = *singles,
            Class::Ac => pair_up(singles, &mut self.lookup),
        }
        true
    }
}

/// Joins every symbol with its successor where the lookup sees both whole.
fn pair_up(singles: &[Entry; SIZE], lookup: &mut [Entry; SIZE]) {
    for (i, (joined, first)) in lookup.iter_mut().zip(singles).enumerate() {
        let second = singles[(i << (first.total & 31)) & (SIZE - 1)];
        let whole = |e: &Entry| (e.total > 0) & (e.extra == 0) & (e.advance != INVALID);
        *joined = *first;
        if whole(first)
            & (first.advance <= 16)
            & whole(&second)
            & (u32::from(first.total + second.total) <= LOOKUP_BITS)
            & (second.base as i8 as i16 == second.base)
        {
            *joined = Entry {
                total: first.total + second.total,
                advance2: second.advance,
                base2: second.base as i8,
                back: second.total,
                ..*first
            };
        }
    }
}

fn value_bits(class: Class, symbol: u8) -> u32 {
    u32::from(if class == Class::Dc { symbol } else { symbol & 15 })
}

/// `value`: the 16 bits after the code, left-aligned, of which the first `seen` are known.
fn entry(class: Class, symbol: u8, length: u32, value: u32, seen: u32) -> Entry {
    let bits = value_bits(class, symbol);
    // larger values do not occur in 8-bit files
    if bits > (if class == Class::Dc { 11 } else { 10 }) {
        return BAD;
    }
    let advance = match (class, bits, symbol >> 4) {
        (Class::Dc, ..) => DC,
        (_, 0, 15) => 16,
        (_, 0, _) => END_OF_BLOCK, // libjpeg: a run without a value ends the block, whatever its length
        (_, _, run) => run + 1,
    };
    let whole = Entry { total: (length + bits) as u8, advance, ..NONE };
    if bits == 0 {
        return whole;
    }
    if seen == 0 {
        return NONE; // the sign is unknown
    }
    let low = if value >> 15 & 1 == 0 { 1 - (1i32 << bits) } else { 0 };
    if seen >= bits {
        return Entry { base: (low + (value >> (16 - bits)) as i32) as i16, ..whole };
    }
    Entry { extra: bits as u8, base: low as i16, ..whole }
}

fn long_entries(class: Class, symbol: u8, length: u32) -> [Entry; 2] {
    [0, 0x8000].map(|sign| entry(class, symbol, length, sign, 1))
}

/// All tables of a file, kept from one image to the next: equal tables are not built again.
#[derive(Debug)]
pub(crate) struct Tables {
    tables: Box<[[Table; 4]; 2]>,
    raw: [[Vec<u8>; 4]; 2],
    singles: Box<[Entry; SIZE]>,
}

impl Tables {
    pub fn new() -> Self {
        Tables {
            tables: Box::new([const { [const { Table::new() }; 4] }; 2]),
            raw: Default::default(),
            singles: Box::new([NONE; SIZE]),
        }
    }

    /// Makes table `id` of a class the one that `raw` declares.
    pub fn set(&mut self, class: usize, id: usize, raw: &[u8]) -> Result<(), Error> {
        let built = &mut self.raw[class][id];
        if built == raw {
            return Ok(());
        }
        built.clear();
        let kind = if class == 0 { Class::Dc } else { Class::Ac };
        if !self.tables[class][id].build(kind, raw, &mut self.singles) {
            return Err(Error::Corrupt { what: "bad Huffman table", offset: 0 });
        }
        built.extend_from_slice(raw);
        Ok(())
    }

    pub fn dc(&self, id: usize) -> &Table {
        &self.tables[0][id]
    }

    pub fn ac(&self, id: usize) -> &Table {
        &self.tables[1][id]
    }
}
