//! Lossless conversion of files of several scans to baseline: the same coefficients in one scan, with optimal Huffman
//! codes.
//!
//! All other content keeps its bytes and its order: quantisation tables, comments, Exif, profiles, colour markers, and
//! what follows the image. Files for which this is not possible are refused.

pub(crate) mod huffman_code;
#[cfg(test)]
mod tests;

use core::ops::Range;

use crate::error::Error;
use crate::jpeg::entropy::huffman::HuffmanTables;
use crate::jpeg::format::header::{Header, Limits};
use crate::jpeg::format::markers::{ZIGZAG, segment};
use crate::jpeg::scans::coefficients::Coefficients;
use crate::jpeg::scans::multi_scan::MultiScanDecoder;
use crate::jpeg::scans::script::Script;
use crate::jpeg::transcode::huffman_code::HuffmanCode;
use crate::memory;
use crate::simd::Available;

/// The most bits of a DC difference and of an AC coefficient in a baseline file.
const DC_BITS: u32 = 11;
const AC_BITS: u32 = 10;

/// Rewrites a JPEG of several scans as a baseline JPEG.
///
/// # Errors
/// As decoding the whole image. [`Error::Unsupported`] also for files of one scan, for coefficients that are too large
/// for a baseline file, and for markers that depend on their position: further pictures in the file (MPF), or JFIF or
/// Adobe markers between scans.
pub fn transcode_baseline(bytes: &[u8], limits: &Limits) -> Result<Vec<u8>, Error> {
    let header = Header::parse(bytes, limits)?;
    if !header.has_several_scans {
        return Err(Error::Unsupported(
            "the file has one scan and is not progressive: it needs no transcoding",
        ));
    }
    let script = Script::read(&header)?;
    let mut decoder = MultiScanDecoder::new();
    let coefficients = decoder.decode_coefficients(Available::best(), &mut HuffmanTables::new(), &header, &script)?;
    let mut counts = [[[0; 256]; 2]; 2];
    for_each_symbol(&header, coefficients, |class, table, symbol, _, _| {
        counts[class][table][usize::from(symbol)] += 1;
    })?;
    let tables = if header.components().len() > 1 { 2 } else { 1 };
    let codes = counts.map(|class| class.map(|counts| HuffmanCode::optimal(&counts)));
    let mut out = segments(bytes, &header, &script.metadata)?;
    for (class, codes) in codes.iter().enumerate() {
        for (table, code) in codes.iter().take(tables).enumerate() {
            let mut body = vec![(class << 4 | table) as u8];
            body.extend_from_slice(&code.dht_body);
            write_segment(&mut out, 0xc4, &body);
        }
    }
    let mut scan = vec![header.components().len() as u8];
    for (i, component) in header.components().iter().enumerate() {
        let table = u8::from(i > 0);
        scan.extend([component.id, table << 4 | table]);
    }
    scan.extend([0, 63, 0]);
    write_segment(&mut out, 0xda, &scan);
    let mut bits = BitWriter { out, held: 0, count: 0 };
    for_each_symbol(&header, coefficients, |class, table, symbol, value, count| {
        let (code, length) = codes[class][table].code_of(symbol);
        bits.write(code, length);
        bits.write(value, count);
    })?;
    let mut out = bits.finish();
    out.extend_from_slice(&bytes[script.end..]);
    Ok(out)
}

/// The segments of a baseline file up to the first DHT segment.
fn segments(bytes: &[u8], header: &Header<'_>, metadata: &[Range<usize>]) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    memory::reserve(&mut out, bytes.len() + bytes.len() / 4)?;
    out.extend_from_slice(&bytes[..2]);
    let (mut at, mut frame, mut wide) = (2, 0, false);
    while at < header.scan - 4 {
        let (marker, body, offset) = segment(bytes, at)?;
        at = offset + body.len();
        match marker {
            0xc4 | 0xdd => continue,
            0xda => break,
            0xc0..=0xc2 => frame = out.len() + 1,
            0xdb => wide |= has_wide_table(body),
            0xe2 if body.starts_with(b"MPF\0") => {
                return Err(Error::Unsupported("the file holds further pictures (MPF)"));
            }
            _ => {}
        }
        write_segment(&mut out, marker, body);
    }
    for note in metadata {
        let (marker, body, _) = segment(bytes, note.start)?;
        if matches!(marker, 0xe0 | 0xee) {
            return Err(Error::Unsupported("JFIF or Adobe marker between scans"));
        }
        write_segment(&mut out, marker, body);
    }
    // 16-bit quantisation tables require the extended sequential process.
    out[frame] = if wide { 0xc1 } else { 0xc0 };
    Ok(out)
}

