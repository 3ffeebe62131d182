//! One byte or number at a time: the specification.

use super::{Affine, TRANSPOSED_ROWS};

pub fn reverse(line: &[u8], out: &mut [u8]) {
    out.iter_mut().zip(line.iter().rev()).for_each(|(out, x)| *out = *x);
}

pub fn transpose(rows: &[&[u8]; TRANSPOSED_ROWS], is_mirrored: bool, out: &mut [u8], stride: usize) {
    transpose_columns(rows, 0, is_mirrored, out, stride);
}

/// The columns from `first` on.
pub fn transpose_columns(
    rows: &[&[u8]; TRANSPOSED_ROWS],
    first: usize,
    is_mirrored: bool,
    out: &mut [u8],
    stride: usize,
) {
    let columns = rows[0].len();
    for c in first..columns {
        let at = stride * if is_mirrored { columns - 1 - c } else { c };
        for (out, row) in out[at..][..TRANSPOSED_ROWS].iter_mut().zip(rows) {
            *out = row[c];
        }
    }
}

pub fn interleave(planes: [&[u8]; 3], out: &mut [u8]) {
    for (i, out) in out.as_chunks_mut::<3>().0.iter_mut().enumerate() {
        *out = planes.map(|plane| plane[i]);
    }
}

pub fn deinterleave(line: &[u8], planes: [&mut [u8]; 3]) {
    let [r, g, b] = planes;
    for (((rgb, r), g), b) in line.as_chunks::<3>().0.iter().zip(r).zip(g).zip(b) {
        [*r, *g, *b] = *rgb;
    }
}

pub fn normalise_f32(line: &[u8], affine: &Affine, out: &mut [f32]) {
    for (i, (x, out)) in line.iter().zip(out).enumerate() {
        *out = f32::from(*x) * affine.scale[i % 3] + affine.offset[i % 3];
    }
}

pub fn normalise_f16(line: &[u8], affine: &Affine, out: &mut [u16]) {
    for (i, (x, out)) in line.iter().zip(out).enumerate() {
        *out = half_bits(f32::from(*x) * affine.scale[i % 3] + affine.offset[i % 3]);
    }
}

pub fn halves(values: &[f32], out: &mut [u16]) {
    values.iter().zip(out).for_each(|(x, out)| *out = half_bits(*x));
}

pub fn normalise_bf16(line: &[u8], affine: &Affine, out: &mut [u16]) {
    for (i, (x, out)) in line.iter().zip(out).enumerate() {
        *out = bfloat_bits(f32::from(*x) * affine.scale[i % 3] + affine.offset[i % 3]);
    }
}

pub fn bfloats(values: &[f32], out: &mut [u16]) {
    values.iter().zip(out).for_each(|(x, out)| *out = bfloat_bits(*x));
}

/// The bits of the nearest bfloat16 number, ties to even. Values that are too large become infinite; NaN becomes the
/// quiet NaN with its sign.
pub fn bfloat_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16 & 0x8000) as u16 | 0x7fc0;
    }
    let odd = bits >> 16 & 1;
    ((bits + 0x7fff + odd) >> 16) as u16
}

/// The bits of the nearest half-precision float, ties to even. Values that are too large become infinite; NaN stays a
/// (quiet) NaN.
pub fn half_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude >= 0x7f80_0000 {
        let payload = if magnitude > 0x7f80_0000 {
            0x200 | (magnitude >> 13 & 0x3ff) as u16
        } else {
            0
        };
        return sign | 0x7c00 | payload;
    }
    // Normal halves begin at 2^-14: 13 bits are dropped. Below that the unit is 2^-24, and more bits are dropped.
    let exponent = magnitude >> 23;
    let (significand, drop) = if exponent >= 113 {
        (magnitude - (112 << 23), 13)
    } else {
        (magnitude & 0x7f_ffff | 0x80_0000, (126 - exponent).min(31))
    };
    let half = 1u32 << (drop - 1);
    let odd = significand >> drop & 1;
    sign | ((significand + (half - 1) + odd) >> drop).min(0x7c00) as u16
}
