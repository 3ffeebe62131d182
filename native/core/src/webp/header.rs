//! The container (RFC 9649): its chunks are read to the end, so that a truncated file is found.

use crate::error::{Error, corrupt};
use crate::jpeg::{Limits, orientation_of_tiff};

const ANIMATED: u8 = 0x02;
const HAS_XMP: u8 = 0x04;
const HAS_EXIF: u8 = 0x08;

/// Whether the bytes begin as a WebP file does.
pub fn is_webp(bytes: &[u8]) -> bool {
    bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP")
}

/// A WebP that this decoder reads.
#[derive(Clone, Debug)]
pub struct Header<'a> {
    /// The file, without bytes after its container.
    pub(super) bytes: &'a [u8],
    pub(super) width: usize,
    pub(super) height: usize,
    has_alpha: bool,
    is_lossless: bool,
    exif: Option<&'a [u8]>,
    has_xmp: bool,
    /// Whether there is metadata that the header does not announce.
    is_doubtful: bool,
}

/// A chunk of the container.
struct Chunk<'a> {
    name: [u8; 4],
    body: &'a [u8],
    end: usize,
}

impl<'a> Header<'a> {
    /// Reads the container.
    ///
    /// # Errors
    /// [`Error::TooLarge`]: above `limits`. [`Error::Unsupported`]: animation, or alpha beside a lossy image.
    /// [`Error::Corrupt`]: everything else.
    pub fn parse(bytes: &'a [u8], limits: &Limits) -> Result<Self, Error> {
        let Some(declared) = bytes.get(4..8).filter(|_| is_webp(bytes)) else {
            return corrupt("the signature is missing", 0);
        };
        let end = number(declared).saturating_add(8);
        let Some(bytes) = bytes.get(..end) else {
            return corrupt("the file ends before its container", bytes.len());
        };
        let first = chunk_at(bytes, 12)?;
        let mut header = Self {
            bytes,
            width: 0,
            height: 0,
            has_alpha: false,
            is_lossless: false,
            exif: None,
            has_xmp: false,
            is_doubtful: false,
        };
        if first.name != *b"VP8X" {
            header.set_image(&first)?;
            if first.end != bytes.len() {
                return corrupt("there are bytes after the image", first.end);
            }
        } else {
            header.read_chunks(&first)?;
        }
        let (width, height) = (header.width as u32, header.height as u32);
        if u64::from(width) * u64::from(height) > limits.max_pixels {
            let max_pixels = limits.max_pixels;
            return Err(Error::TooLarge {
                width,
                height,
                max_pixels,
            });
        }
        Ok(header)
    }

    fn read_chunks(&mut self, first: &Chunk<'a>) -> Result<(), Error> {
        let &[flags, _, _, _, a, b, c, d, e, f] = first.body else {
            return corrupt("the VP8X chunk has not 10 bytes", 12);
        };
        if flags & ANIMATED != 0 {
            return Err(Error::Unsupported("an animated WebP"));
        }
        let canvas = [number(&[a, b, c]) + 1, number(&[d, e, f]) + 1];
        let mut at = first.end;
        while at < self.bytes.len() {
            let chunk = chunk_at(self.bytes, at)?;
            at = chunk.end;
            match &chunk.name {
                b"VP8 " | b"VP8L" => self.set_image(&chunk)?,
                b"ALPH" => return Err(Error::Unsupported("a WebP with alpha beside a lossy image")),
                b"ANIM" | b"ANMF" | b"VP8X" => return corrupt("a chunk is not where it belongs", at),
                b"EXIF" => {
                    self.is_doubtful |= self.exif.is_some() || flags & HAS_EXIF == 0;
                    self.exif = Some(chunk.body);
                }
                b"XMP " => {
                    self.is_doubtful |= flags & HAS_XMP == 0;
                    self.has_xmp = true;
                }
                _ => {}
            }
        }
        if [self.width, self.height] != canvas {
            return corrupt("the image has not the size of the canvas", at);
        }
        Ok(())
    }

    /// Reads the size in the chunk of the image.
    fn set_image(&mut self, chunk: &Chunk<'a>) -> Result<(), Error> {
        if self.width != 0 {
            return corrupt("there are two images", chunk.end);
        }
        let size = match (&chunk.name, chunk.body) {
            // the start code of a key frame, and its size in 14 bits
            (b"VP8 ", &[tag, _, _, 0x9d, 0x01, 0x2a, a, b, c, d, ..]) if tag & 1 == 0 => {
                [[a, b], [c, d]].map(|side| number(&side) & 0x3fff)
            }
            (b"VP8L", &[0x2f, a, b, c, d, ..]) if d >> 5 == 0 => {
                let bits = number(&[a, b, c, d]);
                self.has_alpha = bits >> 28 & 1 == 1;
                self.is_lossless = true;
                [(bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1]
            }
            _ => return corrupt("the header of the image is damaged", chunk.end - chunk.body.len()),
        };
        if size.contains(&0) {
            return corrupt("the image is empty", chunk.end - chunk.body.len());
        }
        [self.width, self.height] = size;
        Ok(())
    }

    /// Width in pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Bytes that are held of the whole picture at most: its pixels, and if it is lossless those of libwebp with the
    /// images of its transforms.
    pub fn held_nbytes(&self) -> u64 {
        (self.width * self.height) as u64 * if self.is_lossless { 3 + 5 } else { 3 }
    }

    /// Whether the image has an alpha channel.
    pub fn has_alpha(&self) -> bool {
        self.has_alpha
    }

    /// Height in pixels.
    pub fn height(&self) -> usize {
        self.height
    }
}

/// The chunk at an offset, which lies whole in the container.
fn chunk_at(bytes: &[u8], at: usize) -> Result<Chunk<'_>, Error> {
    let rest = bytes.get(at..).unwrap_or_default();
    let Some((&[a, b, c, d, size @ ..], rest)) = rest.split_first_chunk::<8>() else {
        return corrupt("the container ends inside a chunk", at);
    };
    let nbytes = number(&size);
    let padded = nbytes.saturating_add(nbytes & 1);
    if rest.len() < padded {
        return corrupt("the container ends inside a chunk", at);
    }
    Ok(Chunk {
        name: [a, b, c, d],
        body: &rest[..nbytes],
        end: at + 8 + padded,
    })
}

/// A little-endian number of at most four bytes.
fn number(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}

/// The Exif orientation, 1 to 8; 1 if the file has none. None: the file is damaged or unusual, or the orientation may be
/// in XMP. Then a full parser decides.
pub fn orientation(webp: &[u8]) -> Option<u8> {
    let header = Header::parse(webp, &Limits::NONE).ok()?;
    let found = match header.exif {
        _ if header.is_doubtful => return None,
        None => None,
        Some(exif) => orientation_of_tiff(exif.strip_prefix(b"Exif\0\0").unwrap_or(exif))?,
    };
    match found {
        None if header.has_xmp => None,
        found => Some(found.unwrap_or(1)),
    }
}
