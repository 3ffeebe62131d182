//! The windows of torchvision's RandomResizedCrop, drawn for the samples of a chunk.
//!
//! C. Szegedy et al., "Going deeper with convolutions", CVPR 2015, section 6.

use crate::philox;

/// Tries to find a window, before the central one is taken.
const TRIES: usize = 10;

/// What windows are allowed.
#[derive(Clone, Copy, Debug)]
pub struct WindowRange {
    /// Least share of the image's area, and greatest minus least.
    pub scale: [f64; 2],
    /// Least width / height, and greatest.
    pub ratio: [f64; 2],
    /// Logarithm of the least width / height, and that of the greatest minus it.
    pub log_ratio: [f64; 2],
}

impl WindowRange {
    /// Draws left, top, width and height of a window in an image of `size` (width, height), from the numbers of
    /// `stream`: position (top, left), then area and shape of each try. The first try that fits counts, else the
    /// largest central window of an allowed shape.
    pub fn draw(&self, (seed, epoch, index): (u64, u32, i64), stream: u16, size: [i32; 2]) -> [i32; 4] {
        let mut numbers = [0.0; 2 + 2 * TRIES];
        let few = 2 + 2 * 2; // two tries are enough for most images
        philox::uniforms(seed, epoch, &[index], stream, &mut numbers[..few]);
        if let Some(window) = self.first_try(size, &numbers[..few]) {
            return window;
        }
        philox::uniforms(seed, epoch, &[index], stream, &mut numbers);
        self.first_try(size, &numbers).unwrap_or_else(|| self.central(size))
    }

    fn first_try(&self, [width, height]: [i32; 2], numbers: &[f64]) -> Option<[i32; 4]> {
        let area = (i64::from(width) * i64::from(height)) as f64;
        let ([top, left], tries) = numbers.as_chunks::<2>().0.split_first()?;
        for [scale, shape] in tries {
            let target = area * (self.scale[0] + scale * self.scale[1]);
            let shape = (self.log_ratio[0] + shape * self.log_ratio[1]).exp();
            let w = (target * shape).sqrt().round_ties_even();
            let h = (target / shape).sqrt().round_ties_even();
            if 0.0 < w && w <= width.into() && 0.0 < h && h <= height.into() {
                let (w, h) = (w as i32, h as i32);
                let at = |number: f64, spare: i32| (number * f64::from(spare + 1)) as i32;
                return Some([at(*left, width - w), at(*top, height - h), w, h]);
            }
        }
        None
    }

    fn central(&self, [width, height]: [i32; 2]) -> [i32; 4] {
        let (mut w, mut h) = (width, height);
        let shape = f64::from(width) / f64::from(height);
        let side = |exact: f64| (exact.round_ties_even() as i32).max(1);
        if shape < self.ratio[0] {
            h = side(f64::from(width) / self.ratio[0]);
        } else if shape > self.ratio[1] {
            w = side(f64::from(height) * self.ratio[1]);
        }
        [(width - w) / 2, (height - h) / 2, w, h]
    }
}
