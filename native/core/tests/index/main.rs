//! Decoding with an index gives the pixels of decoding without, whatever the index bytes are. Learning changes no
//! pixel.

use penstock_core::error::Error;
use penstock_core::jpeg::{DecodeHints, Decoder, Header, Limits, Region, Scale, SeekReport, SeekTableKind};
use penstock_core::rows::RgbPixels;

mod learning;
mod threads;
mod trust;
#[path = "../writer/mod.rs"] // shared with the fuzz targets
mod writer;
use writer::{Make, Numbers, jpeg};

const LIMITS: Limits = Limits::pixels(1 << 24);
const KINDS: [SeekTableKind; 2] = [SeekTableKind::Rows, SeekTableKind::Tiles];
const NO_HINTS: DecodeHints<'_> = DecodeHints {
    seek_table: None,
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

/// Decodes one row of MCUs after the other, and two at once, which must be equal.
fn decode(header: &Header<'_>, region: Region, hints: DecodeHints<'_>) -> Result<(Vec<u8>, SeekReport), Error> {
    let [one, two] = [false, true].map(|two_rows| {
        let mut sink = RgbPixels::new(region.width, region.height);
        let mut decoder = Decoder::new().with_two_rows(two_rows);
        let found = decoder.decode_with_hints(header, region, hints, &mut sink, |sink| sink.bytes.fill(0))?;
        Ok((sink.bytes, found))
    });
    assert_eq!(one, two);
    one
}

fn by(index: &[u8]) -> DecodeHints<'_> {
    DecodeHints {
        seek_table: Some(index),
        ..NO_HINTS
    }
}

fn built(header: &Header<'_>, kind: SeekTableKind) -> Vec<u8> {
    let index = Decoder::new().build_seek_table(header, kind).expect("a good image");
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

                let (expected, _) = decode(&header, region, NO_HINTS).expect("a good image");
                let (found, report) = decode(&header, region, by(&index)).expect("a good image");

                assert_eq!(report, SeekReport::default(), "{kind:?} {region:?}");
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
    let (expected, _) = decode(&header, region, NO_HINTS).expect("a good image");
    let scan = file.len() - 2 - scan_len(&file);
    let mut damaged = file.clone();
    // The check of an index covers both ends of the scan.
    for at in [scan + 100..scan + 1000, file.len() - 1000..file.len() - 100] {
        damaged[at].fill(0x55);
    }
    let header = Header::parse(&damaged, &LIMITS).expect("its header is whole");
    for kind in KINDS {
        let index = built(&Header::parse(&file, &LIMITS).expect("ours"), kind);

        let (found, report) = decode(&header, region, by(&index)).expect("damage elsewhere");

        assert_eq!((found == expected, report), (true, SeekReport::default()), "{kind:?}");
    }
}

fn scan_len(file: &[u8]) -> usize {
    let sos = file.windows(2).rposition(|pair| pair == [0xff, 0xda]).expect("a scan");
    file.len() - 2 - (sos + 2 + file[sos + 3] as usize)
}
