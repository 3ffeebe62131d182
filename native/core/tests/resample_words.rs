//! Pictures of words from blocks of samples: luma and chroma before they become RGB.

use penstock_core::resample::{Axis, AxisOrder, Between, BlockGrid, Filter, Picture, Resampler, WORD_FRACTION};
use penstock_core::simd::Available;

const FILTERS: [Filter; 5] = [
    Filter::Box,
    Filter::Bilinear,
    Filter::Cv2Linear,
    Filter::Cv2Area,
    Filter::Cv2Nearest,
];

/// Numbers from a linear congruential generator.
struct Noise(u64);

impl Noise {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }

    /// A window of an axis with averages, of which there may be more before and after, and their number.
    fn axis(&mut self) -> (Axis, usize) {
        let source = 2 + self.below(300);
        let target = 1 + self.below(source);
        let start = self.below(target);
        let step = [1, 2, 4][self.below(3)];
        let neighbours = [self.below(2) == 1, self.below(2) == 1];
        let axis = Axis {
            start,
            len: 1 + self.below(target - start),
            step,
            phase: self.below(step),
            between: if step > 1 && self.below(3) > 0 {
                Between::Linear {
                    has_before: neighbours[0],
                    has_after: neighbours[1],
                }
            } else {
                Between::Constant
            },
            is_mirrored: self.below(3) == 0,
            ..Axis::whole(source, target)
        };
        let more = if axis.between == Between::Constant {
            0
        } else {
            neighbours.into_iter().map(usize::from).sum()
        };
        (axis, axis.averages() + more)
    }
}

/// A resize of two planes of samples in blocks, in strips of `strip` rows of blocks.
struct Case {
    filter: Filter,
    axes: [Axis; 2],
    order: AxisOrder,
    grid: BlockGrid,
    strip: usize,
    /// Samples across and down, from the origin on.
    size: [usize; 2],
    samples: Vec<u8>,
}

impl Case {
    fn new(noise: &mut Noise, filter: Filter) -> Self {
        let ((x, width), (y, height)) = (noise.axis(), noise.axis());
        let [x, y] = if x.is_identity() && y.is_identity() {
            [
                Axis {
                    target: 1,
                    start: 0,
                    len: 1,
                    ..x
                },
                y,
            ]
        } else {
            [x, y]
        };
        Case {
            filter,
            axes: [x, y],
            order: [AxisOrder::Stored, AxisOrder::Transposed][noise.below(2)],
            grid: BlockGrid {
                side: [1, 2, 4, 8][noise.below(4)],
                origin: [noise.below(50), noise.below(50)],
            },
            strip: 1 + noise.below(3),
            size: [width, height],
            samples: (0..2 * width * height).map(|_| noise.below(256) as u8).collect(),
        }
    }

    /// The sample at this place of the grid; noise where there is none.
    fn sample(&self, plane: usize, x: usize, y: usize) -> u8 {
        let [width, height] = self.size;
        let [left, top] = self.grid.origin;
        if x < left || y < top || x >= left + width || y >= top + height {
            return (31 * x + 17 * y) as u8;
        }
        self.samples[(plane * height + y - top) * width + x - left]
    }

    fn resize(&self, level: Available) -> Vec<i16> {
        let side = self.grid.side;
        let mut resampler = Resampler::with_level(level);
        let rows = self.strip * side;
        let needed = resampler.begin_words(self.filter, self.axes, self.order, 2, rows, self.grid);
        let needed = needed.expect("memory");
        let [left, top] = [self.grid.origin[0] + needed.x, self.grid.origin[1] + needed.y];
        let (right, bottom) = (left + needed.width, top + needed.height);
        for row in (top / rows * rows..bottom).step_by(rows) {
            for plane in 0..2 {
                for (y, x) in (row..row + rows)
                    .step_by(side)
                    .flat_map(|y| (left / side * side..right).step_by(side).map(move |x| (y, x)))
                {
                    let (out, pitch) = resampler.blocks_mut(plane, x, y);
                    for (i, j) in (0..side).flat_map(|i| (0..side).map(move |j| (i, j))) {
                        out[i * pitch + j] = self.sample(plane, x + j, y + i);
                    }
                }
            }
            resampler.done((row + rows).clamp(top, bottom) - top);
        }
        values(resampler.words())
    }

