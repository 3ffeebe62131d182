//! Late colour: luma and chroma are resized, each from its own samples, and become RGB afterwards.
//!
//! ```text
//!  samples of luma   ──> Resampler ──1 plane───┐
//!  samples of chroma ──> Resampler ──2 planes──┴──rgb──> picture
//! ```
//!
//! The weights of chroma are those of the full-size picture, divided among the samples that its pixels are made of. What is
//! clipped or rounded before the resize otherwise is clipped and rounded once, after it.

use super::{FillOptions, Geometry, Mode, axis_order};
use crate::error::Error;
use crate::jpeg::{ChromaGrid, Header, Region, Scale};
use crate::resample::{BlockGrid, Picture, Resampler, WORD_FRACTION};
use crate::rows::ComponentWindow;
use crate::simd::{Available, compile_versions, dispatch};

/// The resize of chroma, and the picture of both.
pub(super) struct LateColor {
    pub chroma: Resampler,
    picture: Picture,
    /// What the resizes need of each component. None: the current image becomes RGB before its resize.
    windows: Option<[ComponentWindow; 3]>,
}

impl LateColor {
    /// Kernels of `level`.
    pub fn new(level: Available) -> Self {
        Self {
            chroma: Resampler::with_level(level),
            picture: Picture::default(),
            windows: None,
        }
    }

    /// The samples that the resizes need of each component, if [`Self::begin`] began them.
    pub fn windows(&self) -> Option<[ComponentWindow; 3]> {
        self.windows
    }

    /// Frees buffers that are larger than `keep` bytes.
    pub fn shrink(&mut self, keep: usize) {
        self.chroma.shrink(keep);
        self.picture.shrink(keep);
    }

    /// Ends what [`Self::begin`] began: the next image becomes RGB before its resize.
    pub fn leave(&mut self) {
        self.windows = None;
    }

    /// Starts the resizes of an image, if it is one for late colour. Returns the part of it at `scale` that is needed.
    ///
    /// Whether it is one depends only on the image, its region and size, and the options.
    pub fn begin(
        &mut self,
        luma: &mut Resampler,
        header: &Header<'_>,
        geometry: &Geometry,
        scale: Scale,
        options: &FillOptions,
    ) -> Result<Option<Region>, Error> {
        self.windows = None;
        let is_wanted = options.late_color && matches!(options.mode, Mode::Rgb | Mode::Bgr);
        if !is_wanted || !options.filter.is_convex() || !geometry.shrinks() {
            return Ok(None);
        }
        let Some(grid) = ChromaGrid::new(header, scale) else {
            return Ok(None);
        };
        let (block, order) = (scale.block(), axis_order(geometry));
        // As many rows as an MCU has.
        let rows = block * header.vmax;
        let chroma_rows = rows * scale.denominator() / grid.step[1];
        let around = geometry.scaled_region(scale);
        let grid_of = |origin| BlockGrid { side: block, origin };
        let luma_grid = grid_of([around.x, around.y]);
        let needed = luma.begin_words(options.filter, geometry.axes(scale), order, 1, rows, luma_grid)?;
        let region = Region {
            x: around.x + needed.x,
            y: around.y + needed.y,
            width: needed.width,
            height: needed.height,
            scale,
        };
        let (axes, [x, y]) = geometry.chroma_axes(&grid);
        let chroma_grid = grid_of([x, y]);
        let needed = self
            .chroma
            .begin_words(options.filter, axes, order, 2, chroma_rows, chroma_grid)?;
        let chroma = ComponentWindow {
            block,
            x: x + needed.x,
            y: y + needed.y,
            width: needed.width,
            height: needed.height,
        };
        let luma = ComponentWindow {
            block,
            x: region.x,
            y: region.y,
            width: region.width,
            height: region.height,
        };
        self.windows = Some([luma, chroma, chroma]);
        Ok(Some(region))
    }

    /// Makes the picture of resized luma and of the resized chroma.
    pub fn convert(&mut self, level: Available, luma: &Picture<i16>) -> Result<&mut Picture, Error> {
        let (width, height) = (luma.width, luma.height);
        self.picture.resize(3, width, height)?;
        let chroma = self.chroma.words();
        for y in 0..height {
            let samples = [luma.row(0, y), chroma.row(0, y), chroma.row(1, y)];
            let [r, g, b, _] = self.picture.rows_mut(y);
            let pixels = [r, g, b].map(|plane| &mut plane[..width]);
            dispatch!(level, [Avx2], rgb(samples, pixels));
        }
        Ok(&mut self.picture)
    }
}

compile_versions! {
    fn rgb(samples: [&[i16]; 3], pixels: [&mut [u8]; 3]) = rgb_of_line;
}

/// Converts YCbCr with [`WORD_FRACTION`] fractional bits to RGB, by the factors of JFIF. All numbers fit 16 bits.
#[inline(always)]
fn rgb_of_line([y, cb, cr]: [&[i16]; 3], [red, green, blue]: [&mut [u8]; 3]) {
    const ZERO: i16 = 128 << WORD_FRACTION;
    const HALF: i16 = 1 << (WORD_FRACTION - 1);
    // The product with a factor of 16 fractional bits, rounded down.
    let times = |value: i16, factor: i32| ((i32::from(value) * factor) >> 16) as i16;
    let level = |value: i16| (value >> WORD_FRACTION).clamp(0, 255) as u8;
    let pixels = red.iter_mut().zip(green).zip(blue);
    for (((red, green), blue), ((y, cb), cr)) in pixels.zip(y.iter().zip(cb).zip(cr)) {
        let (y, cb, cr) = (y + HALF, cb - ZERO, cr - ZERO);
        // 1.402, -0.34414 and -0.71414, 1.772: the parts that 15 bits hold.
        *red = level(y + cr + times(cr, 26_345));
        *green = level(y - cr + times(cr, 18_734) + times(cb, -22_554));
        *blue = level(y + cb + cb + times(cb, -14_942));
    }
}
