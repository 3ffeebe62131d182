//! The inverse DCT with AVX-512, four blocks at a time: one in each quarter of every register, from left to right. It
//! equals the specification for all coefficients. The arithmetic is that of [`super::avx2`], but products are added to
//! sums in one instruction.

use core::arch::x86_64::*;

use super::BlockRow;
use super::avx2::transform_pair;
use super::scalar::{self, *};
use crate::simd::avx2::store32;
use crate::simd::avx512::load_words;

pub(crate) type V = __m512i;

/// See [`super::block_row`].
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
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
    while let Some(first) = numbers.next() {
        let second = numbers.next().unwrap_or(first);
        let Some(third) = numbers.next() else {
            let used = used[first].max(used[second]);
            return transform_pair(&blocks[first], &blocks[second], used, quant, &mut out[x..], pitch);
        };
        let four = [first, second, third, numbers.next().unwrap_or(third)];
        let used = four.iter().fold(0, |most, &i| used[i].max(most));
        transform_quad(four.map(|i| &blocks[i]), used, quant, &mut out[x..], pitch);
        x += 32;
    }
}

/// Transforms four blocks, side by side, into 8 rows of 32 samples.
#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn transform_quad(blocks: [&[i16; 64]; 4], used: u8, quant: &[i16; 64], out: &mut [u8], pitch: usize) {
    if used <= 1 {
        return fill_flat(blocks.map(|block| block[0]), quant[0], out, pitch);
    }
    let top = rows::<0>(blocks, quant);
    // The short cut of the specification differs from the full transform only above this size, which no valid file has.
    if is_large(top[0]) {
        for (i, block) in blocks.into_iter().enumerate() {
            scalar::transform_block(block, quant, &mut out[8 * i..], pitch);
        }
        return;
    }
    // Zigzag positions up to 10 lie in the top left 4 x 4.
    let samples = if used <= 10 {
        corner(top)
    } else {
        let bottom = rows::<1>(blocks, quant);
        let [a, b, c, d] = top;
        let [e, f, g, h] = bottom;
        pass::<18>(transpose(pass::<11>([a, b, c, d, e, f, g, h])))
    };
    store_transposed(samples, out, pitch);
}

/// Whether a value is outside -0x2000..0x2000.
#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
pub(crate) fn is_large(top: V) -> bool {
    let sized = _mm512_add_epi16(top, _mm512_set1_epi16(0x2000));
    _mm512_test_epi16_mask(sized, _mm512_set1_epi16(0xc000_u16 as i16)) != 0
}

/// Transforms blocks that have only DC coefficients.
#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn fill_flat(dc: [i16; 4], quant: i16, out: &mut [u8], pitch: usize) {
    let [a, b, c, d] = dc.map(|dc| {
        let scaled = i32::from(dc.wrapping_mul(quant).wrapping_shl(2));
        let sample = (((scaled + 16) >> 5).clamp(-128, 127) + 128) as u8;
        i64::from_le_bytes([sample; 8])
    });
    let samples = _mm256_setr_epi64x(a, b, c, d);
    for row in out.chunks_mut(pitch).take(8) {
        store32(row, samples);
    }
}

/// Rows 0 to 3, or 4 to 7 (`HALF` is 1), of four blocks, dequantised.
#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
pub(crate) fn rows<const HALF: usize>(blocks: [&[i16; 64]; 4], quant: &[i16; 64]) -> [V; 4] {
    let quant = load_words(&quant.as_chunks::<32>().0[HALF]);
    let [a, b, c, d] = blocks.map(|block| _mm512_mullo_epi16(load_words(&block.as_chunks::<32>().0[HALF]), quant));
    // Rows 0, 1 and 2, 3 of the left blocks, then of the right ones.
    let (e, f) = (_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0xee>(a, b));
    let (g, h) = (_mm512_shuffle_i32x4::<0x44>(c, d), _mm512_shuffle_i32x4::<0xee>(c, d));
    [
        _mm512_shuffle_i32x4::<0x88>(e, g),
        _mm512_shuffle_i32x4::<0xdd>(e, g),
        _mm512_shuffle_i32x4::<0x88>(f, h),
        _mm512_shuffle_i32x4::<0xdd>(f, h),
    ]
}

#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
pub(crate) fn lo(a: V, b: V) -> V {
    _mm512_unpacklo_epi16(a, b)
}

#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
pub(crate) fn hi(a: V, b: V) -> V {
    _mm512_unpackhi_epi16(a, b)
}

