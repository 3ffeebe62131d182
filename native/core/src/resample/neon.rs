//! [`super::scalar`] with NEON. Sums of integer products do not depend on their order.

use core::arch::aarch64::*;

use super::arranged_taps::{self, GROUP_SPARE, LOW_BITS, LobedGroup};
use super::line_pointers::{LinePointers, check_rows};
use super::taps::Taps;
use crate::simd::neon::{load_words, load16, store_words, store8, store16};

/// Drops bits of a vector, rounded half up. `drop`: their number, negative.
#[inline]
#[target_feature(enable = "neon")]
fn drop_bits(low: int32x4_t, high: int32x4_t, drop: int32x4_t) -> int16x8_t {
    vmovn_high_s32(vmovn_s32(vrshlq_s32(low, drop)), vrshlq_s32(high, drop))
}

/// See [`super::scalar::vertical_convex`]. `out.len()` is a multiple of 32.
#[target_feature(enable = "neon")]
pub fn vertical_convex(rows: &[u8], offsets: &[usize], weights: &[i16], drop: u32, out: &mut [i16]) {
    check_rows(rows, offsets, out.len());
    assert!(out.len().is_multiple_of(32));
    let drop = vdupq_n_s32(-(drop as i32));
    for (block, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let mut sums = [vdupq_n_s32(0); 8];
        for (offset, &weight) in offsets.iter().zip(weights) {
            // SAFETY: `check_rows` covers 32 bytes from `block * 32` on at each offset.
            let values = unsafe {
                let at = rows.as_ptr().add(offset + block * 32);
                [vld1q_u8(at), vld1q_u8(at.add(16))]
            };
            for (sums, values) in sums.as_chunks_mut::<4>().0.iter_mut().zip(values) {
                let low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(values)));
                let high = vreinterpretq_s16_u16(vmovl_high_u8(values));
                *sums = [
                    vmlal_n_s16(sums[0], vget_low_s16(low), weight),
                    vmlal_high_n_s16(sums[1], low, weight),
                    vmlal_n_s16(sums[2], vget_low_s16(high), weight),
                    vmlal_high_n_s16(sums[3], high, weight),
                ];
            }
        }
        for (out, [low, high]) in out.as_chunks_mut().0.iter_mut().zip(sums.as_chunks().0) {
            store_words(out, drop_bits(*low, *high, drop));
        }
    }
}

/// See [`super::scalar::vertical_convex_words`]. `out.len()` is a multiple of 16.
#[target_feature(enable = "neon")]
pub fn vertical_convex_words(rows: &[i16], offsets: &[usize], weights: &[i16], drop: u32, out: &mut [u8]) {
    check_rows(rows, offsets, out.len());
    assert!(out.len().is_multiple_of(16));
    let drop = vdupq_n_s32(-(drop as i32));
    for (block, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let mut sums = [vdupq_n_s32(0); 4];
        for (offset, &weight) in offsets.iter().zip(weights) {
            // SAFETY: `check_rows` covers 16 values from `block * 16` on at each offset.
            let (low, high) = unsafe {
                let at = rows.as_ptr().add(offset + block * 16);
                (vld1q_s16(at), vld1q_s16(at.add(8)))
            };
            sums = [
                vmlal_n_s16(sums[0], vget_low_s16(low), weight),
                vmlal_high_n_s16(sums[1], low, weight),
                vmlal_n_s16(sums[2], vget_low_s16(high), weight),
                vmlal_high_n_s16(sums[3], high, weight),
            ];
        }
        let (low, high) = (drop_bits(sums[0], sums[1], drop), drop_bits(sums[2], sums[3], drop));
        store16(out, vqmovun_high_s16(vqmovun_s16(low), high));
    }
}

