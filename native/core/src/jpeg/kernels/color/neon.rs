//! Colour conversion with NEON, 16 pixels at a time.

use core::arch::aarch64::*;

use crate::simd::neon::{load16, store_pixels, store16};

/// See [`super::interleaved`]. Samples are not converted where `ycbcr` is false.
#[target_feature(enable = "neon")]
pub(crate) fn interleaved(ycbcr: bool, sources: [&[u8]; 3], out: &mut [u8]) {
    let [y, cb, cr] = sources;
    let convert = |at: usize| {
        let samples = [load16(&y[at..]), load16(&cb[at..]), load16(&cr[at..])];
        if ycbcr { convert(samples) } else { samples }
    };
    let (whole, rest) = out.as_chunks_mut::<48>();
    for (i, pixels) in whole.iter_mut().enumerate() {
        store_pixels(pixels, convert(16 * i));
    }
    if !rest.is_empty() {
        let mut pixels = [0; 48];
        store_pixels(&mut pixels, convert(16 * whole.len()));
        rest.copy_from_slice(&pixels[..rest.len()]);
    }
}

/// See [`super::planar`].
#[target_feature(enable = "neon")]
pub(crate) fn planar(sources: [&[u8]; 3], width: usize, out: [&mut [u8]; 3]) {
    let ([y, cb, cr], [red, green, blue]) = (sources, out);
    for at in (0..width).step_by(16) {
        let [r, g, b] = convert([load16(&y[at..]), load16(&cb[at..]), load16(&cr[at..])]);
        store16(&mut red[at..], r);
        store16(&mut green[at..], g);
        store16(&mut blue[at..], b);
    }
}

/// YCbCr to RGB.
#[inline]
#[target_feature(enable = "neon")]
fn convert([y, cb, cr]: [uint8x16_t; 3]) -> [uint8x16_t; 3] {
    let low = convert8(vget_low_u8(y), vget_low_u8(cb), vget_low_u8(cr));
    let high = convert8(vget_high_u8(y), vget_high_u8(cb), vget_high_u8(cr));
    let clip = |i: usize| vqmovun_high_s16(vqmovun_s16(low[i]), high[i]);
    [clip(0), clip(1), clip(2)]
}

/// Converts 8 pixels in 16 bits without clamping.
#[inline]
#[target_feature(enable = "neon")]
fn convert8(y: uint8x8_t, cb: uint8x8_t, cr: uint8x8_t) -> [int16x8_t; 3] {
    let center = vdup_n_u8(128);
    let b = vreinterpretq_s16_u16(vsubl_u8(cb, center));
    let r = vreinterpretq_s16_u16(vsubl_u8(cr, center));
    // Fractions of the factors at 15 bits, rounded: 1.772 = 2 - 0.228, 1.402 = 1 + 0.402.
    let blue = vaddq_s16(vqrdmulhq_n_s16(b, -7471), vshlq_n_s16::<1>(b));
    let red = vaddq_s16(vqrdmulhq_n_s16(r, 13173), r);
    // -0.34414 b - 0.71414 r at 15 bits: both factors of the specification are even.
    let green32 = |b, r| vmlal_n_s16(vmull_n_s16(b, -11277), r, -23401);
    let green = vrshrn_high_n_s32::<15>(
        vrshrn_n_s32::<15>(green32(vget_low_s16(b), vget_low_s16(r))),
        green32(vget_high_s16(b), vget_high_s16(r)),
    );
    let plus_luma = |v| vreinterpretq_s16_u16(vaddw_u8(vreinterpretq_u16_s16(v), y));
    [plus_luma(red), plus_luma(green), plus_luma(blue)]
}
