//! One value or pixel at a time: the specification.

use super::LookupTable;

pub fn lookup(plane: &mut [u8], table: &LookupTable) {
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
        *level = blend_value(*base, *level, factor);
    }
}

/// Blends in single precision with three roundings, clips to 0..=255, and truncates.
#[inline]
pub fn blend_value(base: u8, level: u8, factor: f32) -> u8 {
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

/// Pillow's conversion to HSV. Pillow computes the hue in double precision; single precision gives the same for every
/// colour.
fn hsv([r, g, b]: [u8; 3]) -> [u8; 3] {
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    let range = f32::from((most - least).max(1));
    // The distance of the middle channel from the largest, as a fraction of the range.
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
    let fraction = f32::from(most - least) / f32::from(most.max(1));
    [(turns * 255.0) as u8, (fraction * 255.0) as u8, most]
}

/// Pillow's conversion from HSV. Its p, q and t are one formula: a channel loses `saturation * loss / 255²` of the
/// value, where its loss is a trapezium over the hue.
fn rgb(hue: u8, saturation: u8, value: u8) -> [u8; 3] {
    let position = 6.0 * f32::from(hue);
    let losses = [
        510.0 - (position - 765.0).abs(),
        (position - 510.0).abs() - 255.0,
        (position - 1020.0).abs() - 255.0,
    ];
    losses.map(|loss| {
        let kept = 1.0 - f32::from(saturation) * loss.clamp(0.0, 255.0) * (1.0 / 65025.0);
        (f32::from(value) * kept + 0.5) as u8
    })
}
