//! Decodes JPEGs from memory on one thread and prints the time per image.
//!
//! `decode_bench [--level scalar|avx2|avx512] [--planar] [--rounds N] [--region SCALE | --crops] [--fill SIDE [--quality Q] [--late-color]] [--index rows|tiles|learn-rows|learn-tiles] FILE...`
//!
//! `--crops`: one crop of each image as RandomResizedCrop draws it (0.08 to 1 of the area), the same on every run.
//! `--fill`: it is also resized to a square, normalised and written as planes of floats, from samples at the
//! smallest scale that `--quality` allows.

use std::time::{Duration, Instant};

use penstock_core::error::Error;
use penstock_core::fill::{Affine, FillOptions, FillTimes, Filler, Geometry, Layout, Mode, Row};
use penstock_core::jpeg::{DecodeHints, Decoder, Header, Limits, Region, SeekTable, SeekTableKind};
use penstock_core::resample::Filter;
use penstock_core::rows::{RgbPixels, RowSink, planar_row_len};
use penstock_core::simd::Available;

const LIMITS: Limits = Limits::pixels(1 << 27);

/// One row of each plane, overwritten again and again, like a consumer of strips.
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
        ..Region::whole(header)
    }
}

/// A region of 0.08 to 1 of the area and an aspect ratio of 3/4 to 4/3, anywhere in the picture.
fn crop(header: &Header<'_>, seed: &mut u64) -> Region {
    let mut uniform = || {
        *seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) as f64 / f64::from(1u32 << 31)
    };
    let (w, h) = (header.width(), header.height());
    let area = (w * h) as f64 * (0.08 + 0.92 * uniform());
    let ratio = (0.75f64.ln() + (16.0f64 / 9.0).ln() * uniform()).exp();
    let side = |side: f64, size: usize| (side.round() as usize).clamp(1, size);
    let (width, height) = (side((area * ratio).sqrt(), w), side((area / ratio).sqrt(), h));
    Region {
        x: (uniform() * (w - width + 1) as f64) as usize,
        y: (uniform() * (h - height + 1) as f64) as usize,
        width,
        height,
        ..Region::whole(header)
    }
}

/// An image, and what of it is decoded.
struct Case {
    bytes: Vec<u8>,
    region: Region,
    index: Option<Vec<u8>>,
}

/// How all images are decoded.
#[derive(Clone, Copy)]
struct How {
    planar: bool,
    fill: Option<usize>,
    quality: f64,
    late_color: bool,
    learn: Option<SeekTableKind>,
}

/// Crops, resizes and normalises an image into a row of floats.
fn fill(filler: &mut Filler, case: &Case, how: How, side: usize, out: &mut Vec<f32>) {
    let Region {
        x, y, width, height, ..
    } = case.region;
    let columns = [x, y, x + width, y + height, side, side, 0, 0, 1].map(|column| column as i32);
    let options = FillOptions {
        filter: Filter::Bilinear,
        mode: Mode::Rgb,
        layout: Layout::Chw,
        window: [side; 2],
        background: [0; 4],
        alpha: [1.0, 0.0],
        quality: how.quality,
        late_color: how.late_color,
        limits: LIMITS,
    };
    let affine = Affine {
        scale: [0.017, 0.0175, 0.0174],
        offset: [-2.1, -2.0, -1.8],
    };
    out.resize(3 * side * side, 0.0);
    let geometry = Geometry::new(columns, [side; 2], false).expect("the region lies in the picture");
    let row = Row::F32(out, affine);
    let filled = filler.fill(
        &case.bytes,
        DecodeHints {
            seek_table: case.index.as_deref(),
            ..DecodeHints::default()
        },
        &geometry,
        &options,
        row,
        &mut FillTimes::default(),
    );
    filled.expect("decoded before");
}

