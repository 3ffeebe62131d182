//! Rows from stored pixels equal a loop over pixels, at every level.

use penstock_core::fill::lines::{bfloat_bits, half_bits};
use penstock_core::fill::{Conversion, Layout, StoredFiller, StoredImage, StoredRow, StoredWindow, ValueType};
use penstock_core::simd::Available;

const VALUES: [ValueType; 3] = [ValueType::U8, ValueType::U16, ValueType::F32];
const NUMBERS: [f32; 5] = [0.0171, -3.25, 1.0 / 255.0, 7.5, 0.3];
const OTHERS: [f32; 5] = [-2.1179, 0.5, 6.0e-5, 1.0, 3.0];

fn values(value: ValueType, count: usize) -> Vec<u8> {
    let number = |i: usize| (i as u32).wrapping_mul(2654435761) >> 16;
    (0..count)
        .flat_map(|i| match value {
            ValueType::U8 => vec![number(i) as u8],
            ValueType::U16 => (number(i) as u16).to_le_bytes().to_vec(),
            ValueType::F32 => (number(i) as f32 * 0.37 - 900.0).to_le_bytes().to_vec(),
        })
        .collect()
}

fn load(bytes: &[u8], value: ValueType, i: usize) -> f32 {
    match value {
        ValueType::U8 => f32::from(bytes[i]),
        ValueType::U16 => f32::from(u16::from_le_bytes(bytes[2 * i..][..2].try_into().unwrap())),
        ValueType::F32 => f32::from_le_bytes(bytes[4 * i..][..4].try_into().unwrap()),
    }
}

/// For each element of the row: its channel, and the value of the image that it shows; None outside the image.
fn elements(image: &StoredImage<'_>, window: &StoredWindow, layout: Layout) -> Vec<(usize, Option<usize>)> {
    let (w, h, c) = (window.width, window.height, image.channels);
    (0..w * h * c)
        .map(|i| {
            let (x, y, channel) = match layout {
                Layout::Hwc => (i / c % w, i / c / w, i % c),
                Layout::Chw => (i % w, i / w % h, i / w / h),
            };
            let x = window.x + if window.flip_x { w - 1 - x } else { x } as i64;
            let y = window.y + if window.flip_y { h - 1 - y } else { y } as i64;
            let inside = (0..image.width as i64).contains(&x) && (0..image.height as i64).contains(&y);
            let place = inside.then(|| (y as usize * image.width + x as usize) * c + channel);
            (channel, place)
        })
        .collect()
}

fn check(image: StoredImage<'_>, window: StoredWindow, layout: Layout) {
    let count = window.width * window.height * image.channels;
    let elements = elements(&image, &window, layout);
    let (first, second) = (&NUMBERS[..image.channels], &OTHERS[..image.channels]);
    let deviations: Vec<f32> = second.iter().map(|x| x + 3.0).collect();
    let conversions = [
        Conversion::Scale {
            scale: first,
            offset: second,
        },
        Conversion::Standardise {
            mean: first,
            deviation: &deviations,
        },
        Conversion::Keep,
    ];
    let nbytes = image.value.nbytes();
    for &level in Available::all() {
        let mut filler = StoredFiller::with_level(level);
        let mut same = vec![9; count * nbytes];
        filler.fill(image, window, layout, Conversion::Keep, &mut StoredRow::Same(&mut same));
        for ((_, place), got) in elements.iter().zip(same.chunks(nbytes)) {
            let want = place.map_or(&[0; 4][..nbytes], |place| &image.bytes[place * nbytes..][..nbytes]);
            assert_eq!(got, want, "{level:?} {layout:?} {window:?}");
        }
        for conversion in conversions {
            let (mut floats, mut halves, mut bfloats) = (vec![9.0; count], vec![9; count], vec![9; count]);
            filler.fill(image, window, layout, conversion, &mut StoredRow::F32(&mut floats));
            filler.fill(image, window, layout, conversion, &mut StoredRow::F16(&mut halves));
            filler.fill(image, window, layout, conversion, &mut StoredRow::Bf16(&mut bfloats));
            for (i, (channel, place)) in elements.iter().enumerate() {
                let value = place.map_or(0.0, |place| load(image.bytes, image.value, place));
                let want = match conversion {
                    Conversion::Keep => value,
                    Conversion::Scale { scale, offset } => value * scale[*channel] + offset[*channel],
                    Conversion::Standardise { mean, deviation } => (value - mean[*channel]) / deviation[*channel],
                };
                assert_eq!(
                    floats[i].to_bits(),
                    want.to_bits(),
                    "{level:?} {layout:?} {window:?} {conversion:?} at {i}"
                );
                assert_eq!(
                    halves[i],
                    half_bits(want),
                    "{level:?} {layout:?} {window:?} {conversion:?} at {i}"
                );
                assert_eq!(
                    bfloats[i],
                    bfloat_bits(want),
                    "{level:?} {layout:?} {window:?} {conversion:?} at {i}"
                );
            }
        }
    }
}

#[test]
fn rows_equal_a_loop_over_pixels() {
    for value in VALUES {
        for channels in 1..=5 {
            for [width, height] in [[1, 1], [12, 12], [23, 7], [5, 31]] {
                let bytes = values(value, width * height * channels);
                let image = StoredImage {
                    bytes: &bytes,
                    value,
                    width,
                    height,
                    channels,
                };
                for flips in 0..4 {
                    for [x, y, w, h] in [
                        [0, 0, width as i64, height as i64],
                        [0, 1, width as i64, 1],
                        [1, 2, 3, 4],
                        [-2, -1, width as i64 + 3, height as i64 + 2],
                        [width as i64 - 1, -1, 4, 3],
                        [-40, 2, 3, 3],
                        [0, i64::from(i32::MAX), 2, 2],
                    ] {
                        let window = StoredWindow {
                            x,
                            y,
                            width: w as usize,
                            height: h as usize,
                            flip_x: flips & 1 != 0,
                            flip_y: flips & 2 != 0,
                        };
                        for layout in [Layout::Hwc, Layout::Chw] {
                            check(image, window, layout);
                        }
                    }
                }
            }
        }
    }
}
