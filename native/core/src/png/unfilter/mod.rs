//! The filters of lines (W3C PNG, section 9), undone.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

use crate::simd::{Available, dispatch};

/// How the bytes of a line are predicted from those of the pixel to the left and of the line above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// They are not.
    None,
    /// By the pixel to the left.
    Sub,
    /// By the pixel above.
    Up,
    /// By the average of both.
    Average,
    /// By that of both, and the pixel above on the left, which is nearest to left + above - above on the left.
    Paeth,
}

impl Filter {
    /// The filter with this number.
    pub fn from_byte(byte: u8) -> Option<Self> {
        [Self::None, Self::Sub, Self::Up, Self::Average, Self::Paeth]
            .get(usize::from(byte))
            .copied()
    }
}

/// Undoes the filter of a line, or of the first part of one: writes as many bytes as `line` has. `pixel`: bytes of a
/// pixel, from 1 to 8; `above`: the line above, of the same length.
///
/// # Panics
/// If `above` or `out` are shorter than `line`.
pub fn unfilter(level: Available, filter: Filter, pixel: usize, line: &[u8], above: &[u8], out: &mut [u8]) {
    let (above, out) = (&above[..line.len()], &mut out[..line.len()]);
    match filter {
        Filter::None => out.copy_from_slice(line),
        Filter::Up => dispatch!(level, [Avx2], up(line, above, out)),
        Filter::Sub => dispatch!(level, [Avx2, Neon], sub(pixel, line, out)),
        Filter::Average => dispatch!(level, [Avx2, Neon], average(pixel, line, above, out)),
        Filter::Paeth => dispatch!(level, [Avx2, Neon], paeth(pixel, line, above, out)),
    }
}
