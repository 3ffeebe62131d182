//! Writes a picture as a row of a batch: orientation, background, flips, layout, normalisation.
//!
//! ```text
//!  bands of planes ──orient──> picture ──frame──> line of the window ──mirror──> ──interleave──> ──write──> row
//!                                                                              (HWC | CHW; u8 | f16 | bf16 | f32)
//! ```
//!
//! The picture is complete and has its final size. Nothing is written if memory for the oriented picture is missing.

use super::mode::interleave_four;
use super::{Affine, FillOptions, Geometry, lines};
use crate::error::Error;
use crate::resample::Picture;
use crate::simd::Available;

/// The order of a row's axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Row, column, channel.
    Hwc,
    /// Channel, row, column.
    Chw,
}

/// A row to write. It has exactly as many elements as the window, unless it is a part of a larger picture.
#[derive(Debug)]
pub enum Row<'a> {
    /// Values from 0 to 255.
    U8(&'a mut [u8]),
    /// A part of an interleaved picture, from its first pixel on: values from 0 to 255, and the picture's bytes per row.
    Part(&'a mut [u8], usize),
    /// Normalised values, as the bits of half-precision floats.
    F16(&'a mut [u16], Affine),
    /// Normalised values, as the bits of bfloat16 numbers.
    Bf16(&'a mut [u16], Affine),
    /// Normalised values.
    F32(&'a mut [f32], Affine),
}

impl Row<'_> {
    /// Whether it is as large as a window of these planes, width and height, or has room for it.
    fn holds(&self, planes: usize, [width, height]: [usize; 2]) -> bool {
        let len = planes * width * height;
        match self {
            Row::U8(row) => row.len() == len,
            Row::Part(rest, stride) => {
                let line = planes * width;
                planes == 3 && line <= *stride && (height == 0 || (height - 1) * stride + line <= rest.len())
            }
            Row::F16(row, _) | Row::Bf16(row, _) => row.len() == len,
            Row::F32(row, _) => row.len() == len,
        }
    }
}

/// Writes pictures as rows of a batch.
pub(super) struct RowWriter {
    level: Available,
    oriented: Picture,
    framed: [Vec<u8>; 4],
    mirrored: [Vec<u8>; 4],
    interleaved: Vec<u8>,
}

impl RowWriter {
    /// A writer that uses the kernels of `level`.
    pub(super) fn new(level: Available) -> Self {
        Self {
            level,
            oriented: Picture::default(),
            framed: [const { Vec::new() }; 4],
            mirrored: [const { Vec::new() }; 4],
            interleaved: Vec::new(),
        }
    }

    /// Writes a stored image that is given as bands, from top to bottom.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]. The row is unchanged.
    pub(super) fn write(
        &mut self,
        bands: &[Picture],
        geometry: &Geometry,
        options: &FillOptions,
        row: Row<'_>,
    ) -> Result<(), Error> {
        if geometry.orientation().is_identity() {
            self.write_picture(bands, geometry, options, row);
            return Ok(());
        }
        let mut picture = std::mem::take(&mut self.oriented);
        let oriented = geometry.orientation().apply(self.level, bands, &mut picture);
        if oriented.is_ok() {
            self.write_picture(std::slice::from_ref(&picture), geometry, options, row);
        }
        self.oriented = picture;
        oriented
    }

    fn write_picture(&mut self, bands: &[Picture], geometry: &Geometry, options: &FillOptions, mut row: Row<'_>) {
        let [first, ..] = bands else { return };
        let (planes, [width, height]) = (first.planes, options.window);
        let visible = [first.width, bands.iter().map(|band| band.height).sum()];
        assert_eq!(
            visible,
            geometry.visible(),
            "the picture must fill the visible part of the window"
        );
        assert!(
            row.holds(planes, options.window),
            "the row must be as large as the window"
        );
        let in_planes = options.layout == Layout::Chw || planes == 1;
        assert!(
            !(in_planes && matches!(row, Row::Part(..))),
            "a part must have the layout HWC"
        );
        let frame = WindowFrame {
            before: geometry.margin(),
            visible,
            window: options.window,
            colour: options.background,
        };
        let source = |y| if geometry.flip_y { height - 1 - y } else { y };
        if in_planes {
            let (framed, mirrored) = (&mut self.framed[0], &mut self.mirrored[0]);
            for (channel, y) in (0..planes).flat_map(|channel| (0..height).map(move |y| (channel, y))) {
                let plane = options.mode.plane_of(channel);
                let mut line = frame.line(bands, [plane, channel], source(y), framed);
                if geometry.flip_x {
                    line = mirror(self.level, line, mirrored);
                }
                let at = (channel * height + y) * width;
                write_line(self.level, line, at, Some(channel), options.alpha, &mut row);
            }
            return;
        }
        let nbytes = planes * width;
        self.interleaved.resize(nbytes, 0);
        for y in 0..height {
            let mut lines = [&[][..]; 4];
            let buffers = self.framed.iter_mut().zip(&mut self.mirrored);
            for ((channel, line), (framed, mirrored)) in lines.iter_mut().enumerate().take(planes).zip(buffers) {
                *line = frame.line(bands, [options.mode.plane_of(channel), channel], source(y), framed);
                if geometry.flip_x {
                    *line = mirror(self.level, line, mirrored);
                }
            }
            match &mut row {
                Row::U8(out) => interleave(self.level, planes, lines, &mut out[y * nbytes..][..nbytes]),
                Row::Part(out, stride) => interleave(self.level, planes, lines, &mut out[y * *stride..][..nbytes]),
                _ if planes == 4 => write_floats_of_four(lines, y * nbytes, options.alpha, &mut row),
                _ => {
                    interleave(self.level, planes, lines, &mut self.interleaved);
                    write_line(self.level, &self.interleaved, y * nbytes, None, options.alpha, &mut row);
                }
            }
        }
    }
}

/// Writes three or four planes as pixels.
fn interleave(level: Available, planes: usize, [r, g, b, alpha]: [&[u8]; 4], out: &mut [u8]) {
    if planes == 4 {
        interleave_four([r, g, b, alpha], out);
    } else {
        lines::interleave(level, [r, g, b], out);
    }
}

/// A window that shows a picture, and a background colour outside it.
struct WindowFrame {
    before: [usize; 2],
    visible: [usize; 2],
    window: [usize; 2],
    colour: [u8; 4],
}

impl WindowFrame {
    /// Line `y` of the window in the plane of a channel. It is built in `framed` if a part of it is background.
    fn line<'a>(
        &self,
        bands: &'a [Picture],
        [plane, channel]: [usize; 2],
        y: usize,
        framed: &'a mut Vec<u8>,
    ) -> &'a [u8] {
        let colour = self.colour[channel];
        let content = y.checked_sub(self.before[1]).filter(|y| *y < self.visible[1]);
        let content = content.map_or(&[][..], |y| row_of_bands(bands, plane, y));
        if self.visible[0] == self.window[0] && !content.is_empty() {
            return content;
        }
        framed.clear();
        if !content.is_empty() {
            framed.resize(self.before[0], colour);
            framed.extend_from_slice(content);
        }
        framed.resize(self.window[0], colour);
        framed
    }
}

/// Line `y` of a picture that is given as bands.
fn row_of_bands(bands: &[Picture], plane: usize, mut y: usize) -> &[u8] {
    for band in bands {
        if y < band.height {
            return band.row(plane, y);
        }
        y -= band.height;
    }
    &[]
}

fn mirror<'a>(level: Available, line: &[u8], mirrored: &'a mut Vec<u8>) -> &'a [u8] {
    mirrored.resize(line.len(), 0);
    lines::reverse(level, line, mirrored);
    mirrored
}

