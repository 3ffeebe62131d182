//! The orientation in the Exif segment of a JPEG (Exif 2.32, tag 0x0112), where the segment leaves no doubt.

use super::markers::segment;
use crate::jpeg::coefficients::record::header_bytes;

const EXIF: &[u8] = b"Exif\0\0";
const XMP: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";
const TAG: u16 = 0x0112;
const SHORT: u16 = 3;

/// The orientation, 1 to 8; 1 if the file has none. None: the markers or the Exif segment are damaged or unusual, the
/// orientation may be in XMP, or the bytes are not a JPEG. Then a full parser decides.
pub fn orientation(jpeg: &[u8]) -> Option<u8> {
    let jpeg = header_bytes(jpeg).ok()?;
    if !jpeg.starts_with(&[0xff, 0xd8, 0xff]) {
        return None;
    }
    let (mut exif, mut count, mut has_xmp, mut at) = (None, 0, false, 2);
    loop {
        let (marker, body, offset) = segment(jpeg, at).ok()?;
        at = offset + body.len();
        match marker {
            0xda => break,
            0xe1 if body.starts_with(EXIF) => (exif, count) = (Some(&body[EXIF.len()..]), count + 1),
            0xe1 => has_xmp |= body.starts_with(XMP),
            _ => {}
        }
    }
    match exif.map_or(Some(None), orientation_of_tiff)? {
        _ if count > 1 => None,
        None if has_xmp => None,
        found => Some(found.unwrap_or(1)),
    }
}

/// The orientation in the first directory of a TIFF structure, if it has one; outer None: as in [`orientation`].
pub(crate) fn orientation_of_tiff(tiff: &[u8]) -> Option<Option<u8>> {
    let is_little = match tiff.first_chunk()? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    let short = |at: usize| {
        let bytes = *tiff.get(at..)?.first_chunk()?;
        Some(if is_little {
            u16::from_le_bytes(bytes)
        } else {
            u16::from_be_bytes(bytes)
        })
    };
    let long = |at: usize| {
        let bytes = *tiff.get(at..)?.first_chunk()?;
        Some(if is_little {
            u32::from_le_bytes(bytes)
        } else {
            u32::from_be_bytes(bytes)
        } as usize)
    };
    let directory = long(4)?;
    let count = usize::from(short(directory)?);
    let mut found = None;
    for entry in (0..count).map(|i| directory + 2 + 12 * i) {
        let (tag, kind, values) = (short(entry)?, short(entry + 2)?, long(entry + 4)?);
        if tag == TAG {
            let value = short(entry + 8)?;
            if kind != SHORT || values != 1 || found.replace(value).is_some() {
                return None;
            }
            continue;
        }
        // A reader that reads all values stops at one that lies outside.
        let nbytes = value_nbytes(kind)?.checked_mul(values)?;
        let start = if nbytes <= 4 { entry + 8 } else { long(entry + 8)? };
        tiff.get(start..)?.get(..nbytes)?;
    }
    Some(found.map(|value| {
        u8::try_from(value)
            .ok()
            .filter(|value| (1..=8).contains(value))
            .unwrap_or(1)
    }))
}

/// Bytes of a value of this type (TIFF 6.0, section 2).
fn value_nbytes(kind: u16) -> Option<usize> {
    match kind {
        1 | 2 | 6 | 7 => Some(1),
        3 | 8 => Some(2),
        4 | 9 | 11 | 13 => Some(4),
        5 | 10 | 12 => Some(8),
        _ => None,
    }
}
