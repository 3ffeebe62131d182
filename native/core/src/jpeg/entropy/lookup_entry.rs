//! What a lookup in a Huffman table finds.

/// [`LookupEntry::advance`] of a symbol that ends a block. A symbol that ends a run of blocks adds the bits of its
/// length.
pub(crate) const END_OF_BLOCK: u8 = 128;
/// Set in the total of a lookup, if the symbol or the second of two symbols ends a block.
/// This is known one load earlier than the entry. Shifts and bit counts ignore it: they are modulo 64.
pub(crate) const ENDS_BLOCK: u8 = 128;
/// [`LookupEntry::advance`] of a DC symbol.
pub(crate) const DC: u8 = 129;
/// [`LookupEntry::advance`] of an invalid code: it moves any position to 192 or more.
pub(crate) const INVALID: u8 = 192;

/// The result of a lookup. Fields are bytes in memory, not bits of a word: loads are cheaper here than shifts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(8))]
pub(crate) struct LookupEntry {
    /// Bits to consume. 0: the code is longer than a lookup, or invalid.
    pub total: u8,
    /// Zigzag positions to move: run + 1, or [`END_OF_BLOCK`] and above.
    pub advance: u8,
    /// The same for a second symbol. 0: there is none.
    pub advance2: u8,
    /// The second symbol's coefficient.
    pub base2: i8,
    /// The first symbol's coefficient, without those of its bits that lie outside the lookup.
    pub base: i16,
    /// Mask of those of the last consumed bits that are added to `base`.
    pub mask: u16,
}

impl LookupEntry {
    pub const NONE: LookupEntry = LookupEntry {
        total: 0,
        advance: 0,
        advance2: 0,
        base2: 0,
        base: 0,
        mask: 0,
    };
    pub const BAD: LookupEntry = LookupEntry {
        total: 1,
        advance: INVALID,
        ..Self::NONE
    };

    /// The value of the first symbol, which ends with bit `total` of `bits` (left-aligned).
    #[inline(always)]
    pub fn value(&self, total: u64, bits: u64) -> i16 {
        // a shift to the right by what is left: cheaper than a rotation by a variable
        let taken = bits >> (total.wrapping_neg() & 63);
        self.base.wrapping_add((taken as u16 & self.mask) as i16)
    }

    /// Whether the lookup holds all bits of the symbol.
    pub fn is_whole(&self) -> bool {
        (self.total > 0) & (self.mask == 0) & (self.advance != INVALID)
    }
}
