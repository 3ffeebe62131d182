//! The geometry of a row from the ops of a pipeline: each draws for the sample, and is composed with those before it.
//! `penstock.transforms` is the specification: the ops' `draw` and `compose`, and `Geometry` there.

use super::Geometry;
use crate::philox;
use crate::windows::WindowRange;

/// An op that moves pixels.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A random window, resized to a width and height.
    ResizedCrop(u16, WindowRange, [i32; 2]),
    /// The central window of this width and height.
    CenterCrop([i32; 2]),
    /// Resized to this width and height.
    Resize([i32; 2]),
    /// Resized so that the shorter side has this length.
    ResizeShorter(i32),
    /// Mirrored with a probability; the bit of the axis in the column `flip`.
    Flip(u16, f64, i32),
}

impl Step {
    /// Numbers of a step.
    pub const NUMBERS: usize = 10;

    /// The step with these numbers: the kind, in the order above; the stream of its random numbers; its settings.
    pub fn new([kind, stream, settings @ ..]: [f64; Self::NUMBERS]) -> Option<Self> {
        let [a, b, c, d, e, f, width, height] = settings;
        let (stream, side) = (stream as u16, |number: f64| number as i32);
        match kind as i64 {
            0 => {
                let range = WindowRange {
                    scale: [a, b],
                    ratio: [c, d],
                    log_ratio: [e, f],
                };
                Some(Self::ResizedCrop(stream, range, [side(width), side(height)]))
            }
            1 => Some(Self::CenterCrop([side(a), side(b)])),
            2 => Some(Self::Resize([side(a), side(b)])),
            3 => Some(Self::ResizeShorter(side(a))),
            4 => Some(Self::Flip(stream, a, side(b))),
            _ => None,
        }
    }
}

/// The columns of [`Geometry`] for an image of `size` (width, height), whose sample has this key: seed, epoch, index.
///
/// None if a window leaves the image, a side is too long, or the size is not known.
pub fn compose(steps: &[Step], key: (u64, u32, i64), size: [i32; 2]) -> Option<[i32; Geometry::COLUMNS]> {
    if size.iter().any(|&side| side < 1) {
        return None;
    }
    let mut row = Composed {
        region: [[0; 2], size],
        size,
        origin: None,
        flip: 0,
        current: size,
    };
    for &step in steps {
        match step {
            Step::ResizedCrop(stream, range, size) => {
                let [left, top, width, height] = range.draw(key, stream, row.current);
                row.crop([left, top], [width, height])?;
                row.resize(size);
            }
            Step::CenterCrop(extent) => {
                row.crop([0, 1].map(|axis| middle(row.current[axis] - extent[axis])), extent)?
            }
            Step::Resize(size) => row.resize(size),
            Step::ResizeShorter(short) => {
                let [width, height] = row.current;
                let exact = i64::from(short) * i64::from(width.max(height));
                let long = i32::try_from((exact as f64 / f64::from(width.min(height))) as i64).ok()?;
                row.resize(if width <= height { [short, long] } else { [long, short] });
            }
            Step::Flip(stream, probability, bit) => {
                let mut number = [0.0];
                philox::uniforms(key.0, key.1, &[key.2], stream, &mut number);
                row.flip ^= if number[0] < probability { bit } else { 0 };
            }
        }
    }
    let ([[x0, y0], [x1, y1]], [width, height]) = (row.region, row.size);
    let [left, top] = row.origin.unwrap_or_default();
    Some([x0, y0, x1, y1, width, height, left, top, row.flip])
}

/// Start of a central window in an image with `spare` more pixels: half of them, rounded to even.
fn middle(spare: i32) -> i32 {
    (f64::from(spare) / 2.0).round_ties_even() as i32
}

struct Composed {
    /// First corner, and the last one, which is outside.
    region: [[i32; 2]; 2],
    size: [i32; 2],
    /// Of the window in the resized region; None before it is resized.
    origin: Option<[i32; 2]>,
    flip: i32,
    current: [i32; 2],
}

impl Composed {
    /// Crops to a window; None if it leaves the image.
    fn crop(&mut self, corner: [i32; 2], extent: [i32; 2]) -> Option<()> {
        for axis in 0..2 {
            let after = self.current[axis] - extent[axis] - corner[axis];
            if corner[axis] < 0 || after < 0 {
                return None;
            }
            let is_mirrored = self.flip >> axis & 1 != 0;
            let start = if is_mirrored { after } else { corner[axis] };
            if let Some(origin) = &mut self.origin {
                origin[axis] += start;
            } else {
                self.region[0][axis] += start;
                self.region[1][axis] = self.region[0][axis] + extent[axis];
                self.size[axis] = extent[axis];
            }
        }
        self.current = extent;
        Some(())
    }

    fn resize(&mut self, size: [i32; 2]) {
        (self.size, self.current, self.origin) = (size, size, Some([0; 2]));
    }
}
