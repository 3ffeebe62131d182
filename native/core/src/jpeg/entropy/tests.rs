//! Entropy decoding stops where the data do, however many blocks a header declares.

use crate::jpeg::entropy::huffman::Tables;
use crate::jpeg::entropy::sequential::{self, Cursor, Layout, PADDING, SLACK, WINDOW, Window};
use crate::jpeg::format::header::{Header, Limits};
use crate::simd::Available;

/// Bytes of image data in the tests' files.
const DATA: usize = 10;

/// A gray JPEG of 11,000 x 11,000 pixels with [`DATA`] zero bytes of image data. Both tables have one symbol, 0, whose
/// code is `length` zeros: a block takes `2 * length` bits.
fn bomb(length: usize) -> Vec<u8> {
    let mut bytes = vec![0xff, 0xd8, 0xff, 0xdb, 0, 67, 0];
    bytes.extend([8; 64]);
    bytes.extend([0xff, 0xc0, 0, 11, 8]);
    bytes.extend([11_000u16; 2].into_iter().flat_map(u16::to_be_bytes));
    bytes.extend([1, 1, 0x11, 0]);
    for class in [0x00, 0x10] {
        let mut counts = [0; 16];
        counts[length - 1] = 1;
        bytes.extend([0xff, 0xc4, 0, 20, class]);
        bytes.extend(counts);
        bytes.push(0);
    }
    bytes.extend([0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0]);
    bytes.extend([0; DATA]);
    bytes.extend([0xff, 0xd9]);
    bytes
}

/// A window that holds all data of a [`bomb`].
fn window() -> Window {
    Window {
        bytes: Box::new([0; WINDOW + PADDING]),
        filled: DATA,
        ended: true,
    }
}

#[test]
fn blocks_past_the_end_of_the_data_are_neither_skipped_nor_decoded() {
    const BLOCKS: usize = 5000;
    for length in [1, 2, 8, 15, 16] {
        let file = bomb(length);
        let header = Header::parse(&file, &Limits::NONE).unwrap();
        let mut tables = Tables::new();
        assert!(tables.set_dc(0, header.huffman[0][0].unwrap()));
        assert!(tables.set_ac(0, header.huffman[1][0].unwrap()));
        let layout = Layout::new(&header, &tables);
        // those that the data hold, and those that begin in the bytes that are loaded at once
        let most = 8 * (DATA + 9) / (2 * length) + 1;
        for &level in Available::all() {
            let mut cursor = Cursor::default();
            let skipped = sequential::skip_blocks(level, &window(), &layout, &mut cursor, BLOCKS).unwrap();

            assert!(skipped <= most, "{skipped} blocks of {length} bits at {level:?}");
            assert!(cursor.next_bit() > 8 * DATA as isize, "the end is noticed");

            let mut cursor = Cursor::default();
            let (mut blocks, mut used) = (vec![0; 64 * BLOCKS + SLACK], vec![0; BLOCKS]);
            let decoded =
                sequential::decode_blocks(level, &window(), &layout, &mut cursor, &mut blocks, &mut used).unwrap();

            assert!(decoded <= most, "{decoded} blocks of {length} bits at {level:?}");
            assert!(cursor.next_bit() > 8 * DATA as isize, "the end is noticed");
        }
    }
}
