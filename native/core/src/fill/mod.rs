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
mod lines;

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::jpeg::{Decoder, Found, Guide, Header, Index, Kind, Limits, Region, Scale};
use crate::resample::{Filter, Picture, Resampler};
use crate::rows::RowSink;
use crate::simd::Level;
pub use geometry::Geometry;
pub use lines::{Affine, Lines};

/// Memory for pixels that a filler keeps between images: enough for a picture of 2000 x 2000.
const KEPT_BYTES: usize = 16 << 20;

/// How a row's three axes are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Row, column, channel.
    Hwc,
    /// Channel, row, column.
    Chw,
}

/// A row to be written, of exactly the picture's number of elements.
#[derive(Debug)]
pub enum Row<'a> {
    /// Levels.
    U8(&'a mut [u8]),
    /// Normalised, as the bits of half floats.
    F16(&'a mut [u16], Affine),
    /// Normalised.
    F32(&'a mut [f32], Affine),
}

impl Row<'_> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Row::U8(row) => row.len(),
            Row::F16(row, _) => row.len(),
            Row::F32(row, _) => row.len(),
        }
    }

    /// True of a row without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

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
    level: Level,
    decoder: Decoder,
    resampler: Resampler,
    writer: Writer,
}

impl Filler {
    /// Kernels of the given level, or the best below it that this processor has.
    pub fn with_level(level: Level) -> Self {
        Self {
            level,
            decoder: Decoder::with_level(level),
            resampler: Resampler::with_level(level),
            writer: Writer {
                lines: Lines::new(level),
                framed: [const { Vec::new() }; 3],
                mirrored: [const { Vec::new() }; 3],
                interleaved: Vec::new(),
            },
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
        let begun = Instant::now();
        let header = Header::parse(jpeg, &recipe.limits)?;
        geometry
            .check_inside(header.width(), header.height())
            .map_err(Failure::Geometry)?;
        let scale = geometry.scale(recipe.quality);
        let open_rows = strip_rows(&header, scale);
        let region = begin(&mut self.resampler, geometry, scale, recipe, 3, open_rows);
        if let Some((pictures, resized, found)) = self.fill_bands(&header, guide, geometry, recipe, region) {
            spent.resize += resized;
            spent.decode += begun.elapsed().saturating_sub(resized);
            let begun = Instant::now();
            self.writer.write(&pictures, geometry, recipe, row);
            spent.resize += begun.elapsed();
            return Ok(found);
        }
        let region = begin(&mut self.resampler, geometry, scale, recipe, 3, open_rows);
        let mut sink = Timed {
            resampler: &mut self.resampler,
            spent: Duration::ZERO,
        };
        let decoded = self.decoder.decode_guided(&header, region, guide, &mut sink, |sink| {
            begin(sink.resampler, geometry, scale, recipe, 3, open_rows);
        });
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
        geometry
            .check_inside(image.width, image.height)
            .map_err(Failure::Geometry)?;
        let needed = begin(&mut self.resampler, geometry, Scale::Full, recipe, image.channels, 1);
        for y in 0..needed.height {
            let start = ((needed.y + y) * image.width + needed.x) * image.channels;
            let line = &image.bytes[start..][..needed.width * image.channels];
            let [r, g, b] = self.resampler.rows_mut(y);
            if image.channels == 1 {
                r[..line.len()].copy_from_slice(line);
            } else {
                self.writer.lines.deinterleave(line, [r, g, b]);
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
        self.resampler.shrink(KEPT_BYTES);
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
) -> Region {
    let [x, y] = geometry.axes(scale);
    let around = geometry.scaled_region(scale);
    let needed = resampler.begin(recipe.filter, x, y, planes, open_rows);
    Region {
        x: around.x + needed.x,
        y: around.y + needed.y,
        width: needed.width,
        height: needed.height,
        scale,
    }
}

/// Calls `f` with this thread's filler of that level, which keeps its memory between calls.
///
/// # Panics
/// If `f` calls this function again.
pub fn with_filler<R>(level: Level, f: impl FnOnce(&mut Filler) -> R) -> R {
    thread_local! {
        static FILLER: RefCell<Option<(Level, Filler)>> = const { RefCell::new(None) };
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

/// Writes pictures as rows of a batch.
struct Writer {
    lines: Lines,
    framed: [Vec<u8>; 3],
    mirrored: [Vec<u8>; 3],
    interleaved: Vec<u8>,
}

impl Writer {
    /// Writes a picture that lies in bands, from top to bottom.
    fn write(&mut self, bands: &[Picture], geometry: &Geometry, recipe: &Recipe, mut row: Row<'_>) {
        let [first, ..] = bands else { return };
        let (planes, [width, height]) = (first.planes, recipe.window);
        let seen = [first.width, bands.iter().map(|band| band.height).sum()];
        assert_eq!(seen, geometry.seen(), "the part of the window that shows the picture");
        assert_eq!(row.len(), planes * width * height, "a row as large as the window");
        let frame = Frame {
            before: geometry.frame(),
            seen,
            window: recipe.window,
            colour: recipe.beside,
        };
        let source = |y| if geometry.flip_y { height - 1 - y } else { y };
        let [fr, fg, fb] = &mut self.framed;
        if recipe.layout == Layout::Chw || planes == 1 {
            for (plane, y) in (0..planes).flat_map(|plane| (0..height).map(move |y| (plane, y))) {
                let mut line = frame.line(bands, plane, source(y), fr);
                if geometry.flip_x {
                    line = mirror(self.lines, line, &mut self.mirrored[0]);
                }
                put(self.lines, line, (plane * height + y) * width, Some(plane), &mut row);
            }
            return;
        }
        self.interleaved.resize(3 * width, 0);
        for y in 0..height {
            let from = source(y);
            let mut r = frame.line(bands, 0, from, fr);
            let mut g = frame.line(bands, 1, from, fg);
            let mut b = frame.line(bands, 2, from, fb);
            if geometry.flip_x {
                let [mr, mg, mb] = &mut self.mirrored;
                r = mirror(self.lines, r, mr);
                g = mirror(self.lines, g, mg);
                b = mirror(self.lines, b, mb);
            }
            if let Row::U8(out) = &mut row {
                self.lines.interleave([r, g, b], &mut out[3 * y * width..][..3 * width]);
            } else {
                self.lines.interleave([r, g, b], &mut self.interleaved);
                put(self.lines, &self.interleaved, 3 * y * width, None, &mut row);
            }
        }
    }
}

/// A picture in a window that may be larger, and shows a colour beside it.
struct Frame {
    before: [usize; 2],
    seen: [usize; 2],
    window: [usize; 2],
    colour: [u8; 3],
}

impl Frame {
    /// Line `y` of the window, of one plane; composed in `framed` if there is something beside the picture.
    fn line<'a>(&self, bands: &'a [Picture], plane: usize, y: usize, framed: &'a mut Vec<u8>) -> &'a [u8] {
        let content = y.checked_sub(self.before[1]).filter(|y| *y < self.seen[1]);
        let content = content.map_or(&[][..], |y| banded(bands, plane, y));
        if self.seen[0] == self.window[0] && !content.is_empty() {
            return content;
        }
        framed.clear();
        if !content.is_empty() {
            framed.resize(self.before[0], self.colour[plane]);
            framed.extend_from_slice(content);
        }
        framed.resize(self.window[0], self.colour[plane]);
        framed
    }
}

/// Line `y` of a picture in bands.
fn banded(bands: &[Picture], plane: usize, mut y: usize) -> &[u8] {
    for band in bands {
        if y < band.height {
            return band.row(plane, y);
        }
        y -= band.height;
    }
    &[]
}

fn mirror<'a>(lines: Lines, line: &[u8], mirrored: &'a mut Vec<u8>) -> &'a [u8] {
    mirrored.resize(line.len(), 0);
    lines.reverse(line, mirrored);
    mirrored
}

/// Writes a line from element `at` on, of one channel or of all in turn.
fn put(lines: Lines, line: &[u8], at: usize, channel: Option<usize>, row: &mut Row<'_>) {
    let of = |affine: &Affine| channel.map_or(*affine, |c| affine.channel(c));
    match row {
        Row::U8(out) => out[at..][..line.len()].copy_from_slice(line),
        Row::F16(out, affine) => lines.normalise_f16(line, &of(affine), &mut out[at..][..line.len()]),
        Row::F32(out, affine) => lines.normalise_f32(line, &of(affine), &mut out[at..][..line.len()]),
    }
}
