//! Records from JPEGs, and JPEGs from records.

use twox_hash::XxHash3_64;

use super::record::{Cut, Parts, Record};
use super::rows::{self, RecordReader};
use super::{SEGMENT, four_of, nonzero_of, rebuild};
use crate::error::{Error, corrupt};
use crate::jpeg::entropy::huffman::HuffmanTables;
use crate::jpeg::entropy::sequential::{self, McuLayout, SLACK};
use crate::jpeg::entropy::unstuff::find_marker;
use crate::jpeg::format::header::{Header, Limits};
use crate::jpeg::format::markers::{ZIGZAG, segment as read_segment};
use crate::jpeg::scans::coefficients::Coefficients;
use crate::jpeg::scans::multi_scan::MultiScanDecoder;
use crate::jpeg::scans::scan_reader::{Filling, ScanReader};
use crate::jpeg::scans::script::Script;
use crate::memory;
use crate::simd::Available;

/// The record of a JPEG, which [`to_jpeg`] turns into the same bytes again: this has been tried, or proven.
///
/// # Errors
/// As decoding the whole image, for arithmetic coding, 12 bits and the like too. [`Error::Unsupported`] also for a JPEG that
/// would not come back byte for byte, and for one that is a record already.
pub fn to_record(jpeg: &[u8], limits: &Limits) -> Result<Vec<u8>, Error> {
    let header = Header::parse(jpeg, limits)?;
    if header.record.is_some() {
        return Err(Error::Unsupported("the bytes are a record of coefficients already"));
    }
    let (before, after) = split(jpeg)?;
    let mut parts = Parts {
        jpeg,
        before,
        after: &after,
        ac: Vec::with_capacity(jpeg.len()),
        ..Parts::default()
    };
    let proven = if header.has_several_scans {
        None
    } else {
        write_scan(&header, &mut parts)?
    };
    let found = if proven.is_some() {
        proven
    } else {
        let coefficients = read_jpeg(&header)?;
        if header.has_several_scans {
            write_planes(&header, &coefficients, &mut parts).ok_or(TOO_LARGE)?;
        }
        let segments = [before, &after].concat();
        [true, false].into_iter().find(|&ones| {
            rebuild::write_jpeg(&header, &segments, ones, &coefficients, jpeg.len()).as_deref() == Some(jpeg)
        })
    };
    parts.filled_with_ones = found.ok_or(Error::Unsupported("the file would not come back byte for byte"))?;
    parts.join().ok_or(TOO_LARGE)
}

const TOO_LARGE: Error = Error::Unsupported("coefficients too large for a record");

/// DC coefficients below it have not wrapped around: no difference is larger than 2047.
const SURE_DC: u16 = 1 << 14;

/// Writes the segments of a file of one scan. Returns which bits fill its last bytes, if the file is certainly the one that
/// [`rebuild::write_jpeg`] makes. A scan decodes to symbols, of which coefficients leave open only these:
///
/// - codes, if a symbol has two, or symbols without a value that end blocks like the usual one: see
///   [`rebuild::has_one_code_each`]
/// - 16 zeros before the end of a block: the coefficient before the end is zero then
/// - differences of DC, if one wraps around
/// - filling, and where segments begin and end
fn write_scan(header: &Header<'_>, parts: &mut Parts<'_>) -> Result<Option<bool>, Error> {
    let cut = Cut::new(header);
    let mut is_usual = rebuild::has_one_code_each(header) && parts.before.len() == header.scan;
    let mut held = [[0; 64]; SEGMENT];
    let (filling, end) = read_scan(header, |_, blocks, used| {
        for (block, &used) in blocks.iter().zip(used) {
            let last = block[usize::from(ZIGZAG[usize::from(used.wrapping_sub(1) & 63)])];
            is_usual &= (used == 1) | (last != 0);
            is_usual &= block[0].unsigned_abs() < SURE_DC;
        }
        let mut rest = blocks;
        for (i, component) in header.components().iter().enumerate() {
            for _ in 0..component.v {
                for number in 0..cut.across() {
                    let columns = cut.columns(number, component.h);
                    let mcus = rest.chunks(header.blocks_per_mcu).skip(columns.start / component.h);
                    for (held, mcu) in held[..columns.len()].chunks_exact_mut(component.h).zip(mcus) {
                        held.copy_from_slice(&mcu[..component.h]);
                    }
                    parts.put_segment(i, &held[..columns.len()]).ok_or(TOO_LARGE)?;
                }
                rest = &rest[component.h..];
            }
        }
        parts.end_row();
        Ok(())
    })?;
    let is_filled_evenly = !(filling.bytes || filling.zeros && filling.ones);
    is_usual &= is_filled_evenly && parts.jpeg[end..] == *parts.after;
    Ok(is_usual.then_some(!filling.zeros))
}

