//! Fixed-point weights of taps.

/// A fixed-point weight.
pub trait Weight: Copy + Default + PartialEq + std::fmt::Debug + std::iter::Sum {
    /// Taps per pixel are padded to this number if they fit and those of neighbours lie close together, else to a
    /// multiple of 8.
    const NARROW: usize;
    /// Fractional bits of the weights of an axis whose filter is stretched by `stretch >= 1`.
    fn shift(stretch: f64) -> u32;
    /// Converts weights to fixed point so that they sum to 1. `total`: the sum of the given weights.
    fn quantise(weights: &[f64], total: f64, shift: u32, out: &mut Vec<Self>);
}

/// Weights of the convex filters: in [0, 1 << 14], with a sum of exactly `1 << shift`.
impl Weight for i16 {
    const NARROW: usize = 4;

    /// 14 bits, and one more each time the stretch doubles beyond 2 (the largest weight is at most `min(1, 2 /
    /// stretch)`), up to 20. The sum of the quantisation errors stays below 0.02 values up to a stretch of 256, and
    /// below 0.5 up to 2000.
    fn shift(stretch: f64) -> u32 {
        14 + ((stretch / 2.0).max(1.0) as u32).ilog2().min(6)
    }

    /// Rounds the running sum, so that no error accumulates and the total is exact.
    fn quantise(weights: &[f64], total: f64, shift: u32, out: &mut Vec<Self>) {
        let one = f64::from(1u32 << shift) / total;
        let (mut sum, mut before) = (0.0, 0i32);
        let (_, init) = weights.split_last().expect("an output pixel must have a tap");
        out.extend(init.iter().map(|w| {
            sum += w;
            let now = (sum * one + 0.5) as i32;
            (now - std::mem::replace(&mut before, now)) as i16
        }));
        out.push(((1 << shift) - before) as i16);
    }
}

/// Weights of the filters with negative lobes, as in Pillow: 22 bits, each rounded half away from zero.
impl Weight for i32 {
    const NARROW: usize = 8;

    fn shift(_stretch: f64) -> u32 {
        22
    }

    fn quantise(weights: &[f64], total: f64, shift: u32, out: &mut Vec<Self>) {
        let one = f64::from(1u32 << shift);
        out.extend(weights.iter().map(|w| {
            let w = w / total * one;
            (w + if w < 0.0 { -0.5 } else { 0.5 }) as i32
        }));
    }
}
