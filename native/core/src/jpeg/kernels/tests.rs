//! Every kernel at every level equals the scalar kernel.

use std::fmt::Debug;
use std::io::{Write, stderr};
use std::sync::Once;

use crate::jpeg::entropy::unstuff::{self, Unstuffed};
use crate::jpeg::format::markers::Color;
use crate::jpeg::kernels::color;
use crate::jpeg::kernels::idct::{self, BlockRow};
use crate::jpeg::kernels::idct_scaled;
use crate::jpeg::kernels::upsample::{self, Upsample};
use crate::simd::Available;

/// xorshift64*: the same numbers on every run.
pub(crate) struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() >> 33) as usize % end
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

/// The levels above scalar. Says so on the terminal, even where the output of tests is captured, if there are none.
fn vector_levels() -> &'static [Available] {
    let levels = &Available::all()[1..];
    if levels.is_empty() {
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            let _ = writeln!(stderr(), "skipped: kernels with vectors, which this processor lacks");
        });
    }
    levels
}

/// Panics unless `make` gives the same at every level.
fn assert_same<T: PartialEq + Debug>(make: impl Fn(Available) -> T, case: impl Fn() -> String) {
    let scalar = make(Available::SCALAR);
    for &level in vector_levels() {
        assert_eq!(make(level), scalar, "{level:?}, {}", case());
    }
}

#[test]
fn transforms_agree_on_any_coefficients() {
    let mut numbers = Numbers(1);
    for round in 0..20_000 {
        let largest = [8, 200, 2000, 40_000][round % 4];
        let count = 1 + numbers.below(9);
        let mut quant = [0i16; 64];
        quant.fill_with(|| (1 + numbers.below(if round % 3 == 0 { 65_535 } else { 40 })) as i16);
        let (first, per_mcu) = (numbers.below(3), 1 + numbers.below(3));
        let row = BlockRow {
            from: numbers.below(count),
            to: count,
            first,
            per_mcu,
            stride: per_mcu + numbers.below(3),
        };
        let mut used = Vec::new();
        let blocks: Vec<[i16; 64]> = (0..first + count.div_ceil(per_mcu) * row.stride)
            .map(|_| {
                let kind = numbers.below(3);
                let end = 1 + numbers.below([1, 10, 64][kind.min(round % 5)]);
                used.push(end as u8);
                let mut block = [0; 64];
                for &position in &crate::jpeg::format::markers::ZIGZAG[..end] {
                    if numbers.below(3) > 0 {
                        block[position as usize] = (numbers.below(2 * largest) as i64 - largest as i64) as i16;
                    }
                }
                block
            })
            .collect();

        for size in [8, 4, 2, 1] {
            let transformed = |level| {
                let mut out = vec![0u8; 96 * 9];
                idct_scaled::block_row(level, size, &blocks, &used, row, &quant, &mut out, 96);
                let width = size * (row.to - row.from);
                out.chunks_exact(96)
                    .take(size)
                    .flat_map(|row| row[..width].to_vec())
                    .collect::<Vec<u8>>()
            };

            assert_same(transformed, || {
                format!("round {round}, size {size}: {row:?}, {blocks:?}, {quant:?}")
            });
        }
    }
}

#[test]
fn blocks_are_numbered_from_left_to_right() {
    for (from, to) in [(0, 9), (1, 8), (5, 5), (5, 6), (2, 7)] {
        for (per_mcu, stride) in [(1, 1), (1, 3), (2, 2), (2, 6), (4, 6)] {
            let row = BlockRow {
                from,
                to,
                first: 3,
                per_mcu,
                stride,
            };

            let numbers: Vec<usize> = row.indices().collect();

            assert_eq!(numbers, (from..to).map(|block| row.index(block)).collect::<Vec<_>>());
        }
    }
}

#[test]
fn reduced_transforms_give_averages() {
    let mut numbers = Numbers(2);
    for round in 0..2_000 {
        let mut block = [0i16; 64];
        for coefficient in block.iter_mut().take(1 + round % 64) {
            *coefficient = numbers.below(41) as i16 - 20;
        }
        let mut whole = [0u8; 64];
        idct::scalar::transform_block(&block, &[2; 64], &mut whole, 8);

        for size in [4, 2, 1] {
            let mut out = [0u8; 64];
            let row = BlockRow {
                from: 0,
                to: 1,
                first: 0,
                per_mcu: 1,
                stride: 1,
            };
            idct_scaled::block_row(Available::SCALAR, size, &[block], &[64], row, &[2; 64], &mut out, 8);

            let side = 8 / size;
            for (y, x) in (0..size).flat_map(|y| (0..size).map(move |x| (y, x))) {
                let pixels = (0..64).filter(|i| i / 8 / side == y && i % 8 / side == x);
                let mean = pixels.map(|i| f64::from(whole[i])).sum::<f64>() / (side * side) as f64;
                let found = f64::from(out[8 * y + x]);
                assert!(
                    (found - mean).abs() <= 1.0,
                    "round {round}, size {size}: {found} {mean}"
                );
            }
        }
    }
}

#[test]
fn flat_blocks_have_one_level() {
    let mut out = [0u8; 64];
    let mut block = [0i16; 64];
    block[0] = -13;

    idct::scalar::transform_block(&block, &[16; 64], &mut out, 8);

    assert_eq!(out, [128 - 26; 64]);
}