/// Writes the segments of all coefficients. None if one is too large.
fn write_planes(header: &Header<'_>, coefficients: &Coefficients, parts: &mut Parts<'_>) -> Option<()> {
    let cut = Cut::new(header);
    for row in 0..header.mcus_y {
        for (i, component) in header.components().iter().enumerate() {
            for v in 0..component.v {
                let (blocks, _) = coefficients.planes[i].row(row * component.v + v);
                for number in 0..cut.across() {
                    parts.put_segment(i, &blocks[cut.columns(number, component.h)])?;
                }
            }
        }
        parts.end_row();
    }
    Some(())
}

/// The JPEG of a record, compared with the checksum of the original.
///
/// # Errors
/// [`Error::Corrupt`] where the record is damaged; otherwise as [`Header::parse`].
pub fn to_jpeg(record: &[u8], limits: &Limits) -> Result<Vec<u8>, Error> {
    let header = Header::parse(record, limits)?;
    let Some(record) = &header.record else {
        return corrupt("not a record of coefficients", 0);
    };
    limits.check_nbytes(record.jpeg_nbytes)?;
    let mut coefficients = Coefficients::default();
    read_record(record, &header, &mut coefficients)?;
    let Some(before) = record.restore_before() else {
        return corrupt("the segments of a record of coefficients are damaged", 0);
    };
    let segments = [&before, record.after].concat();
    let nbytes = record.jpeg_nbytes as usize;
    match rebuild::write_jpeg(&header, &segments, record.filled_with_ones, &coefficients, nbytes) {
        Some(jpeg) if XxHash3_64::oneshot(&jpeg) == record.jpeg_hash => Ok(jpeg),
        _ => corrupt(
            "the JPEG of a record of coefficients is not the one that it was made of",
            0,
        ),
    }
}

/// Decodes all coefficients of a JPEG.
fn read_jpeg(header: &Header<'_>) -> Result<Coefficients, Error> {
    if header.has_several_scans {
        let script = Script::read(header)?;
        let mut decoder = MultiScanDecoder::new();
        decoder.decode_coefficients(Available::best(), &mut HuffmanTables::new(), header, &script)?;
        return Ok(decoder.into_coefficients());
    }
    let mut coefficients = Coefficients::default();
    coefficients.begin(header, header.mcus_y)?;
    read_scan(header, |row, blocks, _| {
        let mut blocks = blocks.iter();
        for x in 0..header.mcus_x {
            for (i, component) in header.components().iter().enumerate() {
                for v in 0..component.v {
                    let columns = x * component.h..(x + 1) * component.h;
                    let (to, nonzero) = coefficients.planes[i].run(row * component.v + v, columns);
                    for ((to, nonzero), block) in to.iter_mut().zip(nonzero).zip(&mut blocks) {
                        *to = *block;
                        *nonzero = nonzero_positions(block);
                    }
                }
            }
        }
        Ok(())
    })?;
    Ok(coefficients)
}

