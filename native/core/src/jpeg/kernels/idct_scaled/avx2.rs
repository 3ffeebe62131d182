//! The reduced inverse DCTs with AVX2, two blocks at a time: the left one in the low half of every register, the right
//! one in the high half. They equal the specification for all coefficients.

use core::arch::x86_64::*;

use super::scalar::{self, *};
use crate::jpeg::kernels::idct::BlockRow;
use crate::jpeg::kernels::idct::avx2::{V, hi, is_large, lo, madd, row};

/// See [`super::block_row`]; 4 x 4.
#[target_feature(enable = "avx2")]
pub(crate) fn block_row_4x4(
    blocks: &[[i16; 64]],
    used: &[u8],
    order: BlockRow,
    quant: &[i16; 64],
    out: &mut [u8],
    pitch: usize,
) {
    let mut numbers = order.indices();
    let mut x = 0;
    while let Some(left) = numbers.next() {
        let right = numbers.next().unwrap_or(left);
        let used = used[left].max(used[right]);
        transform_4x4(&blocks[left], &blocks[right], used, quant, &mut out[x..], pitch);
        x += 8;
    }
}

/// See [`super::block_row`]; 2 x 2.
#[target_feature(enable = "avx2")]
pub(crate) fn block_row_2x2(
    blocks: &[[i16; 64]],
    used: &[u8],
    order: BlockRow,
    quant: &[i16; 64],
    out: &mut [u8],
    pitch: usize,
) {
    let mut numbers = order.indices();
    let mut x = 0;
    while let Some(left) = numbers.next() {
        let right = numbers.next().unwrap_or(left);
        let used = used[left].max(used[right]);
        transform_2x2(&blocks[left], &blocks[right], used, quant, &mut out[x..], pitch);
        x += 4;
    }
}

