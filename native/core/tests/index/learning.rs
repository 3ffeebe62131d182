//! Learning where decoding may begin: what is noted is what a built index has, and no damage elsewhere disturbs it.

use penstock_core::jpeg::{Found, Guide, Header, Kind, Region, Scale};

use crate::writer::{Make, Numbers, jpeg};
use crate::{KINDS, LIMITS, NO_GUIDE, built, decode, images, random_region};

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
                let (expected, _) = decode(&header, region, NO_GUIDE).expect("a good image");
                let guide = Guide {
                    index: learned.as_deref(),
                    learn: Some(kind),
                    ..NO_GUIDE
                };

                let (found, told) = decode(&header, region, guide).expect("a good image");

                assert!(found == expected && !told.damaged, "{kind:?} {region:?}");
                learned = told.learned.or(learned);
            }
            let guide = Guide {
                index: learned.as_deref(),
                learn: Some(kind),
                ..NO_GUIDE
            };
            let whole = decode(&header, Region::whole(&header), guide).expect("a good image");

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
    let guide = Guide {
        index: None,
        learn: Some(Kind::Rows),
        ..NO_GUIDE
    };
    let (expected, _) = decode(&header, region, NO_GUIDE).expect("damage below");

    let (found, told) = decode(&header, region, guide).expect("damage below");

    assert!(found == expected && told.learned.is_some());
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
    let (expected, _) = decode(&header, region, NO_GUIDE).expect("damage above");
    let above = Region { y: 24, ..region };
    assert!(
        decode(&header, above, NO_GUIDE).is_err(),
        "the damage is seen where it is"
    );

    let guide = Guide {
        learn: Some(Kind::Rows),
        ..NO_GUIDE
    };
    let (found, told) = decode(&header, region, guide).expect("damage above");

    assert!(found == expected && told == Found::default());
}
