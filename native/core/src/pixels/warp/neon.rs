//! Warps with NEON, four pixels at a time, in double precision like the specification.

use core::arch::aarch64::*;
use core::array;

use super::{Map, SourceImage};
use crate::simd::neon::{load16, store16};

/// Four numbers.
type Four = [float64x2_t; 2];

/// See [`super::warp`].
#[target_feature(enable = "neon")]
pub(super) fn bilinear(source: SourceImage<'_, 3>, map: &Map, fill: [u8; 3], out: &mut [[u8; 3]]) {
    // Eight bytes are read from an upper and a lower row, of which six are used. Therefore the last two columns of the
    // last row are left to the scalar code, and so are positions with fewer than four pixels around them.
    let (inner, whole) = (Bounds::inner(&source), Bounds::whole(&source));
    for (y, row) in out.chunks_exact_mut(source.width).enumerate() {
        let v = y as f64 + 0.5;
        let (fours, rest) = row.as_chunks_mut::<4>();
        for (i, four) in fours.iter_mut().enumerate() {
            let u = (4 * i) as f64 + 0.5;
            let positions = Positions::of(map, u, v);
            let between = positions.between_centres();
            if all(inner.hold(&between)) {
                // SAFETY: `inner` holds all positions.
                unsafe { mix(&source, &between, four) };
            } else if none(whole.hold(&positions)) {
                *four = [fill; 4];
            } else {
                for (x, out) in four.iter_mut().enumerate() {
                    *out = one(&source, map, u + x as f64, v).unwrap_or(fill);
                }
            }
        }
        let done = 4 * fours.len();
        for (x, out) in rest.iter_mut().enumerate() {
            *out = one(&source, map, (done + x) as f64 + 0.5, v).unwrap_or(fill);
        }
    }
}

fn one(source: &SourceImage<'_, 3>, map: &Map, u: f64, v: f64) -> Option<[u8; 3]> {
    let (x, y) = map.source_point(u, v);
    source.interpolate_at(x, y)
}

/// See [`super::warp`]: the nearest pixel, for a projective map.
#[target_feature(enable = "neon")]
pub(super) fn nearest<const N: usize>(source: SourceImage<'_, N>, map: &Map, fill: [u8; N], out: &mut [[u8; N]]) {
    let whole = Bounds::whole(&source);
    for (y, row) in out.chunks_exact_mut(source.width).enumerate() {
        for (i, four) in row.chunks_mut(4).enumerate() {
            let positions = Positions::of(map, (4 * i) as f64 + 0.5, y as f64 + 0.5);
            let inside = whole.hold(&positions).map(|two| store(two));
            let at = indices(&source, positions.x, positions.y);
            for (i, out) in four.iter_mut().enumerate() {
                *out = if inside[i / 2][i % 2] == 0 {
                    fill
                } else {
                    source.pixels[at[i / 2][i % 2] as usize]
                };
            }
        }
    }
}

/// Positions of four pixels in the source.
struct Positions {
    x: Four,
    y: Four,
}

impl Positions {
    /// Those of the four pixels of the result from (u, v) on.
    #[inline]
    #[target_feature(enable = "neon")]
    fn of(map: &Map, u: f64, v: f64) -> Self {
        let first = vsetq_lane_f64::<1>(u + 1.0, vdupq_n_f64(u));
        let x = [first, vaddq_f64(first, vdupq_n_f64(2.0))];
        let linear = |a: f64, b: f64, c: f64| {
            x.map(|x| vaddq_f64(vaddq_f64(vmulq_n_f64(x, a), vdupq_n_f64(b * v)), vdupq_n_f64(c)))
        };
        let (x, y) = match map {
            Map::Affine(m) => (linear(m[0], m[1], m[2]), linear(m[3], m[4], m[5])),
            Map::Projective(m) => {
                let below = linear(m[6], m[7], 1.0);
                let divide = |above: Four| array::from_fn(|i| vdivq_f64(above[i], below[i]));
                (divide(linear(m[0], m[1], m[2])), divide(linear(m[3], m[4], m[5])))
            }
        };
        Self { x, y }
    }

    /// The same positions counted from the centre of the first pixel.
    #[inline]
    #[target_feature(enable = "neon")]
    fn between_centres(&self) -> Self {
        let half = vdupq_n_f64(0.5);
        Self {
            x: self.x.map(|x| vsubq_f64(x, half)),
            y: self.y.map(|y| vsubq_f64(y, half)),
        }
    }
}

/// An upper bound of positions; the lower bound is 0.
struct Bounds {
    x: f64,
    y: f64,
}

impl Bounds {
    /// The bounds of the source.
    fn whole<const N: usize>(source: &SourceImage<'_, N>) -> Self {
        Self {
            x: source.width as f64,
            y: source.height as f64,
        }
    }

