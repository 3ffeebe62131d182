//! A record of coefficients in a packet.

use super::{PacketBuffer, Words, as_word, word};
use crate::error::{Error, corrupt};
use crate::jpeg::coefficients;
use crate::jpeg::coefficients::record::Record;
use crate::jpeg::format::header::Header;
use crate::jpeg::sample_strips::NeededMcus;

/// The most bytes of the AC coefficients of a segment that a device reads: 64 blocks whose heads, masks and values are the
/// longest have 8,378.
const MOST_AC_NBYTES: usize = 8448;

/// Appends the segments of a record of coefficients that have needed blocks: for each of them where its bytes begin (u32),
/// the bytes of its AC and of its DC coefficients, its component, its blocks, and the row and the column of its first block
/// (six u16); then all bytes, those of DC coefficients first. Without bytes of AC coefficients these are zeros: blocks of
/// one sample do not need them.
pub(super) fn write(
    record: &Record<'_>,
    header: &Header<'_>,
    needed: &NeededMcus,
    words: &mut Words,
    bytes: &mut PacketBuffer<'_>,
    start: usize,
) -> Result<(), Error> {
    let segments = coefficients::rows::open(record, header)?;
    let only_dc = needed.needed_blocks.iter().flatten().all(|part| part.scaled.block == 1);
    let (mut entries, mut contents, mut nbytes) = (Vec::new(), Vec::new(), 0);
    for mcu_row in needed.rows.clone() {
        let mut found = segments.row(mcu_row, only_dc)?;
        let cut = found.cut;
        for (i, component) in header.components().iter().enumerate() {
            for row in mcu_row * component.v..(mcu_row + 1) * component.v {
                for segment in 0..cut.across() {
                    let Some((dc, ac)) = found.next() else {
                        return corrupt("a record of coefficients lacks a segment", 0);
                    };
                    let columns = cut.columns(segment, component.h);
                    let is_needed = needed
                        .columns_of(i, row)
                        .is_some_and(|needed| needed.start < columns.end && columns.start < needed.end);
                    if !is_needed {
                        continue;
                    }
                    if (ac.is_empty() && !only_dc) || ac.len() > MOST_AC_NBYTES {
                        return corrupt("a segment of a record of coefficients is damaged", 0);
                    }
                    entries.push((nbytes, [ac.len(), dc.len(), i, columns.len(), row, columns.start]));
                    contents.extend([dc, ac]);
                    nbytes += dc.len() + ac.len();
                }
            }
        }
    }
    words.set(word::RECORD_SEGMENTS, &[entries.len()])?;
    words.set(word::SEGMENTS_AT, &[bytes.len() - start])?;
    for (at, values) in entries {
        bytes.extend(&as_word(at)?.to_le_bytes())?;
        for value in values {
            bytes.extend(&(value as u16).to_le_bytes())?; // JPEGs have at most 65,535 samples in a row
        }
    }
    words.set(word::DATA_AT, &[bytes.len() - start])?;
    words.set(word::DATA_NBYTES, &[nbytes])?;
    contents.into_iter().try_for_each(|part| bytes.extend(part))
}
