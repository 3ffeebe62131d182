//! Levels, strips and windows do not change a pixel.

use penstock_core::resample::{Axis, AxisOrder, Filter, Resampler};
use penstock_core::simd::Available;

const FILTERS: [Filter; 7] = [
    Filter::Box,
    Filter::Bilinear,
    Filter::Bicubic,
    Filter::Lanczos,
    Filter::Cv2Linear,
    Filter::Cv2Area,
    Filter::Cv2Nearest,
];

/// Values from a linear congruential generator. Every other image is black and white only, which is the hardest case
/// for rounding and clipping.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn image(&mut self, pixels: usize) -> Vec<u8> {
        let extremes = self.below(2) == 0;
        (0..3 * pixels)
            .map(|_| {
                if extremes {
                    (self.next() & 1) as u8 * 255
                } else {
                    self.next() as u8
                }
            })
            .collect()
    }

    /// Mostly small, sometimes large.
    fn side(&mut self) -> usize {
        let most = [4, 40, 150, 500][self.below(4)];
        1 + self.below(most)
    }
}

/// All rows of all planes, one after another; source rows arrive in strips of up to `strip` rows.
fn resize(level: Available, image: &[u8], filter: Filter, x: Axis, y: Axis, strip: usize) -> Vec<u8> {
    resize_in_order(level, image, filter, [x, y], AxisOrder::Stored, strip)
}

fn resize_in_order(
    level: Available,
    image: &[u8],
    filter: Filter,
    [x, y]: [Axis; 2],
    order: AxisOrder,
    strip: usize,
) -> Vec<u8> {
    let mut resampler = Resampler::with_level(level);
    let needed = resampler.begin(filter, [x, y], order, 3, strip).expect("memory");
    let mut arrived = 0;
    while arrived < needed.height {
        let end = needed.height.min(arrived + strip);
        for row in arrived..end {
            for (plane, out) in resampler.rows_mut(row).into_iter().take(3).enumerate() {
                let start = (plane * y.averages() + needed.y + row) * x.averages() + needed.x;
                // Bytes beyond the width are arbitrary.
                out.fill(0xA5);
                out[..needed.width].copy_from_slice(&image[start..][..needed.width]);
            }
        }
        resampler.done(end);
        arrived = end;
    }
    let picture = resampler.picture();
    (0..3)
        .flat_map(|plane| (0..picture.height).map(move |y| (plane, y)))
        .flat_map(|(p, y)| picture.row(p, y).to_vec())
        .collect()
}

#[test]
fn levels_agree() {
    let mut noise = Noise(1);
    for round in 0..400 {
        let (x, y) = (
            Axis::whole(noise.side(), noise.side()),
            Axis::whole(noise.side(), noise.side()),
        );
        let image = noise.image(x.source * y.source);
        for filter in FILTERS {
            let scalar = resize(Available::SCALAR, &image, filter, x, y, 1);
            for &level in Available::all() {
                let found = resize(level, &image, filter, x, y, 1);

                assert!(found == scalar, "{level:?}, round {round}: {filter:?}, {x:?}, {y:?}");
            }
        }
    }
}

#[test]
fn strips_agree() {
    let mut noise = Noise(2);
    for round in 0..200 {
        let (x, y) = (
            Axis::whole(noise.side(), noise.side()),
            Axis::whole(noise.side(), noise.side()),
        );
        let image = noise.image(x.source * y.source);
        let strip = 2 + noise.below(32);
        for filter in FILTERS {
            let single = resize(Available::best(), &image, filter, x, y, 1);
            let strips = resize(Available::best(), &image, filter, x, y, strip);

            assert!(
                single == strips,
                "round {round}: {filter:?}, {x:?}, {y:?}, strips of {strip}"
            );
        }
    }
}

/// Three planes, mirrored and then transposed.
fn turn(planes: &[u8], [width, height]: [usize; 2], [mirrors_x, mirrors_y, transposes]: [bool; 3]) -> Vec<u8> {
    let [out_width, out_height] = if transposes { [height, width] } else { [width, height] };
    let mut turned = Vec::with_capacity(planes.len());
    for plane in planes.chunks_exact(width * height) {
        for y in 0..out_height {
            for x in 0..out_width {
                let (x, y) = if transposes { (y, x) } else { (x, y) };
                let x = if mirrors_x { width - 1 - x } else { x };
                let y = if mirrors_y { height - 1 - y } else { y };
                turned.push(plane[y * width + x]);
            }
        }
    }
    turned
}

