//! Packs: where a blob of a record lies, and whether its checksum matches; hashes of pages. `penstock.stores.lmdb_pack.format`
//! and `penstock.stores.lmdb_pack.page_hashes` are the specification.
//!
//! ```text
//!  "PSR\x01" | blobs: u16 | 0: u16 | (length, hash): u64, u64 of the small fields and of each blob | the parts
//! ```

use twox_hash::XxHash3_64;

const MAGIC: &[u8; 4] = b"PSR\x01";
/// Checksums are mixed with the number of the record times this.
const SALT: u64 = 0x9E37_79B9_7F4A_7C15;

/// Finds part `part` (0: the small fields, then the blobs) of record `number`, whose stored value is `value` and has
/// `blobs` blobs. Returns its bytes; None if the value is no such record, or its checksum, if `check`, does not match.
pub fn find_part(value: &[u8], number: u64, blobs: u16, part: usize, check: bool) -> Option<&[u8]> {
    let (magic, rest) = value.split_first_chunk::<4>()?;
    let (&[low, high, 0, 0], rest) = rest.split_first_chunk::<4>()? else {
        return None;
    };
    if magic != MAGIC || u16::from_le_bytes([low, high]) != blobs {
        return None;
    }
    let (table, parts) = rest.split_at_checked(16 * (1 + usize::from(blobs)))?;
    let mut begin = 0usize;
    let mut found = None;
    for (i, entry) in table.as_chunks::<16>().0.iter().enumerate() {
        let [length, hash] = [&entry[..8], &entry[8..]].map(|half| half.try_into().map_or(0, u64::from_le_bytes));
        let end = begin.checked_add(usize::try_from(length).ok()?)?;
        if i == part {
            found = Some((parts.get(begin..end)?, hash));
        }
        begin = end;
    }
    let (bytes, hash) = found.filter(|_| begin == parts.len())?;
    let matches = || XxHash3_64::oneshot(bytes) ^ number.wrapping_mul(SALT) == hash;
    (!check || matches()).then_some(bytes)
}

/// Hashes pages of `page_nbytes` bytes, into one element of `hashes` each. The last one may be shorter.
pub fn hash_pages(content: &[u8], page_nbytes: usize, hashes: &mut [u64]) {
    for (hash, page) in hashes.iter_mut().zip(content.chunks(page_nbytes)) {
        *hash = XxHash3_64::oneshot(page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(number: u64, parts: &[&[u8]]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend((parts.len() as u16 - 1).to_le_bytes());
        bytes.extend([0, 0]);
        for part in parts {
            bytes.extend((part.len() as u64).to_le_bytes());
            bytes.extend((XxHash3_64::oneshot(part) ^ number.wrapping_mul(SALT)).to_le_bytes());
        }
        bytes.extend(parts.concat());
        bytes
    }

    #[test]
    fn parts_are_found_and_checked() {
        let parts: [&[u8]; 3] = [b"small", b"", b"a picture"];
        let stored = value(7, &parts);
        for (i, part) in parts.iter().enumerate() {
            assert_eq!(find_part(&stored, 7, 2, i, true), Some(*part));
        }
        assert_eq!(find_part(&stored, 8, 2, 2, true), None, "the record of another number");
        assert_eq!(find_part(&stored, 8, 2, 2, false), Some(parts[2]));
        assert_eq!(find_part(&stored, 7, 1, 1, true), None, "another number of blobs");
        assert_eq!(find_part(&stored, 7, 2, 3, true), None, "no such part");
    }

    #[test]
    fn pages_are_hashed_one_by_one() {
        let content: Vec<u8> = (0..10_000).map(|i| (i % 251) as u8).collect();
        let mut hashes = [7; 4];
        hash_pages(&content, 4096, &mut hashes);
        let expected = [0..4096, 4096..8192, 8192..10_000].map(|page| XxHash3_64::oneshot(&content[page]));
        assert_eq!(hashes, [expected[0], expected[1], expected[2], 7]);
    }

    #[test]
    fn damaged_values_are_no_records() {
        let stored = value(7, &[b"small", b"a picture"]);
        for end in 0..stored.len() {
            assert_eq!(find_part(&stored[..end], 7, 1, 1, false), None, "{end} bytes");
        }
        // Not the hash of the small fields, nor these: they are not asked for.
        for byte in (0..16).chain(24..40).chain(45..stored.len()) {
            let mut damaged = stored.clone();
            damaged[byte] ^= 0x80;
            assert_eq!(find_part(&damaged, 7, 1, 1, true), None, "byte {byte}");
        }
        let mut huge = stored;
        huge[8..16].fill(0xff);
        assert_eq!(find_part(&huge, 7, 1, 1, false), None);
    }
}
