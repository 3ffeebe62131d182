//! Records from JPEGs, and JPEGs from records.

use twox_hash::XxHash3_64;

use super::record::{Cut, Parts, Record};
use super::rows::{self, RecordReader};
use super::segment::{self, Window};
use super::{dc, four_of, nonzero_of, rebuild};
use crate::error::{Error, corrupt};
use crate::jpeg::entropy::huffman::HuffmanTables;
use crate::jpeg::entropy::sequential::{McuLayout, SLACK};
use crate::jpeg::entropy::unstuff::find_marker;
use crate::jpeg::format::header::{Header, Limits};
use crate::jpeg::format::markers::{ZIGZAG, segment as read_segment};
use crate::jpeg::scans::coefficients::Coefficients;
use crate::jpeg::scans::multi_scan::MultiScanDecoder;
use crate::jpeg::scans::scan_reader::ScanReader;
use crate::jpeg::scans::script::Script;
use crate::memory;
use crate::simd::Available;

/// The record of a JPEG, which [`to_jpeg`] turns into the same bytes again: this has been tried.
///
/// # Errors
/// As decoding the whole image, for arithmetic coding, 12 bits and the like too. [`Error::Unsupported`] also for a JPEG that
/// would not come back byte for byte, and for one that is a record already.
pub fn to_record(jpeg: &[u8], limits: &Limits) -> Result<Vec<u8>, Error> {
    let header = Header::parse(jpeg, limits)?;
    if header.record.is_some() {
        return Err(Error::Unsupported("the bytes are a record of coefficients already"));
    }
    let mut coefficients = Coefficients::default();
    read_jpeg(&header, &mut coefficients)?;
    let (before, after) = split(jpeg)?;
    let cut = Cut::new(&header);
    let mut parts = Parts {
        jpeg,
        before,
        after: &after,
        filled_with_ones: true,
        dc_nbytes: Vec::new(),
        dc: Vec::new(),
        ac_nbytes: Vec::new(),
        ac: Vec::new(),
        row_ends: Vec::new(),
    };
    let too_large = Error::Unsupported("coefficients too large for a record");
    for row in 0..header.mcus_y {
        for (i, component) in header.components().iter().enumerate() {
            for v in 0..component.v {
                let (blocks, _) = coefficients.planes[i].row(row * component.v + v);
                for number in 0..cut.across() {
                    let blocks = &blocks[cut.columns(number, component.h)];
                    let first: Vec<i16> = blocks.iter().map(|block| block[0]).collect();
                    let (dc_from, ac_from) = (parts.dc.len(), parts.ac.len());
                    let written = dc::write_segment(&first, &mut parts.dc)
                        && segment::write_segment(usize::from(i > 0), blocks, &mut parts.ac);
                    let (Ok(dc_nbytes), Ok(ac_nbytes)) = (
                        u8::try_from(parts.dc.len() - dc_from),
                        u16::try_from(parts.ac.len() - ac_from),
                    ) else {
                        return Err(too_large);
                    };
                    if !written || usize::from(ac_nbytes) > Window::MOST {
                        return Err(too_large);
                    }
                    parts.dc_nbytes.push(dc_nbytes);
                    parts.ac_nbytes.push(ac_nbytes);
                }
            }
        }
        parts.row_ends.push(parts.ac.len());
    }
    let segments = [before, &after].concat();
    for ones in [true, false] {
        parts.filled_with_ones = ones;
        if rebuild::write_jpeg(&header, &segments, ones, &coefficients, jpeg.len()).as_deref() == Some(jpeg) {
            return parts.join().ok_or(too_large);
        }
    }
    Err(Error::Unsupported("the file would not come back byte for byte"))
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
fn read_jpeg(header: &Header<'_>, coefficients: &mut Coefficients) -> Result<(), Error> {
    let mut tables = HuffmanTables::new();
    if header.has_several_scans {
        let script = Script::read(header)?;
        let mut decoder = MultiScanDecoder::new();
        decoder.decode_coefficients(Available::best(), &mut tables, header, &script)?;
        *coefficients = decoder.into_coefficients();
        return Ok(());
    }
    // A block takes at least two bits.
    if Coefficients::count(header, header.mcus_y) > 4 * header.bytes.len() {
        return corrupt("fewer bits than blocks", header.bytes.len());
    }
    for component in header.components() {
        let [dc, ac] =
            [header.huffman[0][component.dc], header.huffman[1][component.ac]].map(Option::unwrap_or_default);
        if !tables.set_dc(component.dc, dc) || !tables.set_ac(component.ac, ac) {
            return corrupt("bad Huffman table", header.scan);
        }
    }
    coefficients.begin(header, header.mcus_y)?;
    let per_mcu = header.blocks_per_mcu;
    let mut used = vec![0; header.mcus_x * per_mcu];
    let mut row_of_blocks = memory::zeroed(64 * used.len() + SLACK)?;
    let mut window = crate::jpeg::entropy::sequential::Window::new();
    let mut scan = ScanReader::new(Available::best(), header, McuLayout::new(header, &tables), &mut window);
    for row in 0..header.mcus_y {
        scan.decode(&mut row_of_blocks, &mut used)?;
        let mut blocks = row_of_blocks.as_chunks::<64>().0.iter();
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
    }
    scan.finish()?;
    Ok(())
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
