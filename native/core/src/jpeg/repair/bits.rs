//! The bytes and bits of a damaged file, read as libjpeg reads them: a file that ends is followed by end markers, data
//! that end are followed by zero bits, and an invalid code is the symbol 0.
//!
//! Slow and simple: files come here after the decoder has refused them.

/// libjpeg's limits of a code: after this many bits without a symbol, the code is invalid.
const LONGEST: usize = 16;
const EOI: u8 = 0xd9;

/// A Huffman table that decodes one bit at a time.
pub(crate) struct SymbolTable<'a> {
    /// Per length, the largest code; -1: no code has this length.
    last: [i32; LONGEST + 1],
    /// Per length, what to add to a code to get the position of its symbol.
    shift: [i32; LONGEST + 1],
    symbols: &'a [u8],
}

impl<'a> SymbolTable<'a> {
    /// The table of a DHT segment's body: 16 counts, then the symbols. None if these make no valid code.
    pub fn new(raw: &'a [u8], is_dc: bool) -> Option<Self> {
        let (counts, symbols) = raw.split_first_chunk::<LONGEST>()?;
        let (mut last, mut shift) = ([-1; LONGEST + 1], [0; LONGEST + 1]);
        let (mut code, mut position) = (0i32, 0i32);
        for (length, &count) in (1..).zip(counts) {
            if count > 0 {
                shift[length] = position - code;
                position += i32::from(count);
                code += i32::from(count);
                last[length] = code - 1;
                // As in libjpeg, no code consists of ones only.
                if code >= 1 << length {
                    return None;
                }
            }
            code <<= 1;
        }
        let symbols = symbols.get(..position as usize)?;
        (!is_dc || symbols.iter().all(|&symbol| symbol < 16)).then_some(SymbolTable { last, shift, symbols })
    }
}

/// Reads bytes, markers and bits of a file.
pub(crate) struct DamagedBits<'a> {
    file: &'a [u8],
    at: usize,
    /// The marker that was found and is not yet read.
    pub marker: Option<u8>,
    bits: u64,
    count: u32,
    /// Whether bits were read that are not there.
    pub is_spent: bool,
}

impl<'a> DamagedBits<'a> {
    pub fn new(file: &'a [u8], at: usize) -> Self {
        DamagedBits {
            file,
            at,
            marker: None,
            bits: 0,
            count: 0,
            is_spent: false,
        }
    }

    /// Offset of the next byte.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Continues at a byte.
    pub fn move_to(&mut self, at: usize) {
        self.at = at;
    }

    fn next_byte(&mut self) -> u8 {
        let at = self.at;
        self.at += 1;
        match self.file.get(at) {
            Some(&byte) => byte,
            None if (at - self.file.len()).is_multiple_of(2) => 0xff,
            None => EOI,
        }
    }

    /// Moves behind the next marker and returns it. Bytes before it are skipped.
    pub fn find_marker(&mut self) -> u8 {
        loop {
            while self.next_byte() != 0xff {}
            let mut byte = self.next_byte();
            while byte == 0xff {
                byte = self.next_byte();
            }
            if byte != 0 {
                self.marker = Some(byte);
                return byte;
            }
        }
    }

    /// Forgets the bits that are left.
    pub fn drop_bits(&mut self) {
        (self.bits, self.count) = (0, 0);
    }

    fn fill(&mut self) {
        while self.count <= 56 && self.marker.is_none() {
            let mut byte = self.next_byte();
            if byte == 0xff {
                while byte == 0xff {
                    byte = self.next_byte();
                }
                if byte != 0 {
                    self.marker = Some(byte);
                    return;
                }
                byte = 0xff;
            }
            self.bits |= u64::from(byte) << (56 - self.count);
            self.count += 8;
        }
    }

    /// The next `count` bits, at most 16.
    pub fn get(&mut self, count: u32) -> i32 {
        if count == 0 {
            return 0;
        }
        if self.count < count {
            self.fill();
            if self.count < count {
                self.is_spent = true;
                self.count = count;
            }
        }
        let value = (self.bits >> (64 - count)) as i32;
        self.bits <<= count;
        self.count -= count;
        value
    }

    /// The next symbol.
    pub fn symbol(&mut self, table: &SymbolTable<'_>) -> u8 {
        let mut code = 0;
        for length in 1..=LONGEST {
            code = code << 1 | self.get(1);
            if code <= table.last[length] {
                let position = (code + table.shift[length]) as usize;
                return table.symbols.get(position).copied().unwrap_or(0);
            }
        }
        self.get(1);
        0
    }

    /// The value of `bits` bits, by the rule that the highest one tells the sign.
    pub fn value(&mut self, bits: u8) -> i32 {
        let value = self.get(bits.into());
        if bits == 0 || value >> (bits - 1) != 0 {
            value
        } else {
            value - (1 << bits) + 1
        }
    }

    /// Moves to the restart marker of number `expected`, or to where libjpeg continues if that is missing. `is_spent`
    /// stays as it is if the next segment is to be treated as empty.
    pub fn restart(&mut self, expected: u8) {
        self.drop_bits();
        let mut marker = match self.marker {
            Some(marker) => marker,
            None => self.find_marker(),
        };
        let is_one = |marker: u8, ahead: u8| marker == 0xd0 | (expected.wrapping_add(ahead) & 7);
        loop {
            match marker {
                _ if is_one(marker, 0) => self.marker = None,
                0xd0..=0xd7 if is_one(marker, 1) || is_one(marker, 2) => {}
                0x00..0xc0 => {
                    marker = self.find_marker();
                    continue;
                }
                0xd0..=0xd7 if is_one(marker, 7) || is_one(marker, 6) => {
                    marker = self.find_marker();
                    continue;
                }
                0xd0..=0xd7 => self.marker = None,
                _ => {}
            }
            break;
        }
        if self.marker.is_none() {
            self.is_spent = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_ends_gives_zero_bits_and_an_end_marker() {
        let mut bits = DamagedBits::new(&[0xa5, 0xff, 0x00, 0x0f], 0);

        assert_eq!(bits.get(8), 0xa5);
        assert_eq!(bits.get(16), 0xff0f);
        assert!(!bits.is_spent);
        assert_eq!(bits.get(3), 0);
        assert!(bits.is_spent);
        assert_eq!(bits.marker, Some(EOI));
    }

    #[test]
    fn a_restart_skips_what_is_before_and_waits_at_what_is_after() {
        let file = [1, 2, 0xff, 0xd3, 3, 0xff, 0xd5, 4];
        let restarted = |expected| {
            let mut bits = DamagedBits::new(&file, 0);
            bits.is_spent = true;
            bits.restart(expected);
            (bits.marker, bits.offset(), bits.is_spent)
        };

        assert_eq!(restarted(3), (None, 4, false)); // the expected one
        assert_eq!(restarted(2), (Some(0xd3), 4, true)); // the next one: an empty segment
        assert_eq!(restarted(1), (Some(0xd3), 4, true));
        assert_eq!(restarted(5), (None, 7, false)); // an earlier one is skipped
        assert_eq!(restarted(7), (None, 4, false)); // too far away: taken for the expected one
    }

    #[test]
    fn values_have_their_sign() {
        let mut bits = DamagedBits::new(&[0b0110_1000, 0], 0);

        assert_eq!(
            [bits.value(1), bits.value(1), bits.value(2), bits.value(0)],
            [-1, 1, 2, 0]
        );
    }
}
