//! Adjustments of values: any number of steps in one pass over a picture. A step that needs statistics of the whole
//! picture takes a pass of its own.
//!
//! ```text
//!  interleaved ──> a block of planes ──> look-ups, saturation, hue, gray ──> interleaved
//!                                   └──> luma sum, histograms: input of the next contrast, ...
//! ```
//!
//! Steps that map each value independently are merged into one table per channel. The result of every step is rounded
//! to 8 bits, as if each step were applied to the whole picture.

pub use super::values::shift_hsv::HsvShift;
use super::values::{self, LookupTable, STEP, scalar::blend_value};
use crate::fill::lines;
use crate::simd::Available;

/// A step, with its name in `penstock.transforms`. Factors are finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Scales the distance from black.
    Brightness(f32),
    /// Scales the distance from the picture's mean luma.
    Contrast(f32),
    /// Scales the distance from each pixel's luma.
    Saturation(f32),
    /// Moves the hue by this many of Pillow's 256 steps.
    Hue(u8),
    /// Changes hue, saturation and value, with one rounding.
    ShiftHsv(HsvShift),
    /// Sets all channels to the luma.
    Gray,
    /// Keeps only these bits.
    Posterize(u8),
    /// Inverts values that are at least this.
    Solarize(f64),
    /// Inverts all values.
    Invert,
    /// Stretches each channel to the full range.
    AutoContrast,
    /// Flattens each channel's histogram.
    Equalize,
}

/// Pixels per block: all planes of a block stay in the first-level cache.
const BLOCK: usize = 1024;

#[derive(Clone, Copy, PartialEq)]
enum Statistic {
    Nothing,
    Luma,
    Limits,
    Counts,
}

enum Stage {
    Lookup(Box<[LookupTable; 3]>),
    Saturation(f32),
    Hue(u8),
    ShiftHsv(HsvShift),
    Gray,
}

struct Statistics {
    luma: u64,
    /// The smallest and the largest value of each channel.
    limits: [[u8; 2]; 3],
    /// Histograms. Four per channel are used in turn, so that equal neighbours do not wait for one another.
    counts: Box<[[[u32; 256]; 4]; 3]>,
}

/// Applies `steps` to a picture of one or three channels.
///
/// # Panics
/// If lengths differ or are not whole pixels.
pub fn adjust(image: &[u8], channels: usize, steps: &[Step], out: &mut [u8], level: Available) {
    assert!(image.len() == out.len() && (channels == 1 || channels == 3) && image.len().is_multiple_of(channels));
    let (mut stages, mut rest, mut fresh) = (Vec::new(), steps, true);
    loop {
        let ready = rest
            .iter()
            .position(|step| step.needed_statistic() != Statistic::Nothing)
            .unwrap_or(rest.len());
        for step in &rest[..ready] {
            push_stage(&mut stages, *step, channels);
        }
        let next = rest.get(ready);
        let wanted = next.map_or(Statistic::Nothing, |step| step.needed_statistic());
        let written = next.is_none() || !stages.is_empty();
        let statistics = Pass::new(channels, &stages, wanted, level).run(fresh.then_some(image), out, written);
        fresh &= !written;
        let Some(next) = next else { return };
        stages.clear();
        let tables = next.make_tables(&statistics, image.len() / channels, channels);
        stages.push(Stage::Lookup(Box::new(tables)));
        rest = &rest[ready + 1..];
    }
}

impl Step {
    fn needed_statistic(self) -> Statistic {
        match self {
            Self::Contrast(_) => Statistic::Luma,
            Self::AutoContrast => Statistic::Limits,
            Self::Equalize => Statistic::Counts,
            _ => Statistic::Nothing,
        }
    }

