//! One pixel at a time: the specification.

use super::HsvShift;

/// See [`super::shift_hsv`].
pub(super) fn shift_hsv(planes: [&mut [u8]; 3], shift: &HsvShift) {
    let [r, g, b] = planes;
    for ((r, g), b) in r.iter_mut().zip(g).zip(b) {
        [*r, *g, *b] = shift_pixel([*r, *g, *b], shift);
    }
}

#[inline]
fn shift_pixel(pixel: [u8; 3], shift: &HsvShift) -> [u8; 3] {
    let [r, g, b] = pixel.map(f32::from);
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    let chroma = most - least;
    let (away, start) = match most {
        _ if most == r => (g - b, 0.0),
        _ if most == g => (b - r, 2.0),
        _ => (r - g, 4.0),
    };
    let hue = away / chroma.max(1.0) + (start + shift.sixths);
    let hue = if hue >= 6.0 { hue - 6.0 } else { hue };
    let value = shift.scale_value(most);
    let saturation = (chroma / most.max(1.0) * shift.saturation).min(1.0);
    let chroma = value * saturation;
    let lowest = value - chroma;
    let shares = [
        (hue - 3.0).abs() - 1.0,
        2.0 - (hue - 2.0).abs(),
        2.0 - (hue - 4.0).abs(),
    ];
    shares.map(|share| (lowest + chroma * share.clamp(0.0, 1.0) + 0.5) as u8)
}
