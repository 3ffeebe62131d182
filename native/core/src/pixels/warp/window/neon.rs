//! [`super::scalar`] with NEON: eight pixels at a time. See [`super::avx2`].

use core::arch::aarch64::*;
use core::array;

use super::{AffineMap, Line, Place, scalar};
use crate::pixels::warp::SourceImage;
use crate::simd::neon::{load8, load16, store8, store16};

/// Pixels that are computed together.
const GROUP: usize = 8;

/// Eight floats, and eight numbers.
type Floats = [float32x4_t; 2];
type Numbers = [int32x4_t; 2];

/// See [`super::draw`]: rows of `width` pixels, from the first one on.
#[target_feature(enable = "neon")]
pub(super) fn window(
    source: SourceImage<'_, 3>,
    map: &AffineMap,
    fill: [u8; 3],
    [first, width]: [usize; 2],
    out: &mut [[u8; 3]],
) {
    if width < GROUP {
        return scalar::window(source, map, fill, [first, width], out);
    }
    let mut groups = Vec::new();
    for (y, row) in (first..).zip(out.chunks_exact_mut(width)) {
        let line = Line::of(&source, map, y);
        if line.place == Place::Outside {
            row.fill(fill);
            continue;
        }
        if groups.is_empty() || !line.is_upright {
            groups.clear();
            // The last group ends with the row.
            let starts = (0..width.div_ceil(GROUP)).map(|i| (i * GROUP).min(width - GROUP));
            groups.extend(starts.map(|x| locate(&source, map, [x, y], line.is_upright)));
        }
        for group in &groups {
            let out = row[group.x..].first_chunk_mut::<GROUP>().expect("eight pixels");
            match group.place {
                Place::Outside => *out = [fill; GROUP],
                Place::Inside if line.place == Place::Inside => {
                    let down = if line.is_upright {
                        [vdupq_n_f32(line.fraction); 2]
                    } else {
                        group.down
                    };
                    // SAFETY: the group is inside, and so is its line.
                    unsafe { mix(&source, line.start, group, down, out) };
                }
                _ => {
                    for (x, out) in (group.x..).zip(out) {
                        *out = scalar::pixel(&source, map, fill, [x, y]);
                    }
                }
            }
        }
    }
}

/// Eight pixels of a row.
struct Group {
    /// The first one.
    x: usize,
    place: Place,
    /// Offset in bytes of the upper left of the four pixels around each position; without rotation and shear, in its
    /// row.
    offsets: [u32; GROUP],
    /// Distances from the centre of that.
    across: Floats,
    down: Floats,
}

/// The group that begins with (x, y). If `is_upright`, its columns alone.
#[inline]
#[target_feature(enable = "neon")]
fn locate(source: &SourceImage<'_, 3>, map: &AffineMap, [x, y]: [usize; 2], is_upright: bool) -> Group {
    let (width, height) = (source.width as i32, source.height as i32);
    let (left, across) = positions([map[0], map[1], map[2]], x, y);
    let (top, down) = if is_upright {
        ([vdupq_n_s32(0); 2], [vdupq_n_f32(0.0); 2])
    } else {
        positions([map[3], map[4], map[5]], x, y)
    };
    // Eight bytes are read from an upper and a lower row, of which six are used: one more pixel to the right.
    let last_top = if is_upright { 0 } else { height - 2 };
    let without = |first: Numbers, last: i32| {
        let [a, b] = first.map(|v| vorrq_u32(vcltzq_s32(v), vcgtq_s32(v, vdupq_n_s32(last))));
        vorrq_u32(a, b)
    };
    let beyond = |first: Numbers, count: i32| {
        first.map(|v| vorrq_u32(vcltq_s32(v, vdupq_n_s32(-1)), vcgeq_s32(v, vdupq_n_s32(count))))
    };
    let place = if vmaxvq_u32(vorrq_u32(without(left, width - 3), without(top, last_top))) == 0 {
        Place::Inside
    } else {
        let (columns, rows) = (beyond(left, width), beyond(top, height));
        let [a, b] = array::from_fn(|i| vorrq_u32(columns[i], rows[i]));
        if vminvq_u32(vandq_u32(a, b)) == u32::MAX {
            Place::Outside
        } else {
            Place::Border
        }
    };
    let mut offsets = [0; GROUP];
    for (i, offsets) in offsets.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let bytes = vmulq_n_s32(vmlaq_n_s32(left[i], top[i], width), 3);
        // SAFETY: an array of 16 bytes.
        unsafe { vst1q_u32(offsets.as_mut_ptr(), vreinterpretq_u32_s32(bytes)) };
    }
    Group {
        x,
        place,
        offsets,
        across,
        down,
    }
}

