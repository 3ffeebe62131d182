//! From bytes to a row of a batch: decode the part that is seen, resize, flip, normalise, write.
//!
//! ```text
//!  JPEG bytes ──> Header ──> Decoder ──rows──> Resampler ──> picture ──> row of the batch
//!                 (size,      (only what         (planar,      (u8)        (layout, flip,
//!                  cap)        the taps need)     as they come)             u8 | f16 | f32)
//! ```
//!
//! The row is written only once the whole picture is there: after an error it is untouched. One [`Filler`] per thread
//! keeps all memory between images; nothing here is shared and nothing knows of threads.

mod bands;
mod geometry;
pub mod lines;
mod row;

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::jpeg::{Decoder, Found, Guide, Header, Index, Kind, Limits, Region, Scale};
use crate::resample::{Filter, Resampler};
use crate::rows::RowSink;
use crate::simd::Available;
pub use geometry::Geometry;
pub use lines::Affine;
use row::Writer;
pub use row::{Layout, Row};

/// Memory for pixels that a filler keeps between images: enough for a picture of 2000 x 2000.
const KEPT_BYTES: usize = 16 << 20;

/// How every image of a chunk is treated.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// Filter of the resize.
    pub filter: Filter,
    /// Layout of the row.
    pub layout: Layout,
    /// Width and height of the window.
    pub window: [usize; 2],
    /// Colour of what a window shows beside the picture.
    pub beside: [u8; 3],
    /// Encoded images are decoded at the smallest scale that still has so many samples across and down for each pixel of
    /// the size they are resized to; infinite: always in full.
    pub quality: f64,
    /// Limits on what an image may declare.
    pub limits: Limits,
}

/// Where the time went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Header, entropy decoding, IDCT, upsampling and colour.
    pub decode: Duration,
    /// Resizing and writing the row.
    pub resize: Duration,
}

/// Why an image did not become a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The bytes were refused.
    Image(Error),
    /// The geometry does not fit the image.
    Geometry(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Image(error)
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
    resampler: Resampler,
    writer: Writer,
}

impl Filler {
    /// Kernels of the given level, or the best below it that this processor has.
    pub fn with_level(level: Available) -> Self {
        Self {
            level,
            decoder: Decoder::with_level(level),
            resampler: Resampler::with_level(level),
            writer: Writer::new(level),
        }
    }

    /// Decodes a JPEG into a row, and adds to `spent`.
    ///
    /// # Errors
    /// The row is untouched.
    pub fn fill(
        &mut self,
        jpeg: &[u8],
        guide: Guide<'_>,
        geometry: &Geometry,
        recipe: &Recipe,
        row: Row<'_>,
        spent: &mut Spent,
    ) -> Result<Found, Failure> {
        let filled = self.fill_row(jpeg, guide, geometry, recipe, row, spent);
        self.resampler.shrink(KEPT_BYTES);
        filled
    }

    fn fill_row(
        &mut self,
        jpeg: &[u8],
        guide: Guide<'_>,
        geometry: &Geometry,
        recipe: &Recipe,
        row: Row<'_>,
        spent: &mut Spent,
    ) -> Result<Found, Failure> {
        let begun = Instant::now();
        let header = Header::parse(jpeg, &recipe.limits)?;
        geometry
            .check_inside(header.width(), header.height())
            .map_err(Failure::Geometry)?;
        let scale = geometry.scale(recipe.quality);
        let open_rows = strip_rows(&header, scale);
        let region = begin(&mut self.resampler, geometry, scale, recipe, 3, open_rows)?;
        if let Some((pictures, resized, found)) = self.fill_bands(&header, guide, geometry, recipe, region) {
            spent.resize += resized;
            spent.decode += begun.elapsed().saturating_sub(resized);
            let begun = Instant::now();
            self.writer.write(&pictures, geometry, recipe, row);
            spent.resize += begun.elapsed();
            return Ok(found);
        }
        let region = begin(&mut self.resampler, geometry, scale, recipe, 3, open_rows)?;
        let mut sink = Timed {
            resampler: &mut self.resampler,
            spent: Duration::ZERO,
        };
        let decoded = self
            .decoder
            .decode_guided(&header, region, guide, &mut sink, |sink| sink.resampler.restart());
        let resized = sink.spent;
        spent.resize += resized;
        spent.decode += begun.elapsed().saturating_sub(resized);
        let found = decoded?;
        let begun = Instant::now();
        self.finish(geometry, recipe, row);
        spent.resize += begun.elapsed();
        Ok(found)
    }

