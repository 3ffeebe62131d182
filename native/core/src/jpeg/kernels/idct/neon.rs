//! The inverse DCT with NEON, one block at a time. It equals the specification for all coefficients.

use core::arch::aarch64::*;

use super::BlockRow;
use super::scalar::{self, *};
use crate::simd::neon::{load_words, store8};

/// See [`super::block_row`].
#[target_feature(enable = "neon")]
pub(crate) fn block_row(
    blocks: &[[i16; 64]],
    used: &[u8],
    row: BlockRow,
    quant: &[i16; 64],
    out: &mut [u8],
    pitch: usize,
) {
    for (i, block) in row.indices().enumerate() {
        transform_block(&blocks[block], used[block], quant, &mut out[8 * i..], pitch);
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn transform_block(block: &[i16; 64], used: u8, quant: &[i16; 64], out: &mut [u8], pitch: usize) {
    if used <= 1 {
        return fill_flat(block[0], quant[0], out, pitch);
    }
    let top = row(block, quant, 0);
    // The short cut of the specification differs from the full transform only above this size, which no valid file has.
    if is_large(top) {
        return scalar::transform_block(block, quant, out, pitch);
    }
    // Zigzag positions up to 10 lie in the top left 4 x 4.
    let samples = if used <= 10 {
        corner(block, top, quant)
    } else {
        let row = |r| row(block, quant, r);
        let rows = [top, row(1), row(2), row(3), row(4), row(5), row(6), row(7)];
        let [low, high] = pass(transpose(columns_of(pass(rows))));
        samples_of(low, high)
    };
    store_transposed(samples, out, pitch);
}

/// Whether a coefficient is outside -0x2000..0x2000.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn is_large(top: int16x8_t) -> bool {
    let sized = vreinterpretq_u16_s16(vaddq_s16(top, vdupq_n_s16(0x2000)));
    vmaxvq_u16(sized) >= 0x4000
}

/// Transforms a block that has only a DC coefficient.
#[inline]
#[target_feature(enable = "neon")]
fn fill_flat(dc: i16, quant: i16, out: &mut [u8], pitch: usize) {
    let scaled = i32::from(dc.wrapping_mul(quant).wrapping_shl(2));
    let sample = (((scaled + 16) >> 5).clamp(-128, 127) + 128) as u8;
    for row in out.chunks_mut(pitch).take(8) {
        store8(row, vdup_n_u8(sample));
    }
}

/// Row `r` of a block, dequantised.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn row(block: &[i16; 64], quant: &[i16; 64], r: usize) -> int16x8_t {
    vmulq_s16(load_words(&block.as_chunks().0[r]), load_words(&quant.as_chunks().0[r]))
}

/// Even and odd parts of four lanes of a pass, in 32 bits: output `i` is their sum, output `7 - i` their difference.
/// The sums stay below 2^31 for all coefficients.
#[derive(Clone, Copy)]
struct Parts {
    even: [int32x4_t; 4],
    odd: [int32x4_t; 4],
}

/// One dimension, all eight lanes: four of them, then the others.
#[inline]
#[target_feature(enable = "neon")]
fn pass(x: [int16x8_t; 8]) -> [Parts; 2] {
    let (sum, difference) = (vaddq_s16(x[0], x[4]), vsubq_s16(x[0], x[4]));
    let (a, b) = (vaddq_s16(x[3], x[7]), vaddq_s16(x[1], x[5]));
    let ([s0, d0, x2, x6], [a0, b0]) = (
        low_halves([sum, difference, x[2], x[6]]),
        [vget_low_s16(a), vget_low_s16(b)],
    );
    let [x1, x3, x5, x7] = low_halves([x[1], x[3], x[5], x[7]]);
    let low = half([s0, d0, x2, x6, a0, b0, x1, x3, x5, x7]);
    let ([s1, d1, x2, x6], [a1, b1]) = (
        high_halves([sum, difference, x[2], x[6]]),
        [vget_high_s16(a), vget_high_s16(b)],
    );
    let [x1, x3, x5, x7] = high_halves([x[1], x[3], x[5], x[7]]);
    [low, half([s1, d1, x2, x6, a1, b1, x1, x3, x5, x7])]
}

