//! Colour conversion with AVX-512, 64 pixels at a time.

use core::arch::x86_64::*;

use crate::simd::avx512::{load64, store64};
use crate::simd::interleave::{CHANNEL, PIXEL};

type V = __m512i;

/// See [`super::interleaved`]. Samples are not converted where `ycbcr` is false.
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
pub(crate) fn interleaved(ycbcr: bool, sources: [&[u8]; 3], out: &mut [u8]) {
    let convert = |at: usize| {
        let samples = sources.map(|source| load64(&source[at..]));
        if ycbcr { convert(samples) } else { samples }
    };
    let (whole, rest) = out.as_chunks_mut::<192>();
    for (i, pixels) in whole.iter_mut().enumerate() {
        interleave(convert(64 * i), pixels);
    }
    if !rest.is_empty() {
        let mut pixels = [0; 192];
        interleave(convert(64 * whole.len()), &mut pixels);
        rest.copy_from_slice(&pixels[..rest.len()]);
    }
}

/// See [`super::planar`].
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
pub(crate) fn planar(sources: [&[u8]; 3], width: usize, out: [&mut [u8]; 3]) {
    let [red, green, blue] = out;
    for at in (0..width).step_by(64) {
        let [r, g, b] = convert(sources.map(|source| load64(&source[at..])));
        store64(&mut red[at..], r);
        store64(&mut green[at..], g);
        store64(&mut blue[at..], b);
    }
}

/// YCbCr to RGB.
#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn convert([y, cb, cr]: [V; 3]) -> [V; 3] {
    let zero = _mm512_setzero_si512();
    let low = convert32(
        _mm512_unpacklo_epi8(y, zero),
        _mm512_unpacklo_epi8(cb, zero),
        _mm512_unpacklo_epi8(cr, zero),
    );
    let high = convert32(
        _mm512_unpackhi_epi8(y, zero),
        _mm512_unpackhi_epi8(cb, zero),
        _mm512_unpackhi_epi8(cr, zero),
    );
    [
        _mm512_packus_epi16(low[0], high[0]),
        _mm512_packus_epi16(low[1], high[1]),
        _mm512_packus_epi16(low[2], high[2]),
    ]
}

/// Converts 32 pixels in 16 bits without clamping. [`super::avx2`] explains the factors.
#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn convert32(y: V, cb: V, cr: V) -> [V; 3] {
    let center = _mm512_set1_epi16(128);
    let (b, r) = (_mm512_sub_epi16(cb, center), _mm512_sub_epi16(cr, center));
    let scaled = |v: V, factor: i16| _mm512_mulhrs_epi16(v, _mm512_set1_epi16(factor));
    let blue = _mm512_add_epi16(scaled(b, -7471), _mm512_add_epi16(b, b));
    let red = _mm512_add_epi16(scaled(r, 13173), r);
    let factors = _mm512_set1_epi32((-11277 & 0xffff) | -23401 << 16);
    let half = _mm512_set1_epi32(1 << 14);
    let green32 = |br: V| _mm512_srai_epi32::<15>(_mm512_dpwssd_epi32(half, br, factors));
    let green = _mm512_packs_epi32(
        green32(_mm512_unpacklo_epi16(b, r)),
        green32(_mm512_unpackhi_epi16(b, r)),
    );
    [
        _mm512_add_epi16(y, red),
        _mm512_add_epi16(y, green),
        _mm512_add_epi16(y, blue),
    ]
}

/// Interleaves 64 pixels of three channels to 192 bytes.
#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn interleave([r, g, b]: [V; 3], out: &mut [u8; 192]) {
    for (v, out) in out.as_chunks_mut::<64>().0.iter_mut().enumerate() {
        let pixel = load64(&PIXEL[v]);
        let pixels = _mm512_permutexvar_epi8(pixel, r);
        let pixels = _mm512_mask_permutexvar_epi8(pixels, CHANNEL[v][1], pixel, g);
        store64(out, _mm512_mask_permutexvar_epi8(pixels, CHANNEL[v][2], pixel, b));
    }
}
