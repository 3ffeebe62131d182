//! The JPEG of coefficients: its segments as they were, its scans written anew, as encoders write them (libjpeg's
//! `jchuff.c` and `jcphuff.c`; ITU-T T.81, annexes F and G).
//!
//! An encoder may write a scan in other ways. Whoever makes a record compares.

use crate::jpeg::format::header::{Component, Header};
use crate::jpeg::format::markers::{Process, ZIGZAG, read_huffman, segment};
use crate::jpeg::scans::coefficients::Coefficients;

/// The most correction bits that libjpeg holds back, of blocks that end.
const MOST_CORRECTIONS: usize = 1000 - 64 + 1;
const LONGEST_RUN: u32 = 0x7fff;

/// Whether the tables of a file of one scan leave no choice of a code: no symbol has two, and of those without a value
/// there are only the end of a block and 16 zeros.
pub(super) fn has_one_code_each(header: &Header<'_>) -> bool {
    header.components().iter().all(|component| {
        let tables = [header.huffman[0][component.dc], header.huffman[1][component.ac]];
        tables.into_iter().flatten().all(|table| {
            let mut seen = [false; 256];
            table.iter().skip(16).all(|&symbol| {
                let is_first = !core::mem::replace(&mut seen[usize::from(symbol)], true);
                is_first && (symbol & 15 != 0 || matches!(symbol, 0 | 0xf0))
            })
        })
    })
}

/// Writes the JPEG. None if its segments do not describe these coefficients. `segments`: those of the whole file.
pub(super) fn write_jpeg(
    header: &Header<'_>,
    segments: &[u8],
    filled_with_ones: bool,
    coefficients: &Coefficients,
    nbytes: usize,
) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    crate::memory::reserve(&mut out, nbytes.min(1 << 31)).ok()?;
    let mut scans = Scans {
        header,
        coefficients,
        huffman: [[None; 4]; 2],
        interval: 0,
        bits: Bits {
            out,
            plain: [0; PLAIN],
            nbytes: 0,
            held: 0,
            count: 0,
            fill: filled_with_ones,
        },
    };
    let mut at = 2;
    scans.bits.out.extend_from_slice(segments.get(..2)?);
    while let Ok((marker, body, offset)) = segment(segments, at) {
        let end = offset + body.len();
        scans.bits.out.extend_from_slice(&segments[at..end]);
        at = end;
        match (marker, body) {
            (0xc4, _) => read_huffman(&mut scans.huffman, body, offset).ok()?,
            (0xdd, &[high, low]) => scans.interval = usize::from(u16::from_be_bytes([high, low])),
            (0xda, _) => scans.write(body)?,
            _ => {}
        }
    }
    let mut out = scans.bits.out;
    out.extend_from_slice(&segments[at..]);
    Some(out)
}

struct Scans<'a> {
    header: &'a Header<'a>,
    coefficients: &'a Coefficients,
    huffman: [[Option<&'a [u8]>; 4]; 2],
    interval: usize,
    bits: Bits,
}

/// A component of a scan.
struct Part<'a> {
    component: &'a Component,
    /// Its number in the frame.
    number: usize,
    dc: Option<Box<Codes>>,
    ac: Option<Box<Codes>>,
}

/// What a scan sends of each block.
#[derive(Clone, Copy)]
enum Content {
    All,
    Dc { shift: u8 },
    DcBit { shift: u8 },
    Band { first: usize, last: usize, shift: u8 },
    BandBit { first: usize, last: usize, shift: u8 },
}

