//! Rows of 16-bit gray PNGs: decode the needed part, resize, flip, normalise, with all bits.
//!
//! ```text
//!  PNG ──samples──> DeepResampler ──picture──> row of the batch (u16 | f16 | bf16 | f32)
//! ```

use std::time::Instant;

use super::{FillError, FillTimes, Filler, Geometry, lines};
use crate::error::Error;
use crate::image::Header;
use crate::jpeg::{Limits, Region, Scale};
use crate::memory::grow;
use crate::resample::{DeepResampler, Filter};

/// Samples that a filler keeps memory for between images.
const KEPT_SAMPLES: usize = 8 << 20;

/// A row of one channel, as large as the window.
#[derive(Debug)]
pub enum SampleRow<'a> {
    /// Samples as they are.
    U16(&'a mut [u16]),
    /// Samples times a factor plus a summand, as the bits of half-precision floats.
    F16(&'a mut [u16], [f32; 2]),
    /// The same as the bits of bfloat16 numbers.
    Bf16(&'a mut [u16], [f32; 2]),
    /// The same.
    F32(&'a mut [f32], [f32; 2]),
}

/// What [`Filler::fill_samples`] keeps between images.
#[derive(Debug, Default)]
pub(super) struct DeepBuffers {
    resampler: DeepResampler,
    pub(super) samples: Vec<u16>,
    picture: Vec<u16>,
}

impl Filler {
    /// Decodes a gray PNG of 16 bits into a row, and adds to `times`.
    ///
    /// # Errors
    /// [`FillError`]: [`Error::Unsupported`] for other images. The row is unchanged.
    ///
    /// # Panics
    /// If the geometry has an orientation or a frame, or the row is not as large as its window.
    pub fn fill_samples(
        &mut self,
        encoded: &[u8],
        geometry: &Geometry,
        filter: Filter,
        limits: &Limits,
        row: SampleRow<'_>,
        times: &mut FillTimes,
    ) -> Result<(), FillError> {
        let mut buffers = std::mem::take(&mut self.deep);
        let filled = self.fill_deep(&mut buffers, encoded, geometry, filter, limits, row, times);
        for samples in [&mut buffers.samples, &mut buffers.picture] {
            if samples.len() > KEPT_SAMPLES {
                *samples = Vec::new();
            }
        }
        buffers.resampler.shrink(KEPT_SAMPLES);
        self.deep = buffers;
        filled
    }

    #[allow(clippy::too_many_arguments)] // those of `fill_samples`, and the buffers
    fn fill_deep(
        &mut self,
        buffers: &mut DeepBuffers,
        encoded: &[u8],
        geometry: &Geometry,
        filter: Filter,
        limits: &Limits,
        row: SampleRow<'_>,
        times: &mut FillTimes,
    ) -> Result<(), FillError> {
        assert!(
            geometry.orientation().is_identity(),
            "stored rows are those of the picture"
        );
        let begun = Instant::now();
        let header = match Header::parse(encoded, limits)? {
            Header::Png(header) if header.channel_bits() == Ok(16) => header,
            _ => return Err(Error::Unsupported("other images than gray PNGs of 16 bits").into()),
        };
        geometry
            .check_inside(header.width(), header.height())
            .map_err(FillError::Geometry)?;
        let needed = buffers.resampler.begin(filter, geometry.axes(Scale::Full))?;
        let around = geometry.scaled_region(Scale::Full);
        let region = Region {
            x: around.x + needed.x,
            y: around.y + needed.y,
            width: needed.width,
            height: needed.height,
            scale: Scale::Full,
        };
        limits.check_nbytes(header.held_nbytes() + 2 * (region.width * region.height) as u64)?;
        let [width, height] = geometry.visible();
        grow(&mut buffers.samples, region.width * region.height)?;
        grow(&mut buffers.picture, width * height)?;
        let samples = &mut buffers.samples[..region.width * region.height];
        self.png.decode_samples(self.level, &header, region, samples)?;
        times.decode += begun.elapsed();
        let begun = Instant::now();
        let picture = &mut buffers.picture[..width * height];
        buffers.resampler.resize(samples, region.width, picture, width);
        write(picture, width, geometry, row);
        times.resize += begun.elapsed();
        Ok(())
    }
}

/// Flips a picture and writes it to a row.
fn write(picture: &mut [u16], width: usize, geometry: &Geometry, row: SampleRow<'_>) {
    if geometry.flip_x {
        picture.chunks_exact_mut(width).for_each(<[u16]>::reverse);
    }
    match row {
        SampleRow::U16(out) => each_line(picture, width, geometry, out, |value| value),
        SampleRow::F16(out, affine) => each_line(picture, width, geometry, out, |value| {
            lines::half_bits(apply(affine, value))
        }),
        SampleRow::Bf16(out, affine) => each_line(picture, width, geometry, out, |value| {
            lines::bfloat_bits(apply(affine, value))
        }),
        SampleRow::F32(out, affine) => each_line(picture, width, geometry, out, |value| apply(affine, value)),
    }
}

#[inline]
fn apply([scale, offset]: [f32; 2], value: u16) -> f32 {
    f32::from(value) * scale + offset
}

fn each_line<T>(picture: &[u16], width: usize, geometry: &Geometry, out: &mut [T], convert: impl Fn(u16) -> T) {
    assert_eq!(out.len(), picture.len(), "the row must be as large as the picture");
    let write = |line: &[u16], out: &mut [T]| {
        for (out, value) in out.iter_mut().zip(line) {
            *out = convert(*value);
        }
    };
    let targets = out.chunks_exact_mut(width);
    if geometry.flip_y {
        picture
            .chunks_exact(width)
            .rev()
            .zip(targets)
            .for_each(|(line, out)| write(line, out));
    } else {
        picture
            .chunks_exact(width)
            .zip(targets)
            .for_each(|(line, out)| write(line, out));
    }
}
