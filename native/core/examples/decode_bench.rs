//! Decodes JPEGs from memory on one thread and prints the time per image.
//!
//! `decode_bench [--scalar] [--planar] [--rounds N] [--region SCALE] FILE...`

use std::time::{Duration, Instant};

use penstock_core::error::Error;
use penstock_core::jpeg::{Decoder, Header, Limits, Region};
use penstock_core::rows::{RowSink, planar_row_len};
use penstock_core::simd::Level;

const LIMITS: Limits = Limits { max_pixels: 1 << 27 };

/// An image in memory.
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

/// One row of each plane, overwritten again and again: what a consumer of strips would see.
struct Planar([Vec<u8>; 3]);

impl RowSink for Planar {
    const PLANAR: bool = true;

    fn row(&mut self, _y: usize) -> [&mut [u8]; 3] {
        self.0.each_mut().map(Vec::as_mut_slice)
    }

    fn done(&mut self, _end: usize) {}
}

/// A centred region with `scale` of the picture's area.
fn centre(header: &Header<'_>, scale: f64) -> Region {
    let side = |size: usize| ((size as f64 * scale.sqrt()) as usize).clamp(1, size);
    let (width, height) = (side(header.width()), side(header.height()));
    Region {
        x: (header.width() - width) / 2,
        y: (header.height() - height) / 2,
        width,
        height,
    }
}

fn decode(
    decoder: &mut Decoder,
    bytes: &[u8],
    scale: f64,
    planar: bool,
    sinks: &mut (Interleaved, Planar),
) -> Result<(), Error> {
    let header = Header::parse(bytes, &LIMITS)?;
    let region = centre(&header, scale);
    if planar {
        for plane in &mut sinks.1.0 {
            plane.resize(plane.len().max(planar_row_len(region.width)), 0);
        }
        return decoder.decode(&header, region, &mut sinks.1);
    }
    sinks.0.width = region.width;
    sinks
        .0
        .pixels
        .resize(sinks.0.pixels.len().max(3 * region.width * region.height), 0);
    decoder.decode(&header, region, &mut sinks.0)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut rounds, mut scale, mut planar, mut level, mut files) = (5u32, 1.0, false, Level::Avx2, vec![]);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or("an option lacks its value");
        match argument.as_str() {
            "--rounds" => rounds = value()?.parse()?,
            "--region" => scale = value()?.parse()?,
            "--planar" => planar = true,
            "--scalar" => level = Level::Scalar,
            _ => files.push(std::fs::read(argument)?),
        }
    }
    let mut decoder = Decoder::with_level(level);
    let mut sinks = (
        Interleaved {
            width: 0,
            pixels: vec![],
        },
        Planar(Default::default()),
    );
    files.retain(|bytes| decode(&mut decoder, bytes, scale, planar, &mut sinks).is_ok());
    // the best of each image: what else runs on the machine disturbs few of them every time
    let mut best = vec![Duration::MAX; files.len()];
    let start = Instant::now();
    for _ in 0..rounds {
        for (bytes, best) in files.iter().zip(&mut best) {
            let start = Instant::now();
            let result = decode(&mut decoder, bytes, scale, planar, &mut sinks);
            *best = (*best).min(start.elapsed());
            assert!(result.is_ok(), "decoded before");
        }
    }
    let all = start.elapsed() / rounds;
    let per_image = |time: Duration| time.as_secs_f64() * 1e3 / files.len().max(1) as f64;
    println!(
        "{} images, ms per image: best {:.3}, mean {:.3}",
        files.len(),
        per_image(best.iter().sum()),
        per_image(all)
    );
    Ok(())
}
