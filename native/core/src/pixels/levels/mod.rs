//! What happens to a few hundred levels of each channel at a time: look-up, luma, blend, hue. Specified by [`scalar`];
//! the one place where an implementation is chosen is [`Levels`].

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use crate::simd::Level;

/// What each level becomes.
pub type Table = [u8; 256];

/// Lengths of planes are multiples of this.
pub const STEP: usize = 32;

/// Kernels on planes, all of one length, a multiple of [`STEP`]; made from an available level only.
#[derive(Clone, Copy, Debug)]
pub struct Levels(Level);

macro_rules! dispatch {
    ($(#[$doc:meta] $name:ident($($arg:ident: $type:ty),*);)*) => {
        $(#[$doc] pub fn $name(self, $($arg: $type),*) {
            match self.0 {
                // SAFETY: this level is available
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 | Level::Avx512 => unsafe { avx2::$name($($arg),*) },
                _ => scalar::$name($($arg),*),
            }
        })*
    };
}

impl Levels {
    /// Kernels of the given level, or the best below it that this processor has.
    pub fn new(level: Level) -> Self {
        Self(level.available())
    }

    /// Each level replaced by the table's.
    pub fn lookup(self, plane: &mut [u8], table: &Table) {
        match self.0 {
            // SAFETY: this level is available
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { avx512::lookup(plane, table) },
            // SAFETY: as above
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { avx2::lookup(plane, table) },
            _ => scalar::lookup(plane, table),
        }
    }

    dispatch! {
        /// ITU-R BT.601 luma in 16 fractional bits, rounded: Pillow's.
        luma(planes: [&[u8]; 3], out: &mut [u8]);
        /// `base + factor * (plane - base)`, cut off: Pillow's `Image.blend`.
        blend(base: &[u8], plane: &mut [u8], factor: f32);
        /// To Pillow's 8-bit HSV, `turn` steps round the circle, and back.
        rotate_hue(planes: [&mut [u8]; 3], turn: u8);
    }
}

/// The specification.
pub mod scalar {
    use super::Table;

    pub fn lookup(plane: &mut [u8], table: &Table) {
        for level in plane {
            *level = table[usize::from(*level)];
        }
    }

    pub fn luma(planes: [&[u8]; 3], out: &mut [u8]) {
        for (i, out) in out.iter_mut().enumerate() {
            let [r, g, b] = planes.map(|plane| u32::from(plane[i]));
            *out = ((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16) as u8;
        }
    }

    pub fn blend(base: &[u8], plane: &mut [u8], factor: f32) {
        for (base, level) in base.iter().zip(plane) {
            *level = blended(*base, *level, factor);
        }
    }

    /// In single precision, three roundings; cut off to 0..=255, then towards zero.
    #[inline]
    pub fn blended(base: u8, level: u8, factor: f32) -> u8 {
        let (base, level) = (f32::from(base), f32::from(level));
        ((level - base) * factor + base) as u8
    }

    pub fn rotate_hue(planes: [&mut [u8]; 3], turn: u8) {
        let [r, g, b] = planes;
        for ((r, g), b) in r.iter_mut().zip(g).zip(b) {
            let [hue, saturation, value] = hsv([*r, *g, *b]);
            [*r, *g, *b] = rgb(hue.wrapping_add(turn), saturation, value);
        }
    }

    /// Pillow's conversion, which computes the hue in double precision: single gives the same for every colour.
    fn hsv([r, g, b]: [u8; 3]) -> [u8; 3] {
        let (most, least) = (r.max(g).max(b), r.min(g).min(b));
        let range = f32::from((most - least).max(1));
        // how far the middle one is below the greatest, as a share of the range
        let middle = u16::from(r) + u16::from(g) + u16::from(b) - u16::from(most) - u16::from(least);
        let below = f32::from(u16::from(most) - middle) / range;
        let sixth = match most {
            _ if most == r && g >= b => 1.0 - below,
            _ if most == r => -1.0 + below,
            _ if most == g && r >= b => 1.0 + below,
            _ if most == g => 3.0 - below,
            _ if r >= g => 5.0 - below,
            _ => 3.0 + below,
        };
        let turns = sixth / 6.0 + if sixth < 0.0 { 1.0 } else { 0.0 };
        let share = f32::from(most - least) / f32::from(most.max(1));
        [(turns * 255.0) as u8, (share * 255.0) as u8, most]
    }

    /// Pillow's conversion. Its p, q and t are one formula: a channel loses `saturation * loss / 255²` of the value,
    /// where its loss is a trapezium over the hue.
    fn rgb(hue: u8, saturation: u8, value: u8) -> [u8; 3] {
        let place = 6.0 * f32::from(hue);
        let losses = [
            510.0 - (place - 765.0).abs(),
            (place - 510.0).abs() - 255.0,
            (place - 1020.0).abs() - 255.0,
        ];
        losses.map(|loss| {
            let kept = 1.0 - f32::from(saturation) * loss.clamp(0.0, 255.0) * (1.0 / 65025.0);
            (f32::from(value) * kept + 0.5) as u8
        })
    }
}