fn has_wide_table(mut body: &[u8]) -> bool {
    while let Some((&kind, rest)) = body.split_first() {
        if kind >> 4 != 0 {
            return true;
        }
        body = rest.get(64..).unwrap_or_default();
    }
    false
}

fn write_segment(out: &mut Vec<u8>, marker: u8, body: &[u8]) {
    out.extend([0xff, marker]);
    out.extend((body.len() as u16 + 2).to_be_bytes());
    out.extend_from_slice(body);
}

/// Calls `put` for every symbol of a baseline scan. Its arguments: class (DC, AC), table, symbol, value bits and their
/// number.
fn for_each_symbol(
    header: &Header<'_>,
    coefficients: &Coefficients,
    mut put: impl FnMut(usize, usize, u8, u16, u8),
) -> Result<(), Error> {
    let mut predictors = [0i32; 3];
    for row in 0..header.mcus_y {
        for column in 0..header.mcus_x {
            for (i, component) in header.components().iter().enumerate() {
                let table = usize::from(i > 0);
                let (across, down) = (component.width.div_ceil(8), component.height.div_ceil(8));
                for y in row * component.v..(row + 1) * component.v {
                    let (blocks, nonzero) = coefficients.planes[i].row(y);
                    for x in column * component.h..(column + 1) * component.h {
                        if x >= across || y >= down {
                            // A block that only pads its MCU: it takes the fewest bits possible.
                            put(0, table, 0, 0, 0);
                            put(1, table, 0, 0, 0);
                            continue;
                        }
                        block_symbols(
                            &blocks[x],
                            nonzero[x],
                            &mut predictors[i],
                            |class, symbol, value, count| {
                                put(class, table, symbol, value, count);
                            },
                        )?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn block_symbols(
    block: &[i16; 64],
    nonzero: u64,
    predictor: &mut i32,
    mut put: impl FnMut(usize, u8, u16, u8),
) -> Result<(), Error> {
    let dc = i32::from(block[0]);
    let (value, count) = value_bits(dc - *predictor, DC_BITS)?;
    *predictor = dc;
    put(0, count, value, count);
    let (mut rest, mut before) = (nonzero & !1, 0);
    while rest != 0 {
        let k = rest.trailing_zeros();
        rest &= rest - 1;
        let mut zeros = k - before - 1;
        before = k;
        while zeros > 15 {
            put(1, 0xf0, 0, 0);
            zeros -= 16;
        }
        let (value, count) = value_bits(i32::from(block[usize::from(ZIGZAG[k as usize])]), AC_BITS)?;
        put(1, (zeros as u8) << 4 | count, value, count);
    }
    if before < 63 {
        put(1, 0, 0, 0);
    }
    Ok(())
}

/// The value bits of a number, and how many there are.
fn value_bits(value: i32, most: u32) -> Result<(u16, u8), Error> {
    let count = 32 - value.unsigned_abs().leading_zeros();
    if count > most {
        return Err(Error::Unsupported("coefficients too large for a baseline file"));
    }
    let bits = if value < 0 { value + (1 << count) - 1 } else { value };
    Ok((bits as u16, count as u8))
}

/// Writes entropy-coded bytes with stuffing.
struct BitWriter {
    out: Vec<u8>,
    /// The last `count` bits, right-aligned.
    held: u64,
    count: u32,
}

impl BitWriter {
    fn write(&mut self, bits: u16, count: u8) {
        self.held = self.held << count | u64::from(bits);
        self.count += u32::from(count);
        while self.count >= 8 {
            self.count -= 8;
            let byte = (self.held >> self.count) as u8;
            self.out.push(byte);
            if byte == 0xff {
                self.out.push(0);
            }
        }
    }

    /// Fills the last byte with ones.
    fn finish(mut self) -> Vec<u8> {
        let missing = (8 - self.count % 8) as u8 % 8;
        self.write((1 << missing) - 1, missing);
        self.out
    }
}
