//! The decoder: lines of the file, unfiltered, as rows of the sink.

use super::header::{Color, Header};
use super::inflate::DataReader;
use super::pixels::{Source, alpha_position, color_positions, color_table, copy_alpha, gray_level};
use super::pixels::{to_interleaved, to_planes, unpack};
use super::unfilter::{Filter, unfilter};
use crate::error::{Error, corrupt};
use crate::jpeg::{Region, Scale};
use crate::memory::grow;
use crate::rows::{ROWS_AT_ONCE, RowSink};
use crate::simd::Available;

/// Bytes of buffers that are kept between images.
const KEPT_BYTES: usize = 16 << 20;

/// First column, first row, and the steps to the next ones, of the passes of interlaced files (Adam7).
const PASSES: [[usize; 4]; 7] = [
    [0, 0, 8, 8],
    [4, 0, 8, 8],
    [0, 4, 4, 8],
    [2, 0, 4, 4],
    [0, 2, 2, 4],
    [1, 0, 2, 2],
    [0, 1, 1, 2],
];

/// Where the values of an image of one channel are written.
pub enum Values<'a> {
    /// Of at most 8 bits.
    Bytes(&'a mut [u8]),
    /// Of 16 bits.
    Words(&'a mut [u16]),
}

/// Decodes one image after another and keeps its buffers.
#[derive(Default)]
pub struct Decoder {
    window: Vec<u8>,
    /// The last two unfiltered lines.
    lines: [Vec<u8>; 2],
    unpacked: Vec<u8>,
    /// The pixels of an interlaced file, a byte or more each.
    whole: Vec<u8>,
}

/// The pixels that are needed: columns, and rows up to the last.
#[derive(Clone, Copy)]
struct NeededPixels {
    left: usize,
    right: usize,
    bottom: usize,
}

impl NeededPixels {
    /// Those of a region, which must lie inside the picture.
    fn of(header: &Header<'_>, region: Region) -> Self {
        let needed = Self {
            left: region.x,
            right: region.x + region.width,
            bottom: region.y + region.height,
        };
        assert!(
            needed.right <= header.width && needed.bottom <= header.height,
            "the region must lie inside the picture"
        );
        needed
    }
}

impl Decoder {
    /// Decodes a region, at full size, into `sink`: each row once, from top to bottom.
    ///
    /// # Errors
    /// [`Error::Corrupt`]: the file is truncated, or damaged down to the last row of the region. If that is the last row
    /// of the picture, the checksum of the data is compared. [`Error::OutOfMemory`]. Rows that the sink received before
    /// are not valid.
    ///
    /// # Panics
    /// If `region` is not inside the picture.
    pub fn decode<S: RowSink>(
        &mut self,
        level: Available,
        header: &Header<'_>,
        region: Region,
        sink: &mut S,
    ) -> Result<(), Error> {
        let needed = NeededPixels::of(header, region);
        let table = color_table(header);
        let source = table.as_ref().map_or_else(|| color_positions(header), Source::Table);
        let alpha = alpha_position(header);
        self.read_lines(level, header, needed, |y, pixels| {
            let Some(y) = y.checked_sub(region.y) else { return };
            let out = sink.row(y);
            if S::PLANAR {
                to_planes(level, source, pixels, out);
                if let Some(alpha) = alpha {
                    copy_alpha(alpha, pixels, sink.alpha(y));
                }
            } else {
                let [out, ..] = out;
                to_interleaved(source, pixels, &mut out[..3 * region.width]);
            }
            if (y + 1).is_multiple_of(ROWS_AT_ONCE) || y + 1 == region.height {
                sink.done(y + 1);
            }
        })
    }

    /// Decodes the values of a picture of one channel: indices of a palette, gray levels of 8 or 16 bits. Levels of less
    /// than 8 bits are brought to 8.
    ///
    /// # Errors
    /// As [`Self::decode`]. [`Error::Unsupported`]: as [`Header::channel_bits`].
    ///
    /// # Panics
    /// If `values` has not as many elements of the size that [`Header::channel_bits`] says as the picture has pixels.
    pub fn decode_values(&mut self, level: Available, header: &Header<'_>, values: Values<'_>) -> Result<(), Error> {
        let bits = header.channel_bits()?;
        let (width, bottom) = (header.width, header.height);
        let needed = NeededPixels {
            left: 0,
            right: width,
            bottom,
        };
        match values {
            Values::Bytes(out) if bits == 8 => {
                assert_eq!(out.len(), width * bottom, "a byte for each pixel");
                let depth = if header.color == Color::Gray { header.depth } else { 8 };
                self.read_lines(level, header, needed, |y, pixels| {
                    let out = &mut out[y * width..][..width];
                    out.copy_from_slice(pixels);
                    if depth < 8 {
                        out.iter_mut().for_each(|value| *value = gray_level(*value, depth));
                    }
                })
            }
            Values::Words(out) if bits == 16 => {
                let region = Region {
                    x: 0,
                    y: 0,
                    width,
                    height: bottom,
                    scale: Scale::Full,
                };
                self.decode_samples(level, header, region, out)
            }
            _ => panic!("values of {bits} bits need elements of that size"),
        }
    }

    /// Decodes the samples of a region of a picture of 16 bits, as they are stored: pixel after pixel.
    ///
    /// # Errors
    /// As [`Self::decode`].
    ///
    /// # Panics
    /// If `samples` has not the length of the region times [`Header::deep_samples`], or samples have less bits.
    pub fn decode_samples(
        &mut self,
        level: Available,
        header: &Header<'_>,
        region: Region,
        samples: &mut [u16],
    ) -> Result<(), Error> {
        let needed = NeededPixels::of(header, region);
        let line = region.width * header.color.samples();
        assert_eq!(header.depth, 16, "samples of 16 bits");
        assert_eq!(samples.len(), line * region.height, "a word for each sample");
        self.read_lines(level, header, needed, |y, pixels| {
            let Some(y) = y.checked_sub(region.y) else { return };
            for (to, bytes) in samples[y * line..][..line].iter_mut().zip(pixels.as_chunks().0) {
                *to = u16::from_be_bytes(*bytes);
            }
        })
    }

    /// Calls `f` with each row's number and its needed pixels, a byte or more each, from the first row on.
    fn read_lines(
        &mut self,
        level: Available,
        header: &Header<'_>,
        needed: NeededPixels,
        f: impl FnMut(usize, &[u8]),
    ) -> Result<(), Error> {
        header.read_to_end()?;
        let read = if header.is_interlaced {
            self.read_interlaced(level, header, needed, f)
        } else {
            self.read_sequential(level, header, needed, f)
        };
        for buffer in [&mut self.window, &mut self.whole] {
            if buffer.len() > KEPT_BYTES {
                *buffer = Vec::new();
            }
        }
        read
    }

    fn read_sequential(
        &mut self,
        level: Available,
        header: &Header<'_>,
        needed: NeededPixels,
        mut f: impl FnMut(usize, &[u8]),
    ) -> Result<(), Error> {
        let nbytes = header.line_nbytes(header.width);
        let mut data = header.data(line_total(nbytes, header.height));
        self.begin_lines(nbytes, needed.right)?;
        for y in 0..needed.bottom {
            let soon = line_total(nbytes, needed.bottom - y - 1);
            let used = header.line_nbytes(needed.right);
            self.next_line(level, header, &mut data, [nbytes, used], soon)?;
            let pixels = pixels_of(header, &self.lines[0], needed.left..needed.right, &mut self.unpacked);
            f(y, pixels);
        }
        if needed.bottom == header.height {
            data.finish(&mut self.window)?;
        }
        Ok(())
    }

    fn read_interlaced(
        &mut self,
        level: Available,
        header: &Header<'_>,
        needed: NeededPixels,
        mut f: impl FnMut(usize, &[u8]),
    ) -> Result<(), Error> {
        let pixel = header.pixel_nbytes();
        grow(&mut self.whole, header.width * header.height * pixel)?;
        let passes = PASSES.map(|[x, y, across, down]| {
            let side = |size: usize, start: usize, step| size.saturating_sub(start).div_ceil(step);
            let (width, height) = (side(header.width, x, across), side(header.height, y, down));
            (width, if width == 0 { 0 } else { height })
        });
        let total = passes.map(|(width, height)| line_total(header.line_nbytes(width), height));
        let mut data = header.data(total.iter().sum());
        for ([x, y, across, down], (width, height)) in PASSES.into_iter().zip(passes) {
            let nbytes = header.line_nbytes(width);
            self.begin_lines(nbytes, width)?;
            for line in 0..height {
                self.next_line(level, header, &mut data, [nbytes; 2], u64::MAX / 2)?;
                let pixels = pixels_of(header, &self.lines[0], 0..width, &mut self.unpacked);
                let row = &mut self.whole[(y + line * down) * header.width * pixel..][..header.width * pixel];
                for (i, from) in pixels.chunks_exact(pixel).enumerate() {
                    row[(x + i * across) * pixel..][..pixel].copy_from_slice(from);
                }
            }
        }
        data.finish(&mut self.window)?;
        for y in 0..needed.bottom {
            let row = &self.whole[y * header.width * pixel..][..needed.right * pixel];
            f(y, &row[needed.left * pixel..]);
        }
        Ok(())
    }

    /// Prepares for lines of so many bytes, the first of which has zeros above it, and pixels up to `right`.
    fn begin_lines(&mut self, nbytes: usize, right: usize) -> Result<(), Error> {
        for line in &mut self.lines {
            grow(line, nbytes)?;
        }
        self.lines[0][..nbytes].fill(0);
        grow(&mut self.unpacked, right)
    }

    /// Reads a line of `nbytes` bytes, of which `used` are needed, to `lines[0]`.
    fn next_line(
        &mut self,
        level: Available,
        header: &Header<'_>,
        data: &mut DataReader<'_>,
        [nbytes, used]: [usize; 2],
        soon: u64,
    ) -> Result<(), Error> {
        self.lines.swap(0, 1);
        let [line, above] = &mut self.lines;
        let filtered = data.next(1 + nbytes, soon, &mut self.window)?;
        let Some(filter) = Filter::from_byte(filtered[0]) else {
            return corrupt("a line has a filter that does not exist", header.first_data.offset);
        };
        let pixel = header.bits_per_pixel().div_ceil(8);
        unfilter(level, filter, pixel, &filtered[1..][..used], above, line);
        Ok(())
    }
}

/// Bytes of so many lines, with their filters.
fn line_total(nbytes: usize, lines: usize) -> u64 {
    (nbytes as u64 + 1) * lines as u64
}

/// Pixels of an unfiltered line, a byte or more each.
fn pixels_of<'a>(
    header: &Header<'_>,
    line: &'a [u8],
    columns: std::ops::Range<usize>,
    unpacked: &'a mut [u8],
) -> &'a [u8] {
    if header.depth < 8 {
        let out = &mut unpacked[..columns.len()];
        unpack(header.depth, line, columns.start, out);
        return out;
    }
    let pixel = header.pixel_nbytes();
    &line[columns.start * pixel..columns.end * pixel]
}
