//! Decoding by an index gives the pixels of decoding without, whatever the index bytes are; learning changes nothing.

use penstock_core::error::Error;
use penstock_core::fill::{Filler, Geometry, Layout, Recipe, Row, Spent};
use penstock_core::jpeg::{Decoder, Found, Guide, Header, Index, Kind, Limits, Region, Scale};
use penstock_core::resample::Filter;
use penstock_core::rows::RowSink;
use penstock_core::simd::detect;

mod writer;
use writer::{Make, Numbers, jpeg};

const LIMITS: Limits = Limits { max_pixels: 1 << 24 };
const KINDS: [Kind; 2] = [Kind::Rows, Kind::Tiles];
const NO_GUIDE: Guide<'_> = Guide {
    index: None,
    learn: None,
    threads: 1,
};

fn images() -> Vec<Vec<u8>> {
    let samplings = [
        None,
        Some((1, 1)),
        Some((2, 1)),
        Some((2, 2)),
        Some((1, 2)),
        Some((4, 1)),
    ];
    let mut images = vec![];
    for (i, sampling) in samplings.into_iter().enumerate() {
        for (j, restart) in [0, 1, 3, 40].into_iter().enumerate() {
            let seed = (17 * i + j) as u64 + 1;
            images.push(jpeg(Make {
                width: 150 + 37 * j,
                height: 90 + 29 * i,
                sampling,
                restart,
                seed,
            }));
        }
    }
    images
}

struct Pixels {
    width: usize,
    bytes: Vec<u8>,
}

impl RowSink for Pixels {
    const PLANAR: bool = false;

    fn row(&mut self, y: usize) -> [&mut [u8]; 3] {
        [
            &mut self.bytes[3 * self.width * y..][..3 * self.width],
            &mut [],
            &mut [],
        ]
    }

    fn done(&mut self, _end: usize) {}
}

fn decode(header: &Header<'_>, region: Region, guide: Guide<'_>) -> Result<(Vec<u8>, Found), Error> {
    let mut sink = Pixels {
        width: region.width,
        bytes: vec![0; 3 * region.width * region.height],
    };
    let found = Decoder::new().decode_guided(header, region, guide, &mut sink, |sink| sink.bytes.fill(0))?;
    Ok((sink.bytes, found))
}

fn by(index: &[u8]) -> Guide<'_> {
    Guide {
        index: Some(index),
        ..NO_GUIDE
    }
}

fn built(header: &Header<'_>, kind: Kind) -> Vec<u8> {
    let index = Decoder::new().index(header, kind).expect("a good image");
    assert_eq!(index.known(), index.total());
    index.to_bytes(header)
}

fn random_region(header: &Header<'_>, numbers: &mut Numbers) -> Region {
    let scale = Scale::ALL[numbers.below(4)];
    let mut side = |size: usize| {
        let (a, b) = (numbers.below(size), numbers.below(size));
        (a.min(b), a.max(b) - a.min(b) + 1)
    };
    let all = Region::whole_at(header, scale);
    let ((x, width), (y, height)) = (side(all.width), side(all.height));
    Region {
        x,
        y,
        width,
        height,
        scale,
    }
}

#[test]
fn pixels_by_an_index_are_those_without() {
    let mut numbers = Numbers(3);
    for file in images() {
        let header = Header::parse(&file, &LIMITS).expect("ours");
        for kind in KINDS {
            let index = built(&header, kind);
            for _ in 0..12 {
                let region = random_region(&header, &mut numbers);

                let (expected, _) = decode(&header, region, NO_GUIDE).expect("a good image");
                let (found, told) = decode(&header, region, by(&index)).expect("a good image");

                assert_eq!(told, Found::default(), "{kind:?} {region:?}");
                assert!(found == expected, "{kind:?} {region:?}");
            }
        }
    }
}

#[test]
fn bytes_above_and_below_a_region_are_not_read() {
    let file = jpeg(Make {
        width: 200,
        height: 320,
        sampling: Some((2, 2)),
        restart: 0,
        seed: 5,
    });
    let header = Header::parse(&file, &LIMITS).expect("ours");
    let region = Region {
        x: 20,
        y: 150,
        width: 100,
        height: 30,
        scale: Scale::Full,
    };
    let (expected, _) = decode(&header, region, NO_GUIDE).expect("a good image");
    let scan = file.len() - 2 - scan_len(&file);
    let mut damaged = file.clone();
    // the ends of the scan tell which image this is
    for at in [scan + 100..scan + 1000, file.len() - 1000..file.len() - 100] {
        damaged[at].fill(0x55);
    }
    let header = Header::parse(&damaged, &LIMITS).expect("its header is whole");
    for kind in KINDS {
        let index = built(&Header::parse(&file, &LIMITS).expect("ours"), kind);

        let (found, told) = decode(&header, region, by(&index)).expect("damage elsewhere");

        assert_eq!((found == expected, told), (true, Found::default()), "{kind:?}");
    }
}

fn scan_len(file: &[u8]) -> usize {
    let sos = file.windows(2).rposition(|pair| pair == [0xff, 0xda]).expect("a scan");
    file.len() - 2 - (sos + 2 + file[sos + 3] as usize)
}

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
    let (expected, _) = decode(&header, whole, NO_GUIDE).expect("a good image");
    for kind in KINDS {
        let index = built(&header, kind);
        let mut bad: Vec<Vec<u8>> = (0..index.len()).map(|len| index[..len].to_vec()).collect();
        bad.extend((0..8 * index.len()).map(|bit| {
            let mut flipped = index.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            flipped
        }));
        for bad in bad {
            let (found, told) = decode(&header, whole, by(&bad)).expect("a good image");

            assert!(told.damaged && found == expected, "{kind:?}");
        }
    }
}

