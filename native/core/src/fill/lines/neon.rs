//! [`super::scalar`] with NEON.

use core::arch::aarch64::*;
use core::arch::asm;

use super::{Affine, TRANSPOSED_ROWS, scalar};
use crate::simd::neon::{
    load_floats, load_pixels, load16, store_8_words, store_floats, store_pixels, store16, to_floats,
};

#[target_feature(enable = "neon")]
pub fn reverse(line: &[u8], out: &mut [u8]) {
    let (head, blocks) = line.as_rchunks::<16>();
    let (wide, tail) = out[..line.len()].as_chunks_mut::<16>();
    for (out, block) in wide.iter_mut().zip(blocks.iter().rev()) {
        let halves = vrev64q_u8(load16(block));
        store16(out, vextq_u8::<8>(halves, halves));
    }
    scalar::reverse(head, tail);
}

#[target_feature(enable = "neon")]
pub fn transpose(rows: &[&[u8]; TRANSPOSED_ROWS], is_mirrored: bool, out: &mut [u8], stride: usize) {
    let columns = rows[0].len();
    let blocks = rows.map(|row| row[..columns].as_chunks::<16>().0);
    for block in 0..columns / 16 {
        let mut lanes = blocks.map(|row| load16(&row[block]));
        // Each pass interleaves the first eight with the last eight. Four of them transpose.
        for _ in 0..4 {
            let before = lanes;
            for (pair, half) in lanes.as_chunks_mut::<2>().0.iter_mut().zip(0..8) {
                *pair = [
                    vzip1q_u8(before[half], before[half + 8]),
                    vzip2q_u8(before[half], before[half + 8]),
                ];
            }
        }
        for (lane, c) in lanes.into_iter().zip(16 * block..) {
            let at = stride * if is_mirrored { columns - 1 - c } else { c };
            store16(&mut out[at..], lane);
        }
    }
    scalar::transpose_columns(rows, columns / 16 * 16, is_mirrored, out, stride);
}

#[target_feature(enable = "neon")]
pub fn interleave(planes: [&[u8]; 3], out: &mut [u8]) {
    let blocks = planes.map(|p| p.as_chunks::<16>().0);
    let (wide, tail) = out.as_chunks_mut::<48>();
    for (i, out) in wide.iter_mut().enumerate() {
        store_pixels(out, blocks.map(|b| load16(&b[i])));
    }
    let done = wide.len() * 16;
    scalar::interleave(planes.map(|p| &p[done..]), tail);
}

#[target_feature(enable = "neon")]
pub fn deinterleave(line: &[u8], planes: [&mut [u8]; 3]) {
    let (wide, tail) = line.as_chunks::<48>();
    let [r, g, b] = planes;
    for (i, line) in wide.iter().enumerate() {
        let uint8x16x3_t(red, green, blue) = load_pixels(line);
        store16(&mut r[16 * i..], red);
        store16(&mut g[16 * i..], green);
        store16(&mut b[16 * i..], blue);
    }
    let done = 16 * wide.len();
    scalar::deinterleave(tail, [&mut r[done..], &mut g[done..], &mut b[done..]]);
}

/// Factors and summands of four values, for each of the three channels that these may begin with.
struct Patterns {
    scale: [float32x4_t; 3],
    offset: [float32x4_t; 3],
}

impl Patterns {
    #[inline]
    #[target_feature(enable = "neon")]
    fn of(affine: &Affine) -> Self {
        let pattern = |of: &[f32; 3], first: usize| load_floats(&core::array::from_fn(|i| of[(first + i) % 3]));
        Self {
            scale: [0, 1, 2].map(|first| pattern(&affine.scale, first)),
            offset: [0, 1, 2].map(|first| pattern(&affine.offset, first)),
        }
    }

    /// Normalises 16 values, of which the first belongs to channel `first`.
    #[inline]
    #[target_feature(enable = "neon")]
    fn normalise(&self, values: &[u8; 16], first: usize) -> [float32x4_t; 4] {
        let values = to_floats(load16(values));
        core::array::from_fn(|i| {
            let channel = (first + i) % 3;
            vaddq_f32(vmulq_f32(values[i], self.scale[channel]), self.offset[channel])
        })
    }
}

/// Normalises as many values as fill blocks of 16, and returns their number.
#[inline]
#[target_feature(enable = "neon")]
fn normalise_blocks<T>(
    line: &[u8],
    affine: &Affine,
    out: &mut [T],
    store: impl Fn(&mut [T; 16], [float32x4_t; 4]),
) -> usize {
    let patterns = Patterns::of(affine);
    let (blocks, outs) = (line.as_chunks::<16>().0, out.as_chunks_mut::<16>().0);
    let ((threes, rest), (out_threes, out_rest)) = (blocks.as_chunks::<3>(), outs.as_chunks_mut::<3>());
    for (three, out) in threes.iter().zip(out_threes) {
        store(&mut out[0], patterns.normalise(&three[0], 0));
        store(&mut out[1], patterns.normalise(&three[1], 1));
        store(&mut out[2], patterns.normalise(&three[2], 2));
    }
    for (i, (block, out)) in rest.iter().zip(out_rest).enumerate() {
        store(out, patterns.normalise(block, i));
    }
    16 * blocks.len()
}

