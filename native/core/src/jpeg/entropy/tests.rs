//! Entropy decoding stops where the data end, however many blocks a header declares. Lookups find what reading bit by
//! bit finds.

use crate::jpeg::entropy::huffman::HuffmanTables;
use crate::jpeg::entropy::sequential::{self, Cursor, McuLayout, SLACK, WINDOW, Window};
use crate::jpeg::entropy::skip_table;
use crate::jpeg::entropy::two_places::{self, Blocks, Place};
use crate::jpeg::format::header::{Header, Limits};
use crate::jpeg::kernels::tests::Numbers;
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
        filled: DATA,
        ended: true,
        ..Window::new()
    }
}

#[test]
fn blocks_past_the_end_of_the_data_are_neither_skipped_nor_decoded() {
    const BLOCKS: usize = 5000;
    for length in [1, 2, 8, 15, 16] {
        let file = bomb(length);
        let header = Header::parse(&file, &Limits::NONE).unwrap();
        let mut tables = HuffmanTables::new();
        assert!(tables.set_dc(0, header.huffman[0][0].unwrap()));
        assert!(tables.set_ac(0, header.huffman[1][0].unwrap()));
        let layout = McuLayout::new(&header, &tables);
        // The blocks in the data, and those that begin in the bytes that are loaded at once.
        let most = 8 * (DATA + 9) / (2 * length) + 1;
        for &level in Available::all() {
            let mut cursor = Cursor::default();
            let skipped = sequential::skip_blocks(level, &window(), &layout, &mut cursor, BLOCKS).unwrap();

            assert!(skipped <= most, "{skipped} blocks of {length} bits at {level:?}");
            assert!(cursor.next_bit() > 8 * DATA as isize, "the position is past the end");

            let mut cursor = Cursor::default();
            let (mut blocks, mut used) = (vec![0; 64 * BLOCKS + SLACK], vec![0; BLOCKS]);
            let decoded =
                sequential::decode_blocks(level, &window(), &layout, &mut cursor, &mut blocks, &mut used).unwrap();

            assert!(decoded <= most, "{decoded} blocks of {length} bits at {level:?}");
            assert!(cursor.next_bit() > 8 * DATA as isize, "the position is past the end");

            let mut cursors = [Cursor::default(); 2];
            let mut others = (vec![0; 64 * BLOCKS + SLACK], vec![0; BLOCKS]);
            let decoded = decode_two(
                level,
                &layout,
                [&window(), &window()],
                &mut cursors,
                [(&mut blocks, &mut used), (&mut others.0, &mut others.1)],
            );

            assert!(decoded.unwrap().into_iter().all(|decoded| decoded <= most));
            assert!(cursors.iter().all(|cursor| cursor.next_bit() > 8 * DATA as isize));
        }
    }
}

/// The body of a DHT segment: eight DC codes.
const DC_CODES: [u8; 24] = [0, 1, 5, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7];

/// Reads one symbol of a table bit by bit: symbol and code length.
fn symbol_plainly(raw: &[u8], bits: u64) -> Option<(u8, u32)> {
    let (mut code, mut index) = (0u64, 0usize);
    for length in 1..=16u32 {
        let count = raw[length as usize - 1] as usize;
        let found = bits >> (64 - length);
        if found < code + count as u64 {
            return Some((raw[16 + index + (found - code) as usize], length));
        }
        (code, index) = ((code + count as u64) << 1, index + count);
    }
    None
}

/// The body of a valid DHT segment of AC codes.
fn random_codes(numbers: &mut Numbers) -> Vec<u8> {
    let mut raw = vec![0u8; 16];
    let (mut space, mut codes) = (1u32, 0usize);
    for (length, counted) in raw.iter_mut().enumerate() {
        space *= 2;
        let count = numbers
            .below(space.min(if length < 6 { 3 } else { 30 }) as usize)
            .min(160 - codes) as u32;
        *counted = count as u8;
        space -= count;
        codes += count as usize;
    }
    raw.extend((0..codes).map(|_| (numbers.below(16) << 4 | numbers.below(12)) as u8));
    raw
}

/// The zigzag positions that a symbol moves: 128 ends the block, 192 is invalid.
fn advance_of(symbol: u8) -> usize {
    match symbol & 15 {
        11.. => 192,
        0 if symbol != 0xf0 => 128,
        _ => usize::from(symbol >> 4) + 1,
    }
}

