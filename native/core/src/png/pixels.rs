//! The pixels of an unfiltered line as RGB.

use super::header::{Color, Header};
use crate::fill::lines;
use crate::simd::Available;

/// Where the bytes of red, green and blue are.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// At these positions of each pixel, which has so many bytes.
    At([usize; 3], usize),
    /// In this table, at the one byte of each pixel.
    Table(&'a [[u8; 3]; 256]),
}

/// Colours of the values of one byte: those of the palette, or gray levels of less than 8 bits. None: the values are
/// colours. Values without a colour are black, as in Pillow.
pub(super) fn color_table(header: &Header<'_>) -> Option<[[u8; 3]; 256]> {
    let mut table = [[0; 3]; 256];
    match (header.color, header.depth) {
        (Color::Palette, _) => {
            for (to, color) in table.iter_mut().zip(header.palette.as_chunks().0) {
                *to = *color;
            }
        }
        (Color::Gray, depth @ (1 | 2 | 4)) => {
            for (value, to) in (0..1 << depth).zip(&mut table) {
                *to = [gray_level(value, depth); 3];
            }
        }
        _ => return None,
    }
    Some(table)
}

/// The 8-bit level of a gray value of less than 8 bits.
pub(super) fn gray_level(value: u8, depth: u8) -> u8 {
    value * (255 / ((1 << depth) - 1) as u8)
}

/// Where the colours of pixels of 8 or 16 bits per sample are. Of 16 bits, the high byte is used, which is the first.
pub(super) fn color_positions(header: &Header<'_>) -> Source<'static> {
    let sample = usize::from(header.depth / 8).max(1);
    let pixel = sample * header.color.samples();
    match header.color {
        Color::Rgb | Color::Rgba => Source::At([0, sample, 2 * sample], pixel),
        _ => Source::At([0; 3], pixel),
    }
}

/// Where the alpha of pixels is, and the bytes of a pixel, if they have alpha.
pub(super) fn alpha_position(header: &Header<'_>) -> Option<[usize; 2]> {
    let sample = usize::from(header.depth / 8);
    match header.color {
        Color::GrayAlpha => Some([sample, 2 * sample]),
        Color::Rgba => Some([3 * sample, 4 * sample]),
        _ => None,
    }
}

/// Writes the alpha of pixels to a plane, which is longer or empty.
pub(super) fn copy_alpha([at, pixel]: [usize; 2], pixels: &[u8], plane: &mut [u8]) {
    for (to, pixel) in plane.iter_mut().zip(pixels.chunks_exact(pixel)) {
        *to = pixel[at];
    }
}

/// Writes samples of less than 8 bits, those from `first` on, as a byte each.
pub(super) fn unpack(depth: u8, packed: &[u8], first: usize, out: &mut [u8]) {
    let per_byte = 8 / usize::from(depth);
    let mask = (1u16 << depth) as u8 - 1;
    for (i, out) in (first..).zip(out) {
        let shift = 8 - usize::from(depth) * (i % per_byte + 1);
        *out = packed[i / per_byte] >> shift & mask;
    }
}

/// Writes pixels to three planes, which are longer.
pub(super) fn to_planes(level: Available, source: Source<'_>, pixels: &[u8], planes: [&mut [u8]; 3]) {
    match source {
        Source::At([0, 1, 2], 3) => lines::deinterleave(level, pixels, planes),
        Source::At(positions, 1) => copy_bytes::<1>(positions, pixels, planes),
        Source::At(positions, 2) => copy_bytes::<2>(positions, pixels, planes),
        Source::At(positions, 4) => copy_bytes::<4>(positions, pixels, planes),
        Source::At(positions, 6) => copy_bytes::<6>(positions, pixels, planes),
        Source::At(positions, _) => copy_bytes::<8>(positions, pixels, planes),
        Source::Table(table) => {
            let [r, g, b] = planes;
            for (((r, g), b), value) in r.iter_mut().zip(g).zip(b).zip(pixels) {
                [*r, *g, *b] = table[usize::from(*value)];
            }
        }
    }
}

fn copy_bytes<const N: usize>(positions: [usize; 3], pixels: &[u8], planes: [&mut [u8]; 3]) {
    for (plane, at) in planes.into_iter().zip(positions) {
        let at = at.min(N - 1); // so that the compiler knows
        for (to, pixel) in plane.iter_mut().zip(pixels.as_chunks::<N>().0) {
            *to = pixel[at];
        }
    }
}

/// Writes pixels as r, g, b, r, g, b, ...
pub(super) fn to_interleaved(source: Source<'_>, pixels: &[u8], out: &mut [u8]) {
    let out = out.as_chunks_mut::<3>().0;
    match source {
        Source::At([0, 1, 2], 3) => out.as_flattened_mut().copy_from_slice(pixels),
        Source::At(positions, nbytes) => {
            for (to, pixel) in out.iter_mut().zip(pixels.chunks_exact(nbytes)) {
                *to = positions.map(|at| pixel[at]);
            }
        }
        Source::Table(table) => {
            for (to, value) in out.iter_mut().zip(pixels) {
                *to = table[usize::from(*value)];
            }
        }
    }
}