    /// A line of pixels of the full size, interpolated between averages.
    fn pixels(axis: Axis, averages: &[f64]) -> Vec<f64> {
        (0..axis.source)
            .map(|pixel| {
                let at = pixel + axis.phase;
                let Between::Linear { has_before, .. } = axis.between else {
                    return averages[at / axis.step];
                };
                let place = (at as f64 + 0.5) / axis.step as f64 - 0.5 + f64::from(u8::from(has_before));
                let at = |i: f64| averages[i.clamp(0.0, averages.len() as f64 - 1.0) as usize];
                at(place.floor()) * (1.0 - place + place.floor()) + at(place.floor() + 1.0) * (place - place.floor())
            })
            .collect()
    }

    /// The window of a line of pixels, resized by the triangle filter.
    fn narrow(axis: Axis, pixels: &[f64]) -> Vec<f64> {
        let scale = axis.source as f64 / axis.target as f64;
        (axis.start..axis.start + axis.len)
            .map(|i| {
                let centre = (i as f64 + 0.5) * scale;
                let weight = |p: usize| (1.0 - ((p as f64 + 0.5 - centre) / scale).abs()).max(0.0);
                let total: f64 = (0..pixels.len()).map(weight).sum();
                let sum: f64 = pixels.iter().enumerate().map(|(p, value)| weight(p) * value).sum();
                sum / total
            })
            .collect()
    }

    /// The result by the definition, in double precision.
    fn expected(&self) -> Vec<f64> {
        let ([width, height], [x, y]) = (self.size, self.axes);
        let mut all = vec![];
        for plane in self.samples.chunks_exact(width * height) {
            let lines: Vec<Vec<f64>> = plane
                .chunks_exact(width)
                .map(|line| line.iter().map(|v| f64::from(*v)).collect::<Vec<_>>())
                .map(|line| Self::narrow(x, &Self::pixels(x, &line)))
                .collect();
            let columns: Vec<Vec<f64>> = (0..x.len)
                .map(|i| lines.iter().map(|line| line[i]).collect::<Vec<_>>())
                .map(|column| Self::narrow(y, &Self::pixels(y, &column)))
                .collect();
            all.extend((0..y.len).flat_map(|j| columns.iter().map(move |column| column[j])));
        }
        all
    }
}

fn values(picture: &Picture<i16>) -> Vec<i16> {
    (0..picture.planes)
        .flat_map(|plane| (0..picture.height).map(move |y| (plane, y)))
        .flat_map(|(plane, y)| picture.row(plane, y).to_vec())
        .collect()
}

#[test]
fn levels_agree() {
    let mut noise = Noise(1);
    for round in 0..300 {
        for filter in FILTERS {
            let case = Case::new(&mut noise, filter);
            let scalar = case.resize(Available::SCALAR);
            for &level in Available::all() {
                assert!(
                    case.resize(level) == scalar,
                    "{level:?}, round {round}: {filter:?}, {:?}",
                    case.axes
                );
            }
        }
    }
}

#[test]
fn words_are_the_resize_of_interpolated_pixels() {
    let mut noise = Noise(2);
    for round in 0..300 {
        let case = Case::new(&mut noise, Filter::Bilinear);
        let expected = case.expected();

        let found = case.resize(Available::best());

        let one = f64::from(1 << WORD_FRACTION);
        let worst = found
            .iter()
            .zip(&expected)
            .map(|(found, expected)| (f64::from(*found) / one - expected).abs())
            .fold(0.0, f64::max);
        assert!(worst < 0.06, "round {round}: {worst}, {:?}", case.axes);
    }
}
