//! The header: everything before the first IDAT chunk, and the order of what follows.

use super::chunks::Chunk;
use super::metadata::Metadata;
use super::{SIGNATURE, inflate};
use crate::error::{Error, corrupt};
use crate::jpeg::Limits;

/// Most pixels, so that numbers of bytes are numbers of 64 bits.
const MAX_PIXELS: u64 = 1 << 40;

/// What a pixel consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Color {
    Gray,
    Rgb,
    Palette,
    GrayAlpha,
    Rgba,
}

impl Color {
    /// Samples per pixel.
    pub fn samples(self) -> usize {
        match self {
            Color::Gray | Color::Palette => 1,
            Color::GrayAlpha => 2,
            Color::Rgb => 3,
            Color::Rgba => 4,
        }
    }
}

/// A PNG that this decoder reads.
#[derive(Clone, Debug)]
pub struct Header<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) width: usize,
    pub(super) height: usize,
    /// Bits per sample.
    pub(super) depth: u8,
    pub(super) color: Color,
    pub(super) is_interlaced: bool,
    /// Colours, three bytes each.
    pub(super) palette: &'a [u8],
    /// Whether a tRNS chunk makes a colour, or palette entries, transparent.
    pub(super) has_transparent_color: bool,
    pub(super) metadata: Metadata,
    /// The first IDAT chunk.
    pub(super) first_data: Chunk<'a>,
}

impl<'a> Header<'a> {
    /// Reads the chunks before the first IDAT chunk.
    ///
    /// # Errors
    /// [`Error::TooLarge`]: above `limits`. [`Error::Unsupported`]: animation, or texts that are large or compressed in
    /// an unusual way. [`Error::Corrupt`]: everything else.
    pub fn parse(bytes: &'a [u8], limits: &Limits) -> Result<Self, Error> {
        if !bytes.starts_with(SIGNATURE) {
            return corrupt("the signature is missing", 0);
        }
        let first = Chunk::at(bytes, SIGNATURE.len())?;
        first.check(bytes)?;
        let (b"IHDR", &[w, x, y, z, s, t, u, v, depth, color, method, filter, interlace]) = (&first.name, first.body)
        else {
            return corrupt("the first chunk is not an IHDR chunk of 13 bytes", first.offset);
        };
        let (width, height) = (u32::from_be_bytes([w, x, y, z]), u32::from_be_bytes([s, t, u, v]));
        if ![width, height].iter().all(|side| (1..=i32::MAX as u32).contains(side)) {
            return corrupt("the width or height is out of range", first.offset);
        }
        if u64::from(width) * u64::from(height) > limits.max_pixels {
            let max_pixels = limits.max_pixels;
            return Err(Error::TooLarge {
                width,
                height,
                max_pixels,
            });
        }
        if u64::from(width) * u64::from(height) > MAX_PIXELS {
            return Err(Error::Unsupported("a PNG of more than 2^40 pixels"));
        }
        let color = match (color, depth) {
            (0, 1 | 2 | 4 | 8 | 16) => Color::Gray,
            (2, 8 | 16) => Color::Rgb,
            (3, 1 | 2 | 4 | 8) => Color::Palette,
            (4, 8 | 16) => Color::GrayAlpha,
            (6, 8 | 16) => Color::Rgba,
            _ => return corrupt("the colour type and bit depth do not exist", first.offset),
        };
        if (method, filter) != (0, 0) || interlace > 1 {
            return corrupt(
                "the method of compression, filtering or interlacing does not exist",
                first.offset,
            );
        }
        let mut header = Self {
            bytes,
            width: width as usize,
            height: height as usize,
            depth,
            color,
            is_interlaced: interlace == 1,
            palette: &[],
            has_transparent_color: false,
            metadata: Metadata::default(),
            first_data: first,
        };
        header.read_to_data()?;
        Ok(header)
    }