    /// The bounds of positions between centres that have four pixels around them, and one more to the right of these.
    fn inner(source: &SourceImage<'_, 3>) -> Self {
        Self {
            x: source.width as f64 - 2.0,
            y: source.height as f64 - 1.0,
        }
    }

    /// All bits of a number set for each position inside the bounds.
    #[inline]
    #[target_feature(enable = "neon")]
    fn hold(&self, positions: &Positions) -> [uint64x2_t; 2] {
        let within = |v, most: f64| vandq_u64(vcgezq_f64(v), vcltq_f64(v, vdupq_n_f64(most)));
        array::from_fn(|i| vandq_u64(within(positions.x[i], self.x), within(positions.y[i], self.y)))
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn all([first, second]: [uint64x2_t; 2]) -> bool {
    vminvq_u32(vreinterpretq_u32_u64(vandq_u64(first, second))) != 0
}

#[inline]
#[target_feature(enable = "neon")]
fn none([first, second]: [uint64x2_t; 2]) -> bool {
    vmaxvq_u32(vreinterpretq_u32_u64(vorrq_u64(first, second))) == 0
}

#[inline]
#[target_feature(enable = "neon")]
fn store(two: uint64x2_t) -> [u64; 2] {
    [vgetq_lane_u64::<0>(two), vgetq_lane_u64::<1>(two)]
}

/// Interpolates four pixels.
///
/// # Safety
/// [`Bounds::inner`] holds all positions.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn mix(source: &SourceImage<'_, 3>, positions: &Positions, out: &mut [[u8; 3]; 4]) {
    let (left, top) = (positions.x.map(|x| vrndmq_f64(x)), positions.y.map(|y| vrndmq_f64(y)));
    let at = indices(source, left, top);
    let levels: [uint32x4_t; 2] = array::from_fn(|i| {
        let (across, down) = (vsubq_f64(positions.x[i], left[i]), vsubq_f64(positions.y[i], top[i]));
        // SAFETY: at least three pixels, nine bytes, follow each position, and the one below it.
        let (upper, lower) = unsafe { (neighbours(source, at[i], 0), neighbours(source, at[i], source.width)) };
        let [r, g, b] = [0, 1, 2].map(|channel| {
            let (upper, lower) = (along(upper, channel, across), along(lower, channel, across));
            vcvtq_u64_f64(interpolate(upper, lower, down))
        });
        vreinterpretq_u32_u64(vsliq_n_u64::<16>(vsliq_n_u64::<8>(r, g), b))
    });
    let closed = vqtbl1q_u8(
        vreinterpretq_u8_u32(vuzp1q_u32(levels[0], levels[1])),
        load16(&[0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 255, 255, 255, 255]),
    );
    let mut bytes = [0; 16];
    store16(&mut bytes, closed);
    out.as_flattened_mut().copy_from_slice(&bytes[..12]);
}

/// The indices of the pixels in these columns and rows, where these are inside the source.
#[inline]
#[target_feature(enable = "neon")]
fn indices<const N: usize>(source: &SourceImage<'_, N>, column: Four, row: Four) -> [[u64; 2]; 2] {
    // Both are below 2^31, so that this is exact.
    array::from_fn(|i| {
        let start = vmulq_n_f64(vrndq_f64(row[i]), source.width as f64);
        store(vcvtq_u64_f64(vaddq_f64(start, vrndq_f64(column[i]))))
    })
}

/// Loads eight bytes from each of two pixels: the pixel and its right neighbour.
///
/// # Safety
/// Three pixels can be read from each index on.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn neighbours(source: &SourceImage<'_, 3>, at: [u64; 2], further: usize) -> uint8x16_t {
    // SAFETY: the caller guarantees this.
    let [first, second] = at.map(|at| unsafe { vld1_u8(source.pixels.as_ptr().add(at as usize + further).cast()) });
    vcombine_u8(first, second)
}

/// Interpolates between a pixel and its right neighbour, in one channel.
#[inline]
#[target_feature(enable = "neon")]
fn along(bytes: uint8x16_t, channel: usize, fraction: float64x2_t) -> float64x2_t {
    let value = |byte: usize| vcvtq_f64_u64(vreinterpretq_u64_u8(vqtbl1q_u8(bytes, load16(&VALUES[byte]))));
    interpolate(value(channel), value(channel + 3), fraction)
}

#[inline]
#[target_feature(enable = "neon")]
fn interpolate(from: float64x2_t, to: float64x2_t, fraction: float64x2_t) -> float64x2_t {
    vaddq_f64(from, vmulq_f64(vsubq_f64(to, from), fraction))
}

/// For each of six bytes: where those of two pixels lie, eight bytes apart, as numbers of 64 bits. 255 gives zero.
const VALUES: [[u8; 16]; 6] = {
    let (mut orders, mut byte) = ([[255; 16]; 6], 0);
    while byte < 6 {
        orders[byte][0] = byte as u8;
        orders[byte][8] = byte as u8 + 8;
        byte += 1;
    }
    orders
};
