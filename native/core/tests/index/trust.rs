//! Index bytes are not trusted: damaged, forged or foreign bytes are detected, and the pixels stay the same.

use penstock_core::jpeg::{DecodeHints, Header, Region, SeekTable, SeekTableKind};

use crate::writer::{Make, jpeg};
use crate::{KINDS, LIMITS, NO_HINTS, built, by, decode, images, scan_len};

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let file = jpeg(Make {
        width: 130,
        height: 100,
        sampling: Some((2, 1)),
        restart: 0,
        seed: 11,
    });
    let header = Header::parse(&file, &LIMITS).expect("ours");
    let whole = Region::whole(&header);
    let (expected, _) = decode(&header, whole, NO_HINTS).expect("a good image");
    for kind in KINDS {
        let index = built(&header, kind);
        let mut bad: Vec<Vec<u8>> = (0..index.len()).map(|len| index[..len].to_vec()).collect();
        bad.extend((0..8 * index.len()).map(|bit| {
            let mut flipped = index.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            flipped
        }));
        for bad in bad {
            let (found, report) = decode(&header, whole, by(&bad)).expect("a good image");

            assert!(report.damaged && found == expected, "{kind:?}");
        }
    }
}

#[test]
fn an_index_of_another_image_is_noticed() {
    let files = images();
    let headers: Vec<_> = files
        .iter()
        .map(|file| Header::parse(file, &LIMITS).expect("ours"))
        .collect();
    for pair in headers.windows(2) {
        let whole = Region::whole(&pair[0]);
        let (expected, _) = decode(&pair[0], whole, NO_HINTS).expect("a good image");

        let (found, report) = decode(&pair[0], whole, by(&built(&pair[1], SeekTableKind::Rows))).expect("a good image");

        assert!(report.damaged && found == expected);
    }
}

#[test]
fn an_edit_that_keeps_length_and_ends_is_noticed_where_it_is_met() {
    let make = Make {
        width: 200,
        height: 160,
        sampling: Some((1, 1)),
        restart: 0,
        seed: 5,
    };
    let file = jpeg(make);
    let header = Header::parse(&file, &LIMITS).expect("ours");
    let index = built(&header, SeekTableKind::Rows);
    // Bits are moved by one: the scan keeps its length, but seek points change.
    let (from, to) = (file.len() - 2 - scan_len(&file) + 200, file.len() - 200);
    let mut noticed = 0;
    for at in (from..to).step_by(61) {
        let mut edited = file.clone();
        edited[at] ^= 0x24;
        let header = Header::parse(&edited, &LIMITS).expect("its header is whole");
        let whole = Region::whole(&header);

        let plain = decode(&header, whole, NO_HINTS);
        let indexed = decode(&header, whole, by(&index));

        match (plain, indexed) {
            (Ok((expected, _)), Ok((found, report))) => {
                assert!(found == expected);
                noticed += usize::from(report.damaged);
            }
            (plain, indexed) => assert_eq!(plain.is_err(), indexed.is_err()),
        }
    }
    assert!(noticed > 0, "some edits leave a valid scan");
}

#[test]
fn a_forged_entry_that_learning_overtakes_is_noticed() {
    let file = jpeg(Make {
        width: 200,
        height: 96,
        sampling: None,
        restart: 0,
        seed: 9,
    });
    let header = Header::parse(&file, &LIMITS).expect("ours");
    let (expected, _) = decode(&header, Region::whole(&header), NO_HINTS).expect("a good image");
    // Tiles, two points, the second 16,000 bits after the first.
    let forged = SeekTable::with_check(&header, vec![1, 1, 2, 0x80, 0x7d, 0, 0]);
    assert!(SeekTable::parse(&header, &forged).is_some());
    let hints = DecodeHints {
        seek_table: Some(&forged),
        learn: Some(SeekTableKind::Tiles),
        threads: 1,
    };

    let (found, report) = decode(&header, Region::whole(&header), hints).expect("a good image");

    assert!(found == expected && report.damaged);
}
