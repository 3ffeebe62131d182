//! [`super::scalar`] with AVX2.

use core::arch::x86_64::*;

use super::{LookupTable, STEP};
use crate::simd::avx2::{load8, load16, load32, store32};

type V = __m256i;

/// Eight values from byte `8 * part` on, widened to 32 bits.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn widen(from: &[u8; STEP], part: usize) -> V {
    let eight: &[u8; 8] = &from.as_chunks().0[part];
    _mm256_cvtepu8_epi32(load8(eight))
}

/// Narrows 32 numbers in four vectors to bytes, clipped to 0..=255.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn narrow(parts: [V; 4]) -> V {
    let low = _mm256_packs_epi32(parts[0], parts[1]);
    let high = _mm256_packs_epi32(parts[2], parts[3]);
    // Packing works within halves: groups of four come out as 0 2 4 6 1 3 5 7.
    _mm256_permutevar8x32_epi32(
        _mm256_packus_epi16(low, high),
        _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7),
    )
}

/// Looks up sixteen of the table's values per shuffle. A shuffle finds values whose index lies in its sixteen *or
/// above*; below, indices are negative, which gives 0. Therefore each shuffle but the first adds the difference from
/// the one before.
#[target_feature(enable = "avx2")]
pub fn lookup(plane: &mut [u8], table: &LookupTable) {
    let parts: &[[u8; 16]] = table.as_chunks().0;
    let mut differences = [_mm256_setzero_si256(); 16];
    for (i, difference) in differences.iter_mut().enumerate() {
        let before = if i % 8 == 0 { &[0; 16] } else { &parts[i - 1] };
        *difference = _mm256_broadcastsi128_si256(_mm_xor_si128(load16(&parts[i]), load16(before)));
    }
    let (sixteen, top) = (_mm256_set1_epi8(16), _mm256_set1_epi8(-128));
    let found = |levels: V| {
        let (mut low, mut high) = (levels, _mm256_xor_si256(levels, top));
        let mut out = _mm256_setzero_si256();
        for i in 0..8 {
            let pair = _mm256_xor_si256(
                _mm256_shuffle_epi8(differences[i], low),
                _mm256_shuffle_epi8(differences[8 + i], high),
            );
            out = _mm256_xor_si256(out, pair);
            (low, high) = (_mm256_subs_epi8(low, sixteen), _mm256_subs_epi8(high, sixteen));
        }
        out
    };
    let (pairs, rest) = plane.as_chunks_mut::<{ 2 * STEP }>();
    for pair in pairs {
        let [a, b] = pair.as_chunks_mut::<STEP>().0 else {
            unreachable!("two halves")
        };
        let (x, y) = (found(load32(a)), found(load32(b)));
        store32(a, x);
        store32(b, y);
    }
    for levels in rest.as_chunks_mut::<STEP>().0 {
        let x = found(load32(levels));
        store32(levels, x);
    }
}

