//! Any bytes as a record of coefficients, whose checksums are not compared: decoded whole and in part, and turned into a
//! JPEG, without a panic. Any JPEG: its record comes back as the same bytes, with the same pixels at every level.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_core::error::Error;
use penstock_core::jpeg::{Decoder, Header, Limits, Region, Scale, is_record, to_jpeg, to_record};
use penstock_core::simd::Available;
use penstock_fuzz::{interleaved, region_in, seed_of};

const LIMITS: Limits = Limits {
    max_pixels: 1 << 16,
    max_nbytes: 1 << 22,
};

fn pixels(level: Available, image: &[u8], seed: usize) -> Result<Vec<u8>, Error> {
    let header = Header::parse(image, &LIMITS)?;
    let all = Region::whole_at(&header, Scale::ALL[seed / 11 % 4]);
    let region = region_in(all.width, all.height, all.scale, seed);
    interleaved(region, |sink| Decoder::with_level(level).decode(&header, region, sink))
}

fuzz_target!(|bytes: &[u8]| {
    let seed = seed_of(bytes);
    if is_record(bytes) {
        for &level in Available::all() {
            let _ = pixels(level, bytes, seed);
        }
        let _ = to_jpeg(bytes, &LIMITS);
    } else if let Ok(record) = to_record(bytes, &LIMITS) {
        assert_eq!(to_jpeg(&record, &LIMITS).as_deref(), Ok(bytes));
        for &level in Available::all() {
            assert_eq!(pixels(level, &record, seed), pixels(level, bytes, seed));
        }
    }
});
