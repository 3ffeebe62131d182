//! [`super::scalar`] with NEON.

use core::arch::aarch64::*;

use super::LookupTable;
use crate::simd::neon::{load16, store16, to_bytes, to_floats};

/// Keeps the whole table in sixteen registers. An instruction looks 16 values up in four of them and leaves those alone
/// that it does not find.
#[target_feature(enable = "neon")]
pub fn lookup(plane: &mut [u8], table: &LookupTable) {
    let part = |i: usize| {
        let at = |row: usize| load16(&table[64 * i + 16 * row..]);
        uint8x16x4_t(at(0), at(1), at(2), at(3))
    };
    let (parts, step) = ([part(0), part(1), part(2), part(3)], vdupq_n_u8(64));
    for values in plane.as_chunks_mut::<16>().0 {
        let mut at = load16(values);
        let mut found = vqtbl4q_u8(parts[0], at);
        for part in &parts[1..] {
            at = vsubq_u8(at, step);
            found = vqtbx4q_u8(found, *part, at);
        }
        store16(values, found);
    }
}

#[target_feature(enable = "neon")]
pub fn luma(planes: [&[u8]; 3], out: &mut [u8]) {
    let [r, g, b] = planes.map(|plane| plane.as_chunks::<16>().0);
    for (((r, g), b), out) in r.iter().zip(g).zip(b).zip(out.as_chunks_mut::<16>().0) {
        let planes = [load16(r), load16(g), load16(b)];
        let low = luma8(planes.map(|v| vmovl_u8(vget_low_u8(v))));
        let high = luma8(planes.map(|v| vmovl_high_u8(v)));
        store16(out, vmovn_high_u16(vmovn_u16(low), high));
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn luma8(planes: [uint16x8_t; 3]) -> uint16x8_t {
    let sum = |[r, g, b]: [uint16x4_t; 3]| vmlal_n_u16(vmlal_n_u16(vmull_n_u16(r, 19595), g, 38470), b, 7471);
    let (low, high) = (
        sum(planes.map(|v| vget_low_u16(v))),
        sum(planes.map(|v| vget_high_u16(v))),
    );
    vrshrn_high_n_u32::<16>(vrshrn_n_u32::<16>(low), high)
}

#[target_feature(enable = "neon")]
pub fn blend(base: &[u8], plane: &mut [u8], factor: f32) {
    for (base, values) in base.as_chunks::<16>().0.iter().zip(plane.as_chunks_mut::<16>().0) {
        let (from, to) = (to_floats(load16(base)), to_floats(load16(values)));
        let mixed = core::array::from_fn(|i| vaddq_f32(vmulq_n_f32(vsubq_f32(to[i], from[i]), factor), from[i]));
        store16(values, to_bytes(mixed));
    }
}

#[target_feature(enable = "neon")]
pub fn rotate_hue(planes: [&mut [u8]; 3], turn: u8) {
    let turn = vdupq_n_u32(u32::from(turn));
    let [r, g, b] = planes.map(|plane| plane.as_chunks_mut::<16>().0);
    for ((r, g), b) in r.iter_mut().zip(g).zip(b) {
        let levels = [to_floats(load16(r)), to_floats(load16(g)), to_floats(load16(b))];
        let mut parts = [[vdupq_n_f32(0.0); 4]; 3];
        for i in 0..4 {
            for (parts, part) in parts.iter_mut().zip(rotate(levels.map(|parts| parts[i]), turn)) {
                parts[i] = part;
            }
        }
        let [red, green, blue] = parts;
        store16(r, to_bytes(red));
        store16(g, to_bytes(green));
        store16(b, to_bytes(blue));
    }
}

/// Rotates the hue of four pixels, whose levels are whole numbers.
#[inline]
#[target_feature(enable = "neon")]
fn rotate([r, g, b]: [float32x4_t; 3], turn: uint32x4_t) -> [float32x4_t; 3] {
    let one = vdupq_n_f32(1.0);
    let most = vmaxq_f32(r, vmaxq_f32(g, b));
    let least = vminq_f32(r, vminq_f32(g, b));
    let range = vsubq_f32(most, least);
    let middle = vsubq_f32(vaddq_f32(r, vaddq_f32(g, b)), vaddq_f32(most, least));
    let below = vdivq_f32(vsubq_f32(most, middle), vmaxq_f32(range, one));
    let fraction = vdivq_f32(range, vmaxq_f32(most, one));
    let saturation = vrndq_f32(vmulq_n_f32(fraction, 255.0));
    let turned = vandq_u32(vaddq_u32(hue([r, g, b], most, below), turn), vdupq_n_u32(255));
    rgb(vcvtq_f32_u32(turned), saturation, most)
}

/// The hue of four pixels, 0..=255. `below`: see the specification.
#[inline]
#[target_feature(enable = "neon")]
fn hue([r, g, b]: [float32x4_t; 3], most: float32x4_t, below: float32x4_t) -> uint32x4_t {
    let number = |value: f32| vdupq_n_f32(value);
    let (red, green) = (vceqq_f32(r, most), vceqq_f32(g, most));
    // The start of a sixth and the sign of `below`, where the second of the other two channels is not larger, and where
    // it is.
    let choose = |of_red: f32, of_green: f32, of_blue: f32| {
        vbslq_f32(red, number(of_red), vbslq_f32(green, number(of_green), number(of_blue)))
    };
    let second = vbslq_f32(red, g, r);
    let third = vbslq_f32(red, b, vbslq_f32(green, b, g));
    let is_lesser = vcltq_f32(second, third);
    let start = vbslq_f32(is_lesser, choose(-1.0, 3.0, 3.0), choose(1.0, 1.0, 5.0));
    let sign = vbslq_f32(is_lesser, choose(1.0, -1.0, 1.0), choose(-1.0, 1.0, -1.0));
    let sixth = vaddq_f32(start, vmulq_f32(sign, below));
    let whole = vbslq_f32(vcltq_f32(sixth, number(0.0)), number(1.0), number(0.0));
    let turns = vaddq_f32(vdivq_f32(sixth, number(6.0)), whole);
    vcvtq_u32_f32(vmulq_n_f32(turns, 255.0))
}

#[inline]
#[target_feature(enable = "neon")]
fn rgb(hue: float32x4_t, saturation: float32x4_t, value: float32x4_t) -> [float32x4_t; 3] {
    let position = vmulq_n_f32(hue, 6.0);
    let (most, half) = (vdupq_n_f32(255.0), vdupq_n_f32(0.5));
    let distance = |from: f32| vabdq_f32(position, vdupq_n_f32(from));
    let losses = [
        vsubq_f32(vdupq_n_f32(510.0), distance(765.0)),
        vsubq_f32(distance(510.0), most),
        vsubq_f32(distance(1020.0), most),
    ];
    losses.map(|loss| {
        let loss = vminq_f32(vmaxq_f32(loss, vdupq_n_f32(0.0)), most);
        let lost = vmulq_n_f32(vmulq_f32(saturation, loss), 1.0 / 65025.0);
        let kept = vsubq_f32(vdupq_n_f32(1.0), lost);
        vaddq_f32(vmulq_f32(value, kept), half)
    })
}