#[test]
fn lookups_find_what_codes_spell() {
    let mut numbers = Numbers(5);
    let mut tables = HuffmanTables::new();
    for round in 0..60 {
        let raw = random_codes(&mut numbers);
        assert!(tables.set_ac(0, &raw), "a valid code");
        let table = tables.ac(0);

        for _ in 0..5000 {
            let bits = numbers.next();
            let (total, entry) = table.look_up(bits);

            let Some((symbol, length)) = symbol_plainly(&raw, bits) else {
                assert!(entry.advance >= 192, "round {round}: an invalid code");
                continue;
            };
            let size = u32::from(symbol & 15);
            let value = bits << length >> (63 - size) >> 1;
            let low = if size > 0 && value >> (size - 1) == 0 {
                1 - (1i64 << size)
            } else {
                0
            };
            assert_eq!(
                usize::from(entry.advance),
                advance_of(symbol),
                "round {round}, symbol {symbol:02x}"
            );
            if entry.advance == 192 {
                continue;
            }
            let first = if entry.advance2 > 0 {
                table.first_total(bits, entry)
            } else {
                total & 63
            };
            assert_eq!(first, u64::from(length + size));
            let extra = bits.rotate_left(total as u32) as u16 & entry.mask;
            assert_eq!(i64::from(entry.base) + i64::from(extra), value as i64 + low);
        }
    }
}

#[test]
fn skip_lookups_pass_the_symbols_that_codes_spell() {
    let mut numbers = Numbers(6);
    let mut tables = HuffmanTables::new();
    let mut several = 0;
    for round in 0..60 {
        let raw = random_codes(&mut numbers);
        assert!(tables.set_ac(0, &raw), "a valid code");
        assert!(tables.skip(0).is_none(), "a table of other codes is not used");
        tables.prepare_skip(0);
        let table = tables.skip(0).expect("it was prepared");

        for _ in 0..5000 {
            let bits = numbers.next();
            let (total, positions) = table.look_up(bits);

            let (mut passed, mut at, mut count) = (0u32, 0usize, 0);
            while passed < 12 && at < skip_table::END {
                let Some((symbol, length)) = symbol_plainly(&raw, bits << passed) else {
                    break;
                };
                if passed + length > 12 || advance_of(symbol) == 192 {
                    break;
                }
                at += if advance_of(symbol) == 128 {
                    skip_table::END
                } else {
                    advance_of(symbol)
                };
                passed += length + u32::from(symbol & 15);
                count += 1;
            }
            several += usize::from(count > 1);
            if count == 0 {
                assert!((65..skip_table::END).contains(&positions), "round {round}: no symbol");
            } else {
                assert_eq!((total & 63, positions), (passed.into(), at), "round {round}");
            }
        }
    }
    assert!(several > 50_000, "lookups of several symbols: {several}");
}

#[test]
fn blocks_are_skipped_as_they_are_decoded() {
    let mut numbers = Numbers(7);
    let file = bomb(1);
    let header = Header::parse(&file, &Limits::NONE).unwrap();
    let mut valid = 0;
    for round in 0..200 {
        let mut tables = HuffmanTables::new();
        assert!(tables.set_dc(0, &DC_CODES));
        assert!(tables.set_ac(0, &random_codes(&mut numbers)), "a valid code");
        let mut window = Window {
            ended: false,
            filled: WINDOW,
            ..window()
        };
        window.bytes[..WINDOW].fill_with(|| numbers.below(256) as u8);
        for &level in Available::all() {
            for blocks in [1, 2, 40] {
                let layout = McuLayout::new(&header, &tables);
                let (mut decoded, mut skipped, mut tabled) = (Cursor::default(), Cursor::default(), Cursor::default());
                let (mut kept, mut used) = (vec![0; 64 * blocks + SLACK], vec![0; blocks]);
                let expected = sequential::decode_blocks(level, &window, &layout, &mut decoded, &mut kept, &mut used);
                let plain = sequential::skip_blocks(level, &window, &layout, &mut skipped, blocks);
                tables.prepare_skip(0);
                let layout = McuLayout::new(&header, &tables);
                let fast = sequential::skip_blocks(level, &window, &layout, &mut tabled, blocks);

                assert_eq!(
                    (plain, fast),
                    (expected, expected),
                    "round {round}, {blocks} blocks at {level:?}"
                );
                if expected.is_some() {
                    valid += 1;
                    for cursor in [skipped, tabled] {
                        assert_eq!(cursor.next_bit(), decoded.next_bit(), "round {round}, {blocks} blocks");
                        assert_eq!(cursor.predictors, decoded.predictors);
                    }
                }
            }
        }
    }
    assert!(valid > 40 * Available::all().len(), "valid blocks: {valid}");
}

