//! Levels never change a byte or float; the scalar lines do what they say.

use penstock_core::fill::{Affine, Lines};
use penstock_core::simd::{Level, detect};

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
    let (scalar, best) = (Lines::new(Level::Scalar), Lines::new(detect()));
    for len in 0..200 {
        let line = bytes(len);
        let both = |f: &dyn Fn(Lines) -> Vec<u32>| assert_eq!(f(scalar), f(best), "length {len}");

        both(&|lines| {
            let mut out = vec![0; len];
            lines.reverse(&line, &mut out);
            out.into_iter().map(u32::from).collect()
        });
        both(&|lines| {
            let mut out = vec![0.0; len];
            lines.normalise_f32(&line, &AFFINE, &mut out);
            out.into_iter().map(f32::to_bits).collect()
        });
        both(&|lines| {
            let mut out = vec![0; len];
            lines.normalise_f16(&line, &AFFINE, &mut out);
            out.into_iter().map(u32::from).collect()
        });
        both(&|lines| {
            let (mut planes, mut out) = (
                [const { Vec::new() }; 3].map(|_: Vec<u8>| vec![0; len + 5]),
                vec![0; 3 * len],
            );
            let [r, g, b] = &mut planes;
            lines.deinterleave(&bytes(3 * len), [r, g, b]);
            lines.interleave([r, g, b], &mut out);
            assert_eq!(out, bytes(3 * len), "length {len}");
            planes.concat().into_iter().map(u32::from).collect()
        });
    }
}

#[test]
fn halves_round_as_the_processor_does() {
    let (scalar, best) = (Lines::new(Level::Scalar), Lines::new(detect()));
    let line: Vec<u8> = (0..=255).collect();
    let mut bits = 0u32;
    for _ in 0..100_000 {
        bits = bits.wrapping_mul(1664525).wrapping_add(1013904223);
        // scales that reach from below the smallest subnormal half to beyond the greatest
        let scale = f32::from_bits((bits & 0x80ff_ffff) + (90 + (bits >> 26 & 0x3f)).min(140) * 0x80_0000);
        let affine = Affine {
            scale: [scale; 3],
            offset: [scale * 0.37; 3],
        };
        let (mut a, mut b) = ([0; 256], [0; 256]);
        scalar.normalise_f16(&line, &affine, &mut a);
        best.normalise_f16(&line, &affine, &mut b);

        assert_eq!(a, b, "scale {scale:e}");
    }
}
