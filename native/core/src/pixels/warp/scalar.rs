//! Warps, one pixel at a time: the specification.

use super::{Map, SourceImage};

/// See [`super::warp`]: the nearest pixel, for a projective map.
pub(super) fn nearest<const N: usize>(source: SourceImage<'_, N>, map: &Map, fill: [u8; N], out: &mut [[u8; N]]) {
    each(source.width, out, |x, y| {
        let (x, y) = map.source_point(x, y);
        source.at(truncate(x), truncate(y)).unwrap_or(fill)
    });
}

/// See [`super::warp`]: bilinear sampling.
pub(super) fn bilinear<const N: usize>(source: SourceImage<'_, N>, map: &Map, fill: [u8; N], out: &mut [[u8; N]]) {
    each(source.width, out, |x, y| {
        let (x, y) = map.source_point(x, y);
        source.interpolate_at(x, y).unwrap_or(fill)
    });
}

fn each<const N: usize>(width: usize, out: &mut [[u8; N]], pixel: impl Fn(f64, f64) -> [u8; N]) {
    for (y, row) in out.chunks_exact_mut(width).enumerate() {
        for (x, out) in row.iter_mut().enumerate() {
            *out = pixel(x as f64 + 0.5, y as f64 + 0.5);
        }
    }
}

impl Map {
    /// The position in the source of a position in the result.
    #[inline]
    pub(super) fn source_point(&self, x: f64, y: f64) -> (f64, f64) {
        match self {
            Self::Affine(m) => (m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5]),
            Self::Projective(m) => {
                let below = m[6] * x + m[7] * y + 1.0;
                (
                    (m[0] * x + m[1] * y + m[2]) / below,
                    (m[3] * x + m[4] * y + m[5]) / below,
                )
            }
        }
    }
}

impl<const N: usize> SourceImage<'_, N> {
    /// The pixel at a position, if it lies inside the image.
    #[inline]
    fn at(&self, x: i32, y: i32) -> Option<[u8; N]> {
        let (x, y) = (usize::try_from(x).ok()?, usize::try_from(y).ok()?);
        (x < self.width && y < self.height).then(|| self.pixels[y * self.width + x])
    }

    /// Interpolates between the centres of four pixels, or of fewer at the borders.
    #[inline]
    pub(super) fn interpolate_at(&self, x: f64, y: f64) -> Option<[u8; N]> {
        let Neighbours { pixels, across, down } = self.neighbours_of(x, y)?;
        let [a, b, c, d] = pixels;
        Some(std::array::from_fn(|i| {
            let upper = interpolate(f64::from(a[i]), f64::from(b[i]), across);
            let lower = interpolate(f64::from(c[i]), f64::from(d[i]), across);
            interpolate(upper, lower, down) as u8
        }))
    }

    /// The pixels whose centres are around a position inside the image; at its borders, the same ones several times.
    #[inline]
    pub(super) fn neighbours_of(&self, x: f64, y: f64) -> Option<Neighbours<'_, N>> {
        // Also false for NaN.
        if !(x >= 0.0 && x < self.width as f64 && y >= 0.0 && y < self.height as f64) {
            return None;
        }
        let (x, y) = (x - 0.5, y - 0.5);
        let (left, top) = (x.floor(), y.floor());
        let (across, down) = (x - left, y - top);
        let (left, top) = (left as isize, top as isize);
        let column = |x: isize| x.clamp(0, self.width as isize - 1) as usize;
        let row = |y: isize| y.clamp(0, self.height as isize - 1) as usize * self.width;
        let (x0, x1, y0, y1) = (column(left), column(left + 1), row(top), row(top + 1));
        Some(Neighbours {
            pixels: [y0 + x0, y0 + x1, y1 + x0, y1 + x1].map(|at| &self.pixels[at]),
            across,
            down,
        })
    }
}

/// The pixels around a position, left and right in the upper row, then in the lower one.
pub(super) struct Neighbours<'a, const N: usize> {
    pub(super) pixels: [&'a [u8; N]; 4],
    /// Distance from the left ones.
    pub(super) across: f64,
    /// Distance from the upper ones.
    pub(super) down: f64,
}

