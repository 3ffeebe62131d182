//! All levels give the same bytes and floats.

use penstock_core::fill::Affine;
use penstock_core::fill::lines::{deinterleave, halves, interleave, normalise_f16, normalise_f32, reverse};
use penstock_core::simd::Available;

const AFFINE: Affine = Affine {
    scale: [0.0171, -3.25, 1.0 / 255.0],
    offset: [-2.1179, 0.5, 6.0e-5],
};

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u32)
        .map(|i| (i.wrapping_mul(2654435761) >> 24) as u8)
        .collect()
}

#[test]
fn levels_agree_for_every_length() {
    for len in 0..200 {
        let line = bytes(len);
        let all = |f: &dyn Fn(Available) -> Vec<u32>| {
            let scalar = f(Available::SCALAR);
            for &level in Available::all() {
                assert_eq!(f(level), scalar, "{level:?}, length {len}");
            }
        };

        all(&|level| {
            let mut out = vec![0; len];
            reverse(level, &line, &mut out);
            out.into_iter().map(u32::from).collect()
        });
        all(&|level| {
            let mut out = vec![0.0; len];
            normalise_f32(level, &line, &AFFINE, &mut out);
            out.into_iter().map(f32::to_bits).collect()
        });
        all(&|level| {
            let mut out = vec![0; len];
            normalise_f16(level, &line, &AFFINE, &mut out);
            out.into_iter().map(u32::from).collect()
        });
        all(&|level| {
            let values: Vec<f32> = (0..len).map(|i| (i as f32 - 90.0) * 797.03).collect();
            let mut out = vec![0; len];
            halves(level, &values, &mut out);
            out.into_iter().map(u32::from).collect()
        });
        all(&|level| {
            let (mut planes, mut out) = (
                [const { Vec::new() }; 3].map(|_: Vec<u8>| vec![0; len + 5]),
                vec![0; 3 * len],
            );
            let [r, g, b] = &mut planes;
            deinterleave(level, &bytes(3 * len), [r, g, b]);
            interleave(level, [r, g, b], &mut out);
            assert_eq!(out, bytes(3 * len), "length {len}");
            planes.concat().into_iter().map(u32::from).collect()
        });
    }
}

#[test]
fn halves_round_as_the_processor_does() {
    let line: Vec<u8> = (0..=255).collect();
    let mut bits = 0u32;
    for _ in 0..100_000 {
        bits = bits.wrapping_mul(1664525).wrapping_add(1013904223);
        // Scales from below the smallest subnormal half to above the largest half.
        let scale = f32::from_bits((bits & 0x80ff_ffff) + (90 + (bits >> 26 & 0x3f)).min(140) * 0x80_0000);
        let affine = Affine {
            scale: [scale; 3],
            offset: [scale * 0.37; 3],
        };
        let mut scalar = [0; 256];
        normalise_f16(Available::SCALAR, &line, &affine, &mut scalar);
        for &level in Available::all() {
            let mut out = [0; 256];
            normalise_f16(level, &line, &affine, &mut out);

            assert_eq!(out, scalar, "{level:?}, scale {scale:e}");
        }
    }
}
