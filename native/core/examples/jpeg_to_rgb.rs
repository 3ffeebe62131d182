//! Writes the raw RGB pixels of a JPEG, or of a region of it, to standard output: `jpeg_to_rgb FILE [X Y WIDTH HEIGHT]`.

use std::io::Write;

use penstock_core::jpeg::{Decoder, Header, Limits, Region};
use penstock_core::rows::RgbPixels;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (path, numbers) = arguments
        .split_first()
        .ok_or("usage: jpeg_to_rgb FILE [X Y WIDTH HEIGHT]")?;
    let bytes = std::fs::read(path)?;
    let header = Header::parse(&bytes, &Limits::pixels(1 << 27))?;
    let numbers = numbers.iter().map(|n| n.parse()).collect::<Result<Vec<usize>, _>>()?;
    let region = match numbers[..] {
        [x, y, width, height] => Region {
            x,
            y,
            width,
            height,
            ..Region::whole(&header)
        },
        _ => Region::whole(&header),
    };
    let mut pixels = RgbPixels::new(region.width, region.height);
    Decoder::new().decode(&header, region, &mut pixels)?;
    std::io::stdout().write_all(&pixels.bytes)?;
    Ok(())
}