/// One coordinate of eight positions: the first of two pixels around each, and the distance from its centre.
#[inline]
#[target_feature(enable = "neon")]
fn positions([a, b, c]: [f64; 3], x: usize, y: usize) -> (Numbers, Floats) {
    let y = vdupq_n_f64(b * (y as f64 + 0.5));
    let two = |x: usize| {
        let x = vsetq_lane_f64::<1>(x as f64 + 1.5, vdupq_n_f64(x as f64 + 0.5));
        let position = vaddq_f64(vaddq_f64(vmulq_n_f64(x, a), y), vdupq_n_f64(c));
        let position = vsubq_f64(position, vdupq_n_f64(0.5));
        // What is no number is outside, as -2 is. Others are clipped to the range of 32 bits.
        let first = vrndmq_f64(vmaxnmq_f64(position, vdupq_n_f64(-2.0)));
        (vqmovn_s64(vcvtq_s64_f64(first)), vsubq_f64(position, first))
    };
    let four = |x: usize| {
        let ((low, low_fraction), (high, high_fraction)) = (two(x), two(x + 2));
        (
            vcombine_s32(low, high),
            vcvt_high_f32_f64(vcvt_f32_f64(low_fraction), high_fraction),
        )
    };
    let ((low, low_fraction), (high, high_fraction)) = (four(x), four(x + 4));
    ([low, high], [low_fraction, high_fraction])
}

/// Interpolates a group. Its offsets count from `start`.
///
/// # Safety
/// The group has the place inside; `start` is that of its line, which has so, too.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn mix(source: &SourceImage<'_, 3>, start: usize, group: &Group, down: Floats, out: &mut [[u8; 3]; GROUP]) {
    let (fours, _) = group.offsets.as_chunks::<4>();
    let levels: [uint8x16_t; 2] = array::from_fn(|i| {
        // SAFETY: three pixels, nine bytes, follow each position, and the one below it.
        let (upper, lower) = unsafe {
            let upper = source.pixels.as_flattened().as_ptr().add(start);
            let lower = upper.add(3 * source.width);
            (neighbours(upper, fours[i]), neighbours(lower, fours[i]))
        };
        let [r, g, b] = [0, 1, 2].map(|channel| {
            let upper = along(upper, channel, group.across[i]);
            let lower = along(lower, channel, group.across[i]);
            vcvtq_u32_f32(interpolate(upper, lower, down[i]))
        });
        vreinterpretq_u8_u32(vsliq_n_u32::<16>(vsliq_n_u32::<8>(r, g), b))
    });
    let (levels, out) = (uint8x16x2_t(levels[0], levels[1]), out.as_flattened_mut());
    store16(out, vqtbl2q_u8(levels, load16(&CLOSED)));
    store8(&mut out[16..], vqtbl2_u8(levels, load8(&CLOSED[16..])));
}

/// Loads eight bytes at each offset, the pixel and its right neighbour.
///
/// # Safety
/// Eight bytes can be read there.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn neighbours(row: *const u8, offsets: [u32; 4]) -> uint8x16x2_t {
    // SAFETY: the caller guarantees this.
    let [a, b, c, d] = offsets.map(|offset| unsafe { vld1_u8(row.add(offset as usize)) });
    uint8x16x2_t(vcombine_u8(a, b), vcombine_u8(c, d))
}

/// Interpolates between a pixel and its right neighbour, in one channel.
#[inline]
#[target_feature(enable = "neon")]
fn along(bytes: uint8x16x2_t, channel: usize, fraction: float32x4_t) -> float32x4_t {
    let value = |byte: usize| vcvtq_f32_u32(vreinterpretq_u32_u8(vqtbl2q_u8(bytes, load16(&VALUES[byte]))));
    interpolate(value(channel), value(channel + 3), fraction)
}

#[inline]
#[target_feature(enable = "neon")]
fn interpolate(from: float32x4_t, to: float32x4_t, fraction: float32x4_t) -> float32x4_t {
    vaddq_f32(from, vmulq_f32(vsubq_f32(to, from), fraction))
}

/// Three of four bytes, for eight numbers.
const CLOSED: [u8; 24] = {
    let (mut order, mut i) = ([0; 24], 0);
    while i < 24 {
        order[i] = (i / 3 * 4 + i % 3) as u8;
        i += 1;
    }
    order
};

/// For each of six bytes: where those of four pixels lie, eight bytes apart, as numbers of 32 bits. 255 gives zero.
const VALUES: [[u8; 16]; 6] = {
    let (mut orders, mut byte) = ([[255; 16]; 6], 0);
    while byte < 6 {
        let mut i = 0;
        while i < 4 {
            orders[byte][4 * i] = (8 * i + byte) as u8;
            i += 1;
        }
        byte += 1;
    }
    orders
};
