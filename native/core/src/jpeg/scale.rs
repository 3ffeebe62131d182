//! Scales at which the inverse DCT decodes a picture, and the size of each component at a scale. The rules are those of
//! libjpeg (`jpeg_calc_output_dimensions`, `jinit_upsampler`).

use crate::jpeg::format::header::{Component, Header};
use crate::jpeg::format::markers::Color;
use crate::jpeg::kernels::upsample::Upsample;

/// The scale of a decoded picture. Each sample is the average of a square of pixels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scale {
    /// Full size.
    #[default]
    Full,
    /// Half of the size.
    Half,
    /// A quarter of the size.
    Quarter,
    /// An eighth of the size.
    Eighth,
}

impl Scale {
    /// All scales, from full size down.
    pub const ALL: [Self; 4] = [Self::Full, Self::Half, Self::Quarter, Self::Eighth];

    /// The scale 1 / `denominator`, if that is 1, 2, 4 or 8.
    pub fn from_denominator(denominator: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|scale| scale.denominator() == denominator)
    }

    /// The side in pixels of the square that a sample stands for.
    pub fn denominator(self) -> usize {
        1 << self as u32
    }

    /// A side of the picture at this scale. It is rounded up: the last sample may lie partly outside the picture.
    pub fn side(self, pixels: usize) -> usize {
        pixels.div_ceil(self.denominator())
    }

    /// The smallest scale at which `source` still has at least `quality` samples for each pixel of `target`, in both
    /// directions. A `quality` below 1 counts as 1.
    pub fn smallest_sufficient(source: [usize; 2], target: [usize; 2], quality: f64) -> Self {
        let enough = |scale: &Self| {
            let each = quality.max(1.0) * scale.denominator() as f64;
            source.iter().zip(target).all(|(&s, t)| s as f64 >= each * t as f64)
        };
        Self::ALL.into_iter().rev().find(enough).unwrap_or_default()
    }

    /// Side in samples of a block of the components that are not subsampled.
    pub(crate) fn block(self) -> usize {
        8 / self.denominator()
    }
}

/// A component at a scale.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScaledComponent {
    /// Side of a block in samples.
    pub block: usize,
    /// Pixels of the scaled picture per sample, horizontally and vertically.
    pub across: usize,
    pub down: usize,
    pub upsample: Upsample,
    /// Size in samples.
    pub width: usize,
    pub height: usize,
}

impl ScaledComponent {
    /// A component whose samples are wanted as they are, with blocks of `block` x `block` samples.
    pub fn alone(component: &Component, header: &Header<'_>, block: usize) -> Self {
        ScaledComponent {
            block,
            across: 1,
            down: 1,
            upsample: Upsample::None,
            width: (header.width * component.h * block).div_ceil(8 * header.hmax),
            height: (header.height * component.v * block).div_ceil(8 * header.vmax),
        }
    }

    /// Blocks of subsampled components are scaled down less, as far as this makes upsampling unnecessary.
    pub fn new(component: &Component, header: &Header<'_>, scale: Scale) -> Self {
        let pixels = (header.hmax * scale.block(), header.vmax * scale.block()); // of an MCU
        let mut block = scale.block();
        while block < 8
            && pixels.0.is_multiple_of(component.h * block * 2)
            && pixels.1.is_multiple_of(component.v * block * 2)
        {
            block *= 2;
        }
        let (across, down) = (pixels.0 / (component.h * block), pixels.1 / (component.v * block));
        let width = (header.width * component.h * block).div_ceil(8 * header.hmax);
        // libjpeg keeps no rows of context where a block is one sample.
        let upsample = Upsample::choose(across, down, width, scale != Scale::Eighth);
        ScaledComponent {
            block,
            across,
            down,
            upsample,
            width,
            height: (header.height * component.v * block).div_ceil(8 * header.vmax),
        }
    }
}

/// The samples of both chroma components as they are stored, with blocks of the same size as luma's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChromaGrid {
    /// Pixels of the full-size picture per sample, across and down.
    pub step: [usize; 2],
    /// Samples across and down.
    pub size: [usize; 2],
    /// Whether the full-size picture is interpolated between samples, across and down. Samples of a smaller one are
    /// averages of its pixels.
    pub is_interpolated: [bool; 2],
}

impl ChromaGrid {
    /// None: the picture has no chroma, or its two components are not alike, or luma does not have the picture's size.
    pub fn new(header: &Header<'_>, scale: Scale) -> Option<Self> {
        let [luma, chroma, other] = header.components() else {
            return None;
        };
        let sides = |component: &Component| (component.h, component.v);
        if header.color != Color::YCbCr || sides(luma) != (header.hmax, header.vmax) || sides(chroma) != sides(other) {
            return None;
        }
        let samples = ScaledComponent::alone(chroma, header, scale.block());
        let (across, down) = (header.hmax / chroma.h, header.vmax / chroma.v);
        let upsample = Upsample::choose(across, down, samples.width, scale == Scale::Full);
        Some(ChromaGrid {
            step: [across, down].map(|factor| factor * scale.denominator()),
            size: [samples.width, samples.height],
            is_interpolated: [upsample.uses_neighbour_columns(), upsample.uses_neighbour_rows()],
        })
    }
}