    fn read_to_data(&mut self) -> Result<(), Error> {
        loop {
            let chunk = Chunk::at(self.bytes, self.first_data.end())?;
            self.first_data = chunk;
            if chunk.name == *b"IDAT" {
                break;
            }
            chunk.check(self.bytes)?;
            match &chunk.name {
                b"PLTE" => self.set_palette(chunk)?,
                b"tRNS" => self.set_transparent_color(chunk)?,
                _ => self.metadata.add(chunk)?,
            }
        }
        if self.color == Color::Palette && self.palette.is_empty() {
            return corrupt("the palette is missing", self.first_data.offset);
        }
        Ok(())
    }

    fn set_palette(&mut self, chunk: Chunk<'a>) -> Result<(), Error> {
        let count = chunk.body.len() / 3;
        if !self.palette.is_empty() || !chunk.body.len().is_multiple_of(3) || !(1..=256).contains(&count) {
            return corrupt("there are two palettes, or one has an impossible size", chunk.offset);
        }
        self.palette = chunk.body;
        Ok(())
    }

    fn set_transparent_color(&mut self, chunk: Chunk<'a>) -> Result<(), Error> {
        let least = match self.color {
            Color::Gray => 2,
            Color::Rgb => 6,
            _ => 0,
        };
        if self.has_transparent_color || chunk.body.len() < least {
            return corrupt("there are two tRNS chunks, or one is too short", chunk.offset);
        }
        self.has_transparent_color = true;
        Ok(())
    }

    /// Reads the chunks after the first IDAT chunk up to IEND, so that a truncated file is found whatever part of it is
    /// needed. Returns what is known of the metadata of the whole file.
    pub(super) fn read_to_end(&self) -> Result<Metadata, Error> {
        let mut metadata = self.metadata;
        let (mut at, mut is_data) = (self.first_data.end(), true);
        loop {
            let chunk = Chunk::at(self.bytes, at)?;
            at = chunk.end();
            is_data &= chunk.name == *b"IDAT";
            match &chunk.name {
                _ if is_data => {}
                b"IEND" => return Ok(metadata),
                b"IDAT" | b"PLTE" | b"tRNS" | b"IHDR" => {
                    return corrupt("a chunk is not where it belongs", chunk.offset);
                }
                _ => metadata.add(chunk)?,
            }
        }
    }

    /// Width in pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Height in pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Bytes that the decoder holds of the whole picture: its pixels, if it is interlaced.
    pub fn held_nbytes(&self) -> u64 {
        match self.is_interlaced {
            true => (self.width * self.height * self.pixel_nbytes()) as u64,
            false => 0,
        }
    }

    /// Bytes of an unpacked pixel.
    pub(super) fn pixel_nbytes(&self) -> usize {
        usize::from(self.depth).div_ceil(8) * self.color.samples()
    }

    /// Whether a colour, or palette entries, are transparent.
    pub fn has_transparent_color(&self) -> bool {
        self.has_transparent_color
    }

    /// Bits of a value, if pixels have one channel: 8 or 16.
    ///
    /// # Errors
    /// [`Error::Unsupported`]: several channels.
    pub fn channel_bits(&self) -> Result<usize, Error> {
        if self.color.samples() > 1 {
            return Err(Error::Unsupported("a PNG of several channels, as values of one"));
        }
        Ok(if self.depth == 16 { 16 } else { 8 })
    }

    /// Samples of a pixel, if they have 16 bits and all channels are stored.
    ///
    /// # Errors
    /// [`Error::Unsupported`]: fewer bits, or a transparent colour.
    pub fn deep_samples(&self) -> Result<usize, Error> {
        if self.depth != 16 {
            return Err(Error::Unsupported("a PNG of at most 8 bits, as samples of 16"));
        }
        if self.has_transparent_color {
            return Err(Error::Unsupported("a transparent colour, as samples"));
        }
        Ok(self.color.samples())
    }

    /// Bits per pixel in the file.
    pub(super) fn bits_per_pixel(&self) -> usize {
        usize::from(self.depth) * self.color.samples()
    }

    /// Bytes of a filtered line of this many pixels, without its first byte, which is the filter.
    pub(super) fn line_nbytes(&self, width: usize) -> usize {
        (width * self.bits_per_pixel()).div_ceil(8)
    }

    /// The inflated bytes of the whole file.
    pub(super) fn data(&self, total: u64) -> inflate::DataReader<'a> {
        inflate::DataReader::new(self.bytes, self.first_data, total)
    }
}
