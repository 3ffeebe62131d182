//! Windows, one pixel at a time: the specification.

use super::AffineMap;
use crate::pixels::warp::scalar::Neighbours;
use crate::pixels::warp::{Map, SourceImage};

/// See [`super::draw`]: rows of `width` pixels, from the first one on.
pub(super) fn window(
    source: SourceImage<'_, 3>,
    map: &AffineMap,
    fill: [u8; 3],
    [first, width]: [usize; 2],
    out: &mut [[u8; 3]],
) {
    for (y, row) in (first..).zip(out.chunks_exact_mut(width)) {
        for (x, out) in row.iter_mut().enumerate() {
            *out = pixel(&source, map, fill, [x, y]);
        }
    }
}

/// A pixel of the window.
#[inline]
pub(super) fn pixel(source: &SourceImage<'_, 3>, map: &AffineMap, fill: [u8; 3], [x, y]: [usize; 2]) -> [u8; 3] {
    let (x, y) = Map::Affine(*map).source_point(x as f64 + 0.5, y as f64 + 0.5);
    let Some(Neighbours { pixels, across, down }) = source.neighbours_of(x, y) else {
        return fill;
    };
    let (across, down) = (across as f32, down as f32);
    let [a, b, c, d] = pixels.map(|pixel| pixel.map(f32::from));
    std::array::from_fn(|i| {
        let upper = interpolate(a[i], b[i], across);
        let lower = interpolate(c[i], d[i], across);
        interpolate(upper, lower, down) as u8
    })
}

#[inline]
fn interpolate(from: f32, to: f32, fraction: f32) -> f32 {
    from + (to - from) * fraction
}