#[test]
fn colours_agree_on_every_triple() {
    const LENGTH: usize = 256 + color::SPARE;
    let (mut luma, mut blue) = ([0u8; LENGTH], [0u8; LENGTH]);
    for (i, (luma, blue)) in luma.iter_mut().zip(&mut blue).enumerate() {
        (*luma, *blue) = ((37 * i) as u8, i as u8);
    }
    for red in 0..=255u8 {
        for shift in 0..=255u8 {
            let shifted: Vec<u8> = luma.iter().map(|l| l.wrapping_add(shift)).collect();
            let sources = [&shifted[..], &blue[..], &[red; LENGTH][..]];

            let converted = |level| {
                let mut out = [0u8; 3 * 256];
                color::interleaved(level, Color::YCbCr, sources, 256, &mut out);
                out
            };

            assert_same(converted, || format!("cr {red}, luma shifted by {shift}"));
        }
    }
}

#[test]
fn planes_and_interleaved_rows_hold_the_same() {
    let mut numbers = Numbers(2);
    for width in 1..200 {
        for color in [Color::YCbCr, Color::Rgb] {
            let sources = [(); 3].map(|()| numbers.bytes(width + 64));
            let sources = sources.each_ref().map(Vec::as_slice);
            for &level in Available::all() {
                let mut row = vec![0u8; 3 * width];
                let mut planes = [(); 3].map(|()| vec![0u8; crate::rows::planar_row_len(width)]);

                color::interleaved(level, color, sources, width, &mut row);
                color::planar(level, color, sources, width, planes.each_mut().map(Vec::as_mut_slice));

                let expected: Vec<u8> = (0..width).flat_map(|x| [0, 1, 2].map(|c| planes[c][x])).collect();
                assert_eq!(row, expected, "{color:?}, width {width}, {level:?}");
            }
        }
    }
}

#[test]
fn upsampling_agrees() {
    let mut numbers = Numbers(3);
    for count in 1..200 {
        let (near, far) = (
            numbers.bytes(2 + count + upsample::SPARE),
            numbers.bytes(2 + count + upsample::SPARE),
        );
        for kind in [Upsample::H2V1, Upsample::H1V2, Upsample::H2V2] {
            for lower in [false, true] {
                let length = if kind == Upsample::H1V2 { count } else { 2 * count };

                let upsampled = |level| {
                    let mut out = vec![0u8; 2 * count + upsample::SPARE_OUT];
                    upsample::row(level, kind, &near, &far, lower, count, &mut out);
                    out.truncate(length);
                    out
                };

                assert_same(upsampled, || format!("{kind:?}, {count} samples"));
            }
        }
    }
}

/// Removes the stuffing byte by byte.
fn unstuff_plainly(source: &[u8]) -> (Vec<u8>, usize) {
    let (mut out, mut at) = (vec![], 0);
    while at < source.len() {
        if source[at] == 0xff {
            if source.get(at + 1) != Some(&0) {
                break;
            }
            at += 1;
        }
        out.push(if at > 0 && source[at] == 0 && source[at - 1] == 0xff {
            0xff
        } else {
            source[at]
        });
        at += 1;
    }
    (out, at)
}

#[test]
fn unstuffing_agrees_and_stops_at_markers() {
    let mut numbers = Numbers(4);
    for round in 0..3000 {
        let mut source = numbers.bytes(numbers.0 as usize % 300);
        for _ in 0..numbers.below(12) {
            if !source.is_empty() {
                let at = numbers.below(source.len());
                source[at] = 0xff;
                if at + 1 < source.len() {
                    source[at + 1] = 0;
                }
            }
        }
        for at in 0..source.len().saturating_sub(1) {
            if source[at] == 0xff && source[at + 1] == 0xff {
                source[at] = 1;
            }
        }
        let (expected, end) = unstuff_plainly(&source);

        for &level in Available::all() {
            let mut target = vec![0u8; source.len() + 64];
            let Unstuffed { read, written, ended } = unstuff::unstuff(level, &source, &mut target);

            assert!(ended, "round {round}");
            assert_eq!(
                (&target[..written], read),
                (&expected[..], end),
                "round {round}, {level:?}"
            );
        }
        assert_eq!(unstuff::find_marker(&source), end, "round {round}");

        let space = 64 + numbers.below(80);
        for &level in Available::all() {
            let found = unstuff_in_pieces(level, &source, space);
            assert_eq!(found, (expected.clone(), end), "round {round}, {level:?}");
        }
    }
}

/// Unstuffs with a target of `space` bytes, which is emptied and filled again.
fn unstuff_in_pieces(level: Available, source: &[u8], space: usize) -> (Vec<u8>, usize) {
    let (mut out, mut at, mut target) = (Vec::new(), 0, vec![0u8; space]);
    loop {
        let Unstuffed { read, written, ended } = unstuff::unstuff(level, &source[at..], &mut target);
        out.extend_from_slice(&target[..written]);
        at += read;
        if ended {
            return (out, at);
        }
        assert!(read > 0, "no progress at {at}");
    }
}

#[test]
fn fill_bytes_belong_to_the_marker_after_them() {
    let mut target = [0u8; 128];

    let with_marker = unstuff::unstuff(Available::SCALAR, &[1, 2, 0xff, 0xff, 0xff, 0xd9], &mut target);
    let with_none = unstuff::unstuff(Available::SCALAR, &[1, 2, 0xff, 0xff, 0, 3], &mut target);

    assert_eq!(
        with_marker,
        Unstuffed {
            read: 4,
            written: 2,
            ended: true
        }
    );
    assert_eq!(
        with_none,
        Unstuffed {
            read: 2,
            written: 2,
            ended: true
        }
    );
}