/// Decodes a file of one scan: calls `take` with each row of MCUs, its blocks in the order of the scan, and how many
/// positions of each are in use. Returns what fills the scan, and where it ends.
fn read_scan(
    header: &Header<'_>,
    mut take: impl FnMut(usize, &[[i16; 64]], &[u8]) -> Result<(), Error>,
) -> Result<(Filling, usize), Error> {
    // A block takes at least two bits.
    if Coefficients::count(header, header.mcus_y) > 4 * header.bytes.len() {
        return corrupt("fewer bits than blocks", header.bytes.len());
    }
    let mut tables = HuffmanTables::new();
    for component in header.components() {
        let [dc, ac] =
            [header.huffman[0][component.dc], header.huffman[1][component.ac]].map(Option::unwrap_or_default);
        if !tables.set_dc(component.dc, dc) || !tables.set_ac(component.ac, ac) {
            return corrupt("bad Huffman table", header.scan);
        }
    }
    let mut used = vec![0; header.mcus_x * header.blocks_per_mcu];
    let mut row_of_blocks = memory::zeroed(64 * used.len() + SLACK)?;
    let mut window = sequential::Window::new();
    let mut scan = ScanReader::new(Available::best(), header, McuLayout::new(header, &tables), &mut window);
    for row in 0..header.mcus_y {
        scan.decode(&mut row_of_blocks, &mut used)?;
        take(row, &row_of_blocks.as_chunks().0[..used.len()], &used)?;
    }
    scan.finish()?;
    Ok((scan.filling, scan.finish_data()?))
}

/// Decodes all coefficients of a record.
fn read_record(record: &Record<'_>, header: &Header<'_>, coefficients: &mut Coefficients) -> Result<(), Error> {
    let segments = rows::open(record, header)?;
    coefficients.begin(header, header.mcus_y)?;
    let mut reader = RecordReader::new();
    for row in 0..header.mcus_y {
        reader.read_row(
            Available::best(),
            header,
            segments.row(row, false)?,
            |_, _, _| true,
            |run| {
                let row = row * header.components()[run.component].v + run.v;
                let (to, nonzero) = coefficients.planes[run.component].run(row, run.columns);
                for ((to, nonzero), block) in to.iter_mut().zip(nonzero).zip(run.blocks) {
                    *to = *block;
                    *nonzero = nonzero_positions(block);
                }
            },
        )?;
    }
    Ok(())
}

/// Bit k: the coefficient at zigzag position k is not zero.
fn nonzero_positions(block: &[i16; 64]) -> u64 {
    const POSITIONS: [u8; 64] = {
        let mut all = [0; 64];
        let mut k = 0;
        while k < 64 {
            all[ZIGZAG[k] as usize] = k as u8;
            k += 1;
        }
        all
    };
    let mut natural = (0..16).fold(0, |all, i| all | nonzero_of(four_of(block, 4 * i)) << (4 * i));
    let mut positions = 0;
    while natural != 0 {
        positions |= 1 << POSITIONS[natural.trailing_zeros() as usize];
        natural &= natural - 1;
    }
    positions
}

/// The bytes of a JPEG before its first entropy-coded byte, and its other bytes that are not entropy-coded.
fn split(jpeg: &[u8]) -> Result<(&[u8], Vec<u8>), Error> {
    let mut first = None;
    let mut after = Vec::new();
    let mut at = 2;
    while let Ok((marker, body, offset)) = read_segment(jpeg, at) {
        let end = offset + body.len();
        if first.is_some() {
            after.extend_from_slice(&jpeg[at..end]);
        }
        at = end;
        if marker == 0xda {
            first = first.or(Some(end));
            loop {
                at += find_marker(&jpeg[at..]);
                match jpeg.get(at..at + 2) {
                    Some(&[0xff, 0xd0..=0xd7]) => at += 2,
                    _ => break,
                }
            }
        }
    }
    let Some(first) = first else {
        return corrupt("the file ends in its header", at);
    };
    after.extend_from_slice(&jpeg[at..]);
    Ok((&jpeg[..first], after))
}