    /// The new value of a value, if the step maps each value independently.
    fn map_value(self, value: u8) -> Option<u8> {
        match self {
            Self::Brightness(factor) => Some(blend_value(0, value, factor)),
            Self::Posterize(bits) => Some(value & bits),
            Self::Solarize(threshold) if threshold <= f64::from(value) => Some(!value),
            Self::Solarize(_) => Some(value),
            Self::Invert => Some(!value),
            // Of a pixel that has this value in all channels.
            Self::ShiftHsv(shift) => Some(shift.map_gray(value)),
            _ => None,
        }
    }

    /// The tables of a step that needs statistics.
    fn make_tables(self, statistics: &Statistics, pixels: usize, channels: usize) -> [LookupTable; 3] {
        if let Self::Contrast(factor) = self {
            let mean = (statistics.luma as f64 / pixels as f64 + 0.5) as u8;
            return [std::array::from_fn(|level| blend_value(mean, level as u8, factor)); 3];
        }
        std::array::from_fn(|channel| {
            if channel >= channels {
                return identity_table();
            }
            if self == Self::AutoContrast {
                return stretch_table(statistics.limits[channel]);
            }
            let parts = &statistics.counts[channel];
            equalize_table(&std::array::from_fn(|level| {
                parts.iter().map(|part| u64::from(part[level])).sum()
            }))
        })
    }
}

fn identity_table() -> LookupTable {
    std::array::from_fn(|level| level as u8)
}

/// Maps each value to its rank, in steps of 1/255 of the pixels that do not have the largest value.
fn equalize_table(counts: &[u64; 256]) -> LookupTable {
    let brightest = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
    let step = (counts.iter().sum::<u64>() - counts[brightest]) / 255;
    if step == 0 {
        return identity_table();
    }
    let mut below = 0;
    counts.map(|count| {
        let rank = ((below + step / 2) / step).min(255) as u8;
        below += count;
        rank
    })
}

/// Maps the smallest value to 0 and the largest to 255. In double precision with two roundings, as Pillow does.
fn stretch_table([low, high]: [u8; 2]) -> LookupTable {
    if low >= high {
        return identity_table();
    }
    let scale = 255.0 / f64::from(high - low);
    let offset = -f64::from(low) * scale;
    std::array::from_fn(|level| (level as f64 * scale + offset) as u8)
}

/// Appends a step. Two tables in succession are merged. A gray picture has no saturation and no hue.
fn push_stage(stages: &mut Vec<Stage>, step: Step, channels: usize) {
    match step {
        Step::Saturation(factor) if channels == 3 => stages.push(Stage::Saturation(factor)),
        Step::Hue(turn) if channels == 3 => stages.push(Stage::Hue(turn)),
        Step::ShiftHsv(shift) if channels == 3 => stages.push(Stage::ShiftHsv(shift)),
        Step::Gray if channels == 3 => stages.push(Stage::Gray),
        _ if step.map_value(0).is_none() => {}
        _ => {
            if !matches!(stages.last(), Some(Stage::Lookup(_))) {
                stages.push(Stage::Lookup(Box::new([identity_table(); 3])));
            }
            if let Some(Stage::Lookup(tables)) = stages.last_mut() {
                for level in tables.iter_mut().flatten() {
                    *level = step.map_value(*level).unwrap_or(*level);
                }
            }
        }
    }
}

/// One pass over the picture.
struct Pass<'a> {
    channels: usize,
    stages: &'a [Stage],
    wanted: Statistic,
    level: Available,
    statistics: Statistics,
    planes: [[u8; BLOCK]; 3],
    luma: [u8; BLOCK],
}

impl<'a> Pass<'a> {
    fn new(channels: usize, stages: &'a [Stage], wanted: Statistic, level: Available) -> Self {
        // If all channels have the same table, they need not be separated.
        let alike = |stage: &Stage| matches!(stage, Stage::Lookup(t) if t[0] == t[1] && t[0] == t[2]);
        let flat = wanted == Statistic::Nothing && stages.iter().all(alike);
        Self {
            channels: if flat { 1 } else { channels },
            stages,
            wanted,
            level,
            statistics: Statistics {
                luma: 0,
                limits: [[u8::MAX, u8::MIN]; 3],
                counts: Box::new([[[0; 256]; 4]; 3]),
            },
            planes: [[0; BLOCK]; 3],
            luma: [0; BLOCK],
        }
    }

