//! Decoding by an index gives the pixels of decoding without, whatever the index bytes are; learning changes nothing.

use penstock_core::error::Error;
use penstock_core::jpeg::{Decoder, Found, Guide, Header, Kind, Limits, Region};
use penstock_core::rows::RowSink;

const LIMITS: Limits = Limits { max_pixels: 1 << 24 };
const KINDS: [Kind; 2] = [Kind::Rows, Kind::Tiles];
const NO_GUIDE: Guide<'_> = Guide {
    index: None,
    learn: None,
};

/// xorshift64*: the same numbers on every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }
}

/// What a test image is made of.
#[derive(Clone, Copy, Debug)]
struct Make {
    width: usize,
    height: usize,
    /// Sampling factors of the luma; chroma has 1 x 1. None: gray.
    sampling: Option<(u8, u8)>,
    restart: u16,
    seed: u64,
}

/// Entropy-coded bits, with stuffing.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    open: u32,
    count: u32,
}

impl Bits {
    fn put(&mut self, value: usize, count: u32) {
        for bit in (0..count).rev() {
            self.open = self.open << 1 | (value >> bit & 1) as u32;
            self.count += 1;
            if self.count == 8 {
                self.bytes.push(self.open as u8);
                if self.open == 0xff {
                    self.bytes.push(0);
                }
                (self.open, self.count) = (0, 0);
            }
        }
    }

    fn pad(&mut self) {
        while self.count > 0 {
            self.put(1, 1);
        }
    }
}

/// A baseline JPEG of noise. Its tables have three symbols of two bits each: of DC differences those of 0, 3 and 6 bits,
/// of AC the block's end, a 1 and a number of 5 bits.
fn jpeg(make: Make) -> Vec<u8> {
    let (h, v) = make.sampling.unwrap_or((1, 1));
    let components = if make.sampling.is_some() { 3 } else { 1 };
    let mut bytes = vec![0xff, 0xd8, 0xff, 0xdb, 0, 67, 0];
    bytes.extend([8; 64]);
    bytes.extend([0xff, 0xc0, 0, 8 + 3 * components, 8]);
    bytes.extend((make.height as u16).to_be_bytes());
    bytes.extend((make.width as u16).to_be_bytes());
    bytes.push(components);
    bytes.extend([1, h << 4 | v, 0]);
    (1..components).for_each(|id| bytes.extend([id + 1, 0x11, 0]));
    for (class, symbols) in [(0x00, [0, 3, 6]), (0x10, [0x00, 0x01, 0x05])] {
        bytes.extend([0xff, 0xc4, 0, 22, class, 0, 3]);
        bytes.extend([0; 14]);
        bytes.extend(symbols);
    }
    bytes.extend([0xff, 0xdd, 0, 4]);
    bytes.extend(make.restart.to_be_bytes());
    bytes.extend([0xff, 0xda, 0, 6 + 2 * components, components]);
    (0..components).for_each(|id| bytes.extend([id + 1, 0]));
    bytes.extend([0, 63, 0]);
    bytes.extend(scan(make, (h, v), components));
    bytes.extend([0xff, 0xd9]);
    bytes
}

fn scan(make: Make, (h, v): (u8, u8), components: u8) -> Vec<u8> {
    let mut numbers = Numbers(make.seed | 1);
    let mut bits = Bits::default();
    let mcus = make.width.div_ceil(8 * h as usize) * make.height.div_ceil(8 * v as usize);
    for mcu in 0..mcus {
        if make.restart > 0 && mcu > 0 && mcu % make.restart as usize == 0 {
            bits.pad();
            let number = (mcu / make.restart as usize - 1) & 7;
            bits.bytes.extend([0xff, 0xd0 | number as u8]);
        }
        for _ in 0..h * v + components - 1 {
            let dc = numbers.below(3);
            bits.put(dc, 2);
            bits.put(numbers.below(64), [0, 3, 6][dc]);
            for _ in 0..numbers.below(20) {
                let ac = 1 + numbers.below(2);
                bits.put(ac, 2);
                bits.put(numbers.below(32), [0, 1, 5][ac]);
            }
            bits.put(0, 2);
        }
    }
    bits.pad();
    bits.bytes
}

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
        learn: None,
    }
}

fn built(header: &Header<'_>, kind: Kind) -> Vec<u8> {
    let index = Decoder::new().index(header, kind).expect("a good image");
    assert_eq!(index.known(), index.total());
    index.to_bytes(header)
}

fn random_region(header: &Header<'_>, numbers: &mut Numbers) -> Region {
    let mut side = |size: usize| {
        let (a, b) = (numbers.below(size), numbers.below(size));
        (a.min(b), a.max(b) - a.min(b) + 1)
    };
    let ((x, width), (y, height)) = (side(header.width()), side(header.height()));
    Region { x, y, width, height }
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
                };

                let (found, told) = decode(&header, region, guide).expect("a good image");

                assert!(found == expected && !told.damaged, "{kind:?} {region:?}");
                learned = told.learned.or(learned);
            }
            let guide = Guide {
                index: learned.as_deref(),
                learn: Some(kind),
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
    };
    let guide = Guide {
        index: None,
        learn: Some(Kind::Rows),
    };
    let (expected, _) = decode(&header, region, NO_GUIDE).expect("damage below");

    let (found, told) = decode(&header, region, guide).expect("damage below");

    assert!(found == expected && told.learned.is_some());
}
