//! Filters over neighbouring pixels: separable blur, and sharpening by a 3 x 3 blur.
//!
//! ```text
//!  rows around y ──vertical──> one line of floats, reflected beyond both ends ──horizontal──> row y
//! ```
//!
//! Single precision. Each product and each sum is rounded by itself, in the order in which they are written here:
//! results do not depend on the number of values computed at once. All levels compile the same source.

use super::values;
use crate::simd::{Available, compile_versions, dispatch};

/// A value of a picture: a byte, or a float.
pub trait Value: Copy + 'static {
    /// Converts to float.
    fn wide(self) -> f32;
    /// The sum of two values as float.
    fn sum(self, other: Self) -> f32;
    /// Converts from float. Bytes are rounded half to even and clipped.
    fn narrow(value: f32) -> Self;
}

impl Value for u8 {
    #[inline(always)]
    fn wide(self) -> f32 {
        f32::from(self)
    }

    #[inline(always)]
    fn sum(self, other: Self) -> f32 {
        f32::from(u16::from(self) + u16::from(other))
    }

    #[inline(always)]
    fn narrow(value: f32) -> Self {
        // Adding and subtracting 1.5 * 2^23 rounds half to even. This is faster than a call where there is no
        // instruction for it.
        let rounded = (value + 12_582_912.0) - 12_582_912.0;
        let least = if rounded > 0.0 { rounded } else { 0.0 };
        let most = if least < 255.0 { least } else { 255.0 };
        // SAFETY: the value is in 0..=255; NaN became 0.
        unsafe { most.to_int_unchecked::<i32>() as u8 }
    }
}

impl Value for f32 {
    #[inline(always)]
    fn wide(self) -> f32 {
        self
    }

    #[inline(always)]
    fn sum(self, other: Self) -> f32 {
        self + other
    }

    #[inline(always)]
    fn narrow(value: f32) -> Self {
        value
    }
}

/// Values per step: four vectors of eight floats.
const STEP: usize = 32;

/// Blurs with two symmetric sets of weights.
///
/// The picture is reflected at its borders without repeating the border pixels, as often as necessary.
///
/// # Panics
/// If lengths do not match, or a set of weights has an even length.
pub fn gaussian<T: Value>(
    image: &[T],
    [height, width, channels]: [usize; 3],
    across: &[f32],
    down: &[f32],
    out: &mut [T],
    level: Available,
) {
    assert!(image.len() == height * width * channels && out.len() == image.len());
    assert!(across.len() % 2 == 1 && down.len() % 2 == 1);
    if image.is_empty() {
        return;
    }
    let row_len = width * channels;
    let reach = across.len() / 2;
    let margin = reach * channels;
    let mut line = vec![0.0; row_len + 2 * margin];
    // For each column beyond the borders: where it begins in the line, and which column it copies.
    let beyond: Vec<_> = (0..reach)
        .chain(reach + width..width + 2 * reach)
        .map(|column| {
            (
                column * channels,
                margin + mirror_position(column, reach, width) * channels,
            )
        })
        .collect();
    let mut rows: Vec<&[T]> = Vec::with_capacity(down.len());
    for (y, out) in out.chunks_exact_mut(row_len).enumerate() {
        rows.clear();
        rows.extend(
            (0..down.len()).map(|i| &image[mirror_position(y + i, down.len() / 2, height) * row_len..][..row_len]),
        );
        let (rows, middle) = (&rows[..], &mut line[margin..][..row_len]);
        dispatch!(level, [Avx2], blur_down(rows, down, middle));
        for (to, from) in &beyond {
            line.copy_within(*from..from + channels, *to);
        }
        let line = &line[..];
        dispatch!(level, [Avx2], blur_across(line, across, channels, out));
    }
}

/// The position of `position - before`, reflected at the first and the last of `length` positions.
fn mirror_position(position: usize, before: usize, length: usize) -> usize {
    let period = 2 * (length - 1);
    if period == 0 {
        return 0;
    }
    let position = (position + before.div_ceil(period) * period - before) % period;
    position.min(period - position)
}

compile_versions! {
    fn blur_down<T: Value>(rows: &[&[T]], weights: &[f32], out: &mut [f32]) = blur_down_portable;
    fn blur_across<T: Value>(line: &[f32], weights: &[f32], channels: usize, out: &mut [T]) = blur_across_portable;
    fn sum_columns(rows: [&[u8]; 3], out: &mut [u16]) = sum_columns_portable;
    fn smooth_row(columns: &[u16], own: &[u8], channels: usize, out: &mut [u8]) = smooth_row_portable;
}

/// Computes `out[i]` from the i-th values of the rows.
#[inline(always)]
fn blur_down_portable<T: Value>(rows: &[&[T]], weights: &[f32], out: &mut [f32]) {
    let half = weights.len() / 2;
    if half == 0 {
        for (out, value) in out.iter_mut().zip(rows[0]) {
            *out = value.wide();
        }
        return;
    }
    let (blocks, rest) = out.as_chunks_mut::<STEP>();
    let done = blocks.len() * STEP;
    for (block, out) in blocks.iter_mut().enumerate() {
        let part = |row: usize| rows[row].as_chunks::<STEP>().0[block];
        let mut total = part(half).map(|value| value.wide() * weights[half]);
        for reach in 1..=half {
            let (above, below) = (part(half - reach), part(half + reach));
            for i in 0..STEP {
                total[i] += above[i].sum(below[i]) * weights[half - reach];
            }
        }
        *out = total;
    }
    for (i, out) in rest.iter_mut().enumerate() {
        let value = |row: usize| rows[row][done + i];
        *out = value(half).wide() * weights[half];
        for reach in 1..=half {
            *out += value(half - reach).sum(value(half + reach)) * weights[half - reach];
        }
    }
}

