//! What a device needs to decode a region of a JPEG: its tables, where its segments begin, and their bytes.
//!
//! ```text
//!  words      | quant tables      | Huffman tables      | segments             | bytes of the scan
//!  [i32; 112] | [i16; 64] of each | counts, symbols of  | by row of MCUs: one  | as in the file; only rows of MCUs
//!             | component         | each, padded to 4   | more than it has     | and segments that the region needs
//! ```
//!
//! A segment is where decoding may begin: see [`super::seek::table`]. All of them are decoded at once. The last entry of a
//! row is where its last segment ends, so that the end of every segment that is decoded whole is compared. Numbers are
//! little-endian; [`word`] names the words. The device's code (`penstock/torch/cuda/kernels`) has the same names.
//!
//! Of a record of coefficients there are the quant tables, an entry for each of its segments that has a needed block, and
//! the bytes of these: see [`record`].

mod record;

use crate::error::Error;
use crate::jpeg::decoder::Decoder;
use crate::jpeg::entropy::unstuff::find_marker;
use crate::jpeg::format::header::Header;
use crate::jpeg::format::markers::Color;
use crate::jpeg::kernels::upsample::Upsample;
use crate::jpeg::region::Region;
use crate::jpeg::sample_strips::NeededMcus;
use crate::jpeg::seek::hints::{DecodeHints, SeekReport};
use crate::jpeg::seek::table::{SeekPoint, SeekTable, SeekTableKind};

/// Positions of words.
pub(crate) mod word {
    pub const BLOCKS: usize = 2; // 0, 1, 4 to 7 and 9 to 41: `crate::fill`
    pub const SAMPLES: usize = 3;
    pub const SEGMENTS: usize = 8;
    pub const COLOR: usize = 42;
    pub const COMPONENTS: usize = 43;
    pub const RESTART_INTERVAL: usize = 44;
    pub const MCUS_X: usize = 45;
    pub const MCUS_Y: usize = 46;
    pub const BLOCKS_PER_MCU: usize = 47;
    /// Segments of a record of coefficients.
    pub const RECORD_SEGMENTS: usize = 48;
    pub const FIRST_COLUMN: usize = 50;
    pub const END_COLUMN: usize = 51;
    pub const FIRST_ROW: usize = 52;
    pub const END_ROW: usize = 53;
    pub const MCUS_PER_SEGMENT: usize = 54;
    pub const SEGMENTS_PER_ROW: usize = 55;
    pub const FIRST_SEGMENT: usize = 56;
    pub const SEGMENTS_AT: usize = 57;
    pub const QUANT_AT: usize = 58;
    pub const HUFFMAN_AT: usize = 59;
    pub const DATA_AT: usize = 60;
    pub const DATA_NBYTES: usize = 61;
    pub const COMPONENT: usize = 64;
    /// Words of a component.
    pub const PER_COMPONENT: usize = 16;
    /// All words.
    pub const COUNT: usize = COMPONENT + 3 * PER_COMPONENT;
}

/// Memory for packets, which are appended.
#[derive(Debug)]
pub struct PacketBuffer<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl<'a> PacketBuffer<'a> {
    /// A buffer over this memory, with `len` bytes of packets at its front.
    pub fn with_len(bytes: &'a mut [u8], len: usize) -> Self {
        let len = len.min(bytes.len());
        PacketBuffer { bytes, len }
    }