impl Scans<'_> {
    fn write(&mut self, body: &[u8]) -> Option<()> {
        let (&count, rest) = body.split_first()?;
        let (selectors, &[first, last, approximation]) = rest.split_at_checked(2 * usize::from(count))? else {
            return None;
        };
        let (first, last) = (usize::from(first), usize::from(last));
        if first > last || last > 63 {
            return None;
        }
        let (refines, shift) = (approximation >> 4 != 0, (approximation & 15).min(13));
        let content = match (self.header.process, first) {
            (Process::Sequential, _) => Content::All,
            (_, 0) if refines => Content::DcBit { shift },
            (_, 0) => Content::Dc { shift },
            _ if refines => Content::BandBit { first, last, shift },
            _ => Content::Band { first, last, shift },
        };
        let mut parts = Vec::new();
        for &[id, tables] in selectors.as_chunks().0 {
            let number = self
                .header
                .components()
                .iter()
                .position(|component| component.id == id)?;
            let table = |class: usize, number: u8| {
                self.huffman[class]
                    .get(usize::from(number))
                    .copied()
                    .flatten()
                    .and_then(Codes::new)
            };
            parts.push(Part {
                component: &self.header.components()[number],
                number,
                dc: table(0, tables >> 4),
                ac: table(1, tables & 15),
            });
        }
        let alone = parts.len() == 1;
        let (across, down) = match &parts[..] {
            [part] => (part.component.width.div_ceil(8), part.component.height.div_ceil(8)),
            _ => (self.header.mcus_x, self.header.mcus_y),
        };
        let mut state = State {
            predictors: [0; 3],
            run: 0,
            corrections: Vec::new(),
        };
        let mut left = self.interval;
        let mut restart = 0;
        for y in 0..down {
            for x in 0..across {
                if self.interval > 0 && left == 0 {
                    state.end_run(parts.first()?, &mut self.bits)?;
                    self.bits.flush();
                    self.bits.out.extend([0xff, 0xd0 | restart]);
                    restart = (restart + 1) & 7;
                    state.predictors = [0; 3];
                    left = self.interval;
                }
                left = left.wrapping_sub(1);
                for (i, part) in parts.iter().enumerate() {
                    let (h, v) = if alone {
                        (1, 1)
                    } else {
                        (part.component.h, part.component.v)
                    };
                    for row in y * v..(y + 1) * v {
                        let (blocks, nonzero) = self.coefficients.planes[part.number].row(row);
                        for column in x * h..(x + 1) * h {
                            let block = Block {
                                coefficients: &blocks[column],
                                nonzero: nonzero[column],
                            };
                            state.put(content, i, part, &block, &mut self.bits)?;
                        }
                    }
                }
            }
        }
        state.end_run(parts.first()?, &mut self.bits)?;
        self.bits.flush();
        Some(())
    }
}

#[derive(Clone, Copy)]
struct Block<'a> {
    coefficients: &'a [i16; 64],
    nonzero: u64,
}

impl Block<'_> {
    fn at(&self, k: usize) -> i32 {
        self.coefficients[usize::from(ZIGZAG[k])].into()
    }
}

/// The state of a scan.
struct State {
    predictors: [i32; 3],
    /// Blocks that end, whose number is not yet written, and the correction bits of these.
    run: u32,
    corrections: Vec<bool>,
}

impl State {
    fn put(&mut self, content: Content, i: usize, part: &Part<'_>, block: &Block<'_>, bits: &mut Bits) -> Option<()> {
        match content {
            Content::All => {
                self.put_dc(i, part, block.at(0), bits)?;
                put_ac(part, block, bits)
            }
            Content::Dc { shift } => self.put_dc(i, part, block.at(0) >> shift, bits),
            Content::DcBit { shift } => {
                bits.put((block.at(0) >> shift & 1) as u32, 1);
                Some(())
            }
            Content::Band { first, last, shift } => self.put_band(part, block, (first, last, shift), bits),
            Content::BandBit { first, last, shift } => self.put_band_bit(part, block, (first, last, shift), bits),
        }
    }

    fn put_dc(&mut self, i: usize, part: &Part<'_>, value: i32, bits: &mut Bits) -> Option<()> {
        let before = core::mem::replace(self.predictors.get_mut(i)?, value);
        let (size, value) = value_bits(value - before);
        bits.put_code(part.dc.as_deref()?, size as u8)?;
        bits.put(value, size);
        Some(())
    }