#[test]
fn turned_sources_give_turned_pictures() {
    let mut noise = Noise(5);
    let window = |axis: Axis, noise: &mut Noise| {
        let start = noise.below(axis.target);
        let len = 1 + noise.below(axis.target - start);
        Axis { start, len, ..axis }
    };
    for round in 0..200 {
        let turns = [noise.below(2) == 1, noise.below(2) == 1, noise.below(2) == 1];
        let [mirrors_x, mirrors_y, transposes] = turns;
        let (x, y) = (
            Axis::whole(noise.side(), noise.side()),
            Axis::whole(noise.side(), noise.side()),
        );
        let [x, y] = [window(x, &mut noise), window(y, &mut noise)];
        let stored = noise.image(x.source * y.source);
        let picture = turn(&stored, [x.source, y.source], turns);
        let mirror = |axis: Axis, is_mirrored: bool| Axis {
            start: if is_mirrored {
                axis.target - axis.start - axis.len
            } else {
                axis.start
            },
            ..axis
        };
        let [across, down] = [mirror(x, mirrors_x), mirror(y, mirrors_y)];
        let [across, down] = if transposes { [down, across] } else { [across, down] };
        let order = if transposes {
            AxisOrder::Transposed
        } else {
            AxisOrder::Stored
        };
        let axes = [
            Axis {
                is_mirrored: mirrors_x,
                ..x
            },
            Axis {
                is_mirrored: mirrors_y,
                ..y
            },
        ];
        for filter in FILTERS {
            let expected = resize(Available::best(), &picture, filter, across, down, 4);
            for &level in Available::all() {
                let found = resize_in_order(level, &stored, filter, axes, order, 1 + round % 7);
                let found = turn(&found, [x.len, y.len], turns);

                assert!(
                    found == expected,
                    "{level:?}, round {round}: {filter:?}, {axes:?}, {turns:?}"
                );
            }
        }
    }
}

#[test]
fn windows_are_crops() {
    let mut noise = Noise(3);
    let window = |axis: Axis, noise: &mut Noise| {
        let start = noise.below(axis.target);
        Axis {
            start,
            len: 1 + noise.below(axis.target - start),
            ..axis
        }
    };
    for round in 0..300 {
        let whole = [
            Axis::whole(noise.side(), noise.side()),
            Axis::whole(noise.side(), noise.side()),
        ];
        let image = noise.image(whole[0].source * whole[1].source);
        let [x, y] = whole.map(|axis| window(axis, &mut noise));
        for filter in FILTERS {
            let full = resize(Available::best(), &image, filter, whole[0], whole[1], 1);
            let part = resize(Available::best(), &image, filter, x, y, 9);

            let rows = (0..3).flat_map(|plane| (y.start..y.start + y.len).map(move |row| plane * y.target + row));
            let crop: Vec<u8> = rows
                .flat_map(|row| &full[row * x.target + x.start..][..x.len])
                .copied()
                .collect();
            assert!(part == crop, "round {round}: {filter:?}, {x:?}, {y:?}");
        }
    }
}

#[test]
fn averages_stand_for_their_pixels() {
    let mut noise = Noise(4);
    let reduced = |noise: &mut Noise| {
        let target = 1 + noise.below(40);
        let step = [1, 2, 4, 8][noise.below(4)];
        let source = step * target + noise.below(300);
        Axis {
            step,
            phase: noise.below(step),
            ..Axis::whole(source, target)
        }
    };
    for round in 0..300 {
        let (x, y) = (reduced(&mut noise), reduced(&mut noise));
        let averages = noise.image(x.averages() * y.averages());
        let pixels: Vec<u8> = (0..3 * y.source * x.source)
            .map(|i| {
                let (plane, row, column) = (i / x.source / y.source, i / x.source % y.source, i % x.source);
                let row = plane * y.averages() + (row + y.phase) / y.step;
                averages[row * x.averages() + (column + x.phase) / x.step]
            })
            .collect();
        for filter in FILTERS {
            let found = resize(Available::best(), &averages, filter, x, y, 5);

            let (x, y) = (Axis::whole(x.source, x.target), Axis::whole(y.source, y.target));
            let expected = resize(Available::best(), &pixels, filter, x, y, 5);
            // Convex filters quantise their weights according to the averages.
            let most = u8::from(filter.is_convex());
            let difference = found.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).max();
            assert!(
                difference <= Some(most),
                "round {round}: {filter:?}, {x:?}, {y:?}: {difference:?}"
            );
        }
    }
}

#[test]
fn extreme_shrinking_stays_exact_on_flat_images() {
    for source in [4_000, 30_000, 65_500] {
        let image = vec![255; 3 * source];
        let (x, y) = (Axis::whole(source, 1), Axis::whole(1, 1));
        for filter in FILTERS {
            let pixels = resize(Available::best(), &image, filter, x, y, 1);

            assert_eq!(pixels, [255; 3], "{filter:?}, {source}");
        }
    }
}
