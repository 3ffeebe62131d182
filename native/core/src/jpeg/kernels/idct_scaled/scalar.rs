//! The reduced inverse DCTs, one block at a time: the specification.

use crate::jpeg::kernels::idct::BlockRow;

pub(crate) const F0211: i32 = 1730;
pub(crate) const F0509: i32 = 4176;
pub(crate) const F0601: i32 = 4926;
pub(crate) const F0720: i32 = 5906;
pub(crate) const F0765: i32 = 6270;
pub(crate) const F0850: i32 = 6967;
pub(crate) const F0899: i32 = 7373;
pub(crate) const F1061: i32 = 8697;
pub(crate) const F1272: i32 = 10426;
pub(crate) const F1451: i32 = 11893;
pub(crate) const F1847: i32 = 15137;
pub(crate) const F2172: i32 = 17799;
pub(crate) const F2562: i32 = 20995;
pub(crate) const F3624: i32 = 29692;

/// See [`super::block_row`]; 4 x 4.
pub(crate) fn block_row_4x4(
    blocks: &[[i16; 64]],
    _used: &[u8],
    row: BlockRow,
    quant: &[i16; 64],
    out: &mut [u8],
    pitch: usize,
) {
    for (i, block) in row.indices().enumerate() {
        transform_4x4(&blocks[block], quant, &mut out[4 * i..], pitch);
    }
}

/// See [`super::block_row`]; 2 x 2.
pub(crate) fn block_row_2x2(
    blocks: &[[i16; 64]],
    _used: &[u8],
    row: BlockRow,
    quant: &[i16; 64],
    out: &mut [u8],
    pitch: usize,
) {
    for (i, block) in row.indices().enumerate() {
        transform_2x2(&blocks[block], quant, &mut out[2 * i..], pitch);
    }
}

/// Transforms one block to 4 x 4 samples, each the average of 2 x 2.
pub(crate) fn transform_4x4(block: &[i16; 64], quant: &[i16; 64], out: &mut [u8], pitch: usize) {
    let x: [i16; 64] = core::array::from_fn(|i| block[i].wrapping_mul(quant[i]));
    let mut work = [[0i16; 8]; 4];
    if block[8..32].iter().chain(&block[40..]).all(|&c| c == 0) {
        // The short cut of libjpeg-turbo: it equals the full transform, except that it wraps instead of saturating.
        work = [core::array::from_fn(|i| x[i].wrapping_shl(2)); 4];
    } else {
        for column in [0, 1, 2, 3, 5, 6, 7] {
            let result = pass_four(core::array::from_fn(|row| x[8 * row + column]), 12);
            for (row, value) in result.into_iter().enumerate() {
                work[row][column] = value;
            }
        }
    }
    for (line, row) in work.into_iter().zip(out.chunks_mut(pitch)) {
        for (sample, value) in row.iter_mut().zip(pass_four(line, 19)) {
            *sample = to_sample(value);
        }
    }
}

/// One dimension, 8 to 4. The fifth coefficient has no effect on averages of two.
fn pass_four(x: [i16; 8], shift: u32) -> [i16; 4] {
    let w = |i: usize| i32::from(x[i]);
    let dc = w(0) << 14;
    let even = w(2) * F1847 - w(6) * F0765;
    let (outer, inner) = (dc.wrapping_add(even), dc.wrapping_sub(even));
    let a = (w(1) * F2562 + w(3) * F0899).wrapping_sub(w(5) * F0601 + w(7) * F0509);
    let b = (w(1) * F1061 - w(3) * F2172).wrapping_add(w(5) * F1451 - w(7) * F0211);
    [
        outer.wrapping_add(a),
        inner.wrapping_add(b),
        inner.wrapping_sub(b),
        outer.wrapping_sub(a),
    ]
    .map(|v| narrow(v, shift))
}

/// Transforms one block to 2 x 2 samples, each the average of 4 x 4.
pub(crate) fn transform_2x2(block: &[i16; 64], quant: &[i16; 64], out: &mut [u8], pitch: usize) {
    let x = |row: usize, column: usize| block[8 * row + column].wrapping_mul(quant[8 * row + column]);
    // Columns 0, 1, 3, 5, 7, each as the upper and the lower half.
    let columns = [0, 1, 3, 5, 7].map(|c| {
        let (dc, odd) = (i32::from(x(0, c)) << 15, odd_two([1, 3, 5, 7].map(|row| x(row, c))));
        [dc.wrapping_add(odd), dc.wrapping_sub(odd)]
    });
    for (half, row) in out.chunks_mut(pitch).take(2).enumerate() {
        // The first column is kept in 32 bits.
        let dc = columns[0][half].wrapping_add(1 << 12) >> 13;
        let dc = dc.wrapping_shl(15);
        let odd = odd_two([1, 2, 3, 4].map(|i| narrow(columns[i][half], 13)));
        row[0] = to_sample(narrow(dc.wrapping_add(odd), 20));
        row[1] = to_sample(narrow(dc.wrapping_sub(odd), 20));
    }
}

fn odd_two(x: [i16; 4]) -> i32 {
    let [x1, x3, x5, x7] = x.map(i32::from);
    (x1 * F3624 - x3 * F1272).wrapping_add(x5 * F0850 - x7 * F0720)
}

/// The average of a block. libjpeg looks it up by its lower ten bits.
pub(crate) fn transform_1x1(dc: i16, quant: i16) -> u8 {
    let average = (i32::from(dc) * i32::from(quant) + 4) >> 3;
    let wrapped = average.wrapping_shl(22) >> 22;
    (wrapped + 128).clamp(0, 255) as u8
}

fn narrow(value: i32, shift: u32) -> i16 {
    (value.wrapping_add(1 << (shift - 1)) >> shift).clamp(-32768, 32767) as i16
}

fn to_sample(value: i16) -> u8 {
    (value.clamp(-128, 127) + 128) as u8
}
