//! Colour conversion with AVX2, 32 pixels at a time.

use core::arch::x86_64::*;

use crate::simd::avx2::{load16, load32, store16, store32};
use crate::simd::interleave::INTERLEAVE;

type V = __m256i;

/// See [`super::interleaved`]. Samples are not converted where `ycbcr` is false.
#[target_feature(enable = "avx2")]
pub(crate) fn interleaved(ycbcr: bool, sources: [&[u8]; 3], out: &mut [u8]) {
    let convert = |at: usize| {
        let samples = sources.map(|source| load32(&source[at..]));
        if ycbcr { convert(samples) } else { samples }
    };
    let (whole, rest) = out.as_chunks_mut::<96>();
    for (i, pixels) in whole.iter_mut().enumerate() {
        interleave(convert(32 * i), pixels);
    }
    if !rest.is_empty() {
        let mut pixels = [0; 96];
        interleave(convert(32 * whole.len()), &mut pixels);
        rest.copy_from_slice(&pixels[..rest.len()]);
    }
}

/// See [`super::planar`].
#[target_feature(enable = "avx2")]
pub(crate) fn planar(sources: [&[u8]; 3], width: usize, out: [&mut [u8]; 3]) {
    let [red, green, blue] = out;
    for at in (0..width).step_by(32) {
        let [r, g, b] = convert(sources.map(|source| load32(&source[at..])));
        store32(&mut red[at..], r);
        store32(&mut green[at..], g);
        store32(&mut blue[at..], b);
    }
}

/// YCbCr to RGB.
#[inline]
#[target_feature(enable = "avx2")]
fn convert([y, cb, cr]: [V; 3]) -> [V; 3] {
    let zero = _mm256_setzero_si256();
    let low = convert16(
        _mm256_unpacklo_epi8(y, zero),
        _mm256_unpacklo_epi8(cb, zero),
        _mm256_unpacklo_epi8(cr, zero),
    );
    let high = convert16(
        _mm256_unpackhi_epi8(y, zero),
        _mm256_unpackhi_epi8(cb, zero),
        _mm256_unpackhi_epi8(cr, zero),
    );
    [
        _mm256_packus_epi16(low[0], high[0]),
        _mm256_packus_epi16(low[1], high[1]),
        _mm256_packus_epi16(low[2], high[2]),
    ]
}

/// Converts 16 pixels in 16 bits without clamping.
#[inline]
#[target_feature(enable = "avx2")]
fn convert16(y: V, cb: V, cr: V) -> [V; 3] {
    let center = _mm256_set1_epi16(128);
    let (b, r) = (_mm256_sub_epi16(cb, center), _mm256_sub_epi16(cr, center));
    // Fractions of the factors at 15 bits, rounded: 1.772 = 2 - 0.228, 1.402 = 1 + 0.402.
    let scaled = |v: V, factor: i16| _mm256_mulhrs_epi16(v, _mm256_set1_epi16(factor));
    let blue = _mm256_add_epi16(scaled(b, -7471), _mm256_add_epi16(b, b));
    let red = _mm256_add_epi16(scaled(r, 13173), r);
    // -0.34414 b - 0.71414 r at 15 bits: both factors of the specification are even.
    let factors = _mm256_set1_epi32((-11277 & 0xffff) | -23401 << 16);
    let half = _mm256_set1_epi32(1 << 14);
    let green32 = |br: V| _mm256_srai_epi32::<15>(_mm256_add_epi32(_mm256_madd_epi16(br, factors), half));
    let green = _mm256_packs_epi32(
        green32(_mm256_unpacklo_epi16(b, r)),
        green32(_mm256_unpackhi_epi16(b, r)),
    );
    [
        _mm256_add_epi16(y, red),
        _mm256_add_epi16(y, green),
        _mm256_add_epi16(y, blue),
    ]
}

/// Interleaves 32 pixels of three channels to 96 bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn interleave([r, g, b]: [V; 3], out: &mut [u8; 96]) {
    let mask = |v: usize, c: usize| _mm256_broadcastsi128_si256(load16(&INTERLEAVE[v][c]));
    for v in 0..3 {
        let pixels = _mm256_or_si256(
            _mm256_or_si256(_mm256_shuffle_epi8(r, mask(v, 0)), _mm256_shuffle_epi8(g, mask(v, 1))),
            _mm256_shuffle_epi8(b, mask(v, 2)),
        );
        // The low half holds pixels 0 to 15, the high half 16 to 31.
        store16(&mut out[16 * v..], _mm256_castsi256_si128(pixels));
        store16(&mut out[48 + 16 * v..], _mm256_extracti128_si256::<1>(pixels));
    }
}