/// See [`super::scalar::widen`].
#[target_feature(enable = "neon")]
pub fn widen(row: &[u8], out: &mut [i16]) {
    let (blocks, rest) = row.as_chunks::<16>();
    let (wide, tail) = out[..row.len()].as_chunks_mut::<16>();
    for (block, out) in blocks.iter().zip(wide) {
        let [low, high] = out.as_chunks_mut().0 else {
            unreachable!("two halves")
        };
        let bytes = load16(block);
        store_words(low, vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(bytes))));
        store_words(high, vreinterpretq_s16_u16(vmovl_high_u8(bytes)));
    }
    super::scalar::widen(rest, tail);
}

/// See [`super::scalar::horizontal_convex`].
#[target_feature(enable = "neon")]
pub fn horizontal_convex(
    line: &[i16],
    line_stride: usize,
    horizontal: &arranged_taps::ConvexTaps,
    drop: u32,
    out: &mut [u8],
    out_stride: usize,
    planes: usize,
) {
    let lines = LinePointers::new(line, line_stride, out, out_stride, planes);
    narrow_lines::<1>(horizontal, drop, lines);
}

/// See [`super::scalar::horizontal_convex_words`].
#[target_feature(enable = "neon")]
pub fn horizontal_convex_words(
    line: &[i16],
    line_stride: usize,
    horizontal: &arranged_taps::ConvexTaps,
    drop: u32,
    out: &mut [i16],
    out_stride: usize,
    planes: usize,
) {
    let lines = LinePointers::new(line, line_stride, out, out_stride, planes);
    narrow_lines::<2>(horizontal, drop, lines);
}

/// Outputs have `BYTES` bytes, 1 or 2.
#[target_feature(enable = "neon")]
fn narrow_lines<const BYTES: usize>(horizontal: &arranged_taps::ConvexTaps, drop: u32, lines: LinePointers<'_>) {
    let taps = &horizontal.taps;
    let n = taps.starts.len();
    assert!(taps.reach() + GROUP_SPARE <= lines.line_stride && n <= lines.outputs);
    assert!(BYTES == lines.out_bytes && n * taps.stride == taps.weights.len());
    assert!(taps.stride != 4 || 8 * horizontal.groups.len() == n);
    let drop = vdupq_n_s32(-(drop as i32));
    // SAFETY: the assertions above hold: a plane's line holds all values that its taps read, including those with
    // weight zero; groups cover the `n` pixels; the output has `n` values per plane.
    unsafe {
        match taps.stride {
            4 => near_lines::<BYTES>(lines, horizontal, drop),
            8 => far_lines::<8, BYTES>(lines, taps, drop),
            16 => far_lines::<16, BYTES>(lines, taps, drop),
            _ => far_lines::<0, BYTES>(lines, taps, drop),
        }
    }
}

/// Up to four taps per output.
///
/// # Safety
/// 10 values can be read in every line from each group's base on, and all outputs can be written.
#[target_feature(enable = "neon")]
unsafe fn near_lines<const BYTES: usize>(
    lines: LinePointers<'_>,
    horizontal: &arranged_taps::ConvexTaps,
    drop: int32x4_t,
) {
    for (block, group) in horizontal.groups.iter().enumerate() {
        let shuffles = group.shuffle.as_chunks::<16>().0;
        let shuffles = [load16(&shuffles[0]), load16(&shuffles[1])];
        // Of each pair of taps, the weights of four outputs, and of the other four.
        let halves = |pair: usize| {
            let halves = group.weights[pair].as_chunks().0;
            [load_words(&halves[0]), load_words(&halves[1])]
        };
        let weights = [halves(0), halves(1)];
        for plane in 0..lines.planes {
            // SAFETY: the plane exists.
            let (line, out) = unsafe { lines.plane(plane) };
            let four = |four: usize| {
                let products = |sum: int32x4_t, pair: usize| {
                    // SAFETY: the caller guarantees eight values from tap 0 and from tap 2 on.
                    let values = unsafe { vld1q_u8(line.add(group.bases[four] + 2 * pair).cast()) };
                    let values = vreinterpretq_s16_u8(vqtbl1q_u8(values, shuffles[four]));
                    let weights = weights[pair][four];
                    let sum = vmlal_s16(sum, vget_low_s16(values), vget_low_s16(weights));
                    vmlal_high_s16(sum, values, weights)
                };
                products(products(vdupq_n_s32(0), 0), 1)
            };
            // SAFETY: the caller guarantees this.
            unsafe { store_values::<BYTES>(drop_bits(four(0), four(1), drop), out.add(block * 8 * BYTES)) };
        }
    }
}

