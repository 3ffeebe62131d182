//! What kernels with NEON share: loads and stores of whole vectors.

use core::arch::aarch64::*;

/// The first 8 bytes of `from`.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn load8(from: &[u8]) -> uint8x8_t {
    let from: &[u8; 8] = from.first_chunk().expect("at least 8 bytes");
    // SAFETY: an array of 8 bytes.
    unsafe { vld1_u8(from.as_ptr()) }
}

/// The first 16 bytes of `from`.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn load16(from: &[u8]) -> uint8x16_t {
    let from: &[u8; 16] = from.first_chunk().expect("at least 16 bytes");
    // SAFETY: an array of 16 bytes.
    unsafe { vld1q_u8(from.as_ptr()) }
}

/// 8 words.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn load_words(from: &[i16; 8]) -> int16x8_t {
    // SAFETY: an array of 16 bytes.
    unsafe { vld1q_s16(from.as_ptr()) }
}

/// Four floats.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn load_floats(from: &[f32; 4]) -> float32x4_t {
    // SAFETY: an array of 16 bytes.
    unsafe { vld1q_f32(from.as_ptr()) }
}

/// Writes the first 8 bytes of `out`.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn store8(out: &mut [u8], v: uint8x8_t) {
    let out: &mut [u8; 8] = out.first_chunk_mut().expect("at least 8 bytes");
    // SAFETY: an array of 8 bytes.
    unsafe { vst1_u8(out.as_mut_ptr(), v) }
}

/// Writes the first 16 bytes of `out`.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn store16(out: &mut [u8], v: uint8x16_t) {
    let out: &mut [u8; 16] = out.first_chunk_mut().expect("at least 16 bytes");
    // SAFETY: an array of 16 bytes.
    unsafe { vst1q_u8(out.as_mut_ptr(), v) }
}

/// Writes 8 words.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn store_words(out: &mut [i16; 8], v: int16x8_t) {
    // SAFETY: an array of 16 bytes.
    unsafe { vst1q_s16(out.as_mut_ptr(), v) }
}

/// Writes 8 words without a sign.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn store_8_words(out: &mut [u16; 8], v: uint16x8_t) {
    // SAFETY: an array of 16 bytes.
    unsafe { vst1q_u16(out.as_mut_ptr(), v) }
}

/// Writes four floats.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn store_floats(out: &mut [f32; 4], v: float32x4_t) {
    // SAFETY: an array of 16 bytes.
    unsafe { vst1q_f32(out.as_mut_ptr(), v) }
}

/// Reads 16 interleaved pixels as three channels.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn load_pixels(from: &[u8; 48]) -> uint8x16x3_t {
    // SAFETY: an array of 48 bytes.
    unsafe { vld3q_u8(from.as_ptr()) }
}

/// Writes 16 pixels of three channels, interleaved.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn store_pixels(out: &mut [u8; 48], [r, g, b]: [uint8x16_t; 3]) {
    // SAFETY: an array of 48 bytes.
    unsafe { vst3q_u8(out.as_mut_ptr(), uint8x16x3_t(r, g, b)) }
}

/// Widens 16 bytes to floats.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn to_floats(bytes: uint8x16_t) -> [float32x4_t; 4] {
    let (low, high) = (vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes));
    [
        vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))),
        vcvtq_f32_u32(vmovl_high_u16(low)),
        vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))),
        vcvtq_f32_u32(vmovl_high_u16(high)),
    ]
}

/// Rounds 16 floats towards zero and clips them to 0..=255, as `as u8` does.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn to_bytes(floats: [float32x4_t; 4]) -> uint8x16_t {
    let [a, b, c, d] = [
        vcvtq_u32_f32(floats[0]),
        vcvtq_u32_f32(floats[1]),
        vcvtq_u32_f32(floats[2]),
        vcvtq_u32_f32(floats[3]),
    ];
    let low = vqmovn_high_u32(vqmovn_u32(a), b);
    let high = vqmovn_high_u32(vqmovn_u32(c), d);
    vqmovn_high_u16(vqmovn_u16(low), high)
}
