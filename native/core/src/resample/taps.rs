//! Taps: which source pixels contribute to an output pixel, and with which weights. The computation is Pillow's
//! `precompute_coeffs` (`libImaging/Resample.c`, by A. Murtazin after F. Lundh), in double precision and with its
//! rounding, or for OpenCV's filters that of `cv::resize` (`imgproc/src/resize.cpp`), followed by quantisation.
//!
//! Weights and shifts depend only on the *whole* axis. The window only selects which outputs are computed, so that a
//! window of a resize equals the resize, cropped.
//!
//! The source may consist of averages of `step` pixels. An average stands for each of its pixels, so its weight is the
//! sum of their weights: the result is that of resizing the full-size source with every pixel replaced by its average.
//!
//! ```text
//!  pixels     · | 0  1  2 | 3  4  5 | 6  7      source = 8, phase = 1, step = 3: the first average begins one
//!  averages       0         1         2         pixel before the source
//! ```
//!
//! Or each pixel is interpolated between two averages ([`Between::Linear`]). Then its weight is divided among these.

use super::averages::{interpolate_averages, sum_averages};
use super::filter::{Axis, Between, Filter};
use super::weights::Weight;
use crate::error::Error;
use crate::memory::reserve;

/// The taps of all wanted pixels of an axis.
///
/// `starts` and `weights` are padded with zero weights to a multiple of 8 pixels, and the weights of each pixel to
/// `stride`, so that kernels need no tails. A kernel may read [`Taps::reach`] source pixels.
#[derive(Clone, Debug, Default)]
pub struct Taps<W> {
    made_for: Option<(Filter, Axis)>,
    /// First source pixel with a weight for any wanted pixel.
    pub first: usize,
    /// Number of source pixels from `first` to the last with a weight.
    pub len: usize,
    /// Per pixel: the first tap, counted from `first`.
    pub starts: Vec<u32>,
    /// Per pixel: the number of taps.
    pub counts: Vec<u32>,
    /// Per pixel: `stride` weights.
    pub weights: Vec<W>,
    /// Weights per pixel, a multiple of 4.
    pub stride: usize,
    /// Fractional bits of the weights.
    pub shift: u32,
    /// The largest number of source rows that must be kept at once, if each output is computed as soon as its last row
    /// is complete.
    pub held_rows: usize,
}

impl<W: Weight> Taps<W> {
    /// Computes the taps. Returns false if they are those of the last call.
    pub fn prepare(&mut self, filter: Filter, axis: Axis) -> Result<bool, Error> {
        if self.made_for == Some((filter, axis)) {
            return Ok(false);
        }
        self.made_for = None;
        let scale = filter.scale(axis);
        let stretch = filter.stretch(scale);
        self.shift = W::shift(stretch / axis.step as f64);
        self.starts.clear();
        self.counts.clear();
        let most = (2.0 * filter.support() * stretch) as usize + 2;
        let (mut exact, mut divided, mut packed) = (Vec::new(), Vec::new(), Vec::new());
        reserve(&mut divided, most + 2)?;
        reserve(&mut self.starts, axis.len.next_multiple_of(8))?;
        reserve(&mut self.counts, axis.len)?;
        reserve(&mut exact, most)?;
        reserve(&mut packed, (most + 2) * axis.len)?;
        for output in axis.start..axis.start + axis.len {
            // The taps of a mirrored axis are those of the mirrored source, from its end to its start.
            let output = if axis.is_mirrored {
                axis.target - 1 - output
            } else {
                output
            };
            let mut start = weigh(filter, axis, scale, output, &mut exact);
            let from = packed.len();
            let weights = match axis.between {
                Between::Constant => &exact,
                Between::Linear { .. } => {
                    start = interpolate_averages(&mut exact, start, axis, &mut divided);
                    &divided
                }
            };
            W::quantise(weights, weights.iter().sum(), self.shift, &mut packed);
            if axis.is_mirrored {
                packed[from..].reverse();
            }
            if axis.between == Between::Constant {
                start = if axis.is_mirrored {
                    axis.source - start - exact.len()
                } else {
                    start
                };
                start = sum_averages(&mut packed, from, start, axis);
            }
            let skipped = trim_zeros(&mut packed, from);
            self.starts.push((start + skipped) as u32);
            self.counts.push((packed.len() - from) as u32);
        }
        self.pad_weights(&packed)?;
        self.made_for = Some((filter, axis));
        Ok(true)
    }