/// `affine` for a line that begins with element `at`.
fn rotate_affine(affine: &Affine, at: usize) -> Affine {
    let turn = |of: [f32; 3]| std::array::from_fn(|i| of[(at + i) % 3]);
    Affine {
        scale: turn(affine.scale),
        offset: turn(affine.offset),
    }
}

#[target_feature(enable = "neon")]
pub fn normalise_f32(line: &[u8], affine: &Affine, out: &mut [f32]) {
    let done = normalise_blocks(line, affine, out, |out, values| {
        for (out, values) in out.as_chunks_mut().0.iter_mut().zip(values) {
            store_floats(out, values);
        }
    });
    scalar::normalise_f32(&line[done..], &rotate_affine(affine, done), &mut out[done..]);
}

#[target_feature(enable = "neon")]
pub fn normalise_f16(line: &[u8], affine: &Affine, out: &mut [u16]) {
    let done = normalise_blocks(line, affine, out, |out, [a, b, c, d]| {
        let [first, second] = out.as_chunks_mut().0 else {
            unreachable!("two halves")
        };
        store_halves(first, a, b);
        store_halves(second, c, d);
    });
    scalar::normalise_f16(&line[done..], &rotate_affine(affine, done), &mut out[done..]);
}

#[target_feature(enable = "neon")]
pub fn normalise_bf16(line: &[u8], affine: &Affine, out: &mut [u16]) {
    let done = normalise_blocks(line, affine, out, |out, [a, b, c, d]| {
        let [first, second] = out.as_chunks_mut().0 else {
            unreachable!("two halves")
        };
        store_8_words(first, to_bfloats(a, b));
        store_8_words(second, to_bfloats(c, d));
    });
    scalar::normalise_bf16(&line[done..], &rotate_affine(affine, done), &mut out[done..]);
}

#[target_feature(enable = "neon")]
pub fn halves(values: &[f32], out: &mut [u16]) {
    let ((blocks, rest), (outs, out_rest)) = (values.as_chunks::<8>(), out.as_chunks_mut::<8>());
    for (block, out) in blocks.iter().zip(outs) {
        let [first, second] = block.as_chunks().0 else {
            unreachable!("two halves")
        };
        store_halves(out, load_floats(first), load_floats(second));
    }
    scalar::halves(rest, out_rest);
}

/// Writes floats as half-precision floats, rounded to nearest, ties to even.
#[inline]
#[target_feature(enable = "neon")]
fn store_halves(out: &mut [u16; 8], low: float32x4_t, high: float32x4_t) {
    let halves: uint16x8_t;
    // The intrinsics for it have the type f16, which Rust does not have yet in the oldest version that is supported.
    // SAFETY: instructions of NEON, which touch only these registers.
    unsafe {
        asm!(
            "fcvtn {halves:v}.4h, {low:v}.4s",
            "fcvtn2 {halves:v}.8h, {high:v}.4s",
            halves = out(vreg) halves, low = in(vreg) low, high = in(vreg) high,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    store_8_words(out, halves);
}

#[target_feature(enable = "neon")]
pub fn bfloats(values: &[f32], out: &mut [u16]) {
    let ((blocks, rest), (outs, out_rest)) = (values.as_chunks::<8>(), out.as_chunks_mut::<8>());
    for (block, out) in blocks.iter().zip(outs) {
        let [first, second] = block.as_chunks().0 else {
            unreachable!("two halves")
        };
        store_8_words(out, to_bfloats(load_floats(first), load_floats(second)));
    }
    scalar::bfloats(rest, out_rest);
}

/// The upper halves of floats, rounded to nearest, ties to even: the bits of bfloat16 numbers.
#[inline]
#[target_feature(enable = "neon")]
fn to_bfloats(low: float32x4_t, high: float32x4_t) -> uint16x8_t {
    let round = |values: float32x4_t| {
        let bits = vreinterpretq_u32_f32(values);
        let upper = vshrq_n_u32::<16>(bits);
        let bias = vaddq_u32(vandq_u32(upper, vdupq_n_u32(1)), vdupq_n_u32(0x7fff));
        let nan = vorrq_u32(vandq_u32(upper, vdupq_n_u32(0x8000)), vdupq_n_u32(0x7fc0));
        let rounded = vshrq_n_u32::<16>(vaddq_u32(bits, bias));
        vmovn_u32(vbslq_u32(vceqq_f32(values, values), rounded, nan))
    };
    vcombine_u16(round(low), round(high))
}
