//! Bits of a restart interval of a progressive scan, from unstuffed bytes: loaded by eight bytes, taken by symbols.

use crate::jpeg::entropy::huffman::{END_OF_BLOCK, Entry};

/// Zeros that must follow the bytes of an interval.
pub(crate) const PADDING: usize = 8;

/// A position in the unstuffed bytes of a restart interval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bits<'a> {
    bytes: &'a [u8],
    /// Next byte to be loaded.
    at: usize,
    /// Loaded bits, left-aligned.
    pub bits: u64,
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
    pub fn refill(&mut self) {
        let next = match self.bytes.get(self.at..).and_then(<[u8]>::first_chunk) {
            Some(bytes) => u64::from_be_bytes(*bytes),
            None => 0,
        };
        self.bits |= next >> (self.count & 63);
        self.at += (!self.count >> 3 & 7) as usize;
        self.count |= 56;
    }

    #[inline(always)]
    pub fn take(&mut self, bits: u64) {
        self.bits <<= bits & 63;
        self.count = self.count.wrapping_sub(bits);
    }

    /// The next `count` bits, at most 16.
    #[inline(always)]
    pub fn get(&mut self, count: u8) -> u32 {
        let value = (self.bits.rotate_left(u32::from(count)) & ((1 << count) - 1)) as u32;
        self.take(count.into());
        value
    }

    /// `so_far` and the next bits, one for each of `which`; at least 30 are known.
    #[inline(always)]
    pub fn append(&mut self, mut so_far: u64, which: u64) -> u64 {
        let mut count = which.count_ones() as u8;
        if count > 30 {
            so_far = so_far << 30 | self.bits >> 34;
            self.take(30);
            self.refill();
            count -= 30;
        }
        let low = self.bits.rotate_left(u32::from(count)) & ((1 << count) - 1);
        self.take(count.into());
        so_far << count | low
    }

    /// The value of the symbol whose last bit is bit `total`.
    #[inline(always)]
    pub fn value(&self, total: u64, entry: &Entry) -> i16 {
        let taken = self.bits >> (total.wrapping_neg() & 63);
        entry.base.wrapping_add((taken as u16 & entry.mask) as i16)
    }

    /// The length of a run of blocks, in blocks, after its symbol.
    #[inline(always)]
    pub fn run(&mut self, advance: u8) -> u32 {
        let bits = advance - END_OF_BLOCK;
        (1 << bits) + self.get(bits)
    }
}
