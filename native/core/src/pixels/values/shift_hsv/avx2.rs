//! [`super::scalar`] with AVX2: eight pixels at a time.

use core::arch::x86_64::*;

use super::HsvShift;
use crate::pixels::values::STEP;
use crate::pixels::values::avx2::{narrow, widen};
use crate::simd::avx2::store32;

type V = __m256;

/// See [`super::shift_hsv`].
#[target_feature(enable = "avx2")]
pub(super) fn shift_hsv(planes: [&mut [u8]; 3], shift: &HsvShift) {
    let shift = Shift {
        starts: [0.0, 2.0, 4.0].map(|start: f32| _mm256_set1_ps(start + shift.sixths)),
        saturation: _mm256_set1_ps(shift.saturation),
        value: _mm256_set1_ps(shift.value),
    };
    let [r, g, b] = planes.map(|plane| plane.as_chunks_mut::<STEP>().0);
    for ((r, g), b) in r.iter_mut().zip(g).zip(b) {
        let mut parts = [[_mm256_setzero_si256(); 4]; 3];
        for i in 0..4 {
            let shifted = shift_eight([floats(r, i), floats(g, i), floats(b, i)], &shift);
            for (parts, part) in parts.iter_mut().zip(shifted) {
                parts[i] = part;
            }
        }
        let [red, green, blue] = parts;
        store32(r, narrow(red));
        store32(g, narrow(green));
        store32(b, narrow(blue));
    }
}

struct Shift {
    /// The hue of red, green and blue, shifted.
    starts: [V; 3],
    saturation: V,
    value: V,
}

#[inline]
#[target_feature(enable = "avx2")]
fn floats(from: &[u8; STEP], part: usize) -> V {
    _mm256_cvtepi32_ps(widen(from, part))
}

#[inline]
#[target_feature(enable = "avx2")]
fn shift_eight([r, g, b]: [V; 3], shift: &Shift) -> [__m256i; 3] {
    let (zero, one, full) = (_mm256_setzero_ps(), _mm256_set1_ps(1.0), _mm256_set1_ps(255.0));
    let most = _mm256_max_ps(r, _mm256_max_ps(g, b));
    let least = _mm256_min_ps(r, _mm256_min_ps(g, b));
    let chroma = _mm256_sub_ps(most, least);
    let is_red = _mm256_cmp_ps::<_CMP_EQ_OQ>(most, r);
    let is_green = _mm256_cmp_ps::<_CMP_EQ_OQ>(most, g);
    let choose = |red, green, blue| _mm256_blendv_ps(_mm256_blendv_ps(blue, green, is_green), red, is_red);
    let away = choose(_mm256_sub_ps(g, b), _mm256_sub_ps(b, r), _mm256_sub_ps(r, g));
    let start = choose(shift.starts[0], shift.starts[1], shift.starts[2]);
    let hue = _mm256_add_ps(_mm256_div_ps(away, _mm256_max_ps(chroma, one)), start);
    let turn = _mm256_set1_ps(6.0);
    let hue = _mm256_sub_ps(hue, _mm256_and_ps(_mm256_cmp_ps::<_CMP_GE_OQ>(hue, turn), turn));
    let value = _mm256_min_ps(_mm256_mul_ps(most, shift.value), full);
    let saturation = _mm256_mul_ps(_mm256_div_ps(chroma, _mm256_max_ps(most, one)), shift.saturation);
    let chroma = _mm256_mul_ps(value, _mm256_min_ps(saturation, one));
    let lowest = _mm256_sub_ps(value, chroma);
    let distance = |from| _mm256_andnot_ps(_mm256_set1_ps(-0.0), _mm256_sub_ps(hue, _mm256_set1_ps(from)));
    let channel = |share| {
        let share = _mm256_min_ps(_mm256_max_ps(share, zero), one);
        let level = _mm256_add_ps(lowest, _mm256_mul_ps(chroma, share));
        _mm256_cvttps_epi32(_mm256_add_ps(level, _mm256_set1_ps(0.5)))
    };
    let two = _mm256_set1_ps(2.0);
    [
        channel(_mm256_sub_ps(distance(3.0), one)),
        channel(_mm256_sub_ps(two, distance(2.0))),
        channel(_mm256_sub_ps(two, distance(4.0))),
    ]
}
