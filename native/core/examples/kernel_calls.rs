//! Calls one kernel on noise, for counting instructions: `kernel_calls LEVEL KERNEL ROUNDS`, where KERNEL is `affine`,
//! `projective`, `nearest` or `window` (256 x 256 pixels, rotated by about 15 degrees), `blur` (5 weights) or `gray` of as
//! many, or `up`, `sub`, `average`, `paeth` followed by the bytes of a pixel (256 lines of 256 pixels).

use penstock_core::fill::Layout;
use penstock_core::pixels::adjust::{Step, adjust};
use penstock_core::pixels::blur::gaussian;
use penstock_core::pixels::warp::window::{Window, draw};
use penstock_core::pixels::warp::{Map, Sampling, SourceImage, warp};
use penstock_core::png::unfilter::{Filter, unfilter};
use penstock_core::simd::Available;

const SIDE: usize = 256;
const WEIGHTS: [f32; 5] = [0.05, 0.25, 0.4, 0.25, 0.05];
const ROTATION: [f64; 6] = [0.966, -0.259, 36.0, 0.259, 0.966, -30.0];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, level, kernel, rounds] = &arguments[..] else {
        return Err("usage: kernel_calls LEVEL KERNEL ROUNDS".into());
    };
    let level = Available::named(level).ok_or("this processor has no such level")?;
    let noise: Vec<u8> = (0..(8 * SIDE * (SIDE + 1)) as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let mut out = vec![0; noise.len()];
    for _ in 0..rounds.parse()? {
        match kernel.as_str() {
            "affine" => warp_noise(&noise, &Map::Affine(ROTATION), Sampling::Bilinear, &mut out, level),
            "projective" => warp_noise(&noise, &tilt(), Sampling::Bilinear, &mut out, level),
            "nearest" => warp_noise(&noise, &tilt(), Sampling::Nearest, &mut out, level),
            "window" => {
                let window = Window {
                    map: ROTATION,
                    size: [SIDE; 2],
                    fill: [0; 3],
                    shift: None,
                    layout: Layout::Hwc,
                };
                draw(source(&noise), &window, &mut out[..3 * SIDE * SIDE], level);
            }
            "blur" => gaussian(
                &noise[..3 * SIDE * SIDE],
                [SIDE, SIDE, 3],
                &WEIGHTS,
                &WEIGHTS,
                &mut out[..3 * SIDE * SIDE],
                level,
            ),
            "gray" => adjust(
                &noise[..3 * SIDE * SIDE],
                3,
                &[Step::Gray],
                &mut out[..3 * SIDE * SIDE],
                level,
            ),
            _ => unfilter_noise(kernel, &noise, &mut out, level)?,
        }
        std::hint::black_box(&mut out);
    }
    Ok(())
}

fn source(noise: &[u8]) -> SourceImage<'_, 3> {
    SourceImage {
        pixels: &noise.as_chunks().0[..SIDE * SIDE],
        width: SIDE,
        height: SIDE,
    }
}

/// The rotation, seen from an angle.
fn tilt() -> Map {
    let [a, b, c, d, e, f] = ROTATION;
    Map::Projective([a, b, c, d, e, f, 1e-4, 2e-4])
}

fn warp_noise(noise: &[u8], map: &Map, sampling: Sampling, out: &mut [u8], level: Available) {
    let out = &mut out.as_chunks_mut().0[..SIDE * SIDE];
    warp(source(noise), map, sampling, [0; 3], out, level);
}

fn unfilter_noise(kernel: &str, noise: &[u8], out: &mut [u8], level: Available) -> Result<(), String> {
    let (name, pixel) = kernel.split_at(kernel.len().saturating_sub(1));
    let filter = match name {
        "up" => Filter::Up,
        "sub" => Filter::Sub,
        "average" => Filter::Average,
        "paeth" => Filter::Paeth,
        _ => return Err(format!("no kernel is called {kernel}")),
    };
    let pixel = pixel.parse().map_err(|_| format!("no number of bytes: {pixel}"))?;
    let mut lines = noise.chunks_exact(pixel * SIDE);
    let mut above = lines.next().expect("eight lines a pixel's byte");
    for (line, out) in lines.zip(out.chunks_exact_mut(pixel * SIDE)).take(SIDE) {
        unfilter(level, filter, pixel, line, above, out);
        above = out;
    }
    Ok(())
}
