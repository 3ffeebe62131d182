//! All levels give the same pixels, and nothing but the target is written.

use penstock_core::fill::Layout;
use penstock_core::pixels::adjust::{HsvShift, Step, adjust};
use penstock_core::pixels::blur::{gaussian, sharpen};
use penstock_core::pixels::mix::mix;
use penstock_core::pixels::warp::window::{Window, draw};
use penstock_core::pixels::warp::{Map, Sampling, SourceImage, warp};
use penstock_core::simd::Available;

const STEPS: [Step; 10] = [
    Step::Brightness(1.3),
    Step::Contrast(0.6),
    Step::Saturation(2.5),
    Step::Hue(77),
    Step::Gray,
    Step::Posterize(0xe0),
    Step::Solarize(99.5),
    Step::Invert,
    Step::AutoContrast,
    Step::Equalize,
];

/// Values from a linear congruential generator.
fn noise(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 56) as u8
        })
        .collect()
}

fn each_level<T>(make: impl Fn(Available) -> T) -> Vec<T> {
    Available::all().iter().map(|&level| make(level)).collect()
}

fn all_equal<T: PartialEq>(found: &[T]) -> bool {
    found.windows(2).all(|two| two[0] == two[1])
}

#[test]
fn levels_adjust_alike() {
    for pixels in [1, 31, 32, 33, 1023, 1024, 1025, 5000] {
        let image = noise(3 * pixels, pixels as u64);
        for count in 1..=STEPS.len() {
            for channels in [1, 3] {
                let found = each_level(|level| {
                    let mut out = vec![0; image.len()];
                    adjust(&image, channels, &STEPS[STEPS.len() - count..], &mut out, level);
                    out
                });

                assert!(all_equal(&found), "{pixels} pixels, {count} steps, {channels} channels");
            }
        }
    }
}

#[test]
fn levels_shift_every_colour_alike() {
    let shifts = [(0.0, 1.0, 1.0), (0.37, 0.6, 1.4), (-0.004, 3.0, 0.3), (0.999, 1.7, 0.0)];
    for (turns, saturation, value) in shifts {
        let shift = HsvShift::new(turns, saturation, value);
        for red in (0..=255).step_by(if turns == 0.0 { 1 } else { 5 }) {
            let colours: Vec<u8> = (0..=255)
                .flat_map(|green| (0..=255).flat_map(move |blue| [red, green, blue]))
                .collect();
            let found = each_level(|level| {
                let mut out = vec![0; colours.len()];
                adjust(&colours, 3, &[Step::ShiftHsv(shift)], &mut out, level);
                out
            });

            assert!(all_equal(&found), "{shift:?}, red {red}");
            assert!(turns != 0.0 || found[0] == colours, "{shift:?}, red {red}");
        }
    }
}

#[test]
fn gray_pictures_shift_as_gray_colours() {
    let levels: Vec<u8> = (0..=255).collect();
    let colours: Vec<u8> = levels.iter().flat_map(|&level| [level; 3]).collect();
    for value in [0.0, 0.6, 1.0, 1.37, 1e300] {
        let step = [Step::ShiftHsv(HsvShift::new(0.3, 1.5, value))];
        let (mut gray, mut colour) = (vec![0; 256], vec![0; 768]);
        adjust(&levels, 1, &step, &mut gray, Available::SCALAR);
        adjust(&colours, 3, &step, &mut colour, Available::SCALAR);

        assert!(
            gray.iter()
                .zip(colour.as_chunks().0)
                .all(|(&one, three)| [one; 3] == *three)
        );
    }
}

#[test]
fn levels_warp_alike() {
    let maps = [
        Map::Affine([0.9, -0.3, 4.0, 0.3, 0.9, -3.0]),
        Map::Affine([0.01, 0.0, 0.5, 0.0, 0.01, 0.5]),
        Map::Affine([f64::NAN; 6]),
        Map::Projective([1.0, 0.1, -2.0, 0.0, 1.0, 0.0, 0.01, -0.02]),
        Map::Projective([f64::INFINITY; 8]),
    ];
    for (width, height) in [(1, 1), (2, 3), (3, 2), (4, 4), (5, 70), (70, 61)] {
        let image = noise(3 * width * height, 7);
        let source = SourceImage {
            pixels: image.as_chunks::<3>().0,
            width,
            height,
        };
        for map in &maps {
            for sampling in [Sampling::Nearest, Sampling::Bilinear] {
                let found = each_level(|level| {
                    let mut out = vec![[0; 3]; width * height];
                    warp(source, map, sampling, [1, 2, 3], &mut out, level);
                    out
                });

                assert!(all_equal(&found), "{width} x {height}, {map:?}, {sampling:?}");
            }
        }
    }
}

#[test]
fn levels_draw_windows_alike() {
    let maps = [
        [0.9, -0.3, 4.0, 0.3, 0.9, -3.0],
        [1.7, 0.0, -9.5, 0.0, -1.2, 60.25],
        [-0.01, 0.0, 5.5, 0.0, 0.01, 0.5],
        [0.0, 1.0, 0.0, 1.0, 0.0, 0.0],
        [1e300, 0.0, 0.0, 0.0, -1e300, 0.0],
        [f64::NAN; 6],
        [f64::INFINITY; 6],
    ];
    for (width, height) in [(0, 0), (1, 1), (2, 3), (3, 2), (4, 4), (5, 70), (70, 61)] {
        let image = noise(3 * width * height, 7);
        let source = SourceImage {
            pixels: image.as_chunks::<3>().0,
            width,
            height,
        };
        for map in &maps {
            for columns in [1, 7, 8, 15, 16, 17, 33, 70] {
                for layout in [Layout::Hwc, Layout::Chw] {
                    let window = Window {
                        map: *map,
                        size: [columns, 11],
                        fill: [1, 2, 3],
                        shift: (columns > 8).then(|| HsvShift::new(0.1, 0.8, 1.2)),
                        layout,
                    };
                    let found = each_level(|level| {
                        let mut out = vec![0; 3 * columns * 11];
                        draw(source, &window, &mut out, level);
                        out
                    });

                    assert!(all_equal(&found), "{width} x {height}, {window:?}");
                }
            }
        }
    }
}

#[test]
fn levels_blur_alike() {
    for (width, height) in [(1, 1), (2, 9), (11, 3), (33, 17)] {
        for channels in [1, 3] {
            let (image, size) = (noise(width * height * channels, 9), [height, width, channels]);
            let found = each_level(|level| {
                let (mut blurred, mut sharpened) = (image.clone(), image.clone());
                gaussian(
                    &image,
                    size,
                    &[0.1, 0.2, 0.4, 0.2, 0.1],
                    &[0.25, 0.5, 0.25],
                    &mut blurred,
                    level,
                );
                sharpen(&image, size, 1.7, &mut sharpened, level);
                (blurred, sharpened)
            });

            assert!(all_equal(&found), "{width} x {height} x {channels}");
        }
    }
}

#[test]
fn levels_mix_alike_and_write_nothing_else() {
    for len in [5, 1 << 21] {
        let images: Vec<f32> = noise(3 * len, 4).iter().map(|level| f32::from(*level) / 3.0).collect();
        let found = each_level(|level| {
            let mut out = vec![-1.0; images.len() + 2];
            let end = images.len() + 1;
            mix(&images, 3, 0.3, 0.7, &mut out[1..end], level);
            out
        });

        assert!(all_equal(&found));
        assert!(found.iter().all(|out| [out[0], out[images.len() + 1]] == [-1.0; 2]));
    }
}
