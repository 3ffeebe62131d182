//! Horizontal taps, arranged for kernels that load the taps of several pixels at once.
//!
//! While an axis does not shrink much, the first taps of four neighbouring outputs lie within 16 bytes. One load and
//! one shuffle then place the first two taps of all four side by side for one multiply-add; the same shuffle two values
//! further places the next two.

// Only kernels with shuffles read the groups, and only those with AVX-512 the windows.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

use super::filter::{Axis, Filter};
use super::taps::Taps;
use crate::error::Error;
use crate::memory::reserve;
use crate::simd::Available;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::simd::Level;

/// The place of a tap (0 or 1) of one of four outputs among their eight values, and among the eight weights of these:
/// side by side for AVX2, which sums neighbouring products. NEON multiplies halves of a vector one after the other, so all
/// first taps come before all second ones.
const fn place_of(output: usize, tap: usize) -> usize {
    if cfg!(target_arch = "aarch64") {
        4 * tap + output
    } else {
        2 * output + tap
    }
}

/// Values that a kernel may read from a group's base on, in addition to those of its taps.
pub const GROUP_SPARE: usize = 16;

/// Aligned data for vector loads: no load crosses a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct Aligned<T>(pub T);

/// Eight neighbouring outputs of a convex filter over 16-bit values, in two groups of four.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub struct ConvexGroup {
    /// First value of the first load of each group of four.
    pub bases: [usize; 2],
    /// Which bytes of eight values are taps 0 and 1 of each output.
    pub shuffle: [u8; 32],
    /// Weights of taps 0 and 1 of each output, then of taps 2 and 3.
    pub weights: [[i16; 16]; 2],
}

/// The horizontal taps of a convex filter.
#[derive(Debug, Default)]
pub struct ConvexTaps {
    pub taps: Taps<i16>,
    /// One for every eight outputs if `taps.stride` is 4, else empty.
    pub groups: Vec<ConvexGroup>,
    /// Otherwise, for every eight outputs and every eight taps: the weights of outputs `i` and `i + 4`.
    pub pairs: Vec<Aligned<[[i16; 16]; 4]>>,
    /// For kernels with AVX-512, instead of both, if neighbours lie close enough together.
    pub windows: Option<Windows>,
    /// Whether the above is made of `taps`.
    is_arranged: bool,
}

/// Values in a window.
pub const WINDOW: usize = 32;

/// Eight or sixteen neighbouring outputs of a convex filter. A permutation of [`WINDOW`] values places their taps side
/// by side: two pairs of taps of eight outputs, or one pair of sixteen. Each further step does the same with the next
/// pairs.
#[derive(Debug)]
pub struct Windows {
    /// Outputs per window, and the number of steps.
    pub outputs: usize,
    pub steps: usize,
    /// First value of each window.
    pub bases: Vec<usize>,
    /// The permutation of each window.
    pub places: Vec<Aligned<[i16; WINDOW]>>,
    /// The weights of each step.
    pub weights: Vec<Aligned<[i16; WINDOW]>>,
}

impl Windows {
    /// None if neighbours lie too far apart.
    fn from_taps(taps: &Taps<i16>) -> Result<Option<Self>, Error> {
        Ok(match Self::with_outputs::<16>(taps)? {
            Some(windows) => Some(windows),
            None => Self::with_outputs::<8>(taps)?,
        })
    }

    fn with_outputs<const OUTPUTS: usize>(taps: &Taps<i16>) -> Result<Option<Self>, Error> {
        let values = WINDOW / OUTPUTS;
        let Some(most) = taps.counts.iter().max().map(|most| *most as usize) else {
            return Ok(None);
        };
        let mut windows = Self {
            outputs: OUTPUTS,
            steps: most.div_ceil(values),
            bases: Vec::new(),
            places: Vec::new(),
            weights: Vec::new(),
        };
        let count = taps.starts.len().div_ceil(OUTPUTS);
        reserve(&mut windows.bases, count)?;
        reserve(&mut windows.places, count)?;
        let weights = taps.weights.chunks(OUTPUTS * taps.stride);
        for (starts, weights) in taps.starts.chunks(OUTPUTS).zip(weights) {
            let base = starts.iter().copied().min().unwrap_or(0);
            let mut offsets = [0; OUTPUTS];
            for (offset, start) in offsets.iter_mut().zip(starts) {
                *offset = (start - base) as usize;
                if *offset + values > WINDOW {
                    return Ok(None);
                }
            }
            // Value `i` of a window is tap `tap(i)` of output `output(i)`.
            let (output, tap) = (|i: usize| i / 2 % OUTPUTS, |i: usize| i / 2 / OUTPUTS * 2 + i % 2);
            windows.bases.push(base as usize);
            let place = |i: usize| (offsets[output(i)] + tap(i)) as i16;
            windows.places.push(Aligned(std::array::from_fn(place)));
            reserve(&mut windows.weights, windows.steps)?;
            for step in 0..windows.steps {
                let mut these = [0; WINDOW];
                for (i, weight) in these.iter_mut().enumerate().filter(|(i, _)| output(*i) < starts.len()) {
                    let tap = values * step + tap(i);
                    *weight = if tap < taps.stride {
                        weights[output(i) * taps.stride + tap]
                    } else {
                        0
                    };
                }
                windows.weights.push(Aligned(these));
            }
        }
        Ok(Some(windows))
    }
}

