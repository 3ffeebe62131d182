//! The inverse DCT, one block at a time: the specification.

use super::BlockRow;

pub(crate) const F0298: i32 = 2446;
pub(crate) const F0390: i32 = 3196;
pub(crate) const F0541: i32 = 4433;
pub(crate) const F0765: i32 = 6270;
pub(crate) const F0899: i32 = 7373;
pub(crate) const F1175: i32 = 9633;
pub(crate) const F1501: i32 = 12299;
pub(crate) const F1847: i32 = 15137;
pub(crate) const F1961: i32 = 16069;
pub(crate) const F2053: i32 = 16819;
pub(crate) const F2562: i32 = 20995;
pub(crate) const F3072: i32 = 25172;

/// See [`super::block_row`].
pub(crate) fn block_row(
    blocks: &[[i16; 64]],
    used: &[u8],
    row: BlockRow,
    quant: &[i16; 64],
    out: &mut [u8],
    pitch: usize,
) {
    debug_assert!(used.len() <= blocks.len(), "the scalar kernel does not need `used`");
    for (i, block) in row.indices().enumerate() {
        transform_block(&blocks[block], quant, &mut out[8 * i..], pitch);
    }
}

/// Transforms one block.
pub(crate) fn transform_block(block: &[i16; 64], quant: &[i16; 64], out: &mut [u8], pitch: usize) {
    let mut work: [i16; 64] = core::array::from_fn(|i| block[i].wrapping_mul(quant[i]));
    if block[8..].iter().all(|&c| c == 0) {
        // The short cut of libjpeg-turbo: it equals the full transform, except that it wraps instead of saturating.
        let top: [i16; 8] = core::array::from_fn(|i| work[i].wrapping_shl(2));
        work.as_chunks_mut().0.fill(top);
    } else {
        for column in 0..8 {
            let result = pass(core::array::from_fn(|row| work[8 * row + column]), 11);
            for (row, value) in result.into_iter().enumerate() {
                work[8 * row + column] = value;
            }
        }
    }
    for (line, row) in work.as_chunks().0.iter().zip(out.chunks_mut(pitch)) {
        for (sample, value) in row.iter_mut().zip(pass(*line, 18)) {
            *sample = (value.clamp(-128, 127) + 128) as u8;
        }
    }
}

/// One dimension. `shift`: 13 bits of the constants, minus (first pass) or plus (second pass) 2 bits kept between the
/// passes, plus 3 bits of the transform's gain in the second.
fn pass(x: [i16; 8], shift: u32) -> [i16; 8] {
    let w = |i: usize| i32::from(x[i]);
    let tmp2 = w(2) * F0541 + w(6) * (F0541 - F1847);
    let tmp3 = w(2) * (F0541 + F0765) + w(6) * F0541;
    let tmp0 = i32::from(x[0].wrapping_add(x[4])) << 13;
    let tmp1 = i32::from(x[0].wrapping_sub(x[4])) << 13;
    let even = [tmp0 + tmp3, tmp1 + tmp2, tmp1 - tmp2, tmp0 - tmp3];
    let (a, b) = (i32::from(x[3].wrapping_add(x[7])), i32::from(x[1].wrapping_add(x[5])));
    let z3 = a * (F1175 - F1961) + b * F1175;
    let z4 = a * F1175 + b * (F1175 - F0390);
    let odd = [
        w(7) * -F0899 + w(1) * (F1501 - F0899) + z4,
        w(5) * -F2562 + w(3) * (F3072 - F2562) + z3,
        w(5) * (F2053 - F2562) + w(3) * -F2562 + z4,
        w(7) * (F0298 - F0899) + w(1) * -F0899 + z3,
    ];
    let narrow = |v: i32| (v.wrapping_add(1 << (shift - 1)) >> shift).clamp(-32768, 32767) as i16;
    core::array::from_fn(|i| {
        narrow(if i < 4 {
            even[i].wrapping_add(odd[i])
        } else {
            even[7 - i].wrapping_sub(odd[7 - i])
        })
    })
}