/// Computes `out[i]` from `line[i]`, `line[i + channels]`, ...
#[inline(always)]
fn blur_across_portable<T: Value>(line: &[f32], weights: &[f32], channels: usize, out: &mut [T]) {
    let half = weights.len() / 2;
    if half == 0 {
        for (out, value) in out.iter_mut().zip(line) {
            *out = T::narrow(*value);
        }
        return;
    }
    let (blocks, rest) = out.as_chunks_mut::<STEP>();
    let done = blocks.len() * STEP;
    for (block, out) in blocks.iter_mut().enumerate() {
        let part = |tap: usize| -> &[f32; STEP] {
            line[block * STEP + tap * channels..]
                .first_chunk()
                .expect("the line must have margins on both sides")
        };
        let mut total = part(half).map(|value| value * weights[half]);
        for reach in 1..=half {
            let (left, right) = (part(half - reach), part(half + reach));
            for i in 0..STEP {
                total[i] += (left[i] + right[i]) * weights[half - reach];
            }
        }
        *out = total.map(T::narrow);
    }
    for (i, out) in rest.iter_mut().enumerate() {
        let value = |tap: usize| line[done + i + tap * channels];
        let mut total = value(half) * weights[half];
        for reach in 1..=half {
            total += (value(half - reach) + value(half + reach)) * weights[half - reach];
        }
        *out = T::narrow(total);
    }
}

/// Computes `blur + factor * (image - blur)`, clipped, as `PIL.ImageEnhance.Sharpness` does. The blur is the rounded
/// mean with weight 5 for a pixel and 1 for each of its eight neighbours. Border pixels are not blurred.
///
/// # Panics
/// If lengths do not match.
pub fn sharpen(image: &[u8], [height, width, channels]: [usize; 3], factor: f32, out: &mut [u8], level: Available) {
    assert!(image.len() == height * width * channels && out.len() == image.len());
    out.copy_from_slice(image);
    if height < 3 || width < 3 {
        return;
    }
    let row_len = width * channels;
    let inner = row_len - 2 * channels;
    let (mut columns, mut smooth) = (vec![0; row_len], vec![0; inner]);
    for y in 1..height - 1 {
        let rows = [y - 1, y, y + 1].map(|y| &image[y * row_len..][..row_len]);
        let (sums, own, smoothed) = (&mut columns[..], rows[1], &mut smooth[..]);
        dispatch!(level, [Avx2], sum_columns(rows, sums));
        dispatch!(level, [Avx2], smooth_row(sums, own, channels, smoothed));
        let out = &mut out[y * row_len + channels..][..inner];
        let whole = inner - inner % STEP;
        values::blend(level, &smooth[..whole], &mut out[..whole], factor);
        values::scalar::blend(&smooth[whole..], &mut out[whole..], factor);
    }
}

/// Sums three rows, column by column.
#[inline(always)]
fn sum_columns_portable(rows: [&[u8]; 3], out: &mut [u16]) {
    let [above, own, below] = rows;
    for (((out, a), b), c) in out.iter_mut().zip(above).zip(own).zip(below) {
        *out = u16::from(*a) + u16::from(*b) + u16::from(*c);
    }
}

/// Blurs the middle one of three rows, given their sums by column; without its first and last pixel.
#[inline(always)]
fn smooth_row_portable(columns: &[u16], own: &[u8], channels: usize, out: &mut [u8]) {
    let [left, middle, right] = [0, channels, 2 * channels].map(|start| &columns[start..][..out.len()]);
    let own = &own[channels..][..out.len()];
    for ((((out, a), b), c), value) in out.iter_mut().zip(left).zip(middle).zip(right).zip(own) {
        *out = thirteenth(a + b + c + 4 * u16::from(*value));
    }
}

/// A thirteenth of a sum of thirteen values, rounded. It is never half way. 5042 / 2^16 divides all such sums exactly.
#[inline(always)]
fn thirteenth(sum: u16) -> u8 {
    ((u32::from(sum + 6) * 5042) >> 16) as u8
}

#[cfg(test)]
mod tests {
    use super::{mirror_position, thirteenth};

    #[test]
    fn thirteenths_are_rounded() {
        for sum in 0..=13 * 255 {
            assert_eq!(u32::from(thirteenth(sum)), (2 * u32::from(sum) + 13) / 26);
        }
    }

    #[test]
    fn mirrors_repeat_no_border() {
        let positions: Vec<_> = (0..9).map(|position| mirror_position(position, 3, 3)).collect();
        let alone: Vec<_> = (0..3).map(|position| mirror_position(position, 1, 1)).collect();

        assert_eq!(positions, [1, 2, 1, 0, 1, 2, 1, 0, 1]);
        assert_eq!(alone, [0; 3]);
    }
}
