//! Learning: recorded seek points equal those of a built index, and damage elsewhere does not disturb it.

use penstock_core::jpeg::{DecodeHints, Header, Region, Scale, SeekReport, SeekTableKind};

use crate::writer::{Make, Numbers, jpeg};
use crate::{KINDS, LIMITS, NO_HINTS, built, decode, images, random_region};

#[test]
fn learned_entries_are_the_built_ones() {
    let mut numbers = Numbers(7);
    for file in images() {
        let header = Header::parse(&file, &LIMITS).expect("ours");
        for kind in KINDS {
            let complete = built(&header, kind);
            let mut learned: Option<Vec<u8>> = None;
            for _ in 0..6 {
                let region = random_region(&header, &mut numbers);
                let (expected, _) = decode(&header, region, NO_HINTS).expect("a good image");
                let hints = DecodeHints {
                    seek_table: learned.as_deref(),
                    learn: Some(kind),
                    ..NO_HINTS
                };

                let (found, report) = decode(&header, region, hints).expect("a good image");

                assert!(found == expected && !report.damaged, "{kind:?} {region:?}");
                learned = report.learned.or(learned);
            }
            let hints = DecodeHints {
                seek_table: learned.as_deref(),
                learn: Some(kind),
                ..NO_HINTS
            };
            let whole = decode(&header, Region::whole(&header), hints).expect("a good image");

            assert_eq!(whole.1.learned.or(learned), Some(complete), "{kind:?}");
        }
    }
}

#[test]
fn damage_after_the_region_does_not_disturb_learning() {
    let mut file = jpeg(Make {
        width: 64,
        height: 64,
        sampling: Some((1, 1)),
        restart: 8,
        seed: 9,
    });
    let second = file.windows(2).position(|pair| pair == [0xff, 0xd1]).expect("a marker");
    file[second + 1] = 0xd5;
    let header = Header::parse(&file, &LIMITS).expect("ours");
    let region = Region {
        x: 0,
        y: 0,
        width: 64,
        height: 16,
        scale: Scale::Full,
    };
    let hints = DecodeHints {
        seek_table: None,
        learn: Some(SeekTableKind::Rows),
        ..NO_HINTS
    };
    let (expected, _) = decode(&header, region, NO_HINTS).expect("damage below");

    let (found, report) = decode(&header, region, hints).expect("damage below");

    assert!(found == expected && report.learned.is_some());
}

#[test]
fn damage_in_an_interval_above_the_region_does_not_disturb_learning() {
    let mut file = jpeg(Make {
        width: 64,
        height: 96,
        sampling: Some((1, 1)),
        restart: 20,
        seed: 9,
    });
    let first = file.windows(2).position(|pair| pair == [0xff, 0xd0]).expect("a marker");
    file[first + 20..first + 120].fill(0x6d);
    let header = Header::parse(&file, &LIMITS).expect("ours");
    let region = Region {
        x: 0,
        y: 72,
        width: 64,
        height: 24,
        scale: Scale::Full,
    };
    let (expected, _) = decode(&header, region, NO_HINTS).expect("damage above");
    let above = Region { y: 24, ..region };
    assert!(
        decode(&header, above, NO_HINTS).is_err(),
        "the damage is found where it is"
    );

    let hints = DecodeHints {
        learn: Some(SeekTableKind::Rows),
        ..NO_HINTS
    };
    let (found, report) = decode(&header, region, hints).expect("damage above");

    assert!(found == expected && report == SeekReport::default());
}
