//! Entries of a file of seek tables: where a table lies, and its checksum. `penstock.stores.common.seek_table_file` is the
//! specification, and writes the file.
//!
//! ```text
//!  entry: offset: u64 | length: u32 | checksum: u32
//! ```

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use twox_hash::XxHash3_64;

const MOST_NBYTES: u32 = 64 << 20;
/// Beyond any file. The system accepts no larger offset.
const LAST_OFFSET: u64 = (1 << 62) - 1;

/// Reads the seek table of record `number`. None if it has none, or if its checksum does not match.
///
/// # Errors
/// Those of the system. A file that ends inside of the table is no error.
pub fn read_table(file: &File, entry: &[u8; 16], number: u64) -> io::Result<Option<Vec<u8>>> {
    let [o0, o1, o2, o3, o4, o5, o6, o7, l0, l1, l2, l3, c0, c1, c2, c3] = *entry;
    let offset = u64::from_le_bytes([o0, o1, o2, o3, o4, o5, o6, o7]);
    let length = u32::from_le_bytes([l0, l1, l2, l3]);
    if length == 0 || length > MOST_NBYTES || offset > LAST_OFFSET {
        return Ok(None);
    }
    let mut table = Vec::new();
    let length = length as usize;
    table.try_reserve_exact(length).map_err(|_| ErrorKind::OutOfMemory)?;
    table.resize(length, 0);
    let mut at = 0;
    while at < length {
        match file.read_at(&mut table[at..], offset + at as u64) {
            Ok(0) => return Ok(None),
            Ok(got) => at += got,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let hash = XxHash3_64::oneshot_with_seed(number, &table) as u32;
    Ok((hash == u32::from_le_bytes([c0, c1, c2, c3])).then_some(table))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn entry(offset: u64, length: u32, check: u32) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        bytes[12..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    #[test]
    fn a_table_is_read_if_its_checksum_is_that_of_its_record() {
        let path = std::env::temp_dir().join(format!("penstock-seek-tables-{}", std::process::id()));
        File::create(&path).unwrap().write_all(b"....a table").unwrap();
        let file = File::open(&path).unwrap();
        let check = XxHash3_64::oneshot_with_seed(3, b"a table") as u32;
        let cases = [
            (entry(4, 7, check), 3, Some(b"a table".to_vec())),
            (entry(4, 7, check), 4, None),
            (entry(4, 7, check ^ 1), 3, None),
            (entry(4, 0, check), 3, None),
            (entry(4, 8, check), 3, None),
            (entry(LAST_OFFSET, 7, check), 3, None),
            (entry(u64::MAX, 7, check), 3, None),
            (entry(4, u32::MAX, check), 3, None),
        ];
        for (entry, number, expected) in cases {
            assert_eq!(read_table(&file, &entry, number).unwrap(), expected, "{entry:?}");
        }
        std::fs::remove_file(path).unwrap();
    }
}
