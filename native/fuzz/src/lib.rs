//! What the targets share: decoding into memory, as interleaved and as planar rows, and regions of a picture.

use penstock_core::error::Error;
use penstock_core::jpeg::{Region, Scale};
use penstock_core::rows::{RgbPixels, RowSink, planar_row_len};

/// A plane for each channel.
pub struct Planar {
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

/// The pixels of a region that `decode` passes as interleaved rows.
pub fn interleaved(region: Region, decode: impl FnOnce(&mut RgbPixels) -> Result<(), Error>) -> Result<Vec<u8>, Error> {
    let mut sink = RgbPixels::new(region.width, region.height);
    decode(&mut sink)?;
    Ok(sink.bytes)
}

/// The pixels of a region that `decode` passes as rows of planes, interleaved.
pub fn planar(region: Region, decode: impl FnOnce(&mut Planar) -> Result<(), Error>) -> Result<Vec<u8>, Error> {
    let pitch = planar_row_len(region.width);
    let mut sink = Planar {
        pitch,
        planes: [(); 3].map(|()| vec![0; pitch * region.height]),
    };
    decode(&mut sink)?;
    let mut pixels = Vec::with_capacity(3 * region.width * region.height);
    for y in 0..region.height {
        for x in 0..region.width {
            pixels.extend(sink.planes.iter().map(|plane| plane[y * pitch + x]));
        }
    }
    Ok(pixels)
}

/// A number that depends on the bytes, so that the fuzzer can change it.
pub fn seed_of(bytes: &[u8]) -> usize {
    let last = bytes.iter().rev().take(64);
    last.fold(17usize, |hash, &byte| hash.wrapping_mul(31).wrapping_add(byte.into()))
}

/// A region of a picture of this width and height at `scale`.
pub fn region_in(width: usize, height: usize, scale: Scale, seed: usize) -> Region {
    let side = |size: usize, salt: usize| {
        let (a, b) = (seed / salt % size, seed / (7 * salt) % size);
        (a.min(b), a.abs_diff(b) + 1)
    };
    let ((x, width), (y, height)) = (side(width, 3), side(height, 1013));
    Region {
        x,
        y,
        width,
        height,
        scale,
    }
}

/// Asserts that the pixels of a region are those of the whole picture, which is `width` wide.
pub fn assert_part(part: &[u8], region: Region, whole: &[u8], width: usize) {
    for (y, row) in part.chunks_exact(3 * region.width).enumerate() {
        let start = 3 * ((region.y + y) * width + region.x);
        assert_eq!(row, &whole[start..][..row.len()]);
    }
}
