//! A change of hue, saturation and value, in single precision and with one rounding at the end.
//!
//! ```text
//!  value      largest channel * value, at most 255
//!  chroma     value * saturation, at most the value
//!  channel    value - chroma + chroma * its share at the hue: that of red is |hue - 3| - 1 within [0, 1], of 6 sixths
//! ```

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

use crate::simd::{Available, dispatch};

/// A change of colours in the hexagonal HSV model. All numbers are finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HsvShift {
    /// Sixths of the colour circle that are added to hues of -1.0..=5.0: from 1 to 7, so that none becomes negative.
    sixths: f32,
    /// Factor of saturation, at least 0.
    saturation: f32,
    /// Factor of value, at least 0.
    value: f32,
}

impl HsvShift {
    /// Adds turns of the colour circle to the hue, and scales saturation and value by factors of at least 0.
    #[must_use]
    pub fn new(turns: f64, saturation: f64, value: f64) -> Self {
        let sixths = 6.0 * turns.rem_euclid(1.0);
        Self {
            sixths: if sixths < 1.0 { sixths + 6.0 } else { sixths } as f32,
            saturation: saturation.clamp(0.0, f64::from(f32::MAX)) as f32,
            value: value.clamp(0.0, f64::from(f32::MAX)) as f32,
        }
    }

    /// The new value of a value, which all channels of a gray pixel have.
    #[must_use]
    pub fn map_gray(&self, level: u8) -> u8 {
        (self.scale_value(f32::from(level)) + 0.5) as u8
    }

    #[inline]
    fn scale_value(&self, value: f32) -> f32 {
        (value * self.value).min(255.0)
    }
}

/// Shifts the colours of planes whose length is a multiple of [`super::STEP`].
pub fn shift_hsv(level: Available, planes: [&mut [u8]; 3], shift: &HsvShift) {
    dispatch!(level, [Avx512, Avx2, Neon], shift_hsv(planes, shift));
}
