//! From encoded bytes to a row of a batch: decode the visible part, resize, flip, normalise, write.
//!
//! ```text
//!  JPEG, PNG, WebP ──> Header ──> Decoder ──rows──> Resampler ──> picture ──> row of the batch
//!                      (size,      (only what         (planar,      (u8)        (layout, flip,
//!                       cap)        the taps need)     as they come)             u8 | f16 | f32)
//! ```
//!
//! The row is written when the whole picture is complete: after an error it is unchanged. Each thread has one
//! [`Filler`], which keeps its memory between images. Nothing is shared between threads.

mod bands;
mod convert;
mod deep;
mod encoded;
mod geometry;
mod jpegs;
mod late_color;
pub mod lines;
mod mode;
mod orientation;
mod packet;
mod row;
mod sinks;
mod steps;
mod stored;

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::image;
pub use crate::jpeg::packet::PacketBuffer;
use crate::jpeg::{Color, DecodeHints, Decoder, Header, Limits, Region, Scale, SeekReport, SeekTable, SeekTableKind};
use crate::png;
use crate::resample::{AxisOrder, Filter, Resampler};
use crate::simd::Available;
use crate::webp;
use deep::DeepBuffers;
pub use deep::SampleRow;
pub use geometry::Geometry;
use late_color::LateColor;
pub use lines::Affine;
pub use mode::{Mode, luma};
pub use orientation::Orientation;
use row::RowWriter;
pub use row::{Layout, Row};
use sinks::{LumaSink, OpenRows, RgbSink, TimedResampler};
pub use steps::{Step, compose};
pub use stored::{Conversion, StoredFiller, StoredImage, StoredRow, StoredWindow, ValueType};

/// Bytes of pixels that a filler keeps between images: enough for a picture of 2000 x 2000.
const KEPT_BYTES: usize = 16 << 20;

/// Options for all images of a call.
#[derive(Clone, Copy, Debug)]
pub struct FillOptions {
    /// Filter of the resize.
    pub filter: Filter,
    /// Channels of decoded images.
    pub mode: Mode,
    /// Layout of the row.
    pub layout: Layout,
    /// Width and height of the window.
    pub window: [usize; 2],
    /// Colour of the window outside the picture, a value for each channel of the mode.
    pub background: [u8; 4],
    /// Factor and summand of alpha, if rows are normalised.
    pub alpha: [f32; 2],
    /// Encoded images are decoded at the smallest scale that still has this many samples for each pixel of the size, in
    /// both directions. Infinite: always at full size.
    pub quality: f64,
    /// Whether JPEGs are converted to RGB after the resize, where that makes them smaller.
    pub late_color: bool,
    /// Limits on what an image may declare.
    pub limits: Limits,
}

/// Time spent.
#[derive(Clone, Copy, Debug, Default)]
pub struct FillTimes {
    /// Header, entropy decoding, IDCT, upsampling and colour.
    pub decode: Duration,
    /// Resizing and writing the row.
    pub resize: Duration,
}

/// Why an image could not become a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FillError {
    /// The bytes were refused.
    Image(Error),
    /// The geometry does not fit the image.
    Geometry(String),
}

impl From<Error> for FillError {
    fn from(error: Error) -> Self {
        FillError::Image(error)
    }
}

/// Interleaved 8-bit pixels, rows without gaps.
#[derive(Clone, Copy, Debug)]
pub struct Interleaved<'a> {
    /// `width * height * channels` bytes.
    pub bytes: &'a [u8],
    /// Pixels per row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// 1 or 3.
    pub channels: usize,
}

/// Fills rows, one image after another.
pub struct Filler {
    level: Available,
    decoder: Decoder,
    png: png::Decoder,
    webp: webp::Decoder,
    open: OpenRows,
    late: LateColor,
    resampler: Resampler,
    writer: RowWriter,
    deep: DeepBuffers,
}

impl Filler {
    /// A filler that uses the kernels of `level`.
    pub fn with_level(level: Available) -> Self {
        Self {
            level,
            decoder: Decoder::with_level(level),
            png: png::Decoder::default(),
            webp: webp::Decoder::default(),
            open: OpenRows::default(),
            late: LateColor::new(level),
            resampler: Resampler::with_level(level),
            writer: RowWriter::new(level),
            deep: DeepBuffers::default(),
        }
    }