impl ConvexTaps {
    /// Computes and arranges the taps for kernels of `level`.
    pub fn prepare(&mut self, filter: Filter, axis: Axis, level: Available) -> Result<(), Error> {
        if self.taps.prepare(filter, axis)? || !self.is_arranged {
            self.is_arranged = false; // also after an error, or a panic, that leaves a part
            self.arrange(level)?;
            self.is_arranged = true;
        }
        Ok(())
    }

    fn arrange(&mut self, level: Available) -> Result<(), Error> {
        self.groups.clear();
        self.pairs.clear();
        self.windows = None;
        match level.level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                self.windows = Windows::from_taps(&self.taps)?;
                match self.windows {
                    Some(_) => Ok(()),
                    None => self.arrange_groups(),
                }
            }
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => self.arrange_groups(),
            // Rows of weights are read as they are.
            #[cfg(target_arch = "aarch64")]
            Level::Neon if self.taps.stride == 4 => self.arrange_groups(),
            _ => Ok(()),
        }
    }

    fn arrange_groups(&mut self) -> Result<(), Error> {
        let (starts, weights) = (self.taps.starts.as_chunks().0, self.taps.weights.as_chunks().0);
        let stride = self.taps.stride;
        if stride == 4 {
            reserve(&mut self.groups, starts.len())?;
            let groups = starts.iter().zip(weights);
            self.groups
                .extend(groups.map(|(starts, weights)| make_convex_group(starts, weights)));
            return Ok(());
        }
        reserve(&mut self.pairs, self.taps.weights.len() / 64)?;
        for eight in self.taps.weights.chunks_exact(8 * stride) {
            let taps = (0..stride).step_by(8);
            self.pairs.extend(taps.map(|tap| make_convex_pairs(eight, stride, tap)));
        }
        Ok(())
    }
}

/// The weights of eight taps, from `tap` on, of eight outputs with `stride` weights each.
fn make_convex_pairs(weights: &[i16], stride: usize, tap: usize) -> Aligned<[[i16; 16]; 4]> {
    let mut pairs = [[0; 16]; 4];
    for (i, pair) in pairs.iter_mut().enumerate() {
        pair[..8].copy_from_slice(&weights[i * stride + tap..][..8]);
        pair[8..].copy_from_slice(&weights[(i + 4) * stride + tap..][..8]);
    }
    Aligned(pairs)
}

fn make_convex_group(starts: &[u32; 8], weights: &[i16; 32]) -> ConvexGroup {
    let mut group = ConvexGroup {
        bases: [0; 2],
        shuffle: [0; 32],
        weights: [[0; 16]; 2],
    };
    for (four, starts) in starts.as_chunks::<4>().0.iter().enumerate() {
        let base = starts[0].min(starts[1]).min(starts[2]).min(starts[3]);
        group.bases[four] = base as usize;
        for (output, start) in starts.iter().enumerate() {
            for tap in 0..2 {
                let at = 8 * four + place_of(output, tap);
                for byte in 0..2 {
                    group.shuffle[2 * at + byte] = (2 * (start - base) as usize + 2 * tap + byte) as u8;
                }
                for pair in 0..2 {
                    group.weights[pair][at] = weights[16 * four + 4 * output + 2 * pair + tap];
                }
            }
        }
    }
    group
}

/// Number of bits in the lower part of a lobed weight.
pub const LOW_BITS: u32 = 11;

/// Eight neighbouring outputs of a lobed filter over bytes, in two groups of four.
#[derive(Clone, Copy, Debug)]
pub struct LobedGroup {
    /// First byte of the first load of each group of four.
    pub bases: [usize; 2],
    /// Which bytes of 16 are taps 0 and 1 of each output. 128 gives zero bytes between them, which widens them to 16
    /// bits.
    pub shuffle: [u8; 32],
}

