//! The inverse DCT with AVX2, two blocks at a time: the left one in the low half of every register, the right one in
//! the high half. It equals the specification for all coefficients.

use core::arch::x86_64::*;

use super::BlockRow;
use super::scalar::{self, *};
use crate::simd::avx2::{load_word_pair, store16};

pub(crate) type V = __m256i;

/// See [`super::block_row`].
#[target_feature(enable = "avx2")]
pub(crate) fn block_row(
    blocks: &[[i16; 64]],
    used: &[u8],
    row: BlockRow,
    quant: &[i16; 64],
    out: &mut [u8],
    pitch: usize,
) {
    let mut numbers = row.indices();
    let mut x = 0;
    while let Some(left) = numbers.next() {
        let right = numbers.next().unwrap_or(left);
        let used = used[left].max(used[right]);
        transform_pair(&blocks[left], &blocks[right], used, quant, &mut out[x..], pitch);
        x += 16;
    }
}

/// Transforms two blocks, side by side, into 8 rows of 16 samples.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn transform_pair(a: &[i16; 64], b: &[i16; 64], used: u8, quant: &[i16; 64], out: &mut [u8], pitch: usize) {
    if used <= 1 {
        return fill_flat(a[0], b[0], quant[0], out, pitch);
    }
    let top = row(a, b, quant, 0);
    // The short cut of the specification differs from the full transform only above this size, which no valid file has.
    if is_large(top) {
        scalar::transform_block(a, quant, out, pitch);
        return scalar::transform_block(b, quant, &mut out[8..], pitch);
    }
    // Zigzag positions up to 10 lie in the top left 4 x 4.
    let samples = if used <= 10 {
        corner(a, b, top, quant)
    } else {
        full(a, b, top, quant)
    };
    store_transposed(samples, out, pitch);
}

/// Whether a coefficient is outside -0x2000..0x2000.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn is_large(top: V) -> bool {
    let large = _mm256_set1_epi16(0xc000_u16 as i16);
    _mm256_testz_si256(_mm256_add_epi16(top, _mm256_set1_epi16(0x2000)), large) == 0
}

/// Transforms blocks that have only DC coefficients.
#[inline]
#[target_feature(enable = "avx2")]
fn fill_flat(a: i16, b: i16, quant: i16, out: &mut [u8], pitch: usize) {
    let sample = |dc: i16| {
        let scaled = i32::from(dc.wrapping_mul(quant).wrapping_shl(2));
        (((scaled + 16) >> 5).clamp(-128, 127) + 128) as i8
    };
    let samples = _mm_unpacklo_epi64(_mm_set1_epi8(sample(a)), _mm_set1_epi8(sample(b)));
    for row in out.chunks_mut(pitch).take(8) {
        store16(row, samples);
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn full(a: &[i16; 64], b: &[i16; 64], top: V, quant: &[i16; 64]) -> [V; 8] {
    let rows = [
        top,
        row(a, b, quant, 1),
        row(a, b, quant, 2),
        row(a, b, quant, 3),
        row(a, b, quant, 4),
        row(a, b, quant, 5),
        row(a, b, quant, 6),
        row(a, b, quant, 7),
    ];
    let columns = transpose(pass::<11>(rows));
    pass::<18>(columns)
}

/// Both passes for blocks with coefficients only in the top left 4 x 4.
#[inline]
#[target_feature(enable = "avx2")]
fn corner(a: &[i16; 64], b: &[i16; 64], top: V, quant: &[i16; 64]) -> [V; 8] {
    let zero = _mm256_setzero_si256();
    let x = [top, row(a, b, quant, 1), row(a, b, quant, 2), row(a, b, quant, 3)];
    let h = half_corner::<11>(lo(x[0], zero), lo(x[2], zero), lo(x[1], x[3]));
    // p[i]: row i, columns 0 to 3, then row i + 4
    let p = [
        _mm256_packs_epi32(h[0], h[4]),
        _mm256_packs_epi32(h[1], h[5]),
        _mm256_packs_epi32(h[2], h[6]),
        _mm256_packs_epi32(h[3], h[7]),
    ];
    let (a0, a1, a2, a3) = (lo(p[0], p[1]), lo(p[2], p[3]), hi(p[0], p[1]), hi(p[2], p[3]));
    let b0 = _mm256_unpacklo_epi32(a0, a1); // rows 0 to 3 of columns 0, 1
    let b1 = _mm256_unpackhi_epi32(a0, a1); // of columns 2, 3
    let b2 = _mm256_unpacklo_epi32(a2, a3); // rows 4 to 7
    let b3 = _mm256_unpackhi_epi32(a2, a3);
    let y = [
        _mm256_unpacklo_epi64(b0, b2),
        _mm256_unpackhi_epi64(b0, b2),
        _mm256_unpacklo_epi64(b1, b3),
        _mm256_unpackhi_epi64(b1, b3),
    ];
    let low = half_corner::<18>(lo(y[0], zero), lo(y[2], zero), lo(y[1], y[3]));
    let high = half_corner::<18>(hi(y[0], zero), hi(y[2], zero), hi(y[1], y[3]));
    pack(low, high)
}

/// Row `r` of both blocks, dequantised.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn row(a: &[i16; 64], b: &[i16; 64], quant: &[i16; 64], r: usize) -> V {
    let (a, b, q) = (&a.as_chunks().0[r], &b.as_chunks().0[r], &quant.as_chunks().0[r]);
    _mm256_mullo_epi16(load_word_pair(a, b), load_word_pair(q, q))
}

#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn lo(a: V, b: V) -> V {
    _mm256_unpacklo_epi16(a, b)
}