    /// Decodes an image into a row, and adds to `times`. Hints, and a reduced scale, are for JPEGs.
    ///
    /// # Errors
    /// [`FillError`]. The row is unchanged.
    pub fn fill(
        &mut self,
        encoded: &[u8],
        hints: DecodeHints<'_>,
        geometry: &Geometry,
        options: &FillOptions,
        row: Row<'_>,
        times: &mut FillTimes,
    ) -> Result<SeekReport, FillError> {
        let begun = Instant::now();
        let filled = image::Header::parse(encoded, &options.limits)
            .map_err(FillError::Image)
            .and_then(|header| {
                geometry
                    .check_inside(header.width(), header.height())
                    .map_err(FillError::Geometry)?;
                match header {
                    image::Header::Jpeg(header) => self.fill_jpeg(&header, hints, geometry, options, row, times, begun),
                    other => self.fill_encoded(&other, geometry, options, row, times, begun),
                }
            });
        self.resampler.shrink(KEPT_BYTES);
        self.late.shrink(KEPT_BYTES);
        filled
    }

    /// Writes decoded pixels to a row. An image of 1 channel needs a row of 1 channel.
    ///
    /// # Errors
    /// [`FillError`]. The row is unchanged.
    pub fn fill_pixels(
        &mut self,
        image: Interleaved<'_>,
        geometry: &Geometry,
        options: &FillOptions,
        row: Row<'_>,
    ) -> Result<(), FillError> {
        let filled = self.fill_row_from_pixels(image, geometry, options, row);
        self.resampler.shrink(KEPT_BYTES);
        filled
    }

    fn fill_row_from_pixels(
        &mut self,
        image: Interleaved<'_>,
        geometry: &Geometry,
        options: &FillOptions,
        row: Row<'_>,
    ) -> Result<(), FillError> {
        geometry
            .check_inside(image.width, image.height)
            .map_err(FillError::Geometry)?;
        self.late.leave();
        let needed = begin_resize(&mut self.resampler, geometry, Scale::Full, options, image.channels, 1)?;
        for y in 0..needed.height {
            let start = ((needed.y + y) * image.width + needed.x) * image.channels;
            let line = &image.bytes[start..][..needed.width * image.channels];
            let [r, g, b, _] = self.resampler.rows_mut(y);
            if image.channels == 1 {
                r[..line.len()].copy_from_slice(line);
            } else {
                lines::deinterleave(self.level, line, [r, g, b]);
            }
            self.resampler.done(y + 1);
        }
        Ok(self.finish(geometry, options, row)?)
    }

    /// Decodes a region as interleaved pixels of a mode. Only JPEGs have other scales than the full size.
    ///
    /// # Errors
    /// As the decoder of the format. `out` is partly written.
    pub fn decode(
        &mut self,
        header: &image::Header<'_>,
        hints: DecodeHints<'_>,
        region: Region,
        mode: Mode,
        out: &mut [u8],
    ) -> Result<SeekReport, Error> {
        let width = region.width;
        if mode != Mode::Rgb {
            return self.decode_mode(header, hints, region, mode, out);
        }
        match header {
            image::Header::Jpeg(header) => self.decode_jpeg(header, hints, region, out),
            image::Header::Png(header) => self
                .png
                .decode(self.level, header, region, &mut RgbSink { out, width })
                .map(|()| SeekReport::default()),
            image::Header::WebP(header) => self
                .webp
                .decode(self.level, header, region, &mut RgbSink { out, width })
                .map(|()| SeekReport::default()),
        }
    }

    fn decode_jpeg(
        &mut self,
        header: &Header<'_>,
        hints: DecodeHints<'_>,
        region: Region,
        out: &mut [u8],
    ) -> Result<SeekReport, Error> {
        if let Some(report) = self.decode_bands(header, hints, region, out) {
            return Ok(report);
        }
        let width = region.width;
        self.decoder
            .decode_with_hints(header, region, hints, &mut RgbSink { out, width }, |_| ())
    }

