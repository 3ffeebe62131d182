//! The channels of decoded pixels.

use super::lines;
use crate::simd::{Available, compile_versions, dispatch};

/// The channels of pixels, and their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Red, green, blue.
    #[default]
    Rgb,
    /// Blue, green, red.
    Bgr,
    /// Luma of ITU-R 601, as Pillow computes it.
    Luma,
    /// Red, green, blue, and alpha: 255 in images without it.
    Rgba,
}

impl Mode {
    /// Names, as Pillow's and OpenCV's users know them.
    pub const NAMES: [&str; 4] = ["RGB", "BGR", "L", "RGBA"];

    /// The mode of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let modes = [Self::Rgb, Self::Bgr, Self::Luma, Self::Rgba];
        Self::NAMES.iter().position(|other| *other == name).map(|i| modes[i])
    }

    /// Channels of a pixel.
    pub fn channels(self) -> usize {
        match self {
            Self::Luma => 1,
            Self::Rgb | Self::Bgr => 3,
            Self::Rgba => 4,
        }
    }

    /// The plane of a channel: planes are always red, green, blue, alpha, or luma.
    pub(super) fn plane_of(self, channel: usize) -> usize {
        match self {
            Self::Bgr => 2 - channel,
            _ => channel,
        }
    }
}

/// Computes the luma of three planes: `(19595 r + 38470 g + 7471 b + 0x8000) >> 16`.
pub fn luma(level: Available, planes: [&[u8]; 3], out: &mut [u8]) {
    dispatch!(level, [Avx2], luma(planes, out));
}

compile_versions! {
    fn luma(planes: [&[u8]; 3], out: &mut [u8]) = luma_of_line;
}

#[inline(always)]
fn luma_of_line([r, g, b]: [&[u8]; 3], out: &mut [u8]) {
    for (((out, r), g), b) in out.iter_mut().zip(r).zip(g).zip(b) {
        let [r, g, b] = [r, g, b].map(|value| u32::from(*value));
        *out = ((19595 * r + 38470 * g + 7471 * b + 0x8000) >> 16) as u8;
    }
}

/// Writes planes as pixels of four bytes.
pub(super) fn interleave_four(planes: [&[u8]; 4], out: &mut [u8]) {
    let [r, g, b, a] = planes;
    for ((((out, r), g), b), a) in out.as_chunks_mut::<4>().0.iter_mut().zip(r).zip(g).zip(b).zip(a) {
        *out = [*r, *g, *b, *a];
    }
}

/// Writes a line of planes, red, green and blue and perhaps alpha, as pixels of a mode.
pub(super) fn write_pixels(level: Available, mode: Mode, [r, g, b, alpha]: [&[u8]; 4], out: &mut [u8]) {
    match mode {
        Mode::Rgb => lines::interleave(level, [r, g, b], out),
        Mode::Bgr => lines::interleave(level, [b, g, r], out),
        Mode::Luma => luma(level, [r, g, b], out),
        Mode::Rgba => interleave_four([r, g, b, alpha], out),
    }
}