#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn hi(a: V, b: V) -> V {
    _mm256_unpackhi_epi16(a, b)
}

#[inline]
#[target_feature(enable = "avx2")]
fn factors(a: i32, b: i32) -> V {
    _mm256_set1_epi32((a & 0xffff) | b << 16)
}

/// `x * a + y * b` of interleaved x and y.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn madd(xy: V, a: i32, b: i32) -> V {
    _mm256_madd_epi16(xy, factors(a, b))
}

/// One dimension of both blocks, all eight lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn pass<const SHIFT: i32>(x: [V; 8]) -> [V; 8] {
    let zero = _mm256_setzero_si256();
    let (sum, difference) = (_mm256_add_epi16(x[0], x[4]), _mm256_sub_epi16(x[0], x[4]));
    let (a, b) = (_mm256_add_epi16(x[3], x[7]), _mm256_add_epi16(x[1], x[5]));
    let low = half::<SHIFT>(
        [lo(zero, sum), lo(zero, difference), lo(x[2], x[6])],
        [lo(a, b), lo(x[7], x[1]), lo(x[5], x[3])],
    );
    let high = half::<SHIFT>(
        [hi(zero, sum), hi(zero, difference), hi(x[2], x[6])],
        [hi(a, b), hi(x[7], x[1]), hi(x[5], x[3])],
    );
    pack(low, high)
}

/// Half of a pass, widened to 32 bits. `even`: x0 + x4 and x0 - x4 in the upper halves of 32 bits, (x2, x6). `odd`: (x3
/// + x7, x1 + x5), (x7, x1), (x5, x3).
#[inline]
#[target_feature(enable = "avx2")]
fn half<const SHIFT: i32>(even: [V; 3], odd: [V; 3]) -> [V; 8] {
    let round = _mm256_set1_epi32(1 << (SHIFT - 1));
    let tmp0 = _mm256_add_epi32(_mm256_srai_epi32(even[0], 3), round);
    let tmp1 = _mm256_add_epi32(_mm256_srai_epi32(even[1], 3), round);
    let tmp2 = madd(even[2], F0541, F0541 - F1847);
    let tmp3 = madd(even[2], F0541 + F0765, F0541);
    let z3 = madd(odd[0], F1175 - F1961, F1175);
    let z4 = madd(odd[0], F1175, F1175 - F0390);
    let odd = [
        _mm256_add_epi32(madd(odd[1], -F0899, F1501 - F0899), z4),
        _mm256_add_epi32(madd(odd[2], -F2562, F3072 - F2562), z3),
        _mm256_add_epi32(madd(odd[2], F2053 - F2562, -F2562), z4),
        _mm256_add_epi32(madd(odd[1], F0298 - F0899, -F0899), z3),
    ];
    butterfly::<SHIFT>([tmp0, tmp1, tmp2, tmp3], odd)
}

/// [`half`] with x4 to x7 zero: (x0, 0), (x2, 0), (x1, x3).
#[inline]
#[target_feature(enable = "avx2")]
fn half_corner<const SHIFT: i32>(x0: V, x2: V, x13: V) -> [V; 8] {
    let round = _mm256_set1_epi32(1 << (SHIFT - 1));
    let tmp0 = _mm256_add_epi32(madd(x0, 1 << 13, 0), round);
    let tmp2 = madd(x2, F0541, 0);
    let tmp3 = madd(x2, F0541 + F0765, 0);
    let odd = [
        madd(x13, F1501 - F0899 + F1175 - F0390, F1175),
        madd(x13, F1175, F3072 - F2562 + F1175 - F1961),
        madd(x13, F1175 - F0390, F1175 - F2562),
        madd(x13, F1175 - F0899, F1175 - F1961),
    ];
    butterfly::<SHIFT>([tmp0, tmp0, tmp2, tmp3], odd)
}