    /// Bytes that are used.
    #[allow(clippy::len_without_is_empty)] // nothing asks for it
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes that there are.
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Forgets all but the first `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The used bytes from `start` on.
    pub(crate) fn from(&mut self, start: usize) -> &mut [u8] {
        &mut self.bytes[start..self.len]
    }

    /// The next `count` bytes, with arbitrary content. The error says how many bytes in all there must be.
    pub(crate) fn append(&mut self, count: usize) -> Result<&mut [u8], Error> {
        let start = self.len;
        let end = start + count;
        let Some(part) = self.bytes.get_mut(start..end) else {
            return Err(Error::OutOfMemory { nbytes: end });
        };
        self.len = end;
        Ok(part)
    }

    pub(crate) fn extend(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.append(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// Appends zeros up to a multiple of `alignment` bytes from `start` on.
    pub(crate) fn align(&mut self, start: usize, alignment: usize) -> Result<(), Error> {
        let missing = (self.len - start).next_multiple_of(alignment) - (self.len - start);
        self.append(missing)?.fill(0);
        Ok(())
    }
}

/// The words of a packet. A device reads them as signed numbers of 32 bits.
pub(crate) struct Words([i32; word::COUNT]);

impl Words {
    /// Zeros.
    pub fn new() -> Self {
        Self([0; word::COUNT])
    }

    /// Sets the words from `at` on.
    ///
    /// # Errors
    /// [`Error::Unsupported`]: a number of more than 31 bits.
    pub fn set(&mut self, at: usize, values: &[usize]) -> Result<(), Error> {
        for (word, value) in self.0[at..][..values.len()].iter_mut().zip(values) {
            *word = as_word(*value)?;
        }
        Ok(())
    }

    /// Their bytes.
    pub fn to_bytes(&self) -> [[u8; 4]; word::COUNT] {
        self.0.map(i32::to_le_bytes)
    }
}

fn as_word(value: usize) -> Result<i32, Error> {
    i32::try_from(value).map_err(|_| Error::Unsupported("a picture of this size on a device"))
}

/// Bytes of an entry of a segment: bits (u32), DC predictors (three i16), and whether the scan ends there (u16).
const SEGMENT_NBYTES: usize = 12;
/// The most bytes of a scan in a packet: positions in it are numbers of bits below 2^31.
const MAX_DATA_NBYTES: usize = 1 << 27;

impl Decoder {
    /// Appends the tables, segments and bytes of a region to `bytes`, and sets the words of the JPEG. The packet begins at
    /// `start`, with space for the words. Where the given seek table does not cover the region, a whole one is made.
    ///
    /// # Errors
    /// [`Error::Unsupported`]: several scans, DC values beyond 16 bits, or a scan of more than 128 MiB in the region.
    /// [`Error::Corrupt`] where the scan, or its end, is damaged and was read. `bytes` are partly written.
    pub(crate) fn write_packet(
        &mut self,
        header: &Header<'_>,
        region: Region,
        hints: DecodeHints<'_>,
        words: &mut Words,
        bytes: &mut PacketBuffer<'_>,
        start: usize,
    ) -> Result<SeekReport, Error> {
        if header.has_several_scans {
            return Err(Error::Unsupported("several scans (progressive or not) on a device"));
        }
        let needed = NeededMcus::new(header, region);
        write_header(header, &needed, words)?;
        write_components(header, &needed, words)?;
        write_quant_tables(header, words, bytes, start)?;
        if let Some(record) = &header.record {
            record::write(record, header, &needed, words, bytes, start)?;
            return Ok(SeekReport::default());
        }
        let (given, mut report) = hints.open_table(header);
        let table = match given.filter(|table| covers(table, header, &needed)) {
            Some(table) => table,
            None => {
                let kind = hints.learn.unwrap_or(SeekTableKind::Tiles);
                let table = self.build_seek_table(header, kind)?;
                report.learned = hints.learn.map(|_| table.to_bytes(header));
                table
            }
        };
        write_huffman_tables(header, words, bytes, start)?;
        write_segments(header, &needed, &table, words, bytes, start)?;
        Ok(report)
    }
}

/// Whether the table has the starts and the ends of all segments of the needed MCUs.
fn covers(table: &SeekTable, header: &Header<'_>, needed: &NeededMcus) -> bool {
    let last = (needed.rows.end - 1) * header.mcus_x + needed.columns.end - 1;
    table.known() > (table.segment(last) + 1).min(table.total() - 1)
}

fn write_header(header: &Header<'_>, needed: &NeededMcus, words: &mut Words) -> Result<(), Error> {
    let color = match header.color {
        Color::Gray | Color::Other => 0,
        Color::YCbCr => 1,
        Color::Rgb => 2,
    };
    let values = [
        (word::COLOR, color),
        (word::COMPONENTS, header.components().len()),
        (word::RESTART_INTERVAL, header.restart_interval),
        (word::MCUS_X, header.mcus_x),
        (word::MCUS_Y, header.mcus_y),
        (word::BLOCKS_PER_MCU, header.blocks_per_mcu),
        (word::FIRST_COLUMN, needed.columns.start),
        (word::END_COLUMN, needed.columns.end),
        (word::FIRST_ROW, needed.rows.start),
        (word::END_ROW, needed.rows.end),
    ];
    values.iter().try_for_each(|(at, value)| words.set(*at, &[*value]))
}

fn write_components(header: &Header<'_>, needed: &NeededMcus, words: &mut Words) -> Result<(), Error> {
    let (mut blocks, mut samples) = (0, 0);
    let parts = needed.needed_blocks.iter().flatten();
    let places = (word::COMPONENT..).step_by(word::PER_COMPONENT);
    let mut tables = TableNumbers::default();
    for ((component, part), at) in header.components().iter().zip(parts).zip(places) {
        let scaled = &part.scaled;
        let upsample = match scaled.upsample {
            Upsample::None | Upsample::Repeat { .. } => 0,
            Upsample::H2V1 => 1,
            Upsample::H1V2 => 2,
            Upsample::H2V2 => 3,
        };
        let values: [usize; word::PER_COMPONENT] = [
            component.h,
            component.v,
            tables.number(0, component.dc),
            tables.number(1, component.ac),
            scaled.block,
            scaled.across,
            scaled.down,
            upsample,
            scaled.width,
            scaled.height,
            part.columns.start,
            part.columns.end,
            part.rows.start,
            part.rows.end,
            blocks,
            samples,
        ];
        words.set(at, &values)?;
        let count = part.columns.len() * part.rows.len();
        blocks += count;
        samples += count * scaled.block * scaled.block;
    }
    words.set(word::BLOCKS, &[blocks])?;
    words.set(word::SAMPLES, &[samples])
}

/// Numbers of the Huffman tables that are used, in the order of their first use.
#[derive(Default)]
struct TableNumbers {
    used: [Vec<usize>; 2],
}

impl TableNumbers {
    fn number(&mut self, class: usize, id: usize) -> usize {
        let used = &mut self.used[class];
        used.iter().position(|other| *other == id).unwrap_or_else(|| {
            used.push(id);
            used.len() - 1
        })
    }
}

fn write_quant_tables(
    header: &Header<'_>,
    words: &mut Words,
    bytes: &mut PacketBuffer<'_>,
    start: usize,
) -> Result<(), Error> {
    words.set(word::QUANT_AT, &[bytes.len() - start])?;
    for component in header.components() {
        let part = bytes.append(128)?.as_chunks_mut().0;
        for (place, value) in part.iter_mut().zip(&header.quant[component.quant]) {
            *place = value.to_le_bytes();
        }
    }
    Ok(())
}

/// Appends Huffman tables: for each of three DC and three AC tables its offset and bytes (0 if there is none), then the
/// tables.
fn write_huffman_tables(
    header: &Header<'_>,
    words: &mut Words,
    bytes: &mut PacketBuffer<'_>,
    start: usize,
) -> Result<(), Error> {
    let directory = bytes.len();
    words.set(word::HUFFMAN_AT, &[directory - start])?;
    bytes.append(6 * 8)?.fill(0);
    let mut numbers = TableNumbers::default();
    for component in header.components() {
        for (class, id) in [component.dc, component.ac].into_iter().enumerate() {
            let at = directory + 8 * (3 * class + numbers.number(class, id));
            if bytes.from(at)[..4] != [0; 4] {
                continue;
            }
            let Some(table) = header.huffman[class][id].filter(|table| is_valid_code(class, table)) else {
                return Err(Error::Corrupt {
                    what: "bad Huffman table",
                    offset: header.scan,
                });
            };
            let at_table = bytes.len() - start;
            bytes.extend(table)?;
            bytes.align(start, 4)?;
            let entry = bytes.from(at);
            entry[..4].copy_from_slice(&as_word(at_table)?.to_le_bytes());
            entry[4..8].copy_from_slice(&as_word(table.len())?.to_le_bytes());
        }
    }
    Ok(())
}

/// Whether a DHT segment's body makes a valid code: as the CPU's tables require it.
fn is_valid_code(class: usize, table: &[u8]) -> bool {
    let Some((counts, symbols)) = table.split_first_chunk::<16>() else {
        return false;
    };
    let mut code = 0u32;
    for (length, &count) in (1u32..).zip(counts) {
        // As in libjpeg, no code consists of ones only.
        if count > 0 && code + u32::from(count) >= 1 << length {
            return false;
        }
        code = (code + u32::from(count)) << 1;
    }
    let used = counts.iter().map(|count| usize::from(*count)).sum();
    let symbols = symbols.get(..used);
    symbols.is_some_and(|symbols| class == 1 || symbols.iter().all(|symbol| *symbol <= 15))
}

/// Appends the segments of the needed MCUs, and the bytes of the scan that they are in.
fn write_segments(
    header: &Header<'_>,
    needed: &NeededMcus,
    table: &SeekTable,
    words: &mut Words,
    bytes: &mut PacketBuffer<'_>,
    start: usize,
) -> Result<(), Error> {
    let segments_of = |row: usize| {
        let first = row * header.mcus_x;
        table.segment(first + needed.columns.start)..table.segment(first + needed.columns.end - 1) + 1
    };
    let first_row = segments_of(needed.rows.start);
    let (per_row, rows) = (first_row.len(), needed.rows.len());
    let (begin, segments_nbytes) = (bytes.len(), rows * (per_row + 1) * SEGMENT_NBYTES);
    words.set(word::SEGMENTS_AT, &[begin - start])?;
    words.set(word::SEGMENTS, &[rows * per_row])?;
    words.set(word::SEGMENTS_PER_ROW, &[per_row])?;
    words.set(word::MCUS_PER_SEGMENT, &[table.mcus_per_segment()])?;
    words.set(
        word::FIRST_SEGMENT,
        &[table.first_mcu(first_row.start) - needed.rows.start * header.mcus_x],
    )?;
    bytes.append(segments_nbytes)?;
    let data = bytes.len();
    words.set(word::DATA_AT, &[data - start])?;
    let scan = &header.bytes[header.scan..];
    let mut copied = 0..0; // the last range of the scan that was copied
    let mut entry = begin;
    for row in needed.rows.clone() {
        let segments = segments_of(row);
        let from = (table.points[segments.start].bits / 8) as usize;
        let end = table.points.get(segments.end);
        let stop = match end {
            // A byte that has begun may be FF00.
            Some(end) => (end.bits / 8) as usize + 2 * usize::from(end.bits % 8 > 0),
            None => find_scan_end(header, (table.points[segments.end - 1].bits / 8) as usize)?,
        };
        let stop = stop.min(scan.len());
        if from < copied.start || from > copied.end {
            copied = from..from;
        }
        let missing = scan.get(copied.end..stop).unwrap_or_default();
        bytes.extend(missing)?;
        copied.end += missing.len();
        if bytes.len() - data > MAX_DATA_NBYTES {
            return Err(Error::Unsupported("more than 128 MiB of a scan on a device"));
        }
        let base = 8 * (bytes.len() - data - copied.len()) as u64; // the range's place in the data, in bits
        let last = end.copied().unwrap_or(SeekPoint {
            bits: 8 * stop as u64,
            ..SeekPoint::default()
        });
        let points = segments.map(|segment| table.points[segment]).chain([last]);
        for (i, point) in points.enumerate() {
            let ends_scan = i == per_row && end.is_none();
            let bits = base + (point.bits - 8 * copied.start as u64);
            write_entry(
                &mut bytes.from(entry)[..SEGMENT_NBYTES],
                bits,
                point.predictors,
                ends_scan,
            )?;
            entry += SEGMENT_NBYTES;
        }
    }
    words.set(word::DATA_NBYTES, &[bytes.len() - data])?;
    Ok(())
}

fn write_entry(entry: &mut [u8], bits: u64, predictors: [i32; 3], ends_scan: bool) -> Result<(), Error> {
    entry[..4].copy_from_slice(&as_word(bits as usize)?.to_le_bytes());
    for (place, predictor) in entry[4..10].as_chunks_mut::<2>().0.iter_mut().zip(predictors) {
        let Ok(predictor) = i16::try_from(predictor) else {
            return Err(Error::Unsupported("DC values beyond 16 bits on a device"));
        };
        *place = predictor.to_le_bytes();
    }
    entry[10..12].copy_from_slice(&u16::from(ends_scan).to_le_bytes());
    Ok(())
}

/// The offset in the scan of the marker that ends the image, from a byte of its last segment on.
fn find_scan_end(header: &Header<'_>, from: usize) -> Result<usize, Error> {
    let scan = &header.bytes[header.scan..];
    let mut at = from;
    loop {
        at += find_marker(scan.get(at..).unwrap_or_default());
        match scan.get(at..at + 2) {
            Some([0xff, 0xd9]) => return Ok(at),
            Some([0xff, 0xd0..=0xd7]) => at += 2,
            _ => {
                return Err(Error::Corrupt {
                    what: "the end of the image (EOI) is missing",
                    offset: header.scan + at,
                });
            }
        }
    }
}
