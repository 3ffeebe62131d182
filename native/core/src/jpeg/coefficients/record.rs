//! The bytes of a picture whose coefficients are kept, in place of its JPEG.
//!
//! ```text
//! offset  bytes
//! 0       4      magic: 9B 50 53 43
//! 4       4      version: 1
//! 8       8      all bytes of the record
//! 16      8      xxh3_64 of the JPEG
//! 24      8      bytes of the JPEG
//! 32      4      flags: bit 0: the bits that fill the last byte of a scan are ones
//! 36      4      bytes of the head, these included
//! 40      4      bytes of the JPEG before its first entropy-coded byte, without DHT segments of usual tables
//! 44      4      its other bytes that are not entropy-coded: segments between scans, what follows the last scan
//! 48      4      bytes of the list of DHT segments that were left out
//! 52             these bytes and the list, one after the other; for each segment that was left out:
//!         2      where it lies among the bytes that were kept
//!         1      the number of its tables
//!         1      for each: 0 to 3 (DC and AC of luma, DC and AC of chroma)
//!                for each row of MCUs, each component, each of its rows of blocks in an MCU, each segment:
//!         2      the bytes of its AC coefficients
//!                in the same order:
//!         1      the bytes of its DC coefficients
//!                for each row of MCUs:
//!         4      the lower half of xxh3_64 of its AC coefficients
//!                the DC coefficients of all segments, in the same order
//! head-8  8      xxh3_64 of the head so far
//! head           the AC coefficients of all segments, in the same order
//! ```
//!
//! Numbers are little-endian. A row of MCUs is cut into segments of as many MCUs as hold at most 64 blocks of any
//! component in a row.

use core::ops::Range;

use twox_hash::XxHash3_64;

use super::segment::{self, Window};
use super::tables::USUAL_TABLES;
use super::{SEGMENT, dc};
use crate::error::{Error, corrupt};
use crate::jpeg::format::header::Header;
use crate::jpeg::format::markers::segment;

const MAGIC: [u8; 4] = [0x9b, b'P', b'S', b'C'];
const VERSION: u32 = 1;
const FIXED: usize = 52;

/// Fuzzing reads what no checksum lets pass otherwise.
const UNCHECKED: bool = cfg!(fuzzing);

/// Whether bytes are a record.
pub fn is_record(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// The bytes of a JPEG up to its first entropy-coded one, of a record those that it keeps.
pub(crate) fn header_bytes(image: &[u8]) -> Result<&[u8], Error> {
    if is_record(image) {
        return Ok(Record::read(image)?.before);
    }
    Ok(image)
}

/// How the blocks of a picture are cut into segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    mcus_x: usize,
    mcus_y: usize,
    /// MCUs of a segment.
    mcus: usize,
    /// Segments in a row of MCUs, of all components and rows of blocks.
    per_mcu_row: usize,
}

impl Cut {
    pub fn new(header: &Header<'_>) -> Self {
        let mcus = SEGMENT / header.hmax;
        let rows: usize = header.components().iter().map(|component| component.v).sum();
        Cut {
            mcus_x: header.mcus_x,
            mcus_y: header.mcus_y,
            mcus,
            per_mcu_row: rows * header.mcus_x.div_ceil(mcus),
        }
    }

    /// Segments in a row of blocks.
    pub fn across(&self) -> usize {
        self.mcus_x.div_ceil(self.mcus)
    }

    /// Block columns of a segment of a component that has `h` blocks across in an MCU.
    pub fn columns(&self, segment: usize, h: usize) -> Range<usize> {
        let end = ((segment + 1) * self.mcus).min(self.mcus_x);
        segment * self.mcus * h..end * h
    }

    fn count(&self) -> usize {
        self.per_mcu_row * self.mcus_y
    }
}

/// The parts of a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    bytes: &'a [u8],
    head: usize,
    /// The JPEG's bytes before its first entropy-coded one, and its other bytes that are not entropy-coded.
    /// Segments of usual Huffman tables are left out of the first.
    pub before: &'a [u8],
    pub after: &'a [u8],
    left_out: &'a [u8],
    /// Where the lengths begin.
    lengths: usize,
    pub jpeg_hash: u64,
    pub jpeg_nbytes: u64,
    pub filled_with_ones: bool,
}