    /// Pads the packed weights to `stride` each and makes the starts relative to `first`.
    fn pad_weights(&mut self, packed: &[W]) -> Result<(), Error> {
        let most = self.counts.iter().copied().max().unwrap_or(1) as usize;
        self.stride = if most <= W::NARROW && self.is_near() {
            W::NARROW
        } else {
            most.next_multiple_of(8)
        };
        self.first = self.starts.iter().copied().min().unwrap_or(0) as usize;
        self.len = (0..self.counts.len()).map(|i| self.end(i)).max().unwrap_or(0) - self.first;
        let padded = self.starts.len().next_multiple_of(8);
        self.weights.clear();
        reserve(&mut self.weights, padded * self.stride)?;
        self.weights.resize(padded * self.stride, W::default());
        let mut rest = packed;
        for (out, &count) in self.weights.chunks_exact_mut(self.stride).zip(&self.counts) {
            let (these, others) = rest.split_at(count as usize);
            out[..these.len()].copy_from_slice(these);
            rest = others;
        }
        for start in &mut self.starts {
            *start -= self.first as u32;
        }
        self.held_rows = self.count_held_rows()?;
        // Padding repeats the last start: groups of neighbours stay close together.
        self.starts.resize(padded, self.starts.last().copied().unwrap_or(0));
        Ok(())
    }

    /// Whether the first taps of every four neighbours lie within seven values.
    fn is_near(&self) -> bool {
        self.starts.chunks(4).all(|four| {
            let (least, most) = four
                .iter()
                .fold((u32::MAX, 0), |(least, most), s| (least.min(*s), most.max(*s)));
            most - least <= 6
        })
    }

    /// One past the last tap of pixel `i`.
    pub fn end(&self, i: usize) -> usize {
        (self.starts[i] + self.counts[i]) as usize
    }

    /// The weights of pixel `i`, padded with zeros to an even number.
    pub fn pairs(&self, i: usize) -> &[W] {
        &self.weights[i * self.stride..][..(self.counts[i] as usize).next_multiple_of(2)]
    }

    /// The number of source pixels from `first` on that a kernel may read (some with weight zero).
    pub fn reach(&self) -> usize {
        self.len + self.stride
    }

    /// The [`pairs`](Self::pairs) of output row `i`, if it exists and row `y` is the last one that it needs.
    pub fn complete(&self, i: usize, y: usize) -> Option<&[W]> {
        (i < self.counts.len() && self.end(i) <= y + 1).then(|| self.pairs(i))
    }

    /// Computes [`held_rows`](Self::held_rows). Starts need not ascend, because weights of zero are trimmed.
    fn count_held_rows(&self) -> Result<usize, Error> {
        let mut newest = Vec::new();
        reserve(&mut newest, self.counts.len())?;
        newest.extend((0..self.counts.len()).scan(0, |newest, i| {
            *newest = self.end(i).max(*newest);
            Some(*newest)
        }));
        let (mut held, mut oldest) = (1, usize::MAX);
        for (newest, start) in newest.iter().zip(&self.starts).rev() {
            oldest = oldest.min(*start as usize);
            held = held.max(newest - oldest);
        }
        Ok(held)
    }
}

/// The source pixels (averages, if it consists of these) that may have a weight for a wanted pixel, and the most weights
/// of one. At least those of [`Taps`], which have no weights of zero at their ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The first.
    pub first: usize,
    /// How many.
    pub len: usize,
    /// The most weights of one wanted pixel.
    pub most: usize,
}

impl Reach {
    /// The reach of a filter. It takes the time of two pixels' weights.
    pub fn of(filter: Filter, axis: Axis) -> Self {
        let scale = filter.scale(axis);
        let mut exact = Vec::new();
        let mut ends = [axis.start, axis.start + axis.len - 1].map(|output| {
            let output = if axis.is_mirrored {
                axis.target - 1 - output
            } else {
                output
            };
            let start = weigh(filter, axis, scale, output, &mut exact);
            let start = if axis.is_mirrored {
                axis.source - start - exact.len()
            } else {
                start
            };
            let average = |pixel: usize| (pixel + axis.phase) / axis.step;
            (average(start), average(start + exact.len() - 1) + 1)
        });
        ends.sort_unstable();
        let [(first, _), (_, end)] = ends;
        let pixels = (2.0 * filter.support() * filter.stretch(scale)) as usize + 2;
        Reach {
            first,
            len: end - first,
            most: (pixels / axis.step + 2).min(axis.averages()),
        }
    }
}

