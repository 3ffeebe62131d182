//! Any bytes: decoding neither panics nor runs without bound. All levels agree. A region equals the same part of the
//! whole picture, at every scale. A transcoded file has the same pixels.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_core::error::Error;
use penstock_core::jpeg::{Decoder, Header, Limits, Region, Scale, inspect, transcode_baseline};
use penstock_core::rows::{RowSink, planar_row_len};
use penstock_core::simd::Available;

const LIMITS: Limits = Limits::pixels(1 << 16);

struct Interleaved {
    width: usize,
    pixels: Vec<u8>,
}

impl RowSink for Interleaved {
    const PLANAR: bool = false;

    fn row(&mut self, y: usize) -> [&mut [u8]; 3] {
        [
            &mut self.pixels[3 * self.width * y..][..3 * self.width],
            &mut [],
            &mut [],
        ]
    }

    fn done(&mut self, _end: usize) {}
}

struct Planar {
    pitch: usize,
    planes: [Vec<u8>; 3],
}

impl RowSink for Planar {
    const PLANAR: bool = true;

    fn row(&mut self, y: usize) -> [&mut [u8]; 3] {
        let pitch = self.pitch;
        self.planes.each_mut().map(|plane| &mut plane[y * pitch..][..pitch])
    }

    fn done(&mut self, _end: usize) {}
}

fn interleaved(level: Available, header: &Header<'_>, region: Region) -> Result<Vec<u8>, Error> {
    let mut sink = Interleaved {
        width: region.width,
        pixels: vec![0; 3 * region.width * region.height],
    };
    Decoder::with_level(level).decode(header, region, &mut sink)?;
    Ok(sink.pixels)
}

fn planar(level: Available, header: &Header<'_>, region: Region) -> Result<Vec<u8>, Error> {
    let pitch = planar_row_len(region.width);
    let mut sink = Planar {
        pitch,
        planes: [(); 3].map(|()| vec![0; pitch * region.height]),
    };
    Decoder::with_level(level).decode(header, region, &mut sink)?;
    let mut pixels = Vec::with_capacity(3 * region.width * region.height);
    for y in 0..region.height {
        for x in 0..region.width {
            pixels.extend(sink.planes.iter().map(|plane| plane[y * pitch + x]));
        }
    }
    Ok(pixels)
}

/// A region at a scale. It depends on the bytes, so that the fuzzer can change it.
fn region_of(bytes: &[u8], header: &Header<'_>) -> Region {
    let seed = bytes
        .iter()
        .rev()
        .take(64)
        .fold(17usize, |hash, &byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    let side = |size: usize, salt: usize| {
        let (a, b) = (seed / salt % size, seed / (7 * salt) % size);
        (a.min(b), a.max(b) - a.min(b) + 1)
    };
    let scale = Scale::ALL[seed / 11 % 4];
    let whole = Region::whole_at(header, scale);
    let ((x, width), (y, height)) = (side(whole.width, 3), side(whole.height, 1013));
    Region {
        x,
        y,
        width,
        height,
        scale,
    }
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
        for (y, row) in part.chunks_exact(3 * region.width).enumerate() {
            let start = 3 * ((region.y + y) * all.width + region.x);
            assert_eq!(row, &whole[start..][..row.len()]);
        }
    }
});