#[target_feature(enable = "avx2")]
pub fn luma(planes: [&[u8]; 3], out: &mut [u8]) {
    let [r, g, b] = planes.map(|plane| plane.as_chunks::<STEP>().0);
    for (((r, g), b), out) in r.iter().zip(g).zip(b).zip(out.as_chunks_mut::<STEP>().0) {
        store32(out, luma32([load32(r), load32(g), load32(b)]));
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn luma32([r, g, b]: [V; 3]) -> V {
    let zero = _mm256_setzero_si256();
    let low = |v| _mm256_unpacklo_epi8(v, zero);
    let high = |v| _mm256_unpackhi_epi8(v, zero);
    _mm256_packus_epi16(luma16([low(r), low(g), low(b)]), luma16([high(r), high(g), high(b)]))
}

/// Green's weight does not fit into signed 16 bits: one half of it is multiplied together with red, the other with
/// blue.
#[inline]
#[target_feature(enable = "avx2")]
fn luma16([r, g, b]: [V; 3]) -> V {
    let red_green = _mm256_set1_epi32(19595 | 19235 << 16);
    let green_blue = _mm256_set1_epi32(19235 | 7471 << 16);
    let half = _mm256_set1_epi32(0x8000);
    let sum = |rg, gb| {
        let both = _mm256_add_epi32(_mm256_madd_epi16(rg, red_green), _mm256_madd_epi16(gb, green_blue));
        _mm256_srli_epi32::<16>(_mm256_add_epi32(both, half))
    };
    _mm256_packus_epi32(
        sum(_mm256_unpacklo_epi16(r, g), _mm256_unpacklo_epi16(g, b)),
        sum(_mm256_unpackhi_epi16(r, g), _mm256_unpackhi_epi16(g, b)),
    )
}

#[target_feature(enable = "avx2")]
pub fn blend(base: &[u8], plane: &mut [u8], factor: f32) {
    let (factor, most) = (_mm256_set1_ps(factor), _mm256_set1_ps(255.0));
    for (base, levels) in base.as_chunks::<STEP>().0.iter().zip(plane.as_chunks_mut::<STEP>().0) {
        let mut parts = [_mm256_setzero_si256(); 4];
        for (i, part) in parts.iter_mut().enumerate() {
            let start = widen(base, i);
            let away = _mm256_cvtepi32_ps(_mm256_sub_epi32(widen(levels, i), start));
            let mixed = _mm256_add_ps(_mm256_mul_ps(away, factor), _mm256_cvtepi32_ps(start));
            // Far below zero the conversion gives the smallest integer, which is clipped to 0 too.
            *part = _mm256_cvttps_epi32(_mm256_min_ps(mixed, most));
        }
        store32(levels, narrow(parts));
    }
}

#[target_feature(enable = "avx2")]
pub fn rotate_hue(planes: [&mut [u8]; 3], turn: u8) {
    let turn = _mm256_set1_epi32(i32::from(turn));
    let [r, g, b] = planes.map(|plane| plane.as_chunks_mut::<STEP>().0);
    for ((r, g), b) in r.iter_mut().zip(g).zip(b) {
        let mut parts = [[_mm256_setzero_si256(); 4]; 3];
        for i in 0..4 {
            let levels = [widen(r, i), widen(g, i), widen(b, i)];
            for (parts, part) in parts.iter_mut().zip(rotate(levels, turn)) {
                parts[i] = part;
            }
        }
        let [red, green, blue] = parts;
        store32(r, narrow(red));
        store32(g, narrow(green));
        store32(b, narrow(blue));
    }
}

/// Rotates the hue of eight pixels.
#[inline]
#[target_feature(enable = "avx2")]
fn rotate([r, g, b]: [V; 3], turn: V) -> [V; 3] {
    let one = _mm256_set1_epi32(1);
    let most = _mm256_max_epi32(r, _mm256_max_epi32(g, b));
    let least = _mm256_min_epi32(r, _mm256_min_epi32(g, b));
    let range = _mm256_sub_epi32(most, least);
    let sum = _mm256_add_epi32(r, _mm256_add_epi32(g, b));
    let middle = _mm256_sub_epi32(sum, _mm256_add_epi32(most, least));
    let fraction = |part, of| _mm256_div_ps(_mm256_cvtepi32_ps(part), _mm256_cvtepi32_ps(_mm256_max_epi32(of, one)));
    let below = fraction(_mm256_sub_epi32(most, middle), range);
    let saturation = _mm256_cvttps_epi32(_mm256_mul_ps(fraction(range, most), _mm256_set1_ps(255.0)));
    let hue = hue([r, g, b], most, below);
    let turned = _mm256_and_si256(_mm256_add_epi32(hue, turn), _mm256_set1_epi32(255));
    rgb(turned, _mm256_cvtepi32_ps(saturation), _mm256_cvtepi32_ps(most))
}

/// The hue of eight pixels, 0..=255. `below`: see the specification.
#[inline]
#[target_feature(enable = "avx2")]
fn hue([r, g, b]: [V; 3], most: V, below: __m256) -> V {
    let red = _mm256_cmpeq_epi32(r, most);
    let green = _mm256_andnot_si256(red, _mm256_cmpeq_epi32(g, most));
    let blue = _mm256_andnot_si256(_mm256_or_si256(red, green), _mm256_set1_epi32(-1));
    // The two channels that are not the largest, in the order r, g, b.
    let (second, third) = (_mm256_blendv_epi8(r, g, red), _mm256_blendv_epi8(b, g, blue));
    let lesser = _mm256_cmpgt_epi32(third, second);
    // The number of the specification's case, from 0 to 5.
    let case = _mm256_or_si256(
        _mm256_and_si256(lesser, _mm256_set1_epi32(1)),
        _mm256_or_si256(
            _mm256_and_si256(green, _mm256_set1_epi32(2)),
            _mm256_and_si256(blue, _mm256_set1_epi32(4)),
        ),
    );
    let starts = _mm256_setr_ps(1.0, -1.0, 1.0, 3.0, 5.0, 3.0, 0.0, 0.0);
    let signs = _mm256_setr_ps(-1.0, 1.0, 1.0, -1.0, -1.0, 1.0, 0.0, 0.0);
    let sixth = _mm256_add_ps(
        _mm256_permutevar8x32_ps(starts, case),
        _mm256_mul_ps(_mm256_permutevar8x32_ps(signs, case), below),
    );
    let negative = _mm256_cmp_ps::<_CMP_LT_OQ>(sixth, _mm256_setzero_ps());
    let turns = _mm256_add_ps(
        _mm256_div_ps(sixth, _mm256_set1_ps(6.0)),
        _mm256_and_ps(negative, _mm256_set1_ps(1.0)),
    );
    _mm256_cvttps_epi32(_mm256_mul_ps(turns, _mm256_set1_ps(255.0)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn rgb(hue: V, saturation: __m256, value: __m256) -> [V; 3] {
    let position = _mm256_cvtepi32_ps(_mm256_add_epi32(
        _mm256_slli_epi32::<2>(hue),
        _mm256_slli_epi32::<1>(hue),
    ));
    let sign = _mm256_set1_ps(-0.0);
    let distance = |from: f32| _mm256_andnot_ps(sign, _mm256_sub_ps(position, _mm256_set1_ps(from)));
    let (most, half) = (_mm256_set1_ps(255.0), _mm256_set1_ps(0.5));
    let losses = [
        _mm256_sub_ps(_mm256_set1_ps(510.0), distance(765.0)),
        _mm256_sub_ps(distance(510.0), most),
        _mm256_sub_ps(distance(1020.0), most),
    ];
    losses.map(|loss| {
        let loss = _mm256_min_ps(_mm256_max_ps(loss, _mm256_setzero_ps()), most);
        let lost = _mm256_mul_ps(_mm256_mul_ps(saturation, loss), _mm256_set1_ps(1.0 / 65025.0));
        let kept = _mm256_sub_ps(_mm256_set1_ps(1.0), lost);
        _mm256_cvttps_epi32(_mm256_add_ps(_mm256_mul_ps(value, kept), half))
    })
}
