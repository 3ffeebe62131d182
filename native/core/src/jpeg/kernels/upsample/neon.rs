//! Upsampling with NEON, 16 samples at a time.

use core::arch::aarch64::*;

use crate::simd::neon::{load8, load16, store16};

/// `3 * x + y` in 16 bits, of the left and of the right eight samples.
#[inline]
#[target_feature(enable = "neon")]
fn weighted(x: uint8x16_t, y: uint8x16_t) -> [uint16x8_t; 2] {
    let three = vdupq_n_u8(3);
    [
        vmlal_u8(vmovl_u8(vget_low_u8(y)), vget_low_u8(x), vget_low_u8(three)),
        vmlal_high_u8(vmovl_high_u8(y), x, three),
    ]
}

/// Drops `BITS` bits after `bias` was added.
#[inline]
#[target_feature(enable = "neon")]
fn drop_bits<const BITS: i32>([left, right]: [uint16x8_t; 2], bias: u16) -> uint8x16_t {
    let bias = vdupq_n_u16(bias);
    vshrn_high_n_u16::<BITS>(vshrn_n_u16::<BITS>(vaddq_u16(left, bias)), vaddq_u16(right, bias))
}

/// Writes the first 32 bytes of `out`: samples of both in turn.
#[inline]
#[target_feature(enable = "neon")]
fn store_pairs(out: &mut [u8], even: uint8x16_t, odd: uint8x16_t) {
    let out: &mut [u8; 32] = out.first_chunk_mut().expect("at least 32 bytes");
    // SAFETY: an array of 32 bytes.
    unsafe { vst2q_u8(out.as_mut_ptr(), uint8x16x2_t(even, odd)) }
}

#[target_feature(enable = "neon")]
pub(crate) fn h2v1(near: &[u8], count: usize, out: &mut [u8]) {
    for at in (0..count).step_by(16) {
        let middle = load16(&near[at + 1..]);
        let even = drop_bits::<2>(weighted(middle, load16(&near[at..])), 1);
        let odd = drop_bits::<2>(weighted(middle, load16(&near[at + 2..])), 2);
        store_pairs(&mut out[2 * at..], even, odd);
    }
}

#[target_feature(enable = "neon")]
pub(crate) fn h2v2(near: &[u8], far: &[u8], count: usize, out: &mut [u8]) {
    // Sums of the columns: of the eight that the last step ended with, and of the next sixteen.
    let mut first = vmlal_u8(vmovl_u8(load8(far)), load8(near), vdup_n_u8(3));
    for at in (0..count).step_by(16) {
        let [second, third] = weighted(load16(&near[at + 8..]), load16(&far[at + 8..]));
        let eight = |left, right| {
            let middle = vextq_u16::<1>(left, right);
            [
                vmlaq_n_u16(left, middle, 3),
                vmlaq_n_u16(vextq_u16::<2>(left, right), middle, 3),
            ]
        };
        let ([even_left, odd_left], [even_right, odd_right]) = (eight(first, second), eight(second, third));
        let even = vrshrn_high_n_u16::<4>(vrshrn_n_u16::<4>(even_left), even_right);
        store_pairs(&mut out[2 * at..], even, drop_bits::<4>([odd_left, odd_right], 7));
        first = third;
    }
}

#[target_feature(enable = "neon")]
pub(crate) fn h1v2(near: &[u8], far: &[u8], lower: bool, count: usize, out: &mut [u8]) {
    let bias = if lower { 2 } else { 1 };
    for at in (0..count).step_by(16) {
        let sums = weighted(load16(&near[at + 1..]), load16(&far[at + 1..]));
        store16(&mut out[at..], drop_bits::<2>(sums, bias));
    }
}
