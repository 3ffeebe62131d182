//! [`super::scalar`] with the instructions of AVX2's level: all bytes of a pixel at once, as 16-bit values.
//!
//! Each pixel depends on the one before it, so that the number of dependent instructions decides.

use core::arch::x86_64::*;

use super::scalar;

#[target_feature(enable = "avx2")]
pub fn up(line: &[u8], above: &[u8], out: &mut [u8]) {
    scalar::up(line, above, out);
}

#[target_feature(enable = "avx2")]
pub fn sub(pixel: usize, line: &[u8], out: &mut [u8]) {
    match pixel {
        2 => sub_pixels::<2>(line, out),
        3 => sub_pixels::<3>(line, out),
        4 => sub_pixels::<4>(line, out),
        6 => sub_pixels::<6>(line, out),
        8 => sub_pixels::<8>(line, out),
        _ => scalar::sub(pixel, line, out),
    }
}

#[target_feature(enable = "avx2")]
pub fn average(pixel: usize, line: &[u8], above: &[u8], out: &mut [u8]) {
    match pixel {
        2 => average_pixels::<2>(line, above, out),
        3 => average_pixels::<3>(line, above, out),
        4 => average_pixels::<4>(line, above, out),
        6 => average_pixels::<6>(line, above, out),
        8 => average_pixels::<8>(line, above, out),
        _ => average_pixels::<1>(line, above, out),
    }
}

#[target_feature(enable = "avx2")]
pub fn paeth(pixel: usize, line: &[u8], above: &[u8], out: &mut [u8]) {
    match pixel {
        2 => paeth_pixels::<2>(line, above, out),
        3 => paeth_pixels::<3>(line, above, out),
        4 => paeth_pixels::<4>(line, above, out),
        6 => paeth_pixels::<6>(line, above, out),
        8 => paeth_pixels::<8>(line, above, out),
        _ => paeth_bytes(line, above, out),
    }
}

/// The bytes of a pixel as 16-bit values.
#[inline]
#[target_feature(enable = "avx2")]
fn load<const N: usize>(pixel: &[u8; N]) -> __m128i {
    let mut bytes = [0; 8];
    bytes[..N].copy_from_slice(pixel);
    _mm_cvtepu8_epi16(_mm_cvtsi64_si128(i64::from_le_bytes(bytes)))
}

/// The low bytes of 16-bit values, whose high bytes are zero.
#[inline]
#[target_feature(enable = "avx2")]
fn store<const N: usize>(pixel: &mut [u8; N], values: __m128i) {
    let bytes = _mm_cvtsi128_si64(_mm_packus_epi16(values, values)).to_le_bytes();
    pixel.copy_from_slice(&bytes[..N]);
}

#[inline]
#[target_feature(enable = "avx2")]
fn sub_pixels<const N: usize>(line: &[u8], out: &mut [u8]) {
    let mut a = _mm_setzero_si128();
    for (out, x) in out.as_chunks_mut::<N>().0.iter_mut().zip(line.as_chunks::<N>().0) {
        a = _mm_add_epi8(a, load(x));
        store(out, a);
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn average_pixels<const N: usize>(line: &[u8], above: &[u8], out: &mut [u8]) {
    let mut a = _mm_setzero_si128();
    let pixels = line.as_chunks::<N>().0.iter().zip(above.as_chunks::<N>().0);
    for (out, (x, b)) in out.as_chunks_mut::<N>().0.iter_mut().zip(pixels) {
        let average = _mm_srli_epi16::<1>(_mm_add_epi16(a, load(b)));
        a = _mm_add_epi8(average, load(x));
        store(out, a);
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn paeth_pixels<const N: usize>(line: &[u8], above: &[u8], out: &mut [u8]) {
    paeth_after::<N>([_mm_setzero_si128(); 2], line, above, out);
}

/// Continues after a pixel `a`, above which is `c`. Returns these of the last pixel.
#[inline]
#[target_feature(enable = "avx2")]
fn paeth_after<const N: usize>(
    [mut a, mut c]: [__m128i; 2],
    line: &[u8],
    above: &[u8],
    out: &mut [u8],
) -> [__m128i; 2] {
    let pixels = line.as_chunks::<N>().0.iter().zip(above.as_chunks::<N>().0);
    for (out, (x, b)) in out.as_chunks_mut::<N>().0.iter_mut().zip(pixels) {
        let b = load(b);
        // With a <= b: b is nearest where 3c - a - b <= a, a where it is >= b, and otherwise c; and reversed.
        let bound = _mm_sub_epi16(_mm_sub_epi16(_mm_add_epi16(_mm_add_epi16(c, c), c), b), a);
        let (low, high) = (_mm_min_epi16(a, b), _mm_max_epi16(a, b));
        let low_or_c = _mm_blendv_epi8(low, c, _mm_cmpgt_epi16(high, bound));
        let nearest = _mm_blendv_epi8(high, low_or_c, _mm_cmpgt_epi16(bound, low));
        a = _mm_add_epi8(nearest, load(x));
        c = b;
        store(out, a);
    }
    [a, c]
}

/// Pixels of one byte. Masks are mostly blocks of bytes that are as predicted: where the pixel before a block equals the
/// one above it, the block is that above it; where all pixels above are equal to the one before them, it is the pixel
/// before it.
#[inline]
#[target_feature(enable = "avx2")]
fn paeth_bytes(line: &[u8], above: &[u8], out: &mut [u8]) {
    let [(blocks, line), (blocks_above, above)] = [line, above].map(|bytes| bytes.as_chunks::<16>());
    let (blocks_out, out) = out.as_chunks_mut::<16>();
    let mut last = [_mm_setzero_si128(); 2];
    for (out, (x, b)) in blocks_out.iter_mut().zip(blocks.iter().zip(blocks_above)) {
        if *x == [0; 16] {
            let [before, before_above] = last.map(|value| _mm_cvtsi128_si32(value) as u8);
            if before == before_above {
                *out = *b;
                last = [load(&[b[15]]); 2];
                continue;
            }
            if *b == [before_above; 16] {
                *out = [before; 16];
                continue;
            }
        }
        last = paeth_after::<1>(last, x, b, out);
    }
    paeth_after::<1>(last, line, above, out);
}