#[inline]
#[target_feature(enable = "avx2")]
fn butterfly<const SHIFT: i32>(tmp: [V; 4], odd: [V; 4]) -> [V; 8] {
    let even = [
        _mm256_add_epi32(tmp[0], tmp[3]),
        _mm256_add_epi32(tmp[1], tmp[2]),
        _mm256_sub_epi32(tmp[1], tmp[2]),
        _mm256_sub_epi32(tmp[0], tmp[3]),
    ];
    [
        _mm256_srai_epi32::<SHIFT>(_mm256_add_epi32(even[0], odd[0])),
        _mm256_srai_epi32::<SHIFT>(_mm256_add_epi32(even[1], odd[1])),
        _mm256_srai_epi32::<SHIFT>(_mm256_add_epi32(even[2], odd[2])),
        _mm256_srai_epi32::<SHIFT>(_mm256_add_epi32(even[3], odd[3])),
        _mm256_srai_epi32::<SHIFT>(_mm256_sub_epi32(even[3], odd[3])),
        _mm256_srai_epi32::<SHIFT>(_mm256_sub_epi32(even[2], odd[2])),
        _mm256_srai_epi32::<SHIFT>(_mm256_sub_epi32(even[1], odd[1])),
        _mm256_srai_epi32::<SHIFT>(_mm256_sub_epi32(even[0], odd[0])),
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn pack(a: [V; 8], b: [V; 8]) -> [V; 8] {
    [
        _mm256_packs_epi32(a[0], b[0]),
        _mm256_packs_epi32(a[1], b[1]),
        _mm256_packs_epi32(a[2], b[2]),
        _mm256_packs_epi32(a[3], b[3]),
        _mm256_packs_epi32(a[4], b[4]),
        _mm256_packs_epi32(a[5], b[5]),
        _mm256_packs_epi32(a[6], b[6]),
        _mm256_packs_epi32(a[7], b[7]),
    ]
}

/// Transposes 8 x 8 within each half.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose(x: [V; 8]) -> [V; 8] {
    let (a0, a1, a2, a3) = (lo(x[0], x[1]), hi(x[0], x[1]), lo(x[2], x[3]), hi(x[2], x[3]));
    let (a4, a5, a6, a7) = (lo(x[4], x[5]), hi(x[4], x[5]), lo(x[6], x[7]), hi(x[6], x[7]));
    let (b0, b1) = (_mm256_unpacklo_epi32(a0, a2), _mm256_unpackhi_epi32(a0, a2));
    let (b2, b3) = (_mm256_unpacklo_epi32(a1, a3), _mm256_unpackhi_epi32(a1, a3));
    let (b4, b5) = (_mm256_unpacklo_epi32(a4, a6), _mm256_unpackhi_epi32(a4, a6));
    let (b6, b7) = (_mm256_unpacklo_epi32(a5, a7), _mm256_unpackhi_epi32(a5, a7));
    [
        _mm256_unpacklo_epi64(b0, b4),
        _mm256_unpackhi_epi64(b0, b4),
        _mm256_unpacklo_epi64(b1, b5),
        _mm256_unpackhi_epi64(b1, b5),
        _mm256_unpacklo_epi64(b2, b6),
        _mm256_unpackhi_epi64(b2, b6),
        _mm256_unpacklo_epi64(b3, b7),
        _mm256_unpackhi_epi64(b3, b7),
    ]
}

/// Stores columns of the result (8 rows each, left block, right block) as 8 rows of 16 samples.
#[inline]
#[target_feature(enable = "avx2")]
fn store_transposed(x: [V; 8], out: &mut [u8], pitch: usize) {
    let a0 = _mm256_packs_epi16(x[0], x[2]);
    let a1 = _mm256_packs_epi16(x[1], x[3]);
    let a2 = _mm256_packs_epi16(x[4], x[6]);
    let a3 = _mm256_packs_epi16(x[5], x[7]);
    let b0 = _mm256_unpacklo_epi8(a0, a1); // columns 0, 1 of rows 0 to 7
    let b1 = _mm256_unpackhi_epi8(a0, a1); // 2, 3
    let b2 = _mm256_unpacklo_epi8(a2, a3);
    let b3 = _mm256_unpackhi_epi8(a2, a3);
    let (c0, c1, c2, c3) = (lo(b0, b1), hi(b0, b1), lo(b2, b3), hi(b2, b3));
    // Two rows each.
    let rows = [
        _mm256_unpacklo_epi32(c0, c2),
        _mm256_unpackhi_epi32(c0, c2),
        _mm256_unpacklo_epi32(c1, c3),
        _mm256_unpackhi_epi32(c1, c3),
    ];
    let center = _mm256_set1_epi8(-128);
    for (two, v) in out.chunks_mut(2 * pitch).zip(rows) {
        let v = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_add_epi8(v, center));
        store16(two, _mm256_castsi256_si128(v));
        store16(&mut two[pitch..], _mm256_extracti128_si256::<1>(v));
    }
}