/// Writes a line at element `at`: of one channel, or of three in turn.
fn write_line(level: Available, line: &[u8], at: usize, channel: Option<usize>, alpha: [f32; 2], row: &mut Row<'_>) {
    let of = |affine: &Affine| channel.map_or(*affine, |c| affine_of(*affine, alpha, c));
    match row {
        Row::U8(out) | Row::Part(out, _) => out[at..][..line.len()].copy_from_slice(line),
        Row::F16(out, affine) => lines::normalise_f16(level, line, &of(affine), &mut out[at..][..line.len()]),
        Row::Bf16(out, affine) => lines::normalise_bf16(level, line, &of(affine), &mut out[at..][..line.len()]),
        Row::F32(out, affine) => lines::normalise_f32(level, line, &of(affine), &mut out[at..][..line.len()]),
    }
}

/// The parameters of a channel, the fourth of which is alpha.
fn affine_of(affine: Affine, [scale, offset]: [f32; 2], channel: usize) -> Affine {
    if channel < 3 {
        return affine.channel(channel);
    }
    Affine {
        scale: [scale; 3],
        offset: [offset; 3],
    }
}

/// Writes normalised values of four planes in turn, from element `at` on.
fn write_floats_of_four(planes: [&[u8]; 4], at: usize, alpha: [f32; 2], row: &mut Row<'_>) {
    for (channel, plane) in planes.into_iter().enumerate() {
        let of = |affine: &Affine| {
            let Affine { scale, offset } = affine_of(*affine, alpha, channel);
            move |value: u8| f32::from(value) * scale[0] + offset[0]
        };
        let at = at + channel;
        match row {
            Row::F16(out, affine) => {
                let value = of(affine);
                for (to, from) in out[at..].iter_mut().step_by(4).zip(plane) {
                    *to = lines::half_bits(value(*from));
                }
            }
            Row::Bf16(out, affine) => {
                let value = of(affine);
                for (to, from) in out[at..].iter_mut().step_by(4).zip(plane) {
                    *to = lines::bfloat_bits(value(*from));
                }
            }
            Row::F32(out, affine) => {
                let value = of(affine);
                for (to, from) in out[at..].iter_mut().step_by(4).zip(plane) {
                    *to = value(*from);
                }
            }
            Row::U8(_) | Row::Part(..) => {}
        }
    }
}
