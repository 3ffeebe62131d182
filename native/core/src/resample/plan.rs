//! What a device needs to know of a resize, so that it computes the same integers.

use super::taps::Reach;
use super::weights::Weight;
use super::{Axis, AxisOrder, Filter, Mode, Needed};

/// The passes of a resize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passes {
    /// No axis changes its size.
    None,
    /// Weights of up to 20 bits, all positive, the vertical pass first. Between the passes, values keep a fraction.
    ConvexDownFirst,
    /// The same with the horizontal pass first.
    ConvexAcrossFirst,
    /// Weights of 22 bits of both signs, the horizontal pass first. Values are clipped to 8 bits between the passes.
    LobedAcrossFirst,
    /// The same with the vertical pass first.
    LobedDownFirst,
}

/// One axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AxisPlan {
    /// Sizes and the wanted part.
    pub axis: Axis,
    /// Fractional bits of the weights.
    pub shift: u32,
    /// The most weights of one pixel.
    pub most: usize,
}

/// The plan of a resize. It needs at most the rows and columns that [`super::Resampler::begin`] returns, and those with
/// weights of zero at their ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizePlan {
    /// The filter of both axes.
    pub filter: Filter,
    /// Which passes there are.
    pub passes: Passes,
    /// The part of the source that is read.
    pub needed: Needed,
    /// Across and down.
    pub axes: [AxisPlan; 2],
    /// Fractional bits of the values between two convex passes.
    pub fraction: u32,
}

impl ResizePlan {
    /// The plan for these axes.
    pub fn new(filter: Filter, [x, y]: [Axis; 2], order: AxisOrder) -> Self {
        let filter = filter.of_axes(x, y);
        let passes = match Mode::choose(filter, [x, y], order) {
            Mode::Copy => Passes::None,
            Mode::Convex => Passes::ConvexDownFirst,
            Mode::ConvexHorizontalFirst => Passes::ConvexAcrossFirst,
            Mode::Lobed => Passes::LobedAcrossFirst,
            Mode::LobedVerticalFirst => Passes::LobedDownFirst,
        };
        let shift = |axis: Axis| {
            let stretch = filter.stretch(filter.scale(axis)) / axis.step as f64;
            if filter.is_convex() {
                <i16 as Weight>::shift(stretch)
            } else {
                <i32 as Weight>::shift(stretch)
            }
        };
        let reach = |axis: Axis| match passes {
            Passes::None => Reach {
                first: axis.start,
                len: axis.len,
                most: 1,
            },
            _ => Reach::of(filter, axis),
        };
        let (across, down) = (reach(x), reach(y));
        let fraction = match passes {
            Passes::ConvexDownFirst => 7.min(23 - shift(x)),
            Passes::ConvexAcrossFirst => 7.min(23 - shift(y)),
            _ => 0,
        };
        ResizePlan {
            filter,
            passes,
            needed: Needed {
                x: across.first,
                y: down.first,
                width: across.len,
                height: down.len,
            },
            axes: [(x, across), (y, down)].map(|(axis, reach)| AxisPlan {
                axis,
                shift: shift(axis),
                most: reach.most,
            }),
            fraction,
        }
    }
}
