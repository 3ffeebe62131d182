//! Lines of bytes on their way in and out: interleave, reverse, normalise. Each is specified by [`scalar`]; the one
//! place where an implementation is chosen is [`Lines`].

use crate::simd::Level;

/// `value * scale[c] + offset[c]`, in single precision with two roundings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine {
    /// Factor per channel.
    pub scale: [f32; 3],
    /// Summand per channel.
    pub offset: [f32; 3],
}

impl Affine {
    /// The same for channel `c` in all three places.
    pub fn channel(self, c: usize) -> Self {
        Self {
            scale: [self.scale[c]; 3],
            offset: [self.offset[c]; 3],
        }
    }
}

macro_rules! dispatch {
    ($(#[$doc:meta] $name:ident($($arg:ident: $type:ty),*);)*) => {
        $(#[$doc] pub fn $name(self, $($arg: $type),*) {
            match self.0 {
                // SAFETY: this level is available
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 | Level::Avx512 => unsafe { avx2::$name($($arg),*) },
                _ => scalar::$name($($arg),*),
            }
        })*
    };
}

/// Made from an available level only.
#[derive(Clone, Copy, Debug)]
pub struct Lines(Level);

impl Lines {
    /// Lines of the given level, or the best below it that this processor has.
    pub fn new(level: Level) -> Self {
        Self(level.available())
    }

    dispatch! {
        /// `out` is `line` from its end.
        reverse(line: &[u8], out: &mut [u8]);
        /// Three planes to r, g, b, r, g, b ...
        interleave(planes: [&[u8]; 3], out: &mut [u8]);
        /// r, g, b, r, g, b ... to three planes.
        deinterleave(line: &[u8], planes: [&mut [u8]; 3]);
        /// Levels to floats; channels alternate with period 3.
        normalise_f32(line: &[u8], affine: &Affine, out: &mut [f32]);
    }

    /// Levels to half floats (their bits), rounding to nearest even; channels alternate with period 3.
    pub fn normalise_f16(self, line: &[u8], affine: &Affine, out: &mut [u16]) {
        match self.0 {
            // SAFETY: this level is available, and F16C was just looked up
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::Avx512 if is_x86_feature_detected!("f16c") => unsafe {
                avx2::normalise_f16(line, affine, out)
            },
            _ => scalar::normalise_f16(line, affine, out),
        }
    }
}

/// The specification.
pub mod scalar {
    use super::Affine;

    pub fn reverse(line: &[u8], out: &mut [u8]) {
        out.iter_mut().zip(line.iter().rev()).for_each(|(out, x)| *out = *x);
    }

    pub fn interleave(planes: [&[u8]; 3], out: &mut [u8]) {
        for (i, out) in out.as_chunks_mut::<3>().0.iter_mut().enumerate() {
            *out = planes.map(|plane| plane[i]);
        }
    }

    pub fn deinterleave(line: &[u8], planes: [&mut [u8]; 3]) {
        let [r, g, b] = planes;
        for (((rgb, r), g), b) in line.as_chunks::<3>().0.iter().zip(r).zip(g).zip(b) {
            [*r, *g, *b] = *rgb;
        }
    }

    pub fn normalise_f32(line: &[u8], affine: &Affine, out: &mut [f32]) {
        for (i, (x, out)) in line.iter().zip(out).enumerate() {
            *out = f32::from(*x) * affine.scale[i % 3] + affine.offset[i % 3];
        }
    }

    pub fn normalise_f16(line: &[u8], affine: &Affine, out: &mut [u16]) {
        for (i, (x, out)) in line.iter().zip(out).enumerate() {
            *out = half_bits(f32::from(*x) * affine.scale[i % 3] + affine.offset[i % 3]);
        }
    }

    /// The bits of the nearest IEEE 754 half, ties to even; too great becomes infinite, NaN stays a (quiet) NaN.
    pub fn half_bits(value: f32) -> u16 {
        let bits = value.to_bits();
        let sign = (bits >> 16 & 0x8000) as u16;
        let magnitude = bits & 0x7fff_ffff;
        if magnitude >= 0x7f80_0000 {
            let payload = if magnitude > 0x7f80_0000 {
                0x200 | (magnitude >> 13 & 0x3ff) as u16
            } else {
                0
            };
            return sign | 0x7c00 | payload;
        }
        // Normal halves begin at 2^-14: drop 13 bits. Below, the unit is 2^-24: the further below, the more bits go.
        let exponent = magnitude >> 23;
        let (significand, drop) = if exponent >= 113 {
            (magnitude - (112 << 23), 13)
        } else {
            (magnitude & 0x7f_ffff | 0x80_0000, (126 - exponent).min(31))
        };
        let half = 1u32 << (drop - 1);
        let odd = significand >> drop & 1;
        sign | ((significand + (half - 1) + odd) >> drop).min(0x7c00) as u16
    }
}

