//! The reduced inverse DCT to 4 x 4 with AVX-512, four blocks at a time: one in each quarter of every register, from left
//! to right. It equals the specification for all coefficients. The arithmetic is that of [`super::avx2`], but products are
//! added to sums in one instruction.

use core::arch::x86_64::*;

use super::avx2::transform_4x4;
use super::scalar::{self, *};
use crate::jpeg::kernels::idct::BlockRow;
use crate::jpeg::kernels::idct::avx512::{V, hi, is_large, lo, madd, rows};
use crate::simd::avx2::store16;

/// See [`super::block_row`]; 4 x 4.
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
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
    while let Some(first) = numbers.next() {
        let second = numbers.next().unwrap_or(first);
        let Some(third) = numbers.next() else {
            let used = used[first].max(used[second]);
            return transform_4x4(&blocks[first], &blocks[second], used, quant, &mut out[x..], pitch);
        };
        let four = [first, second, third, numbers.next().unwrap_or(third)];
        let used = four.iter().fold(0, |most, &i| used[i].max(most));
        transform_quad(four.map(|i| &blocks[i]), used, quant, &mut out[x..], pitch);
        x += 16;
    }
}

/// Transforms four blocks, side by side, into 4 rows of 16 samples.
#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn transform_quad(blocks: [&[i16; 64]; 4], used: u8, quant: &[i16; 64], out: &mut [u8], pitch: usize) {
    let top = rows::<0>(blocks, quant);
    // The short cut of the specification differs from the full transform only above this size, which no valid file has.
    if is_large(top[0]) {
        for (i, block) in blocks.into_iter().enumerate() {
            scalar::transform_4x4(block, quant, &mut out[4 * i..], pitch);
        }
        return;
    }
    // Zigzag positions up to 10 lie in the top left 4 x 4.
    let samples = if used <= 10 {
        corner(top)
    } else {
        full(top, rows::<1>(blocks, quant))
    };
    // Four rows of each block, 4 bytes each, to rows of all blocks.
    let samples = _mm512_xor_si512(samples, _mm512_set1_epi8(-128));
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let samples = _mm512_permutexvar_epi32(order, samples);
    let rows = [
        _mm512_extracti32x4_epi32::<0>(samples),
        _mm512_extracti32x4_epi32::<1>(samples),
        _mm512_extracti32x4_epi32::<2>(samples),
        _mm512_extracti32x4_epi32::<3>(samples),
    ];
    for (row, samples) in out.chunks_mut(pitch).zip(rows) {
        store16(row, samples);
    }
}

#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn full([x0, x1, x2, x3]: [V; 4], [_, x5, x6, x7]: [V; 4]) -> V {
    let zero = _mm512_setzero_si512();
    let low = pass::<12>(lo(x0, zero), lo(x2, x6), lo(x1, x3), lo(x5, x7));
    let high = pass::<12>(hi(x0, zero), hi(x2, x6), hi(x1, x3), hi(x5, x7));
    let rows: [V; 4] = [
        _mm512_packs_epi32(low[0], high[0]),
        _mm512_packs_epi32(low[1], high[1]),
        _mm512_packs_epi32(low[2], high[2]),
        _mm512_packs_epi32(low[3], high[3]),
    ];
    // Columns 0 and 1, 2 and 3, ..., four rows each.
    let (a0, a1) = (lo(rows[0], rows[1]), lo(rows[2], rows[3]));
    let (a2, a3) = (hi(rows[0], rows[1]), hi(rows[2], rows[3]));
    let (c01, c23) = (_mm512_unpacklo_epi32(a0, a1), _mm512_unpackhi_epi32(a0, a1));
    let (c45, c67) = (_mm512_unpacklo_epi32(a2, a3), _mm512_unpackhi_epi32(a2, a3));
    gather(pass::<19>(lo(c01, zero), lo(c23, c67), hi(c01, c23), hi(c45, c67)))
}

/// For blocks with coefficients only in the top left 4 x 4.
#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn corner([x0, x1, x2, x3]: [V; 4]) -> V {
    let low = pass_corner::<12>(lo(x0, x2), lo(x1, x3));
    // Rows 0 and 1, rows 2 and 3, columns 0 to 3 each.
    let (r01, r23) = (_mm512_packs_epi32(low[0], low[1]), _mm512_packs_epi32(low[2], low[3]));
    let (a0, a1) = (lo(r01, r23), hi(r01, r23)); // rows 0 and 2 interleaved, rows 1 and 3
    let (c01, c23) = (lo(a0, a1), hi(a0, a1));
    gather(pass_corner::<19>(lo(c01, c23), hi(c01, c23)))
}

/// Columns of four rows to rows of four bytes.
#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn gather(columns: [V; 4]) -> V {
    let even = _mm512_packs_epi32(columns[0], columns[2]);
    let odd = _mm512_packs_epi32(columns[1], columns[3]);
    let (left, right) = (lo(even, odd), hi(even, odd));
    _mm512_packs_epi16(_mm512_unpacklo_epi32(left, right), _mm512_unpackhi_epi32(left, right))
}

/// One dimension, 8 to 4, widened to 32 bits: pairs of x0 and another, x2 and x6, x1 and x3, x5 and x7.
#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn pass<const SHIFT: u32>(x0: V, x26: V, x13: V, x57: V) -> [V; 4] {
    let zero = _mm512_setzero_si512();
    let dc = madd(_mm512_set1_epi32(1 << (SHIFT - 1)), x0, 1 << 14, 0);
    let (outer, inner) = (madd(dc, x26, F1847, -F0765), madd(dc, x26, -F1847, F0765));
    let a = madd(madd(zero, x13, F2562, F0899), x57, -F0601, -F0509);
    let b = madd(madd(zero, x13, F1061, -F2172), x57, F1451, -F0211);
    butterfly::<SHIFT>(outer, inner, a, b)
}

/// [`pass`] with x5, x6 and x7 zero: pairs of x0 and x2, x1 and x3.
#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn pass_corner<const SHIFT: u32>(x02: V, x13: V) -> [V; 4] {
    let (zero, round) = (_mm512_setzero_si512(), _mm512_set1_epi32(1 << (SHIFT - 1)));
    let (outer, inner) = (madd(round, x02, 1 << 14, F1847), madd(round, x02, 1 << 14, -F1847));
    let (a, b) = (madd(zero, x13, F2562, F0899), madd(zero, x13, F1061, -F2172));
    butterfly::<SHIFT>(outer, inner, a, b)
}

#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn butterfly<const SHIFT: u32>(outer: V, inner: V, a: V, b: V) -> [V; 4] {
    [
        _mm512_srai_epi32::<SHIFT>(_mm512_add_epi32(outer, a)),
        _mm512_srai_epi32::<SHIFT>(_mm512_add_epi32(inner, b)),
        _mm512_srai_epi32::<SHIFT>(_mm512_sub_epi32(inner, b)),
        _mm512_srai_epi32::<SHIFT>(_mm512_sub_epi32(outer, a)),
    ]
}