impl<'a> Record<'a> {
    /// Reads the fixed part of the head. The rest is checked by [`Self::open`], once the header of the JPEG is known.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        let Some(fixed) = bytes.first_chunk::<FIXED>().filter(|_| is_record(bytes)) else {
            return corrupt("not a record of coefficients", 0);
        };
        let word = |at: usize| fixed[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        let long = |at: usize| fixed[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        if word(4) != VERSION {
            return Err(Error::Unsupported("a later version of records of coefficients"));
        }
        if long(8) != bytes.len() as u64 {
            return corrupt("a record of coefficients of another length", 8);
        }
        let [head, before, after, left_out] = [36, 40, 44, 48].map(|at| word(at) as usize);
        let lengths = [before, after, left_out].into_iter().fold(FIXED, usize::saturating_add);
        if head > bytes.len() || lengths.saturating_add(8) > head {
            return corrupt("the parts of a record of coefficients do not fit in it", 36);
        }
        Ok(Record {
            bytes,
            head,
            before: &bytes[FIXED..FIXED + before],
            after: &bytes[FIXED + before..lengths - left_out],
            left_out: &bytes[lengths - left_out..lengths],
            lengths,
            jpeg_hash: long(16),
            jpeg_nbytes: long(24),
            filled_with_ones: word(32) & 1 == 1,
        })
    }

    /// The bytes of the JPEG before its first entropy-coded one.
    pub fn restore_before(&self) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(self.before.len() + 512);
        let (mut list, mut from) = (self.left_out, 0);
        while let Some((&[low, high, count], rest)) = list.split_first_chunk() {
            let at = usize::from(u16::from_le_bytes([low, high]));
            let (tables, rest) = rest.split_at_checked(count.into())?;
            out.extend_from_slice(self.before.get(from..at)?);
            let nbytes = 2 + tables
                .iter()
                .fold(0, |sum, &table| sum + USUAL_TABLES[usize::from(table & 3)].len());
            out.extend([0xff, 0xc4]);
            out.extend(u16::try_from(nbytes).ok()?.to_be_bytes());
            out.extend(tables.iter().flat_map(|&table| USUAL_TABLES[usize::from(table & 3)]));
            (list, from) = (rest, at);
        }
        out.extend_from_slice(&self.before[from..]);
        Some(out)
    }

    /// Checks the head, and returns where the segments are.
    pub fn open(&self, cut: Cut) -> Result<Segments<'a>, Error> {
        let (head, hash) = self.bytes[..self.head].split_at(self.head - 8);
        if XxHash3_64::oneshot(head).to_le_bytes() != hash && !UNCHECKED {
            return corrupt("the head of a record of coefficients is damaged", 0);
        }
        let rest = &head[self.lengths..];
        let parts = rest
            .split_at_checked(2 * cut.count())
            .and_then(|(ac, rest)| Some((ac, rest.split_at_checked(cut.count())?)))
            .and_then(|(ac, (dc, rest))| Some((ac, dc, rest.split_at_checked(4 * cut.mcus_y)?)));
        let Some((ac_nbytes, dc_nbytes, (hashes, dc))) = parts else {
            return corrupt("a record of coefficients lacks lengths", self.lengths);
        };
        Ok(Segments {
            cut,
            ac_nbytes: ac_nbytes.as_chunks().0,
            dc_nbytes,
            hashes: hashes.as_chunks().0,
            dc,
            ac: &self.bytes[self.head..],
            head: self.head,
        })
    }
}

/// The segments of a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segments<'a> {
    pub cut: Cut,
    ac_nbytes: &'a [[u8; 2]],
    dc_nbytes: &'a [u8],
    hashes: &'a [[u8; 4]],
    dc: &'a [u8],
    ac: &'a [u8],
    head: usize,
}

/// The segments of a row of MCUs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentRow<'a> {
    pub cut: Cut,
    /// The AC coefficients are not read.
    pub only_dc: bool,
    ac_nbytes: &'a [[u8; 2]],
    dc_nbytes: &'a [u8],
    ac: &'a [u8],
    dc: &'a [u8],
}

impl<'a> Segments<'a> {
    /// The segments of a row of MCUs, checked. `only_dc`: the AC coefficients are neither read nor checked.
    pub fn row(&self, row: usize, only_dc: bool) -> Result<SegmentRow<'a>, Error> {
        let sum = |nbytes: &[[u8; 2]]| {
            nbytes
                .iter()
                .map(|n| usize::from(u16::from_le_bytes(*n)))
                .sum::<usize>()
        };
        let dc_sum = |nbytes: &[u8]| nbytes.iter().map(|&n| usize::from(n)).sum::<usize>();
        let first = row * self.cut.per_mcu_row;
        let segments = first..first + self.cut.per_mcu_row;
        let dc_nbytes = &self.dc_nbytes[segments.clone()];
        let dc_from = dc_sum(&self.dc_nbytes[..first]);
        let Some(dc) = self.dc.get(dc_from..dc_from + dc_sum(dc_nbytes)) else {
            return corrupt("a record of coefficients lacks DC coefficients", self.head);
        };
        let mut found = SegmentRow {
            cut: self.cut,
            only_dc,
            ac_nbytes: &self.ac_nbytes[segments],
            dc_nbytes,
            ac: &[],
            dc,
        };
        if only_dc {
            return Ok(found);
        }
        let from = sum(&self.ac_nbytes[..first]);
        let Some(ac) = self.ac.get(from..from + sum(found.ac_nbytes)) else {
            return corrupt("a record of coefficients ends too early", self.head + self.ac.len());
        };
        if (XxHash3_64::oneshot(ac) as u32).to_le_bytes() != self.hashes[row] && !UNCHECKED {
            return corrupt("a row of a record of coefficients is damaged", self.head + from);
        }
        found.ac = ac;
        Ok(found)
    }
}

