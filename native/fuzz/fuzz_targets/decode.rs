//! Any bytes: decoding neither panics nor runs without bound. All levels agree. A region equals the same part of the
//! whole picture, at every scale. A transcoded file has the same pixels.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_core::error::Error;
use penstock_core::jpeg::{Decoder, Header, Limits, Region, Scale, inspect, transcode_baseline};
use penstock_core::simd::Available;
use penstock_fuzz::{assert_part, region_in, seed_of};

const LIMITS: Limits = Limits::pixels(1 << 16);

fn interleaved(level: Available, header: &Header<'_>, region: Region) -> Result<Vec<u8>, Error> {
    penstock_fuzz::interleaved(region, |sink| Decoder::with_level(level).decode(header, region, sink))
}

fn planar(level: Available, header: &Header<'_>, region: Region) -> Result<Vec<u8>, Error> {
    penstock_fuzz::planar(region, |sink| Decoder::with_level(level).decode(header, region, sink))
}

/// A region at a scale.
fn region_of(bytes: &[u8], header: &Header<'_>) -> Region {
    let seed = seed_of(bytes);
    let whole = Region::whole_at(header, Scale::ALL[seed / 11 % 4]);
    region_in(whole.width, whole.height, whole.scale, seed)
}

fuzz_target!(|bytes: &[u8]| {
    let _ = inspect(bytes);
    let Ok(header) = Header::parse(bytes, &LIMITS) else {
        return;
    };
    let region = region_of(bytes, &header);
    let all = Region::whole_at(&header, region.scale);
    let whole = interleaved(Available::SCALAR, &header, all);
    let part = interleaved(Available::SCALAR, &header, region);
    assert_eq!(part, planar(Available::SCALAR, &header, region));
    for &level in &Available::all()[1..] {
        assert_eq!(whole, interleaved(level, &header, all));
        assert_eq!(part, interleaved(level, &header, region));
        assert_eq!(part, planar(level, &header, region));
    }
    if let Ok(baseline) = transcode_baseline(bytes, &LIMITS) {
        let header = Header::parse(&baseline, &LIMITS).expect("a transcoded file");
        assert_eq!(whole, interleaved(Available::best(), &header, all));
    }
    if let Ok(whole) = whole {
        let part = part.expect("a part of what decodes as a whole");
        assert_part(&part, region, &whole, all.width);
    }
});
