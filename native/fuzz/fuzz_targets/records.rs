//! Any bytes as a `tf.train.Example`, as a value of a pack, and as a file of seek tables with the entry of one: what is
//! found lies in the bytes, and a checksum only takes away.
#![no_main]

use std::fs::{File, OpenOptions};
use std::io::{Seek, Write};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use penstock_core::tf_example::{self, Values};
use penstock_core::{pack, seek_table_file};

/// A file without a name.
static FILE: LazyLock<File> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("penstock-fuzz-{}", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    std::fs::remove_file(path).expect("just made");
    file.expect("a temporary file")
});

fn read_table(bytes: &[u8]) {
    let Some((entry, table)) = bytes.split_first_chunk::<16>() else {
        return;
    };
    let mut file = &*FILE;
    file.set_len(0).and_then(|()| file.rewind()).expect("ours");
    file.write_all(table).expect("ours");
    let [offset @ .., a, b, c, d, _, _, _, _] = *entry;
    let found = seek_table_file::read_table(file, entry, 7).expect("the file can be read");
    if let Some(found) = found {
        let start = u64::from_le_bytes(offset) as usize;
        assert_eq!(found, table[start..][..u32::from_le_bytes([a, b, c, d]) as usize]);
    }
}

fuzz_target!(|bytes: &[u8]| {
    for feature in tf_example::features(bytes).unwrap_or_default() {
        if let Values::Bytes(ranges) = feature.values {
            assert!(ranges.iter().all(|range| bytes.get(range.clone()).is_some()));
        }
    }
    let number = bytes.len() as u64;
    for part in 0..4 {
        for blobs in 0..3 {
            let found = pack::find_part(bytes, number, blobs, part, false);
            let checked = pack::find_part(bytes, number, blobs, part, true);
            assert!(checked.is_none() || checked == found);
            assert!(found.is_none() || part <= usize::from(blobs));
        }
    }
    read_table(bytes);
});