/// `sum + x * a + y * b` of interleaved x and y.
#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
pub(crate) fn madd(sum: V, xy: V, a: i32, b: i32) -> V {
    _mm512_dpwssd_epi32(sum, xy, _mm512_set1_epi32((a & 0xffff) | b << 16))
}

/// One dimension of all blocks, all eight lanes.
#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn pass<const SHIFT: u32>(x: [V; 8]) -> [V; 8] {
    let (sum, difference) = (_mm512_add_epi16(x[0], x[4]), _mm512_sub_epi16(x[0], x[4]));
    let (a, b) = (_mm512_add_epi16(x[3], x[7]), _mm512_add_epi16(x[1], x[5]));
    let low = half::<SHIFT>(
        [lo(sum, difference), lo(x[2], x[6])],
        [lo(a, b), lo(x[7], x[1]), lo(x[5], x[3])],
    );
    let high = half::<SHIFT>(
        [hi(sum, difference), hi(x[2], x[6])],
        [hi(a, b), hi(x[7], x[1]), hi(x[5], x[3])],
    );
    pack(low, high)
}

/// Half of a pass, widened to 32 bits. `even`: (x0 + x4, x0 - x4), (x2, x6). `odd`: (x3 + x7, x1 + x5), (x7, x1),
/// (x5, x3).
#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn half<const SHIFT: u32>(even: [V; 2], odd: [V; 3]) -> [V; 8] {
    let (zero, round) = (_mm512_setzero_si512(), _mm512_set1_epi32(1 << (SHIFT - 1)));
    let tmp0 = madd(round, even[0], 1 << 13, 0);
    let tmp1 = madd(round, even[0], 0, 1 << 13);
    let even = [
        madd(tmp0, even[1], F0541 + F0765, F0541),
        madd(tmp1, even[1], F0541, F0541 - F1847),
        madd(tmp1, even[1], -F0541, F1847 - F0541),
        madd(tmp0, even[1], -F0541 - F0765, -F0541),
    ];
    let z3 = madd(zero, odd[0], F1175 - F1961, F1175);
    let z4 = madd(zero, odd[0], F1175, F1175 - F0390);
    let odd = [
        madd(z4, odd[1], -F0899, F1501 - F0899),
        madd(z3, odd[2], -F2562, F3072 - F2562),
        madd(z4, odd[2], F2053 - F2562, -F2562),
        madd(z3, odd[1], F0298 - F0899, -F0899),
    ];
    butterfly::<SHIFT>(even, odd)
}

/// Both passes for blocks with coefficients only in the top left 4 x 4.
#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn corner(x: [V; 4]) -> [V; 8] {
    let h = half_corner::<11>(lo(x[0], x[2]), lo(x[1], x[3]));
    // p[i]: row i, columns 0 to 3, then row i + 4
    let p = [
        _mm512_packs_epi32(h[0], h[4]),
        _mm512_packs_epi32(h[1], h[5]),
        _mm512_packs_epi32(h[2], h[6]),
        _mm512_packs_epi32(h[3], h[7]),
    ];
    let (a0, a1, a2, a3) = (lo(p[0], p[1]), lo(p[2], p[3]), hi(p[0], p[1]), hi(p[2], p[3]));
    let b0 = _mm512_unpacklo_epi32(a0, a1); // rows 0 to 3 of columns 0, 1
    let b1 = _mm512_unpackhi_epi32(a0, a1); // of columns 2, 3
    let b2 = _mm512_unpacklo_epi32(a2, a3); // rows 4 to 7
    let b3 = _mm512_unpackhi_epi32(a2, a3);
    // After this, columns 0 and 2 of a row are side by side, and columns 1 and 3.
    let low = half_corner::<18>(lo(b0, b1), hi(b0, b1));
    let high = half_corner::<18>(lo(b2, b3), hi(b2, b3));
    pack(low, high)
}

/// [`half`] with x4 to x7 zero: (x0, x2), (x1, x3).
#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn half_corner<const SHIFT: u32>(x02: V, x13: V) -> [V; 8] {
    let (zero, round) = (_mm512_setzero_si512(), _mm512_set1_epi32(1 << (SHIFT - 1)));
    let even = [
        madd(round, x02, 1 << 13, F0541 + F0765),
        madd(round, x02, 1 << 13, F0541),
        madd(round, x02, 1 << 13, -F0541),
        madd(round, x02, 1 << 13, -F0541 - F0765),
    ];
    let odd = [
        madd(zero, x13, F1501 - F0899 + F1175 - F0390, F1175),
        madd(zero, x13, F1175, F3072 - F2562 + F1175 - F1961),
        madd(zero, x13, F1175 - F0390, F1175 - F2562),
        madd(zero, x13, F1175 - F0899, F1175 - F1961),
    ];
    butterfly::<SHIFT>(even, odd)
}

