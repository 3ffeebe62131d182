//! Stored values of any type as floats of one line: `value * scale + offset`, or `(value - mean) / deviation`.
//!
//! A line is written channel by channel (planar), or with all channels in turn. The compiler makes a loop for each type
//! and conversion; those over one channel have no branch and no index.

use super::Conversion;

/// The bytes of a stored value, little-endian.
pub(super) trait StoredValue: Copy {
    /// The value.
    fn value(self) -> f32;
    /// A line of values.
    fn values(line: &[u8]) -> &[Self];
    /// A line of values to write.
    fn values_mut(line: &mut [u8]) -> &mut [Self];
}

macro_rules! stored_values {
    ($($nbytes:literal: $value:expr;)*) => {
        $(
            impl StoredValue for [u8; $nbytes] {
                #[inline]
                fn value(self) -> f32 {
                    #[allow(clippy::redundant_closure_call)] // a closure for each type
                    $value(self)
                }

                fn values(line: &[u8]) -> &[Self] {
                    line.as_chunks().0
                }

                fn values_mut(line: &mut [u8]) -> &mut [Self] {
                    line.as_chunks_mut().0
                }
            }
        )*
    };
}

stored_values! {
    1: |[byte]: [u8; 1]| f32::from(byte);
    2: |bytes| f32::from(u16::from_le_bytes(bytes));
    4: f32::from_le_bytes;
}

/// Which values of a line are converted: those of one channel, or all of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Channels {
    /// Values per pixel.
    pub(super) count: usize,
    /// The channel whose values are wanted; None for all, in turn.
    pub(super) only: Option<usize>,
}

/// Copies values.
pub(super) fn copy<V: StoredValue>(values: &[V], channels: Channels, out: &mut [V]) {
    match channels.only {
        Some(channel) if channels.count > 1 => {
            for (to, pixel) in out.iter_mut().zip(values.chunks_exact(channels.count)) {
                *to = pixel[channel];
            }
        }
        _ => out.copy_from_slice(&values[..out.len()]),
    }
}

/// Converts values to floats.
pub(super) fn convert<V: StoredValue>(values: &[V], channels: Channels, conversion: Conversion<'_>, out: &mut [f32]) {
    match conversion {
        Conversion::Keep => map(values, channels, [&[], &[]], out, |value, _, _| value),
        Conversion::Scale { scale, offset } => {
            map(values, channels, [scale, offset], out, |value, scale, offset| {
                value * scale + offset
            });
        }
        Conversion::Standardise { mean, deviation } => {
            map(values, channels, [mean, deviation], out, |value, mean, deviation| {
                (value - mean) / deviation
            });
        }
    }
}

/// Calls `f` with each value and two numbers of its channel, which are 0 where none are given.
#[inline]
fn map<V: StoredValue>(
    values: &[V],
    Channels { count, only }: Channels,
    [first, second]: [&[f32]; 2],
    out: &mut [f32],
    f: impl Fn(f32, f32, f32) -> f32,
) {
    let numbers = |channel: usize| {
        let of = |numbers: &[f32]| numbers.get(channel).copied().unwrap_or_default();
        (of(first), of(second))
    };
    match only {
        _ if count == 1 => {
            let (a, b) = numbers(0);
            for (to, value) in out.iter_mut().zip(values) {
                *to = f(value.value(), a, b);
            }
        }
        Some(channel) => {
            let (a, b) = numbers(channel);
            for (to, pixel) in out.iter_mut().zip(values.chunks_exact(count)) {
                *to = f(pixel[channel].value(), a, b);
            }
        }
        None => {
            for channel in 0..count {
                let (a, b) = numbers(channel);
                for (to, pixel) in out.chunks_exact_mut(count).zip(values.chunks_exact(count)) {
                    to[channel] = f(pixel[channel].value(), a, b);
                }
            }
        }
    }
}