fn decode(decoder: &mut Decoder, case: &Case, how: How, sinks: &mut (RgbPixels, Planar)) -> Result<(), Error> {
    let header = Header::parse(&case.bytes, &LIMITS)?;
    let mut index = match &case.index {
        Some(bytes) => Some(SeekTable::parse(&header, bytes).expect("made for this image")),
        None => how.learn.map(|kind| SeekTable::new(&header, kind)),
    };
    let region = case.region;
    if how.planar {
        for plane in &mut sinks.1.0 {
            plane.resize(plane.len().max(planar_row_len(region.width)), 0);
        }
        decoder.decode_with_table(&header, region, index.as_mut(), &mut sinks.1)?;
    } else {
        sinks.0.width = region.width;
        sinks
            .0
            .bytes
            .resize(sinks.0.bytes.len().max(3 * region.width * region.height), 0);
        decoder.decode_with_table(&header, region, index.as_mut(), &mut sinks.0)?;
    }
    if let (Some(index), Some(_)) = (index, how.learn) {
        std::hint::black_box(index.to_bytes(&header));
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut rounds, mut scale, mut crops, mut level, mut cases) = (5u32, 1.0, false, Available::best(), vec![]);
    let (mut index, mut seed) = (None, 1);
    let mut how = How {
        planar: false,
        fill: None,
        quality: f64::INFINITY,
        late_color: false,
        learn: None,
    };
    let mut files: Vec<String> = vec![];
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or("an option needs a value");
        match argument.as_str() {
            "--rounds" => rounds = value()?.parse()?,
            "--region" => scale = value()?.parse()?,
            "--fill" => how.fill = Some(value()?.parse()?),
            "--quality" => how.quality = value()?.parse()?,
            "--late-color" => how.late_color = true,
            "--planar" => how.planar = true,
            "--crops" => crops = true,
            "--index" => match value()?.as_str() {
                "learn-rows" => how.learn = Some(SeekTableKind::Rows),
                "learn-tiles" => how.learn = Some(SeekTableKind::Tiles),
                name => index = Some(SeekTableKind::from_name(name).ok_or("no such index")?),
            },
            "--level" => level = Available::named(&value()?).ok_or("this processor has no such level")?,
            _ => files.push(argument),
        }
    }
    let mut decoder = Decoder::with_level(level);
    let (mut filler, mut row) = (Filler::with_level(level), vec![]);
    let (mut file_bytes, mut index_bytes) = (0, 0);
    for file in files {
        let bytes = std::fs::read(file)?;
        let Ok(header) = Header::parse(&bytes, &LIMITS) else {
            continue;
        };
        let region = if crops {
            crop(&header, &mut seed)
        } else {
            centre(&header, scale)
        };
        let index = match index {
            Some(kind) => Some(decoder.build_seek_table(&header, kind)?.to_bytes(&header)),
            None => None,
        };
        file_bytes += bytes.len();
        index_bytes += index.as_ref().map_or(0, Vec::len);
        cases.push(Case { bytes, region, index });
    }
    let mut sinks = (RgbPixels::new(0, 0), Planar(Default::default()));
    cases.retain(|case| decode(&mut decoder, case, how, &mut sinks).is_ok());
    // The best time of each image: other processes rarely disturb the same image in all rounds.
    let mut best = vec![if rounds == 0 { Duration::ZERO } else { Duration::MAX }; cases.len()];
    let start = Instant::now();
    for _ in 0..rounds {
        for (case, best) in cases.iter().zip(&mut best) {
            let start = Instant::now();
            match how.fill {
                Some(side) => fill(&mut filler, case, how, side, &mut row),
                None => decode(&mut decoder, case, how, &mut sinks)?,
            }
            *best = (*best).min(start.elapsed());
        }
    }
    let all = start.elapsed() / rounds.max(1);
    let per_image = |time: Duration| time.as_secs_f64() * 1e3 / cases.len().max(1) as f64;
    println!(
        "{} images, ms per image: best {:.3}, mean {:.3}; index {:.2} % of the files",
        cases.len(),
        per_image(best.iter().sum()),
        per_image(all),
        100.0 * index_bytes as f64 / file_bytes.max(1) as f64
    );
    Ok(())
}