/// The same bytes and floats for x86-64 with AVX2.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Affine, scalar};
    use core::arch::x86_64::*;

    /// `[part][channel]`: where 16 interleaved bytes find theirs in 16 bytes of a plane (128: nowhere).
    const INTERLEAVE: [[[u8; 16]; 3]; 3] = shuffles(true);
    /// `[channel][part]`: where 16 bytes of a plane find theirs in 16 interleaved bytes.
    const DEINTERLEAVE: [[[u8; 16]; 3]; 3] = shuffles(false);

    const fn shuffles(interleave: bool) -> [[[u8; 16]; 3]; 3] {
        let mut masks = [[[128u8; 16]; 3]; 3];
        let mut i = 0;
        while i < 48 {
            let (part, channel) = (i / 16, i % 3);
            if interleave {
                masks[part][channel][i % 16] = (i / 3) as u8;
            } else {
                masks[channel][part][i / 3] = (i % 16) as u8;
            }
            i += 1;
        }
        masks
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(bytes: &[u8; 16]) -> __m128i {
        // SAFETY: 16 bytes
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn store(bytes: &mut [u8; 16], value: __m128i) {
        // SAFETY: 16 bytes
        unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), value) }
    }

    /// The bytes that three shuffles pick, one from each part.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn pick(parts: [__m128i; 3], masks: &[[u8; 16]; 3]) -> __m128i {
        let picked = |i: usize| _mm_shuffle_epi8(parts[i], load(&masks[i]));
        _mm_or_si128(_mm_or_si128(picked(0), picked(1)), picked(2))
    }

    #[target_feature(enable = "avx2")]
    pub fn reverse(line: &[u8], out: &mut [u8]) {
        let order = _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
        let (head, blocks) = line.as_rchunks::<16>();
        let (wide, tail) = out[..line.len()].as_chunks_mut::<16>();
        for (out, block) in wide.iter_mut().zip(blocks.iter().rev()) {
            store(out, _mm_shuffle_epi8(load(block), order));
        }
        scalar::reverse(head, tail);
    }

    #[target_feature(enable = "avx2")]
    pub fn interleave(planes: [&[u8]; 3], out: &mut [u8]) {
        let blocks = planes.map(|p| p.as_chunks::<16>().0);
        let (wide, tail) = out.as_chunks_mut::<48>();
        for (i, out) in wide.iter_mut().enumerate() {
            let parts = blocks.map(|b| load(&b[i]));
            for (out, masks) in out.as_chunks_mut::<16>().0.iter_mut().zip(&INTERLEAVE) {
                store(out, pick(parts, masks));
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
            let parts = [load(&line[0]), load(&line[1]), load(&line[2])];
            for (plane, masks) in [&mut r, &mut g, &mut b].into_iter().zip(&DEINTERLEAVE) {
                store(&mut plane.0[i], pick(parts, masks));
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
    fn normalised(levels: &[u8; 8], scale: __m256, offset: __m256) -> __m256 {
        // SAFETY: 8 bytes
        let levels = unsafe { _mm_loadl_epi64(levels.as_ptr().cast()) };
        _mm256_add_ps(
            _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(levels)), scale),
            offset,
        )
    }

    /// `affine` as it applies to a line from element `at` on.
    fn rotated(affine: &Affine, at: usize) -> Affine {
        let turn = |of: [f32; 3]| std::array::from_fn(|i| of[(at + i) % 3]);
        Affine {
            scale: turn(affine.scale),
            offset: turn(affine.offset),
        }
    }

    #[target_feature(enable = "avx2")]
    pub fn normalise_f32(line: &[u8], affine: &Affine, out: &mut [f32]) {
        let (scale, offset) = (pattern(&affine.scale), pattern(&affine.offset));
        let ((blocks, rest), (outs, out_rest)) = (line.as_chunks::<8>(), out.as_chunks_mut::<8>());
        for (blocks, outs) in blocks.chunks(3).zip(outs.chunks_mut(3)) {
            for (i, (block, out)) in blocks.iter().zip(outs).enumerate() {
                // SAFETY: 8 floats
                unsafe { _mm256_storeu_ps(out.as_mut_ptr(), normalised(block, scale[i], offset[i])) }
            }
        }
        scalar::normalise_f32(rest, &rotated(affine, blocks.len() * 8), out_rest);
    }

    #[target_feature(enable = "avx2,f16c")]
    pub fn normalise_f16(line: &[u8], affine: &Affine, out: &mut [u16]) {
        let (scale, offset) = (pattern(&affine.scale), pattern(&affine.offset));
        let ((blocks, rest), (outs, out_rest)) = (line.as_chunks::<8>(), out.as_chunks_mut::<8>());
        for (blocks, outs) in blocks.chunks(3).zip(outs.chunks_mut(3)) {
            for (i, (block, out)) in blocks.iter().zip(outs).enumerate() {
                let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(normalised(block, scale[i], offset[i]));
                // SAFETY: 8 halves
                unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), halves) }
            }
        }
        scalar::normalise_f16(rest, &rotated(affine, blocks.len() * 8), out_rest);
    }
}