/// `x0 + x4`, `x0 - x4`, `x2`, `x6`, `x3 + x7`, `x1 + x5`, `x1`, `x3`, `x5`, `x7`.
#[inline]
#[target_feature(enable = "neon")]
fn half([sum, difference, x2, x6, a, b, x1, x3, x5, x7]: [int16x4_t; 10]) -> Parts {
    let times = |x: int16x4_t, factor: i32| vmull_n_s16(x, factor as i16);
    let plus = |to: int32x4_t, x: int16x4_t, factor: i32| vmlal_n_s16(to, x, factor as i16);
    let (tmp0, tmp1) = (vshll_n_s16::<13>(sum), vshll_n_s16::<13>(difference));
    let tmp2 = plus(times(x2, F0541), x6, F0541 - F1847);
    let tmp3 = plus(times(x2, F0541 + F0765), x6, F0541);
    let z3 = plus(times(a, F1175 - F1961), b, F1175);
    let z4 = plus(times(a, F1175), b, F1175 - F0390);
    Parts {
        even: [
            vaddq_s32(tmp0, tmp3),
            vaddq_s32(tmp1, tmp2),
            vsubq_s32(tmp1, tmp2),
            vsubq_s32(tmp0, tmp3),
        ],
        odd: [
            plus(plus(z4, x7, -F0899), x1, F1501 - F0899),
            plus(plus(z3, x5, -F2562), x3, F3072 - F2562),
            plus(plus(z4, x5, F2053 - F2562), x3, -F2562),
            plus(plus(z3, x7, F0298 - F0899), x1, -F0899),
        ],
    }
}

/// Both passes for blocks with coefficients only in the top left 4 x 4: four columns, then all rows of them.
#[inline]
#[target_feature(enable = "neon")]
fn corner(block: &[i16; 64], top: int16x8_t, quant: &[i16; 64]) -> [int8x16_t; 4] {
    let x = [top, row(block, quant, 1), row(block, quant, 2), row(block, quant, 3)];
    let Parts { even, odd } = half_corner(low_halves(x));
    // Row i, then row 7 - i, of columns 0 to 3.
    let rows = |i: usize| narrow(vaddq_s32(even[i], odd[i]), vsubq_s32(even[i], odd[i]));
    // Rows 0 to 3, then rows 7 to 4, of each column.
    let y = transpose_4x4([rows(0), rows(1), rows(2), rows(3)]);
    let turned = |v| vrev64_s16(vget_high_s16(v));
    samples_of(
        half_corner(low_halves(y)),
        half_corner([turned(y[0]), turned(y[1]), turned(y[2]), turned(y[3])]),
    )
}

#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn low_halves(x: [int16x8_t; 4]) -> [int16x4_t; 4] {
    [
        vget_low_s16(x[0]),
        vget_low_s16(x[1]),
        vget_low_s16(x[2]),
        vget_low_s16(x[3]),
    ]
}

#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn high_halves(x: [int16x8_t; 4]) -> [int16x4_t; 4] {
    [
        vget_high_s16(x[0]),
        vget_high_s16(x[1]),
        vget_high_s16(x[2]),
        vget_high_s16(x[3]),
    ]
}

/// Sums of the first pass, rounded and narrowed to 16 bits.
#[inline]
#[target_feature(enable = "neon")]
fn narrow(low: int32x4_t, high: int32x4_t) -> int16x8_t {
    vqrshrn_high_n_s32::<11>(vqrshrn_n_s32::<11>(low), high)
}

/// [`half`] with x4 to x7 zero: x0 to x3.
#[inline]
#[target_feature(enable = "neon")]
fn half_corner([x0, x1, x2, x3]: [int16x4_t; 4]) -> Parts {
    let odd = |first: i32, third: i32| vmlal_n_s16(vmull_n_s16(x1, first as i16), x3, third as i16);
    let tmp0 = vshll_n_s16::<13>(x0);
    let tmp2 = vmull_n_s16(x2, F0541 as i16);
    let tmp3 = vmull_n_s16(x2, (F0541 + F0765) as i16);
    Parts {
        even: [
            vaddq_s32(tmp0, tmp3),
            vaddq_s32(tmp0, tmp2),
            vsubq_s32(tmp0, tmp2),
            vsubq_s32(tmp0, tmp3),
        ],
        odd: [
            odd(F1501 - F0899 + F1175 - F0390, F1175),
            odd(F1175, F3072 - F2562 + F1175 - F1961),
            odd(F1175 - F0390, F1175 - F2562),
            odd(F1175 - F0899, F1175 - F1961),
        ],
    }
}

