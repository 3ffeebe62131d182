//! Any index bytes, with a valid check or not, for valid and damaged images: decoding neither panics nor runs without
//! bound, succeeds where it succeeds without an index, and gives the same pixels unless the index was forged with its
//! check.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use penstock_core::error::Error;
use penstock_core::jpeg::{DecodeHints, Decoder, Header, Limits, Region, Scale, SeekReport, SeekTable, SeekTableKind};
use penstock_core::rows::RgbPixels;

#[path = "../../core/tests/writer/mod.rs"]
mod writer;
use writer::{Make, jpeg};

const LIMITS: Limits = Limits::pixels(1 << 16);

/// Every sampling, with and without restart intervals.
static IMAGES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let samplings = [None, Some((1, 1)), Some((2, 1)), Some((2, 2))];
    let make = |i: u16| Make {
        width: 100 + 9 * usize::from(i),
        height: 90 - 7 * usize::from(i),
        sampling: samplings[usize::from(i) % 4],
        restart: i / 4 * 5,
        seed: u64::from(i) + 1,
    };
    (0..8).map(|i| jpeg(make(i))).collect()
});

fn decode(header: &Header<'_>, region: Region, hints: DecodeHints<'_>) -> Result<(Vec<u8>, SeekReport), Error> {
    let mut sink = RgbPixels::new(region.width, region.height);
    let mut decoder = Decoder::new().with_two_rows(true);
    let found = decoder.decode_with_hints(header, region, hints, &mut sink, |sink| sink.bytes.fill(0))?;
    Ok((sink.bytes, found))
}

fn region_of(bytes: [u8; 4], header: &Header<'_>) -> Region {
    let side = |size: usize, a: u8, b: u8| {
        let (a, b) = (usize::from(a) % size, usize::from(b) % size);
        (a.min(b), a.abs_diff(b) + 1)
    };
    let scale = Scale::ALL[usize::from(bytes[3]) / 64];
    let all = Region::whole_at(header, scale);
    let (x, width) = side(all.width, bytes[0], bytes[1]);
    let (y, height) = side(all.height, bytes[2], bytes[3]);
    Region {
        x,
        y,
        width,
        height,
        scale,
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&[choice, damage, a, b, c, d], body)) = bytes.split_first_chunk() else {
        return;
    };
    let mut image = IMAGES[usize::from(choice) % IMAGES.len()].clone();
    let kind = if choice & 8 == 0 {
        SeekTableKind::Rows
    } else {
        SeekTableKind::Tiles
    };
    let good = {
        let header = Header::parse(&image, &LIMITS).expect("ours");
        let index = Decoder::new().build_seek_table(&header, kind).expect("a good image");
        index.to_bytes(&header)
    };
    if damage > 0 {
        let at = image.len() - 100 - usize::from(damage);
        image[at] ^= damage;
    }
    let header = Header::parse(&image, &LIMITS).expect("its header is whole");
    let index = match choice >> 4 & 3 {
        // Forged: body and check, or a valid index changed a little with a new check.
        0 => SeekTable::with_check(&header, body.to_vec()),
        1 => {
            let mut index = good[..good.len() - 8].to_vec();
            for pair in body.chunks_exact(2) {
                let at = usize::from(pair[0]) % index.len();
                index[at] ^= pair[1];
            }
            SeekTable::with_check(&header, index)
        }
        2 => body.to_vec(),
        _ => good,
    };
    let forged = choice >> 5 & 1 == 0;
    let region = region_of([a, b, c, d], &header);
    let hints = DecodeHints {
        seek_table: Some(&index),
        learn: (choice & 128 != 0).then_some(kind),
        threads: 1,
    };
    let plain = decode(&header, region, DecodeHints::default());
    let guided = decode(&header, region, hints);
    if let Ok((expected, _)) = plain {
        let (found, report) = guided.expect("decodes without an index");
        if report.damaged || (!forged && damage == 0) {
            assert_eq!(found, expected);
        }
        if let Some(learned) = report.learned {
            assert!(SeekTable::parse(&header, &learned).is_some());
        }
    }
});
