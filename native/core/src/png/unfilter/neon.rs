//! [`super::scalar`] with NEON: all bytes of a pixel at once. See [`super::avx2`].
//!
//! Each pixel depends on the one before it, so that the number of dependent instructions decides. Pixels of one byte stay
//! in general registers, whose instructions take half of the time of NEON's.

use core::arch::aarch64::*;

#[target_feature(enable = "neon")]
pub fn sub(pixel: usize, line: &[u8], out: &mut [u8]) {
    match pixel {
        2 => sub_pixels::<2>(line, out),
        3 => sub_pixels::<3>(line, out),
        4 => sub_pixels::<4>(line, out),
        6 => sub_pixels::<6>(line, out),
        8 => sub_pixels::<8>(line, out),
        _ => {
            predict_bytes([0; 2], line, line, out, |a, _, _| a);
        }
    }
}

#[target_feature(enable = "neon")]
pub fn average(pixel: usize, line: &[u8], above: &[u8], out: &mut [u8]) {
    match pixel {
        2 => average_pixels::<2>(line, above, out),
        3 => average_pixels::<3>(line, above, out),
        4 => average_pixels::<4>(line, above, out),
        6 => average_pixels::<6>(line, above, out),
        8 => average_pixels::<8>(line, above, out),
        _ => {
            predict_bytes([0; 2], line, above, out, |a, b, _| a.midpoint(b));
        }
    }
}

#[target_feature(enable = "neon")]
pub fn paeth(pixel: usize, line: &[u8], above: &[u8], out: &mut [u8]) {
    match pixel {
        2 => paeth_pixels::<2>(line, above, out),
        3 => paeth_pixels::<3>(line, above, out),
        4 => paeth_pixels::<4>(line, above, out),
        6 => paeth_pixels::<6>(line, above, out),
        8 => paeth_pixels::<8>(line, above, out),
        _ => paeth_bytes(line, above, out),
    }
}

/// The bytes of a pixel.
#[inline]
#[target_feature(enable = "neon")]
fn load<const N: usize>(pixel: &[u8; N]) -> uint8x8_t {
    let mut bytes = [0; 8];
    bytes[..N].copy_from_slice(pixel);
    vcreate_u8(u64::from_le_bytes(bytes))
}

#[inline]
#[target_feature(enable = "neon")]
fn store<const N: usize>(pixel: &mut [u8; N], values: uint8x8_t) {
    let bytes = vget_lane_u64::<0>(vreinterpret_u64_u8(values)).to_le_bytes();
    pixel.copy_from_slice(&bytes[..N]);
}

#[inline]
#[target_feature(enable = "neon")]
fn sub_pixels<const N: usize>(line: &[u8], out: &mut [u8]) {
    let mut a = vdup_n_u8(0);
    for (out, x) in out.as_chunks_mut::<N>().0.iter_mut().zip(line.as_chunks::<N>().0) {
        a = vadd_u8(a, load(x));
        store(out, a);
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn average_pixels<const N: usize>(line: &[u8], above: &[u8], out: &mut [u8]) {
    let mut a = vdup_n_u8(0);
    let pixels = line.as_chunks::<N>().0.iter().zip(above.as_chunks::<N>().0);
    for (out, (x, b)) in out.as_chunks_mut::<N>().0.iter_mut().zip(pixels) {
        a = vadd_u8(vhadd_u8(a, load(b)), load(x));
        store(out, a);
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn paeth_pixels<const N: usize>(line: &[u8], above: &[u8], out: &mut [u8]) {
    let [mut a, mut c] = [vdupq_n_s16(0); 2];
    let pixels = line.as_chunks::<N>().0.iter().zip(above.as_chunks::<N>().0);
    for (out, (x, b)) in out.as_chunks_mut::<N>().0.iter_mut().zip(pixels) {
        let b = vreinterpretq_s16_u16(vmovl_u8(load(b)));
        // With a <= b: b is nearest where 3c - a - b <= a, a where it is >= b, and otherwise c; and reversed.
        let bound = vsubq_s16(vsubq_s16(vmulq_n_s16(c, 3), b), a);
        let (low, high) = (vminq_s16(a, b), vmaxq_s16(a, b));
        let low_or_c = vbslq_s16(vcgtq_s16(high, bound), c, low);
        let nearest = vbslq_s16(vcgtq_s16(bound, low), low_or_c, high);
        // The high bytes are zero and remain so.
        let sum = vaddq_u8(vreinterpretq_u8_s16(nearest), vreinterpretq_u8_u16(vmovl_u8(load(x))));
        a = vreinterpretq_s16_u8(sum);
        c = b;
        store(out, vmovn_u16(vreinterpretq_u16_u8(sum)));
    }
}

/// Pixels of one byte. Masks are mostly blocks of bytes that are as predicted: see [`super::avx2`].
#[inline]
#[target_feature(enable = "neon")]
fn paeth_bytes(line: &[u8], above: &[u8], out: &mut [u8]) {
    let [(blocks, line), (blocks_above, above)] = [line, above].map(|bytes| bytes.as_chunks::<16>());
    let (blocks_out, out) = out.as_chunks_mut::<16>();
    let mut last = [0; 2];
    for (out, (x, b)) in blocks_out.iter_mut().zip(blocks.iter().zip(blocks_above)) {
        if *x == [0; 16] {
            let [before, before_above] = last;
            if before == before_above {
                *out = *b;
                last = [b[15]; 2];
                continue;
            }
            if *b == [before_above; 16] {
                *out = [before; 16];
                continue;
            }
        }
        last = predict_bytes(last, x, b, out, nearest);
    }
    predict_bytes(last, line, above, out, nearest);
}

/// Adds predictions to bytes, after a byte `a`, above which is `c`. Returns these of the last byte.
#[inline]
fn predict_bytes(
    [mut a, mut c]: [u8; 2],
    line: &[u8],
    above: &[u8],
    out: &mut [u8],
    predict: impl Fn(u8, u8, u8) -> u8,
) -> [u8; 2] {
    for ((out, x), b) in out.iter_mut().zip(line).zip(above) {
        a = x.wrapping_add(predict(a, *b, c));
        c = *b;
        *out = a;
    }
    [a, c]
}

/// The same choice as in [`paeth_pixels`].
#[inline]
fn nearest(a: u8, b: u8, c: u8) -> u8 {
    let [a, b, c] = [a, b, c].map(i32::from);
    let bound = 3 * c - b - a;
    let (low, high) = (a.min(b), a.max(b));
    let low_or_c = if high > bound { c } else { low };
    (if bound > low { low_or_c } else { high }) as u8
}