/// `TAPS` taps per output, a multiple of 8. 0: any such number.
///
/// # Safety
/// That many values can be read in every line from each start on, and all outputs can be written.
#[target_feature(enable = "neon")]
unsafe fn far_lines<const TAPS: usize, const BYTES: usize>(lines: LinePointers<'_>, taps: &Taps<i16>, drop: int32x4_t) {
    let stride = if TAPS == 0 { taps.stride } else { TAPS };
    for plane in 0..lines.planes {
        // SAFETY: the plane exists.
        let (line, out) = unsafe { lines.plane(plane) };
        let blocks = taps.starts.as_chunks::<8>().0.iter();
        for (block, (starts, weights)) in blocks.zip(taps.weights.chunks_exact(8 * stride)).enumerate() {
            let mut sums = [vdupq_n_s32(0); 8];
            for ((sum, weights), &start) in sums.iter_mut().zip(weights.chunks_exact(stride)).zip(starts) {
                for (eight, weights) in weights.as_chunks().0.iter().enumerate() {
                    // SAFETY: the caller guarantees this.
                    let values = unsafe { vld1q_s16(line.add(start as usize + 8 * eight)) };
                    let weights = load_words(weights);
                    *sum = vmlal_s16(*sum, vget_low_s16(values), vget_low_s16(weights));
                    *sum = vmlal_high_s16(*sum, values, weights);
                }
            }
            let across = |s: &[int32x4_t]| vpaddq_s32(vpaddq_s32(s[0], s[1]), vpaddq_s32(s[2], s[3]));
            let values = drop_bits(across(&sums[..4]), across(&sums[4..]), drop);
            // SAFETY: the caller guarantees this.
            unsafe { store_values::<BYTES>(values, out.add(block * 8 * BYTES)) };
        }
    }
}

/// Stores eight values of a convex filter with `BYTES` bytes each, 1 or 2.
///
/// # Safety
/// They can be written at `out`.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn store_values<const BYTES: usize>(values: int16x8_t, out: *mut u8) {
    // SAFETY: the caller guarantees this.
    unsafe {
        if BYTES == 1 {
            vst1_u8(out, vqmovun_s16(values));
        } else {
            vst1q_s16(out.cast(), values);
        }
    }
}

/// Rounds eight sums with 22 fractional bits and clips them to 0..=255.
#[inline]
#[target_feature(enable = "neon")]
fn levels_of(low: int32x4_t, high: int32x4_t) -> uint8x8_t {
    let half = vdupq_n_s32(1 << 21);
    let level = |sum| vshrq_n_s32::<22>(vaddq_s32(sum, half));
    vqmovun_s16(vmovn_high_s32(vmovn_s32(level(low)), level(high)))
}

/// See [`super::scalar::vertical_lobed`]. `out.len()` is a multiple of 8.
#[target_feature(enable = "neon")]
pub fn vertical_lobed(rows: &[u8], offsets: &[usize], weights: &[i32], out: &mut [u8]) {
    check_rows(rows, offsets, out.len());
    assert!(out.len().is_multiple_of(8));
    for (block, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let mut sums = [vdupq_n_s32(0); 2];
        for (offset, &weight) in offsets.iter().zip(weights) {
            // SAFETY: `check_rows` covers 8 bytes from `block * 8` on at each offset.
            let bytes = unsafe { vld1_u8(rows.as_ptr().add(offset + block * 8)) };
            sums = add_products(sums, bytes, vdupq_n_s32(weight), vdupq_n_s32(weight));
        }
        store8(out, levels_of(sums[0], sums[1]));
    }
}