    /// Decodes a region to the luma that a JPEG stores: its chroma is neither transformed nor converted. Of other images,
    /// and of JPEGs that store none, to [`Mode::Luma`], which is computed of RGB.
    ///
    /// # Errors
    /// As [`Self::decode`]. `out` is partly written.
    pub fn decode_stored_luma(
        &mut self,
        header: &image::Header<'_>,
        hints: DecodeHints<'_>,
        region: Region,
        out: &mut [u8],
    ) -> Result<SeekReport, Error> {
        let width = region.width;
        match header {
            image::Header::Jpeg(header) if matches!(header.color(), Color::YCbCr | Color::Gray) => self
                .decoder
                .decode_with_hints(header, region, hints, &mut LumaSink { out, width }, |_| ()),
            _ => self.decode(header, hints, region, Mode::Luma, out),
        }
    }

    /// Decodes the values of a PNG of one channel: see [`png::Decoder::decode_values`].
    ///
    /// # Errors
    /// As [`png::Decoder::decode_values`]. `values` are partly written.
    pub fn decode_values(&mut self, header: &png::Header<'_>, values: png::Values<'_>) -> Result<(), Error> {
        self.png.decode_values(self.level, header, values)
    }

    /// Decodes the samples of a PNG of 16 bits: see [`png::Decoder::decode_samples`].
    ///
    /// # Errors
    /// As [`png::Decoder::decode_samples`]. `samples` are partly written.
    pub fn decode_samples(
        &mut self,
        header: &png::Header<'_>,
        region: Region,
        samples: &mut [u16],
    ) -> Result<(), Error> {
        self.png.decode_samples(self.level, header, region, samples)
    }

    /// Decodes a region of a damaged picture, as libjpeg does, into HWC RGB: see [`Decoder::decode_damaged`].
    ///
    /// # Errors
    /// As [`Decoder::decode_damaged`]. `out` is partly written.
    pub fn decode_damaged(
        &mut self,
        header: &Header<'_>,
        limits: &Limits,
        region: Region,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let width = region.width;
        self.decoder
            .decode_damaged(header, limits, region, &mut RgbSink { out, width })
    }

    /// Reads a scan once and makes its seek table.
    ///
    /// # Errors
    /// As [`Decoder::build_seek_table`].
    pub fn build_seek_table(&mut self, header: &Header<'_>, kind: SeekTableKind) -> Result<SeekTable, Error> {
        self.decoder.build_seek_table(header, kind)
    }

    fn finish(&mut self, geometry: &Geometry, options: &FillOptions, row: Row<'_>) -> Result<(), Error> {
        let picture = match self.late.windows() {
            Some(_) => self.late.convert(self.level, self.resampler.words())?,
            None => self.resampler.picture(),
        };
        let picture = std::slice::from_ref(picture);
        self.writer.write(picture, geometry, options, row)
    }
}

/// Starts a picture. Returns the part of the image at `scale` that is needed.
fn begin_resize(
    resampler: &mut Resampler,
    geometry: &Geometry,
    scale: Scale,
    options: &FillOptions,
    planes: usize,
    open_rows: usize,
) -> Result<Region, Error> {
    let [x, y] = geometry.axes(scale);
    let around = geometry.scaled_region(scale);
    let order = axis_order(geometry);
    let needed = resampler.begin(options.filter, [x, y], order, planes, open_rows)?;
    Ok(Region {
        x: around.x + needed.x,
        y: around.y + needed.y,
        width: needed.width,
        height: needed.height,
        scale,
    })
}

fn axis_order(geometry: &Geometry) -> AxisOrder {
    if geometry.orientation().transposes {
        AxisOrder::Transposed
    } else {
        AxisOrder::Stored
    }
}

/// Calls `f` with this thread's filler for `level`. The filler keeps its memory between calls. What a panic of `f` leaves
/// of it is dropped.
pub fn with_filler<R>(level: Available, f: impl FnOnce(&mut Filler) -> R) -> R {
    thread_local! {
        static FILLER: Cell<Option<Box<Filler>>> = const { Cell::new(None) };
    }
    let kept = FILLER.take().filter(|filler| filler.level == level);
    let mut filler = kept.unwrap_or_else(|| Box::new(Filler::with_level(level)));
    let result = f(&mut filler);
    FILLER.set(Some(filler));
    result
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_filler_in_which_a_call_panicked_is_not_used_again() {
        let level = Available::best();
        let kept = |filler: &mut Filler| filler.deep.samples.len();
        with_filler(level, |filler| filler.deep.samples.push(7));
        assert_eq!(with_filler(level, kept), 1, "memory is kept between calls");

        let call = || with_filler(level, |_| panic!("on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err());

        assert_eq!(with_filler(level, kept), 0);
    }
}
