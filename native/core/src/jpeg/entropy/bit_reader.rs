//! The bit reader: unstuffed bytes in, Huffman symbols and bits out. It loads eight bytes at a time.

use super::lookup_entry::{END_OF_BLOCK, LookupEntry};

/// Bytes that a reader loads at once. It is at most this far ahead of the next bit.
pub(crate) const LOAD: usize = 8;

/// Bytes that a [`BitReader`] reads.
pub(crate) trait ByteSource: Copy {
    /// The eight bytes from byte `at` on, the first in the highest bits. What lies past the end is unspecified.
    fn load(self, at: usize) -> u64;
}

impl ByteSource for &[u8] {
    #[inline(always)]
    fn load(self, at: usize) -> u64 {
        let bytes = self.get(at..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }
}

/// How far a [`BitReader`] has come.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BitPosition {
    /// Next byte to be loaded.
    at: usize,
    /// Loaded bits, left-aligned.
    bits: u64,
    /// The number of loaded bits, in its low 6 bits. The other bits are unspecified.
    count: u64,
}

impl BitPosition {
    /// The position of a bit of `source`.
    pub fn of_bit(bit: usize, source: impl ByteSource) -> Self {
        let mut reader = BitReader::new(
            source,
            BitPosition {
                at: bit / 8,
                bits: 0,
                count: 0,
            },
        );
        reader.refill();
        reader.take(bit as u64 % 8);
        reader.position()
    }

    /// Offset of the next bit.
    pub fn next_bit(&self) -> isize {
        8 * self.at as isize - (self.count & 63) as isize
    }

    /// Offset of the next byte to be loaded.
    pub fn next_byte(&self) -> usize {
        self.at
    }

    /// The same position after `bytes` bytes were removed from the front of the source.
    pub fn moved_back(self, bytes: usize) -> Self {
        BitPosition {
            at: self.at - bytes,
            ..self
        }
    }
}

/// Reads bits of a source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BitReader<S> {
    source: S,
    position: BitPosition,
}

impl<S: ByteSource> BitReader<S> {
    /// A reader of `source` that continues at `position`.
    #[inline(always)]
    pub fn new(source: S, position: BitPosition) -> Self {
        BitReader { source, position }
    }

    #[inline(always)]
    pub fn position(&self) -> BitPosition {
        self.position
    }

    /// The loaded bits, left-aligned.
    #[inline(always)]
    pub fn bits(&self) -> u64 {
        self.position.bits
    }

    /// Loads bits, until there are at least 56.
    #[inline(always)]
    pub fn refill(&mut self) {
        let BitPosition { at, bits, count } = &mut self.position;
        *bits |= self.source.load(*at) >> (*count & 63);
        *at += (!*count >> 3 & 7) as usize;
        *count |= 56;
    }

    /// Consumes `bits` bits, modulo 64.
    #[inline(always)]
    pub fn take(&mut self, bits: u64) {
        self.position.bits <<= bits & 63;
        self.position.count = self.position.count.wrapping_sub(bits);
    }

    /// Consumes and returns the next `count` bits, at most 16.
    #[inline(always)]
    pub fn get(&mut self, count: u8) -> u32 {
        let value = (self.bits().rotate_left(u32::from(count)) & ((1 << count) - 1)) as u32;
        self.take(count.into());
        value
    }

    /// Appends to `so_far` one bit for each bit that is set in `mask`. At least 30 bits must be loaded.
    #[inline(always)]
    pub fn append(&mut self, mut so_far: u64, mask: u64) -> u64 {
        let mut count = mask.count_ones() as u8;
        if count > 30 {
            so_far = so_far << 30 | self.bits() >> 34;
            self.take(30);
            self.refill();
            count -= 30;
        }
        let low = self.bits().rotate_left(u32::from(count)) & ((1 << count) - 1);
        self.take(count.into());
        so_far << count | low
    }

    /// The value of the first symbol, which ends with bit `total`.
    #[inline(always)]
    pub fn value(&self, total: u64, entry: &LookupEntry) -> i16 {
        entry.value(total, self.bits())
    }

    /// Consumes the bits after a symbol that ends a run of blocks, and returns the run's length in blocks.
    #[inline(always)]
    pub fn run_length(&mut self, advance: u8) -> u32 {
        let bits = advance - END_OF_BLOCK;
        (1 << bits) + self.get(bits)
    }
}
