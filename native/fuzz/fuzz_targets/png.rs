//! Any bytes as a PNG, with right checksums of its chunks or as they are: decoding neither panics nor runs without bound.
//! All levels agree. A region equals the same part of the whole picture, as interleaved and as planar rows.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_core::error::Error;
use penstock_core::fill::{FillTimes, Filler, Geometry, SampleRow};
use penstock_core::jpeg::{Limits, Region, Scale};
use penstock_core::png::{Decoder, Header, SIGNATURE, Values, orientation};
use penstock_core::resample::Filter;
use penstock_core::simd::Available;
use penstock_fuzz::{assert_part, region_in, seed_of};

const LIMITS: Limits = Limits::pixels(1 << 16);
/// The samples of a row before it is filled.
const BEFORE: u16 = 0xa5a5;

fn interleaved(level: Available, header: &Header<'_>, region: Region) -> Result<Vec<u8>, Error> {
    penstock_fuzz::interleaved(region, |sink| Decoder::default().decode(level, header, region, sink))
}

fn planar(level: Available, header: &Header<'_>, region: Region) -> Result<Vec<u8>, Error> {
    penstock_fuzz::planar(region, |sink| Decoder::default().decode(level, header, region, sink))
}

/// The file with the signature and right checksums, so that what is behind them is reached.
fn repaired(bytes: &[u8]) -> Vec<u8> {
    let mut file = [SIGNATURE, bytes.get(8..).unwrap_or_default()].concat();
    let mut at = 8;
    while let Some(&[a, b, c, d]) = file.get(at..at + 4) {
        let end = at + 8 + u32::from_be_bytes([a, b, c, d]) as usize;
        if end + 4 > file.len() {
            break;
        }
        let sum = crc32(&file[at + 4..end]);
        file[end..end + 4].copy_from_slice(&sum.to_be_bytes());
        at = end + 4;
    }
    file
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg());
    !bytes
        .iter()
        .fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}

/// Fills a row with the samples of a region, resized: gray of 16 bits that can be decoded, nothing else.
fn fill_row(bytes: &[u8], region: Region, is_deep: bool, is_whole: bool) {
    let Region {
        x, y, width, height, ..
    } = region;
    let (out_width, out_height) = (1 + bytes.len() % 13, 1 + bytes.len() / 13 % 11);
    let geometry = Geometry::resize([x, y, x + width, y + height], out_width, out_height);
    let mut row = vec![BEFORE; out_width * out_height];
    let (mut filler, mut times) = (Filler::with_level(Available::best()), FillTimes::default());
    let target = SampleRow::U16(&mut row);
    let filled = filler.fill_samples(bytes, &geometry, Filter::Bicubic, &LIMITS, target, &mut times);
    assert!(if filled.is_ok() {
        is_deep
    } else {
        !(is_deep && is_whole)
    });
    assert!(filled.is_ok() || row.iter().all(|sample| *sample == BEFORE));
}

fn run(bytes: &[u8]) {
    let _ = orientation(bytes);
    let Ok(header) = Header::parse(bytes, &LIMITS) else {
        return;
    };
    let (width, height) = (header.width(), header.height());
    let all = Region {
        x: 0,
        y: 0,
        width,
        height,
        scale: Scale::Full,
    };
    let region = region_in(width, height, Scale::Full, seed_of(bytes));
    let whole = interleaved(Available::SCALAR, &header, all);
    let part = interleaved(Available::SCALAR, &header, region);
    assert_eq!(part, planar(Available::SCALAR, &header, region));
    for &level in &Available::all()[1..] {
        assert_eq!(whole, interleaved(level, &header, all));
        assert_eq!(part, planar(level, &header, region));
    }
    if header.channel_bits() == Ok(8) {
        let mut values = vec![0; all.width * all.height];
        let decoded = Decoder::default().decode_values(Available::best(), &header, Values::Bytes(&mut values));
        assert_eq!(decoded.is_ok(), whole.is_ok());
    }
    if let Ok(channels) = header.deep_samples() {
        let mut samples = vec![0; channels * region.width * region.height];
        let decoded = Decoder::default().decode_samples(Available::best(), &header, region, &mut samples);
        assert_eq!(decoded.is_ok(), part.is_ok());
        if let Ok(part) = &part {
            let upper = |sample: u16| (sample >> 8) as u8;
            let mut pixels = samples.chunks_exact(channels).zip(part.as_chunks::<3>().0);
            assert!(pixels.all(|(samples, pixel)| upper(samples[0]) == pixel[0]));
        }
    }
    fill_row(bytes, region, header.channel_bits() == Ok(16), part.is_ok());
    if let Ok(whole) = whole {
        let part = part.expect("a part of what decodes as a whole");
        assert_part(&part, region, &whole, all.width);
    }
}

fuzz_target!(|bytes: &[u8]| {
    run(bytes);
    run(&repaired(bytes));
});
