//! The reduced inverse DCTs with NEON, one block at a time. They equal the specification for all coefficients.

use core::arch::aarch64::*;

use super::scalar::{self, *};
use crate::jpeg::kernels::idct::BlockRow;
use crate::jpeg::kernels::idct::neon::{high_halves, is_large, low_halves, row, transpose_4x4};

/// See [`super::block_row`]; 4 x 4.
#[target_feature(enable = "neon")]
pub(crate) fn block_row_4x4(
    blocks: &[[i16; 64]],
    used: &[u8],
    order: BlockRow,
    quant: &[i16; 64],
    out: &mut [u8],
    pitch: usize,
) {
    for (i, block) in order.indices().enumerate() {
        transform_4x4(&blocks[block], used[block], quant, &mut out[4 * i..], pitch);
    }
}

/// See [`super::block_row`]; 2 x 2.
#[target_feature(enable = "neon")]
pub(crate) fn block_row_2x2(
    blocks: &[[i16; 64]],
    used: &[u8],
    order: BlockRow,
    quant: &[i16; 64],
    out: &mut [u8],
    pitch: usize,
) {
    for (i, block) in order.indices().enumerate() {
        transform_2x2(&blocks[block], used[block], quant, &mut out[2 * i..], pitch);
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn plus(sum: int32x4_t, x: int16x4_t, factor: i32) -> int32x4_t {
    vmlal_n_s16(sum, x, factor as i16)
}

/// Four rows of four samples.
#[inline]
#[target_feature(enable = "neon")]
fn transform_4x4(block: &[i16; 64], used: u8, quant: &[i16; 64], out: &mut [u8], pitch: usize) {
    let top = row(block, quant, 0);
    // The short cut of the specification differs from the full transform only above this size, which no valid file has.
    if is_large(top) {
        return scalar::transform_4x4(block, quant, out, pitch);
    }
    let [x1, x2, x3] = [row(block, quant, 1), row(block, quant, 2), row(block, quant, 3)];
    let low = low_halves([top, x1, x2, x3]);
    // Zigzag positions up to 10 lie in the top left 4 x 4.
    let columns = if used <= 10 {
        let rows = narrow(pass_four_corner::<12>(low), [vdupq_n_s32(0); 4]);
        pass_four_corner::<19>(low_halves(transpose_4x4(rows)))
    } else {
        let [x5, x6, x7] = [row(block, quant, 5), row(block, quant, 6), row(block, quant, 7)];
        let [x5l, x6l, x7l] = [vget_low_s16(x5), vget_low_s16(x6), vget_low_s16(x7)];
        let left = pass_four::<12>(low, [x5l, x6l, x7l]);
        let [x5h, x6h, x7h] = [vget_high_s16(x5), vget_high_s16(x6), vget_high_s16(x7)];
        let right = pass_four::<12>(high_halves([top, x1, x2, x3]), [x5h, x6h, x7h]);
        // Columns i and i + 4 of four rows each.
        let columns = transpose_4x4(narrow(left, right));
        let [_, c5, c6, c7] = high_halves(columns);
        pass_four::<19>(low_halves(columns), [c5, c6, c7])
    };
    // Dropping 16 bits and then 3 is the same as dropping 19.
    let two = |a, b| vqshrn_n_s16::<3>(vshrn_high_n_s32::<16>(vshrn_n_s32::<16>(a), b));
    let samples = vcombine_s8(two(columns[0], columns[1]), two(columns[2], columns[3]));
    let rows = transpose_bytes(vreinterpretq_u8_s8(samples));
    for (row, samples) in out.chunks_mut(pitch).zip(rows) {
        row[..4].copy_from_slice(&samples);
    }
}

/// The result of the first pass, of the left and of the right four columns.
#[inline]
#[target_feature(enable = "neon")]
fn narrow(left: [int32x4_t; 4], right: [int32x4_t; 4]) -> [int16x8_t; 4] {
    let row = |i: usize| vqshrn_high_n_s32::<12>(vqshrn_n_s32::<12>(left[i]), right[i]);
    [row(0), row(1), row(2), row(3)]
}

/// Transposes 4 x 4 samples and centres them.
#[inline]
#[target_feature(enable = "neon")]
fn transpose_bytes(columns: uint8x16_t) -> [[u8; 4]; 4] {
    const ORDER: [u8; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];
    let rows = veorq_u8(vqtbl1q_u8(columns, crate::simd::neon::load16(&ORDER)), vdupq_n_u8(128));
    let rows = vreinterpretq_u32_u8(rows);
    [
        vgetq_lane_u32::<0>(rows),
        vgetq_lane_u32::<1>(rows),
        vgetq_lane_u32::<2>(rows),
        vgetq_lane_u32::<3>(rows),
    ]
    .map(u32::to_le_bytes)
}

/// One dimension, 8 to 4, in 32 bits, before `SHIFT` bits are dropped: x0 to x3, then x5 to x7. Sums wrap.
#[inline]
#[target_feature(enable = "neon")]
fn pass_four<const SHIFT: i32>([x0, x1, x2, x3]: [int16x4_t; 4], [x5, x6, x7]: [int16x4_t; 3]) -> [int32x4_t; 4] {
    let times = |x, factor: i32| vmull_n_s16(x, factor as i16);
    let even = plus(times(x2, F1847), x6, -F0765);
    let a = plus(plus(plus(times(x1, F2562), x3, F0899), x5, -F0601), x7, -F0509);
    let b = plus(plus(plus(times(x1, F1061), x3, -F2172), x5, F1451), x7, -F0211);
    butterfly_four::<SHIFT>(x0, even, a, b)
}

/// [`pass_four`] with x5, x6 and x7 zero.
#[inline]
#[target_feature(enable = "neon")]
fn pass_four_corner<const SHIFT: i32>([x0, x1, x2, x3]: [int16x4_t; 4]) -> [int32x4_t; 4] {
    let times = |x, factor: i32| vmull_n_s16(x, factor as i16);
    let a = plus(times(x1, F2562), x3, F0899);
    let b = plus(times(x1, F1061), x3, -F2172);
    butterfly_four::<SHIFT>(x0, times(x2, F1847), a, b)
}

#[inline]
#[target_feature(enable = "neon")]
fn butterfly_four<const SHIFT: i32>(x0: int16x4_t, even: int32x4_t, a: int32x4_t, b: int32x4_t) -> [int32x4_t; 4] {
    let dc = vaddq_s32(vshll_n_s16::<14>(x0), vdupq_n_s32(1 << (SHIFT - 1)));
    let (outer, inner) = (vaddq_s32(dc, even), vsubq_s32(dc, even));
    [
        vaddq_s32(outer, a),
        vaddq_s32(inner, b),
        vsubq_s32(inner, b),
        vsubq_s32(outer, a),
    ]
}

/// Two rows of two samples.
#[inline]
#[target_feature(enable = "neon")]
fn transform_2x2(block: &[i16; 64], used: u8, quant: &[i16; 64], out: &mut [u8], pitch: usize) {
    const LEFT: [i16; 8] = [0, F3624 as i16, 0, -F1272 as i16, 0, 0, 0, 0];
    const RIGHT: [i16; 8] = [0, F0850 as i16, 0, -F0720 as i16, 0, 0, 0, 0];
    let weights = [&LEFT, &RIGHT].map(|weights| vget_low_s16(crate::simd::neon::load_words(weights)));
    let [x0, x1, x3] = [row(block, quant, 0), row(block, quant, 1), row(block, quant, 3)];
    let dc = |x0| vaddq_s32(vshll_n_s16::<15>(x0), vdupq_n_s32(1 << 12));
    let odd = |x1, x3| plus(vmull_n_s16(x1, F3624 as i16), x3, -F1272);
    let [x0l, x1l, x3l] = [x0, x1, x3].map(|v| vget_low_s16(v));
    // The first column is kept in 32 bits. The odd columns are multiplied and summed across.
    let (upper, lower, sums) = if used <= 10 {
        // Only columns and rows 0 to 3.
        let (even, odd) = (dc(x0l), odd(x1l, x3l));
        let [upper, lower] = [vaddq_s32(even, odd), vsubq_s32(even, odd)].map(|v| vshrq_n_s32::<13>(v));
        let product = |v| vmull_s16(vqmovn_s32(v), weights[0]);
        (upper, lower, [product(upper), product(lower)])
    } else {
        let [x5, x7] = [row(block, quant, 5), row(block, quant, 7)];
        let rest = |odd, x5, x7| plus(plus(odd, x5, F0850), x7, -F0720);
        let left = rest(odd(x1l, x3l), vget_low_s16(x5), vget_low_s16(x7));
        let [x0h, x1h, x3h] = [x0, x1, x3].map(|v| vget_high_s16(v));
        let right = rest(odd(x1h, x3h), vget_high_s16(x5), vget_high_s16(x7));
        let (left_dc, right_dc) = (dc(x0l), dc(x0h));
        let [upper, lower] = [vaddq_s32(left_dc, left), vsubq_s32(left_dc, left)].map(|v| vshrq_n_s32::<13>(v));
        let product = |left, right| {
            let right = vqshrn_n_s32::<13>(right);
            vmlal_s16(vmull_s16(vqmovn_s32(left), weights[0]), right, weights[1])
        };
        let sums = [
            product(upper, vaddq_s32(right_dc, right)),
            product(lower, vsubq_s32(right_dc, right)),
        ];
        (upper, lower, sums)
    };
    let odd = vpaddq_s32(sums[0], sums[1]);
    let odd = vpaddq_s32(odd, odd);
    let dc = vaddq_s32(vshlq_n_s32::<15>(vzip1q_s32(upper, lower)), vdupq_n_s32(1 << 19));
    let samples = vzip1q_s32(vaddq_s32(dc, odd), vsubq_s32(dc, odd));
    // Dropping 16 bits and then 4 is the same as dropping 20.
    let words = vshrn_n_s32::<16>(samples);
    let samples = vreinterpret_u8_s8(vqshrn_n_s16::<4>(vcombine_s16(words, words)));
    let rows = vget_lane_u32::<0>(vreinterpret_u32_u8(veor_u8(samples, vdup_n_u8(128)))).to_le_bytes();
    out[..2].copy_from_slice(&rows[..2]);
    out[pitch..][..2].copy_from_slice(&rows[2..]);
}