    /// Ends a run of blocks that end.
    fn end_run(&mut self, part: &Part<'_>, bits: &mut Bits) -> Option<()> {
        if self.run > 0 {
            let size = self.run.ilog2();
            bits.put_code(part.ac.as_deref()?, (size as u8) << 4)?;
            bits.put(self.run & ((1 << size) - 1), size);
            self.run = 0;
            self.put_corrections(bits);
        }
        Some(())
    }

    fn put_corrections(&mut self, bits: &mut Bits) {
        for bit in self.corrections.drain(..) {
            bits.put(bit.into(), 1);
        }
    }

    fn put_band(
        &mut self,
        part: &Part<'_>,
        block: &Block<'_>,
        (first, last, shift): (usize, usize, u8),
        bits: &mut Bits,
    ) -> Option<()> {
        let mut zeros = 0;
        let mut rest = block.nonzero & u64::MAX << first & u64::MAX >> (63 - last);
        let mut next = first;
        while rest != 0 {
            let k = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let value = block.at(k);
            let size_of = value.abs() >> shift;
            if size_of == 0 {
                continue;
            }
            zeros += k - next;
            next = k + 1;
            self.end_run(part, bits)?;
            while zeros > 15 {
                bits.put_code(part.ac.as_deref()?, 0xf0)?;
                zeros -= 16;
            }
            let (size, value) = value_bits(if value < 0 { -size_of } else { size_of });
            bits.put_code(part.ac.as_deref()?, (zeros as u8) << 4 | size as u8)?;
            bits.put(value, size);
            zeros = 0;
        }
        if next <= last {
            self.run += 1;
            if self.run == LONGEST_RUN {
                self.end_run(part, bits)?;
            }
        }
        Some(())
    }

    fn put_band_bit(
        &mut self,
        part: &Part<'_>,
        block: &Block<'_>,
        (first, last, shift): (usize, usize, u8),
        bits: &mut Bits,
    ) -> Option<()> {
        let size = |k: usize| block.at(k).unsigned_abs() >> shift;
        // The last coefficient that becomes nonzero with this scan.
        let newest = (first..=last).rev().find(|&k| size(k) == 1).unwrap_or(0);
        let mut zeros = 0;
        let mut corrections = Vec::new();
        let mut ends = false;
        for k in first..=last {
            let size = size(k);
            if size == 0 {
                zeros += 1;
                ends = true;
                continue;
            }
            while zeros > 15 && k <= newest {
                self.end_run(part, bits)?;
                bits.put_code(part.ac.as_deref()?, 0xf0)?;
                zeros -= 16;
                for bit in corrections.drain(..) {
                    bits.put(u32::from(bit), 1);
                }
            }
            if size > 1 {
                corrections.push(size & 1 == 1);
                ends = true;
                continue;
            }
            self.end_run(part, bits)?;
            bits.put_code(part.ac.as_deref()?, (zeros as u8) << 4 | 1)?;
            bits.put((block.at(k) > 0).into(), 1);
            for bit in corrections.drain(..) {
                bits.put(u32::from(bit), 1);
            }
            zeros = 0;
            ends = false;
        }
        if ends {
            self.run += 1;
            self.corrections.append(&mut corrections);
            if self.run == LONGEST_RUN || self.corrections.len() > MOST_CORRECTIONS {
                self.end_run(part, bits)?;
            }
        }
        Some(())
    }
}

fn put_ac(part: &Part<'_>, block: &Block<'_>, bits: &mut Bits) -> Option<()> {
    let codes = part.ac.as_deref()?;
    let (mut rest, mut next) = (block.nonzero & !1, 1);
    while rest != 0 {
        let k = rest.trailing_zeros();
        rest &= rest - 1;
        let mut zeros = k - next;
        next = k + 1;
        while zeros > 15 {
            bits.put_code(codes, 0xf0)?;
            zeros -= 16;
        }
        let (size, value) = value_bits(block.at(k as usize));
        bits.put_symbol(codes, (zeros as u8) << 4 | size as u8, value, size)?;
    }
    if next < 64 {
        bits.put_code(codes, 0)?;
    }
    Some(())
}