    /// The same from pixels; 1 channel gives a row of 1.
    ///
    /// # Errors
    /// The row is untouched.
    pub fn fill_pixels(
        &mut self,
        image: Interleaved<'_>,
        geometry: &Geometry,
        recipe: &Recipe,
        row: Row<'_>,
    ) -> Result<(), Failure> {
        let filled = self.fill_row_of_pixels(image, geometry, recipe, row);
        self.resampler.shrink(KEPT_BYTES);
        filled
    }

    fn fill_row_of_pixels(
        &mut self,
        image: Interleaved<'_>,
        geometry: &Geometry,
        recipe: &Recipe,
        row: Row<'_>,
    ) -> Result<(), Failure> {
        geometry
            .check_inside(image.width, image.height)
            .map_err(Failure::Geometry)?;
        let needed = begin(&mut self.resampler, geometry, Scale::Full, recipe, image.channels, 1)?;
        for y in 0..needed.height {
            let start = ((needed.y + y) * image.width + needed.x) * image.channels;
            let line = &image.bytes[start..][..needed.width * image.channels];
            let [r, g, b] = self.resampler.rows_mut(y);
            if image.channels == 1 {
                r[..line.len()].copy_from_slice(line);
            } else {
                lines::deinterleave(self.level, line, [r, g, b]);
            }
            self.resampler.done(y + 1);
        }
        self.finish(geometry, recipe, row);
        Ok(())
    }

    /// Decodes a region into interleaved RGB.
    ///
    /// # Errors
    /// `out` is partly written.
    pub fn decode(
        &mut self,
        header: &Header<'_>,
        guide: Guide<'_>,
        region: Region,
        out: &mut [u8],
    ) -> Result<Found, Error> {
        if let Some(found) = self.decode_bands(header, guide, region, out) {
            return Ok(found);
        }
        let width = region.width;
        self.decoder
            .decode_guided(header, region, guide, &mut Rgb { out, width }, |_| ())
    }

    /// Goes through a scan once and makes its index.
    ///
    /// # Errors
    /// Where the image is damaged.
    pub fn index(&mut self, header: &Header<'_>, kind: Kind) -> Result<Index, Error> {
        self.decoder.index(header, kind)
    }

    fn finish(&mut self, geometry: &Geometry, recipe: &Recipe, row: Row<'_>) {
        let picture = std::slice::from_ref(self.resampler.picture());
        self.writer.write(picture, geometry, recipe, row);
    }
}

/// The most rows that come at once: a strip is an MCU row, and the row before it if that waited for chroma from below.
fn strip_rows(header: &Header<'_>, scale: Scale) -> usize {
    8 * header.vmax / scale.denominator() + 1
}

/// Starts a picture; tells what is needed of the image at `scale`.
fn begin(
    resampler: &mut Resampler,
    geometry: &Geometry,
    scale: Scale,
    recipe: &Recipe,
    planes: usize,
    open_rows: usize,
) -> Result<Region, Error> {
    let [x, y] = geometry.axes(scale);
    let around = geometry.scaled_region(scale);
    let needed = resampler.begin(recipe.filter, x, y, planes, open_rows)?;
    Ok(Region {
        x: around.x + needed.x,
        y: around.y + needed.y,
        width: needed.width,
        height: needed.height,
        scale,
    })
}

/// Calls `f` with this thread's filler of that level, which keeps its memory between calls.
///
/// # Panics
/// If `f` calls this function again.
pub fn with_filler<R>(level: Available, f: impl FnOnce(&mut Filler) -> R) -> R {
    thread_local! {
        static FILLER: RefCell<Option<(Available, Filler)>> = const { RefCell::new(None) };
    }
    FILLER.with_borrow_mut(|kept| match kept {
        Some((made_for, filler)) if *made_for == level => f(filler),
        _ => f(&mut kept.insert((level, Filler::with_level(level))).1),
    })
}

/// Hands rows on to the resampler and measures how long it takes.
struct Timed<'a> {
    resampler: &'a mut Resampler,
    spent: Duration,
}

impl RowSink for Timed<'_> {
    const PLANAR: bool = true;

    fn row(&mut self, y: usize) -> [&mut [u8]; 3] {
        self.resampler.rows_mut(y)
    }

    fn done(&mut self, end: usize) {
        let begun = Instant::now();
        self.resampler.done(end);
        self.spent += begun.elapsed();
    }
}

/// Interleaved RGB without gaps.
struct Rgb<'a> {
    out: &'a mut [u8],
    width: usize,
}

impl RowSink for Rgb<'_> {
    const PLANAR: bool = false;

    fn row(&mut self, y: usize) -> [&mut [u8]; 3] {
        [&mut self.out[3 * y * self.width..][..3 * self.width], &mut [], &mut []]
    }

    fn done(&mut self, _end: usize) {}
}
