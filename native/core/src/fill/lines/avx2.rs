//! [`super::scalar`] with AVX2.

use core::arch::x86_64::*;

use super::{Affine, TRANSPOSED_ROWS, scalar};
use crate::simd::avx2::{load_floats, load8, load16, store_8_words, store_floats, store16};
use crate::simd::interleave::{DEINTERLEAVE, INTERLEAVE};

/// Combines bytes of three vectors, each shuffled by its own mask.
#[inline]
#[target_feature(enable = "avx2")]
fn shuffle(parts: [__m128i; 3], masks: &[[u8; 16]; 3]) -> __m128i {
    let picked = |i: usize| _mm_shuffle_epi8(parts[i], load16(&masks[i]));
    _mm_or_si128(_mm_or_si128(picked(0), picked(1)), picked(2))
}

#[target_feature(enable = "avx2")]
pub fn reverse(line: &[u8], out: &mut [u8]) {
    let order = _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    let (head, blocks) = line.as_rchunks::<16>();
    let (wide, tail) = out[..line.len()].as_chunks_mut::<16>();
    for (out, block) in wide.iter_mut().zip(blocks.iter().rev()) {
        store16(out, _mm_shuffle_epi8(load16(block), order));
    }
    scalar::reverse(head, tail);
}

#[target_feature(enable = "avx2")]
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
                    _mm_unpacklo_epi8(before[half], before[half + 8]),
                    _mm_unpackhi_epi8(before[half], before[half + 8]),
                ];
            }
        }
        for (lane, c) in lanes.into_iter().zip(16 * block..) {
            let at = stride * if is_mirrored { columns - 1 - c } else { c };
            let out = out[at..].first_chunk_mut::<16>();
            store16(out.expect("a row of the output holds a block"), lane);
        }
    }
    scalar::transpose_columns(rows, columns / 16 * 16, is_mirrored, out, stride);
}

#[target_feature(enable = "avx2")]
pub fn interleave(planes: [&[u8]; 3], out: &mut [u8]) {
    let blocks = planes.map(|p| p.as_chunks::<16>().0);
    let (wide, tail) = out.as_chunks_mut::<48>();
    for (i, out) in wide.iter_mut().enumerate() {
        let parts = blocks.map(|b| load16(&b[i]));
        for (out, masks) in out.as_chunks_mut::<16>().0.iter_mut().zip(&INTERLEAVE) {
            store16(out, shuffle(parts, masks));
        }
    }
    let done = wide.len() * 16;
    scalar::interleave(planes.map(|p| &p[done..]), tail);
}

#[target_feature(enable = "avx2")]
pub fn deinterleave(line: &[u8], planes: [&mut [u8]; 3]) {
    let (wide, tail) = line.as_chunks::<48>();
    let [mut r, mut g, mut b] = planes.map(|p| p.as_chunks_mut::<16>());
    for (i, line) in wide.iter().enumerate() {
        let line = line.as_chunks::<16>().0;
        let parts = [load16(&line[0]), load16(&line[1]), load16(&line[2])];
        for (plane, masks) in [&mut r, &mut g, &mut b].into_iter().zip(&DEINTERLEAVE) {
            store16(&mut plane.0[i], shuffle(parts, masks));
        }
    }
    let rest = [r, g, b].map(|(blocks, rest)| match blocks.get_mut(wide.len()) {
        Some(block) => &mut block[..],
        None => rest,
    });
    scalar::deinterleave(tail, rest);
}

/// Three vectors of a pattern with period 3.
#[target_feature(enable = "avx2")]
fn pattern(of: &[f32; 3]) -> [__m256; 3] {
    let [a, b, c] = *of;
    [
        _mm256_setr_ps(a, b, c, a, b, c, a, b),
        _mm256_setr_ps(c, a, b, c, a, b, c, a),
        _mm256_setr_ps(b, c, a, b, c, a, b, c),
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn normalise(values: &[u8; 8], scale: __m256, offset: __m256) -> __m256 {
    let values = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load8(values)));
    _mm256_add_ps(_mm256_mul_ps(values, scale), offset)
}