#[test]
fn threads_change_no_pixel() {
    let recipe = |window, filter, quality| Recipe {
        filter,
        layout: Layout::Hwc,
        window,
        beside: [0; 3],
        quality,
        limits: LIMITS,
    };
    for (sampling, restart) in [(None, 0), (Some((2, 2)), 0), (Some((2, 2)), 25), (Some((1, 1)), 7)] {
        let file = jpeg(Make {
            width: 1600,
            height: 1100,
            sampling,
            restart,
            seed: 21,
        });
        let header = Header::parse(&file, &LIMITS).expect("ours");
        let index = built(&header, Kind::Rows);
        let mut filler = Filler::with_level(detect());
        for (region, window, filter, flip, quality) in [
            ([3, 5, 1590, 1090], [201, 151], Filter::Bilinear, 2, f64::INFINITY),
            ([3, 5, 1590, 1090], [201, 151], Filter::Bilinear, 0, 2.0),
            ([0, 0, 1600, 1100], [333, 64], Filter::Lanczos, 1, 1.0),
            ([10, 20, 1510, 1020], [1500, 1000], Filter::Bilinear, 3, f64::INFINITY),
        ] {
            let [w, h] = window.map(|side| side as i32);
            let geometry = Geometry::new(
                [region[0], region[1], region[2], region[3], w, h, 0, 0, flip],
                window,
                false,
            );
            let geometry = geometry.expect("consistent");
            let mut filled = |guide| {
                let mut row = vec![0; 3 * window[0] * window[1]];
                let told = filler.fill(
                    &file,
                    guide,
                    &geometry,
                    &recipe(window, filter, quality),
                    Row::U8(&mut row),
                    &mut Spent::default(),
                );
                (row, told.expect("a good image"))
            };
            let (expected, _) = filled(NO_GUIDE);
            for threads in [2, 3, 5] {
                for index in [None, Some(&*index)] {
                    let (found, told) = filled(Guide {
                        index,
                        learn: None,
                        threads,
                    });

                    assert_eq!(told, Found::default());
                    assert!(
                        found == expected,
                        "{sampling:?} {restart} {region:?} {threads} {}",
                        index.is_some()
                    );
                }
                let (found, told) = filled(Guide {
                    index: Some(b"wrong"),
                    learn: Some(Kind::Rows),
                    threads,
                });

                assert!(told.damaged && told.learned.is_some());
                assert!(found == expected, "{sampling:?} {restart} {region:?} {threads}");
            }
        }
    }
}

#[test]
fn threads_find_the_damage_that_one_does() {
    let make = Make {
        width: 1200,
        height: 1000,
        sampling: Some((2, 2)),
        restart: 0,
        seed: 22,
    };
    let whole = jpeg(make);
    let index = built(&Header::parse(&whole, &LIMITS).expect("ours"), Kind::Rows);
    let mut cut = whole.clone();
    let middle = cut.len() / 2;
    cut[middle..middle + 3000].fill(0xff);
    let header = Header::parse(&cut, &LIMITS).expect("its header is whole");
    let region = Region::whole(&header);
    let plain = decode(&header, region, NO_GUIDE);

    assert!(plain.is_err());
    for index in [None, Some(&*index)] {
        let shared = Guide {
            index,
            learn: None,
            threads: 3,
        };
        assert_eq!(decode(&header, region, shared), plain);
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
        let (expected, _) = decode(&pair[0], whole, NO_GUIDE).expect("a good image");

        let (found, told) = decode(&pair[0], whole, by(&built(&pair[1], Kind::Rows))).expect("a good image");

        assert!(told.damaged && found == expected);
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
    let index = built(&header, Kind::Rows);
    // bits moved on by one: the same length, other entries
    let (from, to) = (file.len() - 2 - scan_len(&file) + 200, file.len() - 200);
    let mut noticed = 0;
    for at in (from..to).step_by(61) {
        let mut edited = file.clone();
        edited[at] ^= 0x24;
        let header = Header::parse(&edited, &LIMITS).expect("its header is whole");
        let whole = Region::whole(&header);

        let plain = decode(&header, whole, NO_GUIDE);
        let indexed = decode(&header, whole, by(&index));

        match (plain, indexed) {
            (Ok((expected, _)), Ok((found, told))) => {
                assert!(found == expected);
                noticed += usize::from(told.damaged);
            }
            (plain, indexed) => assert_eq!(plain.is_err(), indexed.is_err()),
        }
    }
    assert!(noticed > 0, "some edits leave a valid scan");
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
    let (expected, _) = decode(&header, Region::whole(&header), NO_GUIDE).expect("a good image");
    // tiles, two entries, the second 16,000 bits from the first
    let forged = Index::seal(&header, vec![1, 1, 2, 0x80, 0x7d, 0, 0]);
    assert!(Index::parse(&header, &forged).is_some());
    let guide = Guide {
        index: Some(&forged),
        learn: Some(Kind::Tiles),
        threads: 1,
    };

    let (found, told) = decode(&header, Region::whole(&header), guide).expect("a good image");

    assert!(found == expected && told.damaged);
}