impl<'a> Iterator for SegmentRow<'a> {
    /// The DC and the AC coefficients of a segment.
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (&[low, high], ac_rest) = self.ac_nbytes.split_first()?;
        let (&dc_nbytes, dc_rest) = self.dc_nbytes.split_first()?;
        let (dc, dc_after) = self.dc.split_at_checked(dc_nbytes.into())?;
        // Empty where the AC coefficients are not read.
        let (ac, ac_after) = self
            .ac
            .split_at_checked(u16::from_le_bytes([low, high]).into())
            .unwrap_or_default();
        *self = SegmentRow {
            ac_nbytes: ac_rest,
            dc_nbytes: dc_rest,
            ac: ac_after,
            dc: dc_after,
            ..*self
        };
        Some((dc, ac))
    }
}

/// The bytes of a JPEG before its first entropy-coded one without DHT segments of usual tables, and the list of these.
fn leave_out_usual_tables(before: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut kept, mut left_out) = (Vec::new(), Vec::new());
    let mut at = 2.min(before.len());
    kept.extend_from_slice(&before[..at]);
    while let Ok((marker, body, offset)) = segment(before, at) {
        let end = offset + body.len();
        let place = u16::try_from(kept.len());
        match (usual_tables(body), place) {
            // Without fill bytes before the marker.
            (Some(tables), Ok(place)) if marker == 0xc4 && offset == at + 4 => {
                left_out.extend(place.to_le_bytes());
                left_out.push(tables.len() as u8);
                left_out.extend(tables);
            }
            _ => kept.extend_from_slice(&before[at..end]),
        }
        at = end;
    }
    kept.extend_from_slice(&before[at..]);
    (kept, left_out)
}

/// The numbers of the tables of a DHT segment, if there are no others.
fn usual_tables(mut body: &[u8]) -> Option<Vec<u8>> {
    let mut found = Vec::new();
    while !body.is_empty() {
        let number = USUAL_TABLES.iter().position(|table| body.starts_with(table))?;
        body = &body[USUAL_TABLES[number].len()..];
        found.push(number as u8);
    }
    (found.len() < 256).then_some(found)
}

/// What a record is made of.
#[derive(Default)]
pub(super) struct Parts<'a> {
    pub jpeg: &'a [u8],
    pub before: &'a [u8],
    pub after: &'a [u8],
    pub filled_with_ones: bool,
    pub dc_nbytes: Vec<u8>,
    pub dc: Vec<u8>,
    pub ac_nbytes: Vec<u16>,
    pub ac: Vec<u8>,
    /// Where each row of MCUs ends in `ac`.
    pub row_ends: Vec<usize>,
}

impl Parts<'_> {
    /// Appends a segment of a component. None if a coefficient is too large.
    pub fn put_segment(&mut self, component: usize, blocks: &[[i16; 64]]) -> Option<()> {
        let mut first = [0; SEGMENT];
        let first = &mut first[..blocks.len()];
        for (first, block) in first.iter_mut().zip(blocks) {
            *first = block[0];
        }
        let (dc_from, ac_from) = (self.dc.len(), self.ac.len());
        let written = dc::write_segment(first, &mut self.dc)
            && segment::write_segment(usize::from(component > 0), blocks, &mut self.ac);
        self.dc_nbytes.push(u8::try_from(self.dc.len() - dc_from).ok()?);
        let ac_nbytes = u16::try_from(self.ac.len() - ac_from).ok()?;
        self.ac_nbytes.push(ac_nbytes);
        (written && usize::from(ac_nbytes) <= Window::MOST).then_some(())
    }

    /// Ends a row of MCUs.
    pub fn end_row(&mut self) {
        self.row_ends.push(self.ac.len());
    }

    /// The bytes of the record. None if a part is too long for its field.
    pub fn join(&self) -> Option<Vec<u8>> {
        let (before, left_out) = leave_out_usual_tables(self.before);
        let lengths = FIXED + before.len() + self.after.len() + left_out.len();
        let head = lengths + 3 * self.dc_nbytes.len() + 4 * self.row_ends.len() + self.dc.len() + 8;
        let all = head + self.ac.len();
        let mut out = Vec::with_capacity(all);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend((all as u64).to_le_bytes());
        out.extend(XxHash3_64::oneshot(self.jpeg).to_le_bytes());
        out.extend((self.jpeg.len() as u64).to_le_bytes());
        out.extend(u32::from(self.filled_with_ones).to_le_bytes());
        for nbytes in [head, before.len(), self.after.len(), left_out.len()] {
            out.extend(u32::try_from(nbytes).ok()?.to_le_bytes());
        }
        out.extend_from_slice(&before);
        out.extend_from_slice(self.after);
        out.extend_from_slice(&left_out);
        out.extend(self.ac_nbytes.iter().flat_map(|nbytes| nbytes.to_le_bytes()));
        out.extend_from_slice(&self.dc_nbytes);
        let mut from = 0;
        for &end in &self.row_ends {
            out.extend((XxHash3_64::oneshot(&self.ac[from..end]) as u32).to_le_bytes());
            from = end;
        }
        out.extend_from_slice(&self.dc);
        out.extend(XxHash3_64::oneshot(&out).to_le_bytes());
        out.extend_from_slice(&self.ac);
        Some(out)
    }
}