    /// Reads from `image`, or from `out` itself. Writes to `out` if `written`.
    fn run(mut self, image: Option<&[u8]>, out: &mut [u8], written: bool) -> Statistics {
        let bytes = BLOCK * self.channels;
        for (i, out) in out.chunks_mut(bytes).enumerate() {
            let count = out.len() / self.channels;
            let [r, g, b] = self.planes.each_mut().map(|plane| &mut plane[..count]);
            let line = image.map_or(&*out, |image| &image[i * bytes..][..out.len()]);
            if self.channels == 3 {
                lines::deinterleave(self.level, line, [r, g, b]);
            } else {
                r.copy_from_slice(line);
            }
            self.apply_stages(count.next_multiple_of(STEP));
            self.collect_statistics(count);
            if !written {
                continue;
            }
            let [r, g, b] = self.planes.each_ref().map(|plane| &plane[..count]);
            if self.channels == 3 {
                lines::interleave(self.level, [r, g, b], out);
            } else {
                out.copy_from_slice(r);
            }
        }
        self.statistics
    }

    /// Applies all stages to the first `count` values of each plane.
    fn apply_stages(&mut self, count: usize) {
        let luma = &mut self.luma[..count];
        let mut planes = self.planes.each_mut().map(|plane| &mut plane[..count]);
        for stage in self.stages {
            match stage {
                Stage::Lookup(tables) => {
                    for (plane, table) in planes.iter_mut().zip(tables.iter()).take(self.channels) {
                        values::lookup(self.level, plane, table);
                    }
                }
                Stage::Saturation(factor) => {
                    values::luma(self.level, planes.each_ref().map(|plane| &**plane), luma);
                    for plane in &mut planes {
                        values::blend(self.level, luma, plane, *factor);
                    }
                }
                Stage::Hue(turn) => values::rotate_hue(self.level, planes.each_mut().map(|plane| &mut **plane), *turn),
                Stage::ShiftHsv(shift) => {
                    let planes = planes.each_mut().map(|plane| &mut **plane);
                    values::shift_hsv::shift_hsv(self.level, planes, shift);
                }
                Stage::Gray => {
                    values::luma(self.level, planes.each_ref().map(|plane| &**plane), luma);
                    for plane in &mut planes {
                        plane.copy_from_slice(luma);
                    }
                }
            }
        }
    }

    fn collect_statistics(&mut self, count: usize) {
        match self.wanted {
            Statistic::Nothing => {}
            Statistic::Luma => {
                let mut luma = &self.planes[0][..count];
                if self.channels == 3 {
                    let padded = count.next_multiple_of(STEP);
                    let planes = self.planes.each_ref().map(|plane| &plane[..padded]);
                    values::luma(self.level, planes, &mut self.luma[..padded]);
                    luma = &self.luma[..count];
                }
                self.statistics.luma += luma.iter().map(|level| u64::from(*level)).sum::<u64>();
            }
            Statistic::Limits => {
                for (plane, [least, most]) in self.planes.iter().zip(&mut self.statistics.limits) {
                    *least = plane[..count].iter().fold(*least, |least, level| least.min(*level));
                    *most = plane[..count].iter().fold(*most, |most, level| most.max(*level));
                }
            }
            Statistic::Counts => {
                for (plane, counts) in self.planes[..self.channels]
                    .iter()
                    .zip(self.statistics.counts.iter_mut())
                {
                    for (i, level) in plane[..count].iter().enumerate() {
                        counts[i % 4][usize::from(*level)] += 1;
                    }
                }
            }
        }
    }
}
