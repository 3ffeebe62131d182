//! [`super::scalar`] with AVX-512: sixteen pixels at a time.

use core::arch::x86_64::*;

use super::HsvShift;
use crate::pixels::values::STEP;
use crate::simd::avx2::{load16, store16};

type V = __m512;

/// See [`super::shift_hsv`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn shift_hsv(planes: [&mut [u8]; 3], shift: &HsvShift) {
    let shift = Shift {
        starts: [0.0, 2.0, 4.0].map(|start: f32| _mm512_set1_ps(start + shift.sixths)),
        saturation: _mm512_set1_ps(shift.saturation),
        value: _mm512_set1_ps(shift.value),
    };
    const { assert!(STEP.is_multiple_of(16)) };
    let [r, g, b] = planes.map(|plane| plane.as_chunks_mut::<16>().0);
    for ((r, g), b) in r.iter_mut().zip(g).zip(b) {
        let [red, green, blue] = shift_sixteen([floats(r), floats(g), floats(b)], &shift);
        store16(r, red);
        store16(g, green);
        store16(b, blue);
    }
}

struct Shift {
    /// The hue of red, green and blue, shifted.
    starts: [V; 3],
    saturation: V,
    value: V,
}

#[inline]
#[target_feature(enable = "avx512f")]
fn floats(from: &[u8; 16]) -> V {
    _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load16(from)))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn shift_sixteen([r, g, b]: [V; 3], shift: &Shift) -> [__m128i; 3] {
    let (zero, one, full) = (_mm512_setzero_ps(), _mm512_set1_ps(1.0), _mm512_set1_ps(255.0));
    let most = _mm512_max_ps(r, _mm512_max_ps(g, b));
    let least = _mm512_min_ps(r, _mm512_min_ps(g, b));
    let chroma = _mm512_sub_ps(most, least);
    let is_red = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(most, r);
    let is_green = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(most, g);
    let choose = |red, green, blue| _mm512_mask_mov_ps(_mm512_mask_mov_ps(blue, is_green, green), is_red, red);
    let away = choose(_mm512_sub_ps(g, b), _mm512_sub_ps(b, r), _mm512_sub_ps(r, g));
    let start = choose(shift.starts[0], shift.starts[1], shift.starts[2]);
    let hue = _mm512_add_ps(_mm512_div_ps(away, _mm512_max_ps(chroma, one)), start);
    let turn = _mm512_set1_ps(6.0);
    let hue = _mm512_mask_sub_ps(hue, _mm512_cmp_ps_mask::<_CMP_GE_OQ>(hue, turn), hue, turn);
    let value = _mm512_min_ps(_mm512_mul_ps(most, shift.value), full);
    let saturation = _mm512_mul_ps(_mm512_div_ps(chroma, _mm512_max_ps(most, one)), shift.saturation);
    let chroma = _mm512_mul_ps(value, _mm512_min_ps(saturation, one));
    let lowest = _mm512_sub_ps(value, chroma);
    let distance = |from| _mm512_abs_ps(_mm512_sub_ps(hue, _mm512_set1_ps(from)));
    let channel = |share| {
        let share = _mm512_min_ps(_mm512_max_ps(share, zero), one);
        let level = _mm512_add_ps(lowest, _mm512_mul_ps(chroma, share));
        _mm512_cvtusepi32_epi8(_mm512_cvttps_epi32(_mm512_add_ps(level, _mm512_set1_ps(0.5))))
    };
    let two = _mm512_set1_ps(2.0);
    [
        channel(_mm512_sub_ps(distance(3.0), one)),
        channel(_mm512_sub_ps(two, distance(2.0))),
        channel(_mm512_sub_ps(two, distance(4.0))),
    ]
}