/// [`two_places::decode_two`] with `cursors`, into coefficients and used positions.
fn decode_two(
    level: Available,
    layout: &McuLayout<'_>,
    windows: [&Window; 2],
    cursors: &mut [Cursor; 2],
    blocks: [(&mut Vec<i16>, &mut Vec<u8>); 2],
) -> Option<[usize; 2]> {
    let mut windows = windows.into_iter();
    let places = cursors.each_mut().map(|cursor| Place {
        window: windows.next().unwrap(),
        layout,
        cursor,
    });
    two_places::decode_two(
        level,
        places,
        blocks.map(|(coefficients, used)| Blocks::new(coefficients, used)),
    )
}

#[test]
fn two_places_are_decoded_as_one_after_the_other() {
    let mut numbers = Numbers(8);
    let file = bomb(1);
    let header = Header::parse(&file, &Limits::NONE).unwrap();
    let mut valid = 0;
    for round in 0..1000 {
        let mut tables = HuffmanTables::new();
        assert!(tables.set_dc(0, &DC_CODES));
        assert!(tables.set_ac(0, &random_codes(&mut numbers)), "a valid code");
        let layout = McuLayout::new(&header, &tables);
        let windows = [(); 2].map(|()| {
            let mut window = Window {
                ended: false,
                filled: WINDOW,
                ..window()
            };
            window.bytes[..WINDOW].fill_with(|| numbers.below(256) as u8);
            window
        });
        let counts = [(); 2].map(|()| 1 + numbers.below(4));
        let start = numbers.below(8) as u8;
        for &level in Available::all() {
            let mut expected = [(); 2].map(|()| (Vec::new(), Vec::new(), Cursor::default(), None));
            for ((window, blocks), (kept, used, cursor, decoded)) in windows.iter().zip(counts).zip(&mut expected) {
                (*kept, *used) = (vec![0; 64 * blocks + SLACK], vec![0; blocks]);
                cursor.skip_bits(window, start);
                *decoded = sequential::decode_blocks(level, window, &layout, cursor, kept, used);
            }
            let mut cursors = [Cursor::default(); 2];
            let [mut first, mut second] = counts.map(|blocks| (vec![7; 64 * blocks + SLACK], vec![7; blocks]));
            for (cursor, window) in cursors.iter_mut().zip(&windows) {
                cursor.skip_bits(window, start);
            }

            let decoded = decode_two(
                level,
                &layout,
                windows.each_ref(),
                &mut cursors,
                [(&mut first.0, &mut first.1), (&mut second.0, &mut second.1)],
            );

            let wanted = expected[0].3.zip(expected[1].3).map(|(first, second)| [first, second]);
            assert_eq!(decoded, wanted, "round {round} at {level:?}");
            if decoded.is_none() {
                continue;
            }
            valid += 1;
            for ((found, cursor), (kept, used, at, _)) in [first, second].iter().zip(cursors).zip(&expected) {
                assert_eq!(
                    found.0[..64 * used.len()],
                    kept[..64 * used.len()],
                    "round {round} at {level:?}"
                );
                assert_eq!(&found.1, used);
                assert_eq!(cursor.next_bit(), at.next_bit());
                assert_eq!(cursor.predictors, at.predictors);
            }
        }
    }
    assert!(valid > 20 * Available::all().len(), "valid blocks: {valid}");
}

#[test]
fn codes_of_ones_and_too_many_codes_are_refused() {
    let mut tables = HuffmanTables::new();
    let mut all_ones = vec![2u8];
    all_ones.extend([0; 15]);
    all_ones.extend([1, 2]);
    let mut too_many = vec![3u8];
    too_many.extend([0; 15]);
    too_many.extend([1, 2, 3]);

    assert!(!tables.set_ac(0, &all_ones));
    assert!(!tables.set_ac(0, &too_many));
}