/// The result of the first pass.
#[inline]
#[target_feature(enable = "neon")]
fn columns_of([low, high]: [Parts; 2]) -> [int16x8_t; 8] {
    let sum = |i: usize| narrow(vaddq_s32(low.even[i], low.odd[i]), vaddq_s32(high.even[i], high.odd[i]));
    let difference = |i: usize| narrow(vsubq_s32(low.even[i], low.odd[i]), vsubq_s32(high.even[i], high.odd[i]));
    [
        sum(0),
        sum(1),
        sum(2),
        sum(3),
        difference(3),
        difference(2),
        difference(1),
        difference(0),
    ]
}

/// The result of the second pass: columns 0 and 2, 1 and 3, 4 and 6, 5 and 7. Dropping 16 bits and then 2, rounded, is
/// the same as dropping 18, rounded.
#[inline]
#[target_feature(enable = "neon")]
fn samples_of(low: Parts, high: Parts) -> [int8x16_t; 4] {
    let sum = |i: usize| vaddhn_high_s32(vaddhn_s32(low.even[i], low.odd[i]), high.even[i], high.odd[i]);
    let difference = |i: usize| vsubhn_high_s32(vsubhn_s32(low.even[i], low.odd[i]), high.even[i], high.odd[i]);
    let two = |a, b| vqrshrn_high_n_s16::<2>(vqrshrn_n_s16::<2>(a), b);
    [
        two(sum(0), sum(2)),
        two(sum(1), sum(3)),
        two(difference(3), difference(1)),
        two(difference(2), difference(0)),
    ]
}

/// Transposes the 4 x 4 words in both halves of four rows.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn transpose_4x4(rows: [int16x8_t; 4]) -> [int16x8_t; 4] {
    let wide = |v| vreinterpretq_s32_s16(v);
    let (a, b) = (vtrn1q_s16(rows[0], rows[1]), vtrn2q_s16(rows[0], rows[1]));
    let (c, d) = (vtrn1q_s16(rows[2], rows[3]), vtrn2q_s16(rows[2], rows[3]));
    [
        vreinterpretq_s16_s32(vtrn1q_s32(wide(a), wide(c))),
        vreinterpretq_s16_s32(vtrn1q_s32(wide(b), wide(d))),
        vreinterpretq_s16_s32(vtrn2q_s32(wide(a), wide(c))),
        vreinterpretq_s16_s32(vtrn2q_s32(wide(b), wide(d))),
    ]
}

/// Transposes 8 x 8 words.
#[inline]
#[target_feature(enable = "neon")]
fn transpose(x: [int16x8_t; 8]) -> [int16x8_t; 8] {
    let upper = transpose_4x4([x[0], x[1], x[2], x[3]]);
    let lower = transpose_4x4([x[4], x[5], x[6], x[7]]);
    let wide = |v| vreinterpretq_s64_s16(v);
    let first = |i: usize| vreinterpretq_s16_s64(vtrn1q_s64(wide(upper[i]), wide(lower[i])));
    let second = |i: usize| vreinterpretq_s16_s64(vtrn2q_s64(wide(upper[i]), wide(lower[i])));
    [
        first(0),
        first(1),
        first(2),
        first(3),
        second(0),
        second(1),
        second(2),
        second(3),
    ]
}

/// Stores columns in the order of [`samples_of`] as 8 rows of 8 samples.
#[inline]
#[target_feature(enable = "neon")]
fn store_transposed([a0, a1, a2, a3]: [int8x16_t; 4], out: &mut [u8], pitch: usize) {
    let two = |a, b| {
        [
            vreinterpretq_s16_s8(vzip1q_s8(a, b)),
            vreinterpretq_s16_s8(vzip2q_s8(a, b)),
        ]
    };
    let ([b0, b1], [b2, b3]) = (two(a0, a1), two(a2, a3));
    let four = |a, b| {
        [
            vreinterpretq_u32_s16(vzip1q_s16(a, b)),
            vreinterpretq_u32_s16(vzip2q_s16(a, b)),
        ]
    };
    // Columns 0 to 3 of rows 0 to 3, and of rows 4 to 7; then columns 4 to 7.
    let ([c0, c1], [c2, c3]) = (four(b0, b1), four(b2, b3));
    let pairs = [
        vzip1q_u32(c0, c2),
        vzip2q_u32(c0, c2),
        vzip1q_u32(c1, c3),
        vzip2q_u32(c1, c3),
    ];
    for (two, pair) in out.chunks_mut(2 * pitch).zip(pairs) {
        let pair = veorq_u8(vreinterpretq_u8_u32(pair), vdupq_n_u8(128));
        store8(two, vget_low_u8(pair));
        store8(&mut two[pitch..], vget_high_u8(pair));
    }
}