/// `affine` for a line that begins with element `at`.
fn rotate_affine(affine: &Affine, at: usize) -> Affine {
    let turn = |of: [f32; 3]| std::array::from_fn(|i| of[(at + i) % 3]);
    Affine {
        scale: turn(affine.scale),
        offset: turn(affine.offset),
    }
}

/// Normalises as many values as fill blocks of 8, and returns their number.
#[inline]
#[target_feature(enable = "avx2")]
fn normalise_blocks<T>(line: &[u8], affine: &Affine, out: &mut [T], store: impl Fn(&mut [T; 8], __m256)) -> usize {
    let (scale, offset) = (pattern(&affine.scale), pattern(&affine.offset));
    let (blocks, outs) = (line.as_chunks::<8>().0, out.as_chunks_mut::<8>().0);
    for (blocks, outs) in blocks.chunks(3).zip(outs.chunks_mut(3)) {
        for (i, (block, out)) in blocks.iter().zip(outs).enumerate() {
            store(out, normalise(block, scale[i], offset[i]));
        }
    }
    8 * blocks.len()
}

#[target_feature(enable = "avx2")]
pub fn normalise_f32(line: &[u8], affine: &Affine, out: &mut [f32]) {
    let done = normalise_blocks(line, affine, out, |out, values| store_floats(out, values));
    scalar::normalise_f32(&line[done..], &rotate_affine(affine, done), &mut out[done..]);
}

#[target_feature(enable = "avx2,f16c")]
pub fn normalise_f16(line: &[u8], affine: &Affine, out: &mut [u16]) {
    let done = normalise_blocks(line, affine, out, |out, values| {
        store_8_words(out, _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values));
    });
    scalar::normalise_f16(&line[done..], &rotate_affine(affine, done), &mut out[done..]);
}

#[target_feature(enable = "avx2")]
pub fn normalise_bf16(line: &[u8], affine: &Affine, out: &mut [u16]) {
    let done = normalise_blocks(line, affine, out, |out, values| {
        store_8_words(out, low_words(round_upper(_mm256_castps_si256(values)))); // finite, or infinite: never NaN
    });
    scalar::normalise_bf16(&line[done..], &rotate_affine(affine, done), &mut out[done..]);
}

#[target_feature(enable = "avx2,f16c")]
pub fn halves(values: &[f32], out: &mut [u16]) {
    let ((blocks, rest), (outs, out_rest)) = (values.as_chunks::<8>(), out.as_chunks_mut::<8>());
    for (block, out) in blocks.iter().zip(outs) {
        store_8_words(out, _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(load_floats(block)));
    }
    scalar::halves(rest, out_rest);
}

#[target_feature(enable = "avx2")]
pub fn bfloats(values: &[f32], out: &mut [u16]) {
    let ((blocks, rest), (outs, out_rest)) = (values.as_chunks::<8>(), out.as_chunks_mut::<8>());
    for (block, out) in blocks.iter().zip(outs) {
        store_8_words(out, to_bfloats(load_floats(block)));
    }
    scalar::bfloats(rest, out_rest);
}

/// The upper halves of floats, rounded to nearest, ties to even: the bits of bfloat16 numbers.
#[inline]
#[target_feature(enable = "avx2")]
fn to_bfloats(values: __m256) -> __m128i {
    let bits = _mm256_castps_si256(values);
    let sign = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(0x8000));
    let nan = _mm256_or_si256(sign, _mm256_set1_epi32(0x7fc0));
    let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(values, values));
    low_words(_mm256_blendv_epi8(round_upper(bits), nan, is_nan))
}

/// The upper halves of the bits of floats that are not NaN, rounded.
#[inline]
#[target_feature(enable = "avx2")]
fn round_upper(bits: __m256i) -> __m256i {
    let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
    let bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, bias))
}

/// The lower halves of eight numbers below 2^16.
#[inline]
#[target_feature(enable = "avx2")]
fn low_words(numbers: __m256i) -> __m128i {
    _mm_packus_epi32(_mm256_castsi256_si128(numbers), _mm256_extracti128_si256::<1>(numbers))
}
