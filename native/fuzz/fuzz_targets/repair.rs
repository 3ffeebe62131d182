//! Any bytes as a damaged JPEG: what is there is decoded, without a panic and in bounded time. All levels agree. A region
//! equals the same part of the whole picture, at every scale, as interleaved and as planar rows.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_core::error::Error;
use penstock_core::jpeg::{Decoder, Header, Limits, Region, Scale};
use penstock_core::simd::Available;
use penstock_fuzz::{assert_part, region_in, seed_of};

const LIMITS: Limits = Limits {
    max_pixels: 1 << 16,
    max_nbytes: 1 << 20,
};

fn interleaved(level: Available, header: &Header<'_>, region: Region) -> Result<Vec<u8>, Error> {
    penstock_fuzz::interleaved(region, |sink| {
        Decoder::with_level(level).decode_damaged(header, &LIMITS, region, sink)
    })
}

fn planar(level: Available, header: &Header<'_>, region: Region) -> Result<Vec<u8>, Error> {
    penstock_fuzz::planar(region, |sink| {
        Decoder::with_level(level).decode_damaged(header, &LIMITS, region, sink)
    })
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(header) = Header::parse(bytes, &LIMITS) else {
        return;
    };
    let seed = seed_of(bytes);
    let all = Region::whole_at(&header, Scale::ALL[seed / 11 % 4]);
    let region = region_in(all.width, all.height, all.scale, seed);
    let whole = interleaved(Available::SCALAR, &header, all);
    for &level in Available::all() {
        assert_eq!(whole, interleaved(level, &header, all));
        let part = interleaved(level, &header, region);
        assert_eq!(part, planar(level, &header, region));
        if let (Ok(whole), Ok(part)) = (&whole, &part) {
            assert_part(part, region, whole, all.width);
        }
    }
});