/// Transforms two blocks, side by side, into 4 rows of 8 samples.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn transform_4x4(a: &[i16; 64], b: &[i16; 64], used: u8, quant: &[i16; 64], out: &mut [u8], pitch: usize) {
    let top = row(a, b, quant, 0);
    // The short cut of the specification differs from the full transform only above this size, which no valid file has.
    if is_large(top) {
        scalar::transform_4x4(a, quant, out, pitch);
        return scalar::transform_4x4(b, quant, &mut out[4..], pitch);
    }
    // Zigzag positions up to 10 lie in the top left 4 x 4.
    let samples = if used <= 10 {
        four_corner(a, b, top, quant)
    } else {
        four_full(a, b, top, quant)
    };
    // Rows of the left block, then of the right block, 4 bytes each.
    let samples = _mm256_xor_si256(samples, _mm256_set1_epi8(-128));
    let (left, right) = (_mm256_castsi256_si128(samples), _mm256_extracti128_si256::<1>(samples));
    let halves = [_mm_unpacklo_epi32(left, right), _mm_unpackhi_epi32(left, right)];
    for (two, v) in out.chunks_mut(2 * pitch).zip(halves) {
        two[..8].copy_from_slice(&_mm_cvtsi128_si64(v).to_le_bytes());
        two[pitch..][..8].copy_from_slice(&_mm_extract_epi64::<1>(v).to_le_bytes());
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn four_full(a: &[i16; 64], b: &[i16; 64], top: V, quant: &[i16; 64]) -> V {
    let zero = _mm256_setzero_si256();
    let [x1, x2, x3] = [row(a, b, quant, 1), row(a, b, quant, 2), row(a, b, quant, 3)];
    let [x5, x6, x7] = [row(a, b, quant, 5), row(a, b, quant, 6), row(a, b, quant, 7)];
    let low = pass_four::<12>(lo(zero, top), lo(x2, x6), lo(x1, x3), lo(x5, x7));
    let high = pass_four::<12>(hi(zero, top), hi(x2, x6), hi(x1, x3), hi(x5, x7));
    let rows: [V; 4] = [
        _mm256_packs_epi32(low[0], high[0]),
        _mm256_packs_epi32(low[1], high[1]),
        _mm256_packs_epi32(low[2], high[2]),
        _mm256_packs_epi32(low[3], high[3]),
    ];
    // Columns 0 and 1, 2 and 3, ..., four rows each.
    let (a0, a1) = (lo(rows[0], rows[1]), lo(rows[2], rows[3]));
    let (a2, a3) = (hi(rows[0], rows[1]), hi(rows[2], rows[3]));
    let (c01, c23) = (_mm256_unpacklo_epi32(a0, a1), _mm256_unpackhi_epi32(a0, a1));
    let (c45, c67) = (_mm256_unpacklo_epi32(a2, a3), _mm256_unpackhi_epi32(a2, a3));
    let columns = pass_four::<19>(lo(zero, c01), lo(c23, c67), hi(c01, c23), hi(c45, c67));
    gather_four(columns)
}

/// For blocks with coefficients only in the top left 4 x 4.
#[inline]
#[target_feature(enable = "avx2")]
fn four_corner(a: &[i16; 64], b: &[i16; 64], top: V, quant: &[i16; 64]) -> V {
    let zero = _mm256_setzero_si256();
    let [x1, x2, x3] = [row(a, b, quant, 1), row(a, b, quant, 2), row(a, b, quant, 3)];
    let low = pass_four_corner::<12>(lo(zero, top), lo(x2, zero), lo(x1, x3));
    // Rows 0 and 1, rows 2 and 3, columns 0 to 3 each.
    let (r01, r23) = (_mm256_packs_epi32(low[0], low[1]), _mm256_packs_epi32(low[2], low[3]));
    let (a0, a1) = (lo(r01, r23), hi(r01, r23)); // rows 0 and 2 interleaved, rows 1 and 3
    let (c01, c23) = (lo(a0, a1), hi(a0, a1));
    let columns = pass_four_corner::<19>(lo(zero, c01), lo(c23, zero), hi(c01, c23));
    gather_four(columns)
}

/// Columns of four rows to rows of four bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn gather_four(columns: [V; 4]) -> V {
    let even = _mm256_packs_epi32(columns[0], columns[2]);
    let odd = _mm256_packs_epi32(columns[1], columns[3]);
    let (left, right) = (lo(even, odd), hi(even, odd));
    _mm256_packs_epi16(_mm256_unpacklo_epi32(left, right), _mm256_unpackhi_epi32(left, right))
}

/// One dimension, 8 to 4, widened to 32 bits: x0 in the upper halves, then pairs.
#[inline]
#[target_feature(enable = "avx2")]
fn pass_four<const SHIFT: i32>(x0: V, x26: V, x13: V, x57: V) -> [V; 4] {
    let even = madd(x26, F1847, -F0765);
    let a = _mm256_add_epi32(madd(x13, F2562, F0899), madd(x57, -F0601, -F0509));
    let b = _mm256_add_epi32(madd(x13, F1061, -F2172), madd(x57, F1451, -F0211));
    butterfly_four::<SHIFT>(x0, even, a, b)
}

/// [`pass_four`] with x5, x6 and x7 zero.
#[inline]
#[target_feature(enable = "avx2")]
fn pass_four_corner<const SHIFT: i32>(x0: V, x2: V, x13: V) -> [V; 4] {
    butterfly_four::<SHIFT>(
        x0,
        madd(x2, F1847, 0),
        madd(x13, F2562, F0899),
        madd(x13, F1061, -F2172),
    )
}

#[inline]
#[target_feature(enable = "avx2")]
fn butterfly_four<const SHIFT: i32>(x0: V, even: V, a: V, b: V) -> [V; 4] {
    let dc = _mm256_add_epi32(_mm256_srai_epi32::<2>(x0), _mm256_set1_epi32(1 << (SHIFT - 1)));
    let (outer, inner) = (_mm256_add_epi32(dc, even), _mm256_sub_epi32(dc, even));
    [
        _mm256_srai_epi32::<SHIFT>(_mm256_add_epi32(outer, a)),
        _mm256_srai_epi32::<SHIFT>(_mm256_add_epi32(inner, b)),
        _mm256_srai_epi32::<SHIFT>(_mm256_sub_epi32(inner, b)),
        _mm256_srai_epi32::<SHIFT>(_mm256_sub_epi32(outer, a)),
    ]
}

