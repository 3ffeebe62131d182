//! [`super::scalar`] with NEON: four pixels at a time.

use core::arch::aarch64::*;

use super::HsvShift;
use crate::simd::neon::{load16, store16, to_bytes, to_floats};

type V = float32x4_t;

/// See [`super::shift_hsv`].
#[target_feature(enable = "neon")]
pub(super) fn shift_hsv(planes: [&mut [u8]; 3], shift: &HsvShift) {
    let [r, g, b] = planes.map(|plane| plane.as_chunks_mut::<16>().0);
    for ((r, g), b) in r.iter_mut().zip(g).zip(b) {
        let levels = [to_floats(load16(r)), to_floats(load16(g)), to_floats(load16(b))];
        let mut parts = [[vdupq_n_f32(0.0); 4]; 3];
        for i in 0..4 {
            for (parts, part) in parts.iter_mut().zip(shift_four(levels.map(|parts| parts[i]), shift)) {
                parts[i] = part;
            }
        }
        let [red, green, blue] = parts;
        store16(r, to_bytes(red));
        store16(g, to_bytes(green));
        store16(b, to_bytes(blue));
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn shift_four([r, g, b]: [V; 3], shift: &HsvShift) -> [V; 3] {
    let number = |value: f32| vdupq_n_f32(value);
    let (zero, one) = (number(0.0), number(1.0));
    let most = vmaxq_f32(r, vmaxq_f32(g, b));
    let least = vminq_f32(r, vminq_f32(g, b));
    let chroma = vsubq_f32(most, least);
    let (is_red, is_green) = (vceqq_f32(most, r), vceqq_f32(most, g));
    let choose = |red, green, blue| vbslq_f32(is_red, red, vbslq_f32(is_green, green, blue));
    let away = choose(vsubq_f32(g, b), vsubq_f32(b, r), vsubq_f32(r, g));
    let [red, green, blue] = [0.0, 2.0, 4.0].map(|start: f32| number(start + shift.sixths));
    let hue = vaddq_f32(vdivq_f32(away, vmaxq_f32(chroma, one)), choose(red, green, blue));
    let turn = number(6.0);
    let hue = vbslq_f32(vcgeq_f32(hue, turn), vsubq_f32(hue, turn), hue);
    let value = vminq_f32(vmulq_n_f32(most, shift.value), number(255.0));
    let saturation = vmulq_n_f32(vdivq_f32(chroma, vmaxq_f32(most, one)), shift.saturation);
    let chroma = vmulq_f32(value, vminq_f32(saturation, one));
    let lowest = vsubq_f32(value, chroma);
    let distance = |from: f32| vabdq_f32(hue, number(from));
    let channel = |share| {
        let share = vminq_f32(vmaxq_f32(share, zero), one);
        vaddq_f32(vaddq_f32(lowest, vmulq_f32(chroma, share)), number(0.5))
    };
    [
        channel(vsubq_f32(distance(3.0), one)),
        channel(vsubq_f32(number(2.0), distance(2.0))),
        channel(vsubq_f32(number(2.0), distance(4.0))),
    ]
}
