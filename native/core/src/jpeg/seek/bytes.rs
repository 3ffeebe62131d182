//! The seek table as bytes:
//!
//! ```text
//!  version  kind  known  least  │ per point after the first: bits - least, predictors │  check
//!  1 byte   1     varint varint │ varint of the distance      signed varints of the   │  8 bytes, little-endian
//!                               │ to the point before         differences to a        │
//!                               │                             neighbour's             │
//! ```
//!
//! `check` covers these bytes and everything in the image that the table depends on: geometry, Huffman tables, the
//! length of the scan, and both ends of the scan. One comparison therefore detects a damaged table and a table of
//! another image. A change within eight aligned bytes is always detected, any other with a probability of 1 - 2^-64. It
//! is not a signature: forged bytes with a valid check can move pixels inside this image, and nothing else.

use crate::jpeg::format::header::Header;
use crate::jpeg::seek::table::{SeekPoint, SeekTable, SeekTableKind};

const VERSION: u8 = 1;
const CHECK_BYTES: usize = 8;
/// Bytes at each end of the scan that the check covers.
const END_BYTES: usize = 64;
/// The fewest bytes that a seek point takes.
const MIN_ENTRY_BYTES: usize = 2;

impl SeekTable {
    /// The table as bytes, for [`SeekTable::parse`].
    pub fn to_bytes(&self, header: &Header<'_>) -> Vec<u8> {
        let components = header.components().len();
        let distances = self.points.windows(2).map(|pair| pair[1].bits - pair[0].bits);
        let least = distances.clone().min().unwrap_or(0);
        let mut bytes = vec![VERSION, self.kind as u8];
        write_varint(&mut bytes, self.points.len() as u64);
        write_varint(&mut bytes, least);
        for ((segment, point), distance) in self.points.iter().enumerate().skip(1).zip(distances) {
            write_varint(&mut bytes, distance - least);
            let before = self.points[self.neighbour(segment)].predictors;
            for (predictor, before) in point.predictors.iter().zip(before).take(components) {
                write_varint(&mut bytes, zigzag(predictor.wrapping_sub(before)));
            }
        }
        Self::with_check(header, bytes)
    }

    /// Appends the check to a table's bytes. Public, so that fuzzing can make tables that pass it.
    pub fn with_check(header: &Header<'_>, mut body: Vec<u8>) -> Vec<u8> {
        let check = compute_check(header, &body);
        body.extend(check.to_le_bytes());
        body
    }

    /// Reads a table of this image. None: damaged, of another image, or of another version.
    pub fn parse(header: &Header<'_>, bytes: &[u8]) -> Option<Self> {
        let (body, stored) = bytes.split_last_chunk::<CHECK_BYTES>()?;
        if header.has_several_scans || compute_check(header, body) != u64::from_le_bytes(*stored) {
            return None;
        }
        let (&[version, kind], mut rest) = body.split_first_chunk()?;
        let kind = [SeekTableKind::Rows, SeekTableKind::Tiles]
            .into_iter()
            .find(|known| *known as u8 == kind && version == VERSION)?;
        let mut table = SeekTable::new(header, kind);
        let known = usize::try_from(read_varint(&mut rest)?).ok()?;
        let least = read_varint(&mut rest)?;
        if known == 0 || known > table.total() || known - 1 > rest.len() / MIN_ENTRY_BYTES {
            return None;
        }
        table.points.reserve_exact(known - 1);
        let (end, components) = (8 * (header.bytes.len() - header.scan) as u64, header.components().len());
        let mut bits = 0u64;
        for segment in 1..known {
            bits = bits.checked_add(least)?.checked_add(read_varint(&mut rest)?)?;
            let mut point = SeekPoint {
                bits,
                predictors: table.points[table.neighbour(segment)].predictors,
            };
            for predictor in &mut point.predictors[..components] {
                *predictor = predictor.wrapping_add(unzigzag(read_varint(&mut rest)?)?);
            }
            table.points.push(point);
        }
        (rest.is_empty() && bits < end).then_some(table)
    }
}

/// Writes seven bits per byte, the lowest first. The top bit says that more bytes follow.
fn write_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Maps small numbers of either sign to small unsigned numbers: 0, -1, 1, -2, ...
fn zigzag(value: i32) -> u64 {
    u64::from((value << 1 ^ value >> 31) as u32)
}

fn unzigzag(value: u64) -> Option<i32> {
    let value = u32::try_from(value).ok()?;
    Some((value >> 1) as i32 ^ -((value & 1) as i32))
}

fn compute_check(header: &Header<'_>, body: &[u8]) -> u64 {
    let scan = header.bytes.get(header.scan..).unwrap_or_default();
    let mut hash = Hash(0x9e37_79b9_7f4a_7c15);
    for number in [header.width, header.height, header.restart_interval, scan.len()] {
        hash.word(number as u64);
    }
    for component in header.components() {
        hash.word((component.h << 8 | component.v) as u64);
        for table in [header.huffman[0][component.dc], header.huffman[1][component.ac]] {
            hash.bytes(table.unwrap_or_default());
        }
    }
    hash.bytes(&scan[..scan.len().min(END_BYTES)]);
    hash.bytes(&scan[scan.len().saturating_sub(END_BYTES)..]);
    hash.bytes(body);
    hash.0
}

/// Hashes a word at a time. Each step is one-to-one in the word and in the state, so that no change of a single word is
/// lost.
struct Hash(u64);

impl Hash {
    fn word(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        self.0 = mixed ^ mixed >> 32;
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last));
    }
}
