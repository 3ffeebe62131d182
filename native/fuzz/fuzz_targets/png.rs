//! Any bytes as a PNG, with right checksums of its chunks or as they are: decoding neither panics nor runs without bound.
//! All levels agree. A region equals the same part of the whole picture, as interleaved and as planar rows.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_core::error::Error;
use penstock_core::jpeg::{Limits, Region, Scale};
use penstock_core::png::{Decoder, Header, SIGNATURE, Values, orientation};
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
    Decoder::default().decode(level, header, region, &mut sink)?;
    Ok(sink.pixels)
}

fn planar(level: Available, header: &Header<'_>, region: Region) -> Result<Vec<u8>, Error> {
    let pitch = planar_row_len(region.width);
    let mut sink = Planar {
        pitch,
        planes: [(); 3].map(|()| vec![0; pitch * region.height]),
    };
    Decoder::default().decode(level, header, region, &mut sink)?;
    let mut pixels = Vec::with_capacity(3 * region.width * region.height);
    for y in 0..region.height {
        for x in 0..region.width {
            pixels.extend(sink.planes.iter().map(|plane| plane[y * pitch + x]));
        }
    }
    Ok(pixels)
}

/// The whole picture, and a region of it that depends on the bytes.
fn regions(bytes: &[u8], header: &Header<'_>) -> [Region; 2] {
    let seed = bytes
        .iter()
        .rev()
        .take(64)
        .fold(17usize, |hash, &byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    let side = |size: usize, salt: usize| {
        let (a, b) = (seed / salt % size, seed / (7 * salt) % size);
        (a.min(b), a.abs_diff(b) + 1)
    };
    let ((x, width), (y, height)) = (side(header.width(), 3), side(header.height(), 1013));
    let scale = Scale::Full;
    let whole = Region { x: 0, y: 0, width: header.width(), height: header.height(), scale };
    [whole, Region { x, y, width, height, scale }]
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
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}

fn run(bytes: &[u8]) {
    let _ = orientation(bytes);
    let Ok(header) = Header::parse(bytes, &LIMITS) else {
        return;
    };
    let [all, region] = regions(bytes, &header);
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
    if let Ok(whole) = whole {
        let part = part.expect("a part of what decodes as a whole");
        for (y, row) in part.chunks_exact(3 * region.width).enumerate() {
            let start = 3 * ((region.y + y) * all.width + region.x);
            assert_eq!(row, &whole[start..][..row.len()]);
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    run(bytes);
    run(&repaired(bytes));
});