#[inline]
fn interpolate(from: f64, to: f64, fraction: f64) -> f64 {
    from + (to - from) * fraction
}

/// Rounds towards zero. -1 for negative numbers and NaN.
#[inline]
fn truncate(position: f64) -> i32 {
    if position >= 0.0 { position as i32 } else { -1 }
}

pub(super) fn affine_nearest<const N: usize>(
    source: SourceImage<'_, N>,
    m: &[f64; 6],
    fill: [u8; N],
    out: &mut [[u8; N]],
) {
    let (width, height) = (source.width as f64, source.height as f64);
    let corners = [(0.0, 0.0), (width, height), (0.0, height), (width, 0.0)];
    let within = |x: f64, y: f64| {
        let (x, y) = (x * m[0] + y * m[1] + m[2], x * m[3] + y * m[4] + m[5]);
        x.abs() < 32768.0 && y.abs() < 32768.0
    };
    if m[1] == 0.0 && m[3] == 0.0 {
        scaled_nearest(source, m, fill, out);
    } else if corners.iter().all(|(x, y)| within(*x, *y)) {
        fixed_nearest(source, m, fill, out);
    } else {
        float_nearest(source, m, fill, out);
    }
}

/// Without rotation and shear, each column of the result comes from one column. Positions are sums, with their rounding
/// errors.
fn scaled_nearest<const N: usize>(source: SourceImage<'_, N>, m: &[f64; 6], fill: [u8; N], out: &mut [[u8; N]]) {
    let mut position = m[2] + m[0] * 0.5;
    let columns: Vec<i32> = (0..source.width)
        .map(|_| {
            let column = truncate(position);
            position += m[0];
            column
        })
        .collect();
    let mut position = m[5] + m[4] * 0.5;
    for out in out.chunks_exact_mut(source.width) {
        let y = truncate(position);
        position += m[4];
        for (out, x) in out.iter_mut().zip(&columns) {
            *out = source.at(*x, y).unwrap_or(fill);
        }
    }
}

fn fixed_nearest<const N: usize>(source: SourceImage<'_, N>, m: &[f64; 6], fill: [u8; N], out: &mut [[u8; N]]) {
    let fixed = |v: f64| (v * 65536.0 + 0.5).floor() as i32;
    let [a0, a1, a3, a4] = [m[0], m[1], m[3], m[4]].map(fixed);
    let mut start_x = fixed(m[2] + m[0] * 0.5 + m[1] * 0.5);
    let mut start_y = fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
    let (width, height) = (source.width as u32, source.height as u32);
    for out in out.chunks_exact_mut(source.width) {
        let (mut x, mut y) = (start_x, start_y);
        for out in out {
            // Negative positions wrap to large ones.
            let (column, row) = ((x >> 16) as u32, (y >> 16) as u32);
            *out = if column < width && row < height {
                source.pixels[row as usize * source.width + column as usize]
            } else {
                fill
            };
            (x, y) = (x.wrapping_add(a0), y.wrapping_add(a3));
        }
        (start_x, start_y) = (start_x.wrapping_add(a1), start_y.wrapping_add(a4));
    }
}

/// For positions outside the range of fixed point. Positions are sums, with their rounding errors.
fn float_nearest<const N: usize>(source: SourceImage<'_, N>, m: &[f64; 6], fill: [u8; N], out: &mut [[u8; N]]) {
    let mut start = (m[2] + m[0] * 0.5 + m[1] * 0.5, m[5] + m[3] * 0.5 + m[4] * 0.5);
    for out in out.chunks_exact_mut(source.width) {
        let mut position = start;
        for out in out {
            *out = source.at(truncate(position.0), truncate(position.1)).unwrap_or(fill);
            position = (position.0 + m[0], position.1 + m[3]);
        }
        start = (start.0 + m[1], start.1 + m[4]);
    }
}