#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn butterfly<const SHIFT: u32>(even: [V; 4], odd: [V; 4]) -> [V; 8] {
    core::array::from_fn(|i| {
        _mm512_srai_epi32::<SHIFT>(if i < 4 {
            _mm512_add_epi32(even[i], odd[i])
        } else {
            _mm512_sub_epi32(even[7 - i], odd[7 - i])
        })
    })
}

#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn pack(a: [V; 8], b: [V; 8]) -> [V; 8] {
    core::array::from_fn(|i| _mm512_packs_epi32(a[i], b[i]))
}

/// Transposes 8 x 8 within each quarter.
#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn transpose(x: [V; 8]) -> [V; 8] {
    let (a0, a1, a2, a3) = (lo(x[0], x[1]), hi(x[0], x[1]), lo(x[2], x[3]), hi(x[2], x[3]));
    let (a4, a5, a6, a7) = (lo(x[4], x[5]), hi(x[4], x[5]), lo(x[6], x[7]), hi(x[6], x[7]));
    let (b0, b1) = (_mm512_unpacklo_epi32(a0, a2), _mm512_unpackhi_epi32(a0, a2));
    let (b2, b3) = (_mm512_unpacklo_epi32(a1, a3), _mm512_unpackhi_epi32(a1, a3));
    let (b4, b5) = (_mm512_unpacklo_epi32(a4, a6), _mm512_unpackhi_epi32(a4, a6));
    let (b6, b7) = (_mm512_unpacklo_epi32(a5, a7), _mm512_unpackhi_epi32(a5, a7));
    [
        _mm512_unpacklo_epi64(b0, b4),
        _mm512_unpackhi_epi64(b0, b4),
        _mm512_unpacklo_epi64(b1, b5),
        _mm512_unpackhi_epi64(b1, b5),
        _mm512_unpacklo_epi64(b2, b6),
        _mm512_unpackhi_epi64(b2, b6),
        _mm512_unpacklo_epi64(b3, b7),
        _mm512_unpackhi_epi64(b3, b7),
    ]
}

/// Stores columns of the result (8 rows each, of every block) as 8 rows of 32 samples.
#[inline]
#[target_feature(enable = "avx512vl,avx512vbmi,avx512vnni")]
fn store_transposed(x: [V; 8], out: &mut [u8], pitch: usize) {
    let a0 = _mm512_packs_epi16(x[0], x[2]);
    let a1 = _mm512_packs_epi16(x[1], x[3]);
    let a2 = _mm512_packs_epi16(x[4], x[6]);
    let a3 = _mm512_packs_epi16(x[5], x[7]);
    let b0 = _mm512_unpacklo_epi8(a0, a1); // columns 0, 1 of rows 0 to 7
    let b1 = _mm512_unpackhi_epi8(a0, a1); // 2, 3
    let b2 = _mm512_unpacklo_epi8(a2, a3);
    let b3 = _mm512_unpackhi_epi8(a2, a3);
    // Columns 0 to 3 of rows 0 to 3, and of rows 4 to 7; then columns 4 to 7.
    let (c0, c1, c2, c3) = (lo(b0, b1), hi(b0, b1), lo(b2, b3), hi(b2, b3));
    // Both halves of row `row` of every quarter, then those of the next row.
    let order = |row: i32| {
        let quarter = |at: i32| [at, at + 16, at + 4, at + 20, at + 8, at + 24, at + 12, at + 28];
        let [a, b] = [quarter(row), quarter(row + 1)];
        _mm512_setr_epi32(
            a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7],
        )
    };
    let rows = [
        _mm512_permutex2var_epi32(c0, order(0), c2),
        _mm512_permutex2var_epi32(c0, order(2), c2),
        _mm512_permutex2var_epi32(c1, order(0), c3),
        _mm512_permutex2var_epi32(c1, order(2), c3),
    ];
    let center = _mm512_set1_epi8(-128);
    for (two, v) in out.chunks_mut(2 * pitch).zip(rows) {
        let v = _mm512_add_epi8(v, center);
        store32(two, _mm512_castsi512_si256(v));
        store32(&mut two[pitch..], _mm512_extracti64x4_epi64::<1>(v));
    }
}
