//! Any bytes as a WebP: parsing and decoding neither panic nor run without bound. A region equals the same part of the
//! whole picture, as interleaved and as planar rows.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_core::jpeg::{Limits, Region, Scale};
use penstock_core::simd::Available;
use penstock_core::webp::{Decoder, Header, is_webp, orientation};
use penstock_fuzz::{assert_part, interleaved, planar, region_in, seed_of};

const LIMITS: Limits = Limits::pixels(1 << 16);

fuzz_target!(|bytes: &[u8]| {
    let _ = orientation(bytes);
    let Ok(header) = Header::parse(bytes, &LIMITS) else {
        return;
    };
    assert!(is_webp(bytes), "what parses has the signature");
    let (width, height) = (header.width(), header.height());
    let all = Region {
        x: 0,
        y: 0,
        width,
        height,
        scale: Scale::Full,
    };
    let region = region_in(width, height, Scale::Full, seed_of(bytes));
    let level = Available::best();
    let whole = interleaved(all, |sink| Decoder::default().decode(level, &header, all, sink));
    let part = interleaved(region, |sink| Decoder::default().decode(level, &header, region, sink));
    assert_eq!(
        part,
        planar(region, |sink| Decoder::default().decode(level, &header, region, sink))
    );
    // What is damaged below a region is not found in it.
    if let (Ok(whole), Ok(part)) = (whole, part) {
        assert_part(&part, region, &whole, width);
    }
});
