//! Horizontal taps rearranged for kernels that fetch several pixels' taps at once.
//!
//! While an axis shrinks at most by two, the taps of four neighbouring outputs lie within eight values: one load and
//! one shuffle bring the first two taps of all four, the same shuffle two values further the next two.

use super::taps::{Axis, Filter, Taps};

/// Four neighbouring outputs.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// First value of the load.
    pub base: usize,
    /// Which bytes of eight 16-bit values are taps 0 and 1 of each output.
    pub shuffle: [u8; 16],
    /// Weights of taps 0 and 1 of each output, then of 2 and 3.
    pub weights: [[i16; 8]; 2],
}

/// Values that a kernel may read from a group's base on.
pub const GROUP_REACH: usize = 10;

/// The taps of a horizontal axis of a convex filter.
#[derive(Debug, Default)]
pub struct Horizontal {
    pub taps: Taps<i16>,
    /// Two groups for every eight outputs, if `taps.stride` is 4; else none.
    pub groups: Vec<Group>,
}

impl Horizontal {
    pub fn prepare(&mut self, filter: Filter, axis: Axis) {
        if self.taps.prepare(filter, axis) {
            let (starts, weights) = (self.taps.starts.as_chunks().0, self.taps.weights.as_chunks().0);
            self.groups.clear();
            if self.taps.stride == 4 {
                self.groups.extend(
                    starts
                        .iter()
                        .zip(weights)
                        .map(|(starts, weights)| group(starts, weights)),
                );
            }
        }
    }
}

fn group(starts: &[u32; 4], weights: &[i16; 16]) -> Group {
    let base = starts[0].min(starts[1]).min(starts[2]).min(starts[3]);
    let mut group = Group {
        base: base as usize,
        shuffle: [0; 16],
        weights: [[0; 8]; 2],
    };
    for (output, start) in starts.iter().enumerate() {
        for byte in 0..4 {
            group.shuffle[4 * output + byte] = 2 * (start - base) as u8 + byte as u8;
        }
        for tap in 0..4 {
            group.weights[tap / 2][2 * output + tap % 2] = weights[4 * output + tap];
        }
    }
    group
}