/// How many bits a number takes, and the bits.
fn value_bits(value: i32) -> (u32, u32) {
    let size = 32 - value.unsigned_abs().leading_zeros();
    let value = if value < 0 { value - 1 } else { value };
    (size, value as u32 & ((1 << size) - 1))
}

/// The codes of a Huffman table: the code, right-aligned, and its length. Length 0: none.
struct Codes([(u16, u8); 256]);

impl Codes {
    /// Of the body of a DHT segment: 16 counts, then the symbols.
    fn new(body: &[u8]) -> Option<Box<Self>> {
        let (counts, mut symbols) = body.split_first_chunk::<16>()?;
        let mut codes = Box::new(Codes([(0, 0); 256]));
        let mut next = 0u32;
        for (length, &count) in (1..).zip(counts) {
            for _ in 0..count {
                let (&symbol, rest) = symbols.split_first()?;
                symbols = rest;
                codes.0[usize::from(symbol)] = (u16::try_from(next).ok()?, length);
                next += 1;
            }
            next <<= 1;
        }
        Some(codes)
    }
}

/// Bytes that are stuffed at once.
const PLAIN: usize = 4096;

/// Writes entropy-coded bytes with stuffing.
struct Bits {
    out: Vec<u8>,
    /// Bytes that are not stuffed yet, and their number.
    plain: [u8; PLAIN],
    nbytes: usize,
    /// The last `count` bits, right-aligned; other bits above them.
    held: u64,
    count: u32,
    fill: bool,
}

impl Bits {
    /// Appends a symbol and the bits that follow it, up to 16.
    #[inline]
    fn put_symbol(&mut self, codes: &Codes, symbol: u8, bits: u32, count: u32) -> Option<()> {
        let (code, length) = codes.0[usize::from(symbol)];
        if length == 0 {
            return None;
        }
        self.put(u32::from(code) << count | bits, u32::from(length) + count);
        Some(())
    }

    fn put_code(&mut self, codes: &Codes, symbol: u8) -> Option<()> {
        self.put_symbol(codes, symbol, 0, 0)
    }

    /// Appends up to 32 bits.
    #[inline(always)]
    fn put(&mut self, bits: u32, count: u32) {
        self.held = self.held << count | u64::from(bits);
        self.count += count;
        // Without a branch on the number of bits, which cannot be foreseen.
        self.plain[self.nbytes..][..8].copy_from_slice(&(self.held << 1 << (63 - self.count)).to_be_bytes());
        self.nbytes += self.count as usize / 8;
        self.count %= 8;
        if self.nbytes > PLAIN - 8 {
            self.stuff();
        }
    }

    /// Moves the whole bytes to the output, a zero after each byte of ones.
    fn stuff(&mut self) {
        let (words, rest) = self.plain[..self.nbytes].as_chunks::<8>();
        for word in words {
            // Each byte of ones becomes zero when inverted, and would borrow.
            let inverted = !u64::from_ne_bytes(*word);
            if inverted.wrapping_sub(0x0101_0101_0101_0101) & !inverted & 0x8080_8080_8080_8080 == 0 {
                self.out.extend_from_slice(word);
            } else {
                word.iter().for_each(|byte| stuff_byte(&mut self.out, *byte));
            }
        }
        rest.iter().for_each(|byte| stuff_byte(&mut self.out, *byte));
        self.nbytes = 0;
    }

    /// Fills the last byte.
    fn flush(&mut self) {
        let missing = (8 - self.count % 8) % 8;
        self.put(if self.fill { (1 << missing) - 1 } else { 0 }, missing);
        self.stuff();
    }
}

fn stuff_byte(out: &mut Vec<u8>, byte: u8) {
    out.push(byte);
    if byte == 0xff {
        out.push(0);
    }
}
