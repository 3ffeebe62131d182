//! From the weights of pixels to those of the averages that a source consists of.

use super::filter::{Axis, Between};
use super::weights::Weight;

/// Replaces `packed[from..]`, the weights of pixels from `start` on, by those of averages that stand for their pixels.
/// Returns the first average.
pub fn sum_averages<W: Weight>(packed: &mut Vec<W>, from: usize, start: usize, axis: Axis) -> usize {
    let Axis { step, phase, .. } = axis;
    if step == 1 {
        return start;
    }
    let (mut read, mut write) = (from, from);
    let mut end = from + step - (start + phase) % step;
    while read < packed.len() {
        end = end.min(packed.len());
        packed[write] = packed[read..end].iter().copied().sum();
        (read, write) = (end, write + 1);
        end += step;
    }
    packed.truncate(write);
    (start + phase) / step
}

/// Divides `exact`, the weights of pixels from `start` on, among the averages between which these pixels are
/// interpolated. Returns the first average. On a mirrored axis, weights are in the order of the mirrored source, before and
/// after; `exact` is left in the other order.
pub fn interpolate_averages(exact: &mut [f64], start: usize, axis: Axis, divided: &mut Vec<f64>) -> usize {
    let Between::Linear { has_before, has_after } = axis.between else {
        return start;
    };
    let start = if axis.is_mirrored {
        exact.reverse();
        axis.source - start - exact.len()
    } else {
        start
    };
    // Averages are counted from the one before the first that covers a pixel. A first and a last one may get no weight.
    let (last, covered) = (axis.averages(), (start + axis.phase) / axis.step);
    let (mut average, mut place) = (covered + 1, (start + axis.phase) % axis.step);
    divided.clear();
    divided.resize((place + exact.len() - 1) / axis.step + 3, 0.0);
    for weight in &*exact {
        let from_centre = (place as f64 + 0.5) / axis.step as f64 - 0.5;
        let is_before = from_centre < 0.0;
        let has_other = if is_before {
            average > 1 || has_before
        } else {
            average < last || has_after
        };
        let share = if has_other { weight * from_centre.abs() } else { 0.0 };
        let at = average - covered;
        divided[at] += weight - share;
        divided[if is_before { at - 1 } else { at + 1 }] += share;
        place += 1;
        if place == axis.step {
            (average, place) = (average + 1, 0);
        }
    }
    if !has_before && covered == 0 {
        // It is not there, and has no weight.
        divided.remove(0);
    }
    if axis.is_mirrored {
        divided.reverse();
    }
    (covered + usize::from(has_before)).saturating_sub(1)
}