/// The horizontal taps of a lobed filter.
#[derive(Debug, Default)]
pub struct LobedTaps {
    pub taps: Taps<i32>,
    /// A group for every eight outputs. Empty if neighbours lie too far apart.
    pub groups: Vec<LobedGroup>,
    /// Pairs of taps per output.
    pub pairs: usize,
    /// For each group and pair, the weights of the eight outputs in two parts: `high << LOW_BITS` and `low`.
    pub weights: Vec<[[i16; 16]; 2]>,
    /// Whether the above is made of `taps`.
    is_arranged: bool,
}

impl LobedTaps {
    pub fn prepare(&mut self, filter: Filter, axis: Axis) -> Result<(), Error> {
        if self.taps.prepare(filter, axis)? || !self.is_arranged {
            self.is_arranged = false;
            self.arrange()?;
            self.is_arranged = true;
        }
        Ok(())
    }

    fn arrange(&mut self) -> Result<(), Error> {
        let starts = self.taps.starts.as_chunks().0;
        self.groups.clear();
        reserve(&mut self.groups, starts.len())?;
        self.groups.extend(starts.iter().map_while(make_lobed_group));
        self.weights.clear();
        self.pairs = self
            .taps
            .counts
            .iter()
            .max()
            .map_or(0, |most| most.div_ceil(2) as usize);
        if self.groups.len() < starts.len() {
            self.groups.clear();
            return Ok(());
        }
        reserve(&mut self.weights, self.groups.len() * self.pairs)?;
        for weights in self.taps.weights.chunks_exact(8 * self.taps.stride) {
            for pair in 0..self.pairs {
                let mut parts = [[0; 16]; 2];
                for (output, weights) in weights.chunks_exact(self.taps.stride).enumerate() {
                    for tap in 0..2 {
                        let at = output / 4 * 8 + place_of(output % 4, tap);
                        let weight = weights[2 * pair + tap];
                        parts[0][at] = (weight >> LOW_BITS) as i16;
                        parts[1][at] = (weight & ((1 << LOW_BITS) - 1)) as i16;
                    }
                }
                self.weights.push(parts);
            }
        }
        Ok(())
    }
}

/// `None` if the outputs lie too far apart.
fn make_lobed_group(starts: &[u32; 8]) -> Option<LobedGroup> {
    let mut group = LobedGroup {
        bases: [0; 2],
        shuffle: [128; 32],
    };
    for (four, starts) in starts.as_chunks::<4>().0.iter().enumerate() {
        let base = starts[0].min(starts[1]).min(starts[2]).min(starts[3]);
        group.bases[four] = base as usize;
        for (output, start) in starts.iter().enumerate() {
            let first = u8::try_from(start - base).ok().filter(|first| *first <= 14)?;
            for tap in 0..2 {
                group.shuffle[16 * four + 2 * place_of(output, tap)] = first + tap as u8;
            }
        }
    }
    Some(group)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::resample::kernels;
    use crate::simd::Level;

    #[test]
    fn taps_are_arranged_again_after_a_panic_between_both() {
        let axis = Axis::whole(90, 64);
        for &level in Available::all() {
            let (mut expected, mut convex) = (ConvexTaps::default(), ConvexTaps::default());
            expected.prepare(Filter::Bilinear, axis, level).unwrap();
            convex.taps.prepare(Filter::Bilinear, axis).unwrap();

            convex.prepare(Filter::Bilinear, axis, level).unwrap();

            assert_eq!(format!("{convex:?}"), format!("{expected:?}"), "{level:?}");
        }
    }
    #[test]
    fn kernels_refuse_more_groups_than_there_are_outputs() {
        for &level in Available::all().iter().filter(|level| level.level() != Level::Scalar) {
            let (axis, mut convex) = (Axis::whole(64, 64), ConvexTaps::default());
            convex.prepare(Filter::Bilinear, axis, level).unwrap();
            convex.groups = vec![make_convex_group(&[0; 8], &[0; 32]); 9];
            if let Some(windows) = &mut convex.windows {
                windows.places.pop();
            }
            let (line, mut out) = ([0; 256], [0; 64]);

            let call = AssertUnwindSafe(|| kernels::horizontal_convex(level, &line, 256, &convex, 7, &mut out, 64, 1));

            assert!(catch_unwind(call).is_err(), "{level:?}");
        }
    }
}