/// Transforms two blocks, side by side, into 2 rows of 4 samples.
#[inline]
#[target_feature(enable = "avx2")]
fn transform_2x2(a: &[i16; 64], b: &[i16; 64], used: u8, quant: &[i16; 64], out: &mut [u8], pitch: usize) {
    let zero = _mm256_setzero_si256();
    let round = _mm256_set1_epi32(1 << 12);
    let dc = |x0| _mm256_add_epi32(_mm256_srai_epi32::<1>(x0), round);
    let [x0, x1, x3] = [row(a, b, quant, 0), row(a, b, quant, 1), row(a, b, quant, 3)];
    let (upper, lower) = if used <= 10 {
        // Only columns and rows 0 to 3.
        let (even, odd) = (dc(lo(zero, x0)), madd(lo(x1, x3), F3624, -F1272));
        let halves = [_mm256_add_epi32(even, odd), _mm256_sub_epi32(even, odd)];
        let halves = halves.map(|v| _mm256_srai_epi32::<13>(v));
        ((halves[0], zero), (halves[1], zero))
    } else {
        let [x5, x7] = [row(a, b, quant, 5), row(a, b, quant, 7)];
        let sum = |x13, x57| _mm256_add_epi32(madd(x13, F3624, -F1272), madd(x57, F0850, -F0720));
        let (even, odd) = (
            [dc(lo(zero, x0)), dc(hi(zero, x0))],
            [sum(lo(x1, x3), lo(x5, x7)), sum(hi(x1, x3), hi(x5, x7))],
        );
        let add = |i: usize| _mm256_srai_epi32::<13>(_mm256_add_epi32(even[i], odd[i]));
        let sub = |i: usize| _mm256_srai_epi32::<13>(_mm256_sub_epi32(even[i], odd[i]));
        ((add(0), add(1)), (sub(0), sub(1)))
    };
    // The first column is kept in 32 bits. The odd columns are summed across the register.
    let dc = _mm256_slli_epi32::<15>(_mm256_unpacklo_epi32(upper.0, lower.0));
    let weights = _mm256_setr_epi16(
        0,
        F3624 as i16,
        0,
        -F1272 as i16,
        0,
        F0850 as i16,
        0,
        -F0720 as i16,
        0,
        F3624 as i16,
        0,
        -F1272 as i16,
        0,
        F0850 as i16,
        0,
        -F0720 as i16,
    ); // columns 1, 3, 5, 7
    let odd = |(low, high)| _mm256_madd_epi16(_mm256_packs_epi32(low, high), weights);
    let odd = _mm256_hadd_epi32(odd(upper), odd(lower));
    let odd = _mm256_hadd_epi32(odd, odd);
    let dc = _mm256_add_epi32(dc, _mm256_set1_epi32(1 << 19));
    let samples = _mm256_unpacklo_epi32(_mm256_add_epi32(dc, odd), _mm256_sub_epi32(dc, odd));
    let samples = _mm256_srai_epi32::<20>(samples);
    let samples = _mm256_packs_epi32(samples, samples);
    let samples = _mm256_xor_si256(_mm256_packs_epi16(samples, samples), _mm256_set1_epi8(-128));
    // The upper and the lower row, two bytes each, of each block.
    let rows = _mm_unpacklo_epi16(_mm256_castsi256_si128(samples), _mm256_extracti128_si256::<1>(samples));
    let rows = _mm_cvtsi128_si64(rows).to_le_bytes();
    out[..4].copy_from_slice(&rows[..4]);
    out[pitch..][..4].copy_from_slice(&rows[4..]);
}