/// The weights of one output pixel, not normalised. Returns its first tap.
fn weigh(filter: Filter, axis: Axis, scale: f64, output: usize, weights: &mut Vec<f64>) -> usize {
    match filter {
        Filter::Cv2Linear | Filter::Cv2AreaLinear | Filter::Cv2Nearest => {
            weigh_two(filter, axis, scale, output, weights)
        }
        Filter::Cv2Area => weigh_area(axis, scale, output, weights),
        _ => compute_weights(filter, axis, scale, filter.stretch(scale), output, weights),
    }
}

/// Computes the weights of one output pixel, not normalised. Returns its first tap.
fn compute_weights(
    filter: Filter,
    axis: Axis,
    scale: f64,
    stretch: f64,
    output: usize,
    weights: &mut Vec<f64>,
) -> usize {
    let support = filter.support() * stretch;
    let center = (output as f64 + 0.5) * scale;
    // `as` truncates towards zero and saturates, like C's cast for values in range. The bounds hold for any size;
    // without them rounding could leave no tap.
    let start = ((center - support + 0.5) as usize).min(axis.source - 1);
    let end = ((center + support + 0.5) as usize).clamp(start + 1, axis.source);
    let narrow = 1.0 / stretch;
    weights.clear();
    weights.extend((start..end).map(|tap| filter.weight((tap as f64 - center + 0.5) * narrow)));
    start
}

/// The weights of one output pixel of OpenCV's filters of two pixels, or of one. Returns its first tap.
fn weigh_two(filter: Filter, axis: Axis, scale: f64, output: usize, weights: &mut Vec<f64>) -> usize {
    const ONE: f64 = 2048.0;
    let (first, share) = match filter {
        Filter::Cv2Linear => {
            let x = ((output as f64 + 0.5) * scale - 0.5) as f32;
            (f64::from(x.floor()), f64::from(x - x.floor()))
        }
        Filter::Cv2AreaLinear => {
            let first = (output as f64 * scale).floor();
            let inverse = axis.target as f64 / axis.source as f64;
            let share = (output as f64 + 1.0 - (first + 1.0) * inverse) as f32;
            (first, if share > 0.0 { f64::from(share.fract()) } else { 0.0 })
        }
        _ => ((output as f64 * scale).floor(), 0.0),
    };
    weights.clear();
    let last = axis.source - 1;
    if first < 0.0 || first as usize >= last {
        weights.push(1.0);
        return (first.max(0.0) as usize).min(last);
    }
    let second = (share * ONE).round_ties_even() / ONE;
    weights.extend([1.0 - second, second]);
    first as usize
}

/// The weights of one output pixel of OpenCV's area filter where the axis shrinks: what it covers of each source pixel,
/// without slivers below a thousandth. Returns its first tap.
fn weigh_area(axis: Axis, scale: f64, output: usize, weights: &mut Vec<f64>) -> usize {
    const SLIVER: f64 = 1e-3;
    let low = output as f64 * scale;
    let high = (low + scale).min(axis.source as f64);
    let start = (low as usize).min(axis.source - 1);
    let end = (high.ceil() as usize).clamp(start + 1, axis.source);
    weights.clear();
    weights.extend((start..end).map(|tap| {
        let covered = high.min(tap as f64 + 1.0) - low.max(tap as f64);
        if covered > SLIVER { covered } else { 0.0 }
    }));
    start
}

/// Drops zero weights at both ends of `packed[from..]` but keeps at least one. Returns how many were dropped at the
/// front.
fn trim_zeros<W: Weight>(packed: &mut Vec<W>, from: usize) -> usize {
    while packed.len() > from + 1 && packed[packed.len() - 1] == W::default() {
        packed.pop();
    }
    let zeros = packed[from..packed.len() - 1]
        .iter()
        .take_while(|w| **w == W::default())
        .count();
    if zeros > 0 {
        packed.drain(from..from + zeros);
    }
    zeros
}
