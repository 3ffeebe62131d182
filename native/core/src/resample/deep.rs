//! Resize of one channel of 16-bit samples, as Pillow resizes floats: weights and sums in double precision, the result of
//! each pass in single precision. The result is rounded to the nearest integer, half to even, and clipped.

use super::filter::{Axis, Filter};
use super::taps::Taps;
use super::weights::Weight;
use super::{AxisOrder, Mode, Needed};
use crate::error::Error;
use crate::memory::grow;

/// Weights whose sum is 1, up to rounding.
impl Weight for f64 {
    const NARROW: usize = 8;

    fn shift(_stretch: f64) -> u32 {
        0
    }

    fn quantise(weights: &[f64], total: f64, _shift: u32, out: &mut Vec<Self>) {
        out.extend(weights.iter().map(|w| w / total));
    }
}

/// Resizes one image after another. It keeps its memory.
#[derive(Debug, Default)]
pub struct DeepResampler {
    mode: Mode,
    x: Taps<f64>,
    y: Taps<f64>,
    /// After the first pass: all rows of the horizontal one, or a line of the vertical one.
    between: Vec<f32>,
    sums: Vec<f64>,
}

impl DeepResampler {
    /// Starts an image of one channel. Returns the part of it that is needed.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn begin(&mut self, filter: Filter, [x, y]: [Axis; 2]) -> Result<Needed, Error> {
        // Also where weights are not negative, the order is Pillow's.
        self.mode = Mode::choose(Filter::Lanczos, [x, y], AxisOrder::Stored);
        if self.mode == Mode::Copy {
            return Ok(Needed {
                x: x.start,
                y: y.start,
                width: x.len,
                height: y.len,
            });
        }
        self.x.prepare(filter, x)?;
        self.y.prepare(filter, y)?;
        let needed = Needed::by(&self.x, &self.y);
        let (width, between) = if self.mode == Mode::Lobed {
            (x.len, x.len.saturating_mul(needed.height))
        } else {
            (needed.width, needed.width)
        };
        grow(&mut self.between, between)?;
        grow(&mut self.sums, width)?;
        Ok(needed)
    }

    /// Frees buffers of more than `keep` values.
    pub fn shrink(&mut self, keep: usize) {
        if self.between.len() > keep {
            self.between = Vec::new();
        }
    }

    /// Resizes the needed part, of which `source` has rows of this width, to rows of `out_width`.
    pub fn resize(&mut self, source: &[u16], width: usize, out: &mut [u16], out_width: usize) {
        let rows = out.chunks_exact_mut(out_width).enumerate();
        match self.mode {
            Mode::Copy => out.copy_from_slice(source),
            Mode::Lobed => {
                let between = self.between.chunks_exact_mut(out_width);
                for (row, out) in source.chunks_exact(width).zip(between) {
                    for (i, out) in out.iter_mut().enumerate() {
                        *out = sum_across(&self.x, i, row);
                    }
                }
                let sums = &mut self.sums[..out_width];
                for (y, out) in rows {
                    sum_down(&self.y, y, &self.between, out_width, sums);
                    for (out, sum) in out.iter_mut().zip(&*sums) {
                        *out = to_sample(*sum as f32);
                    }
                }
            }
            _ => {
                let (line, sums) = (&mut self.between[..width], &mut self.sums[..width]);
                for (y, out) in rows {
                    sum_down(&self.y, y, source, width, sums);
                    for (to, sum) in line.iter_mut().zip(&*sums) {
                        *to = *sum as f32;
                    }
                    for (i, out) in out.iter_mut().enumerate() {
                        *out = to_sample(sum_across(&self.x, i, line));
                    }
                }
            }
        }
    }
}

/// Output pixel `i` of a line.
#[inline]
fn sum_across<T: Copy + Into<f64>>(taps: &Taps<f64>, i: usize, line: &[T]) -> f32 {
    let (start, weights) = taps_of(taps, i);
    let values = &line[start..][..weights.len()];
    values.iter().zip(weights).fold(0.0, |sum, (value, weight)| {
        let value: f64 = (*value).into();
        sum + value * weight
    }) as f32
}

/// The sums of output row `y`, column by column.
fn sum_down<T: Copy + Into<f64>>(taps: &Taps<f64>, y: usize, rows: &[T], width: usize, sums: &mut [f64]) {
    let (start, weights) = taps_of(taps, y);
    sums.fill(0.0);
    for (row, weight) in rows[start * width..].chunks_exact(width).zip(weights) {
        for (sum, value) in sums.iter_mut().zip(row) {
            let value: f64 = (*value).into();
            *sum += value * weight;
        }
    }
}

/// The first tap of pixel `i`, and its weights.
#[inline]
fn taps_of(taps: &Taps<f64>, i: usize) -> (usize, &[f64]) {
    let weights = &taps.weights[i * taps.stride..][..taps.counts[i] as usize];
    (taps.starts[i] as usize, weights)
}

fn to_sample(value: f32) -> u16 {
    value.round_ties_even() as u16
}
