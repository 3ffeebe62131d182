//! All levels give the same bytes and floats.

use penstock_core::fill::Affine;
use penstock_core::fill::lines::{
    bfloat_bits, bfloats, deinterleave, halves, interleave, normalise_bf16, normalise_f16, normalise_f32, reverse,
};
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
            let mut out = vec![0; len];
            normalise_bf16(level, &line, &AFFINE, &mut out);
            out.into_iter().map(u32::from).collect()
        });
        all(&|level| {
            let values: Vec<f32> = (0..len).map(|i| (i as f32 - 90.0) * 797.03).collect();
            let mut out = vec![0; len];
            bfloats(level, &values, &mut out);
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

/// The nearest of the two neighbours in double precision, the even one if both are as near.
fn nearest_bfloat(value: f32) -> u16 {
    let below = (value.to_bits() >> 16) as u16;
    let real = |bits: u16| match bits & 0x7fff {
        0x7f80 => f64::from(f32::from_bits(u32::from(bits & 0x8000) << 16 | 0x7f00_0000)) * 2.0, // what would follow
        _ => f64::from(f32::from_bits(u32::from(bits) << 16)),
    };
    let [low, high] = [below, below.wrapping_add(1)].map(|bits| (real(bits) - f64::from(value)).abs());
    if low < high || low == high && below.is_multiple_of(2) {
        below
    } else {
        below + 1
    }
}

#[test]
fn bfloats_are_the_nearest_ones() {
    let mut values: Vec<f32> = [
        0x0000_8000,
        0x0001_8000,
        0x3f80_8000,
        0x3f81_8000,
        0x7f7f_7fff,
        0x7f7f_8000,
        0x7f7f_ffff,
    ]
    .into_iter()
    .flat_map(|bits| [bits - 1, bits, bits + 1])
    .map(f32::from_bits)
    .filter(|value| value.is_finite())
    .collect();
    let mut bits = 0u32;
    values.extend((0..200_000).map(|_| {
        bits = bits.wrapping_mul(1664525).wrapping_add(1013904223);
        f32::from_bits(bits & 0x7f7f_ffff)
    }));
    values.extend(values.clone().into_iter().map(|value| -value));

    for &level in Available::all() {
        let mut out = vec![0; values.len()];
        bfloats(level, &values, &mut out);

        for (value, got) in values.iter().zip(&out) {
            assert_eq!(*got, nearest_bfloat(*value), "{level:?}, {value:e}");
        }
    }
}

#[test]
fn bfloats_keep_infinity_and_nan() {
    let (quiet, signalling) = (f32::from_bits(0xffc1_2345), f32::from_bits(0x7f80_0001));
    let values = [
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        quiet,
        signalling,
        -0.0,
        f32::MAX,
        f32::MIN,
    ];
    let want = [0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7fc0, 0x8000, 0x7f80, 0xff80];

    assert_eq!(values.map(bfloat_bits), want);
    for &level in Available::all() {
        let mut out = [0; 8];
        bfloats(level, &values, &mut out);

        assert_eq!(out, want, "{level:?}");
    }
}