/// Adds the products of eight bytes and eight weights.
#[inline]
#[target_feature(enable = "neon")]
fn add_products(sums: [int32x4_t; 2], bytes: uint8x8_t, low: int32x4_t, high: int32x4_t) -> [int32x4_t; 2] {
    let words = vreinterpretq_s16_u16(vmovl_u8(bytes));
    [
        vmlaq_s32(sums[0], vmovl_s16(vget_low_s16(words)), low),
        vmlaq_s32(sums[1], vmovl_high_s16(words), high),
    ]
}

/// See [`super::scalar::horizontal_lobed`].
#[target_feature(enable = "neon")]
pub fn horizontal_lobed(line: &[u8], horizontal: &arranged_taps::LobedTaps, out: &mut [u8]) {
    let (taps, pairs) = (&horizontal.taps, horizontal.pairs);
    let n = taps.starts.len();
    assert!(taps.reach() + GROUP_SPARE <= line.len() && n <= out.len() && n * taps.stride == taps.weights.len());
    if horizontal.groups.is_empty() {
        return horizontal_lobed_far(line, taps, out);
    }
    assert!(horizontal.weights.len() == horizontal.groups.len() * pairs && 2 * pairs <= taps.stride + 1);
    let weights = horizontal.weights.chunks_exact(pairs);
    for ((group, weights), out) in horizontal.groups.iter().zip(weights).zip(out.as_chunks_mut::<8>().0) {
        // SAFETY: a group's bases lie within the line's `len` values, its taps within `reach`.
        let [low, high] = unsafe { [lobed_sums(line, group, weights, 0), lobed_sums(line, group, weights, 1)] };
        store8(out, levels_of(low, high));
    }
}

/// The sums of the first or the other four pixels of a group, for any number of pairs of taps.
///
/// # Safety
/// From each base on, 16 bytes can be read in `line`, and two more for every pair.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn lobed_sums(line: &[u8], group: &LobedGroup, weights: &[[[i16; 16]; 2]], four: usize) -> int32x4_t {
    let mut sums = [vdupq_n_s32(0); 2];
    let shuffle = load16(&group.shuffle.as_chunks::<16>().0[four]);
    for (pair, parts) in weights.iter().enumerate() {
        // SAFETY: the caller guarantees this.
        let values = unsafe { vld1q_u8(line.as_ptr().add(group.bases[four] + 2 * pair)) };
        let values = vreinterpretq_s16_u8(vqtbl1q_u8(values, shuffle));
        for (sum, weights) in sums.iter_mut().zip(parts) {
            let weights = load_words(&weights.as_chunks().0[four]);
            *sum = vmlal_s16(*sum, vget_low_s16(values), vget_low_s16(weights));
            *sum = vmlal_high_s16(*sum, values, weights);
        }
    }
    // Arithmetic is modulo 2^32: only the total must fit.
    vaddq_s32(vshlq_n_s32::<{ LOW_BITS as i32 }>(sums[0]), sums[1])
}

/// For neighbours whose taps lie far apart: one pixel at a time.
#[target_feature(enable = "neon")]
fn horizontal_lobed_far(line: &[u8], taps: &Taps<i32>, out: &mut [u8]) {
    assert!(taps.reach() <= line.len());
    let weights = taps.weights.chunks_exact(taps.stride);
    for ((&start, weights), out) in taps.starts.iter().zip(weights).zip(out) {
        let mut sums = [vdupq_n_s32(0); 2];
        for (tap, weights) in weights.as_chunks::<8>().0.iter().enumerate() {
            // SAFETY: taps read at most `reach` bytes of the line; a chunk of weights has 8.
            let (bytes, low, high) = unsafe {
                (
                    vld1_u8(line.as_ptr().add(start as usize + tap * 8)),
                    vld1q_s32(weights.as_ptr()),
                    vld1q_s32(weights.as_ptr().add(4)),
                )
            };
            sums = add_products(sums, bytes, low, high);
        }
        let sum = vaddvq_s32(vaddq_s32(sums[0], sums[1]));
        *out = ((sum + (1 << 21)) >> 22).clamp(0, 255) as u8;
    }
}
