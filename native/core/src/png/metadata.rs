//! Chunks that do not change pixels: they are accepted where Pillow accepts them with certainty. The Exif orientation.

use super::Header;
use super::chunks::Chunk;
use crate::error::{Error, corrupt};
use crate::jpeg::{Limits, orientation_of_tiff};

/// Most bytes that Pillow inflates of one text or profile.
const MAX_TEXT: usize = 1 << 20;
/// Most bytes of all texts and profiles; half of what Pillow allows of texts.
const MAX_INFLATED: usize = 32 << 20;
/// No deflate stream of this many bytes inflates to [`MAX_TEXT`].
const SURELY_SHORT: usize = 1000;

/// What is known of the metadata.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Metadata {
    inflated_nbytes: usize,
    /// The last Exif chunk: its offset and length.
    exif: Option<(usize, usize)>,
    /// Whether Pillow may find the orientation in several places.
    is_doubtful: bool,
}

impl Metadata {
    /// Adds a chunk.
    pub fn add(&mut self, chunk: Chunk<'_>) -> Result<(), Error> {
        let least = match &chunk.name {
            b"gAMA" => 4,
            b"cHRM" => 32,
            b"sRGB" => 1,
            b"pHYs" => 9,
            b"IHDR" | b"IEND" => return corrupt("a chunk is not where it belongs", chunk.offset),
            b"acTL" | b"fcTL" | b"fdAT" => return Err(Error::Unsupported("an animated PNG")),
            b"tEXt" => return self.add_text(chunk.body, None),
            b"zTXt" => {
                let text = body_after_keyword(chunk.body).and_then(|rest| rest.strip_prefix(&[0]));
                return self.add_text(chunk.body, Some(text.ok_or(UNUSUAL)?));
            }
            b"iCCP" => {
                let profile = body_after_keyword(chunk.body).and_then(|rest| rest.strip_prefix(&[0]));
                let nbytes = check_inflates(profile.ok_or(UNUSUAL)?)?;
                return self.add_inflated(nbytes);
            }
            b"iTXt" => return self.add_international_text(chunk.body),
            b"eXIf" => {
                self.is_doubtful |= self.exif.is_some();
                self.exif = Some((chunk.offset + 8, chunk.body.len()));
                0
            }
            _ => 0, // not read by Pillow
        };
        if chunk.body.len() < least {
            return corrupt("a chunk is too short", chunk.offset);
        }
        Ok(())
    }

    fn add_international_text(&mut self, body: &[u8]) -> Result<(), Error> {
        let rest = body_after_keyword(body).ok_or(UNUSUAL)?;
        match rest {
            [0, _, ..] => self.add_text(body, None),
            [1, 0, rest @ ..] => {
                let text = body_after_keyword(rest).and_then(body_after_keyword);
                self.add_text(body, Some(text.ok_or(UNUSUAL)?))
            }
            _ => Err(UNUSUAL),
        }
    }

    /// Adds a chunk with a text that is in the chunk, or compressed.
    fn add_text(&mut self, body: &[u8], compressed: Option<&[u8]>) -> Result<(), Error> {
        let keyword = body.split(|byte| *byte == 0).next().unwrap_or_default();
        let keyword = keyword.to_ascii_lowercase();
        let names = |what: &[u8]| keyword.windows(what.len()).any(|part| part == what);
        self.is_doubtful |= names(b"exif") || names(b"xmp");
        self.add_inflated(match compressed {
            Some(text) => check_inflates(text)?,
            None => body.len(),
        })
    }

    fn add_inflated(&mut self, nbytes: usize) -> Result<(), Error> {
        self.inflated_nbytes += nbytes;
        if self.inflated_nbytes > MAX_INFLATED {
            return Err(Error::Unsupported("a PNG with very long texts or profiles"));
        }
        Ok(())
    }
}

const UNUSUAL: Error = Error::Unsupported("a PNG with an unusual text or profile");

/// What follows the first byte that is zero.
fn body_after_keyword(body: &[u8]) -> Option<&[u8]> {
    let end = body.iter().position(|byte| *byte == 0)?;
    Some(&body[end + 1..])
}

/// Checks that a zlib stream is whole and inflates to at most [`MAX_TEXT`] bytes. Returns a bound of its length.
fn check_inflates(stream: &[u8]) -> Result<usize, Error> {
    if stream.len() <= SURELY_SHORT {
        return Ok(MAX_TEXT);
    }
    match fdeflate::decompress_to_vec_bounded(stream, MAX_TEXT) {
        Ok(inflated) => Ok(inflated.len()),
        Err(_) => Err(UNUSUAL),
    }
}

/// The Exif orientation, 1 to 8; 1 if the file has none. None: the file is damaged or unusual, or the orientation may be
/// in a text. Then a full parser decides.
pub fn orientation(png: &[u8]) -> Option<u8> {
    let header = Header::parse(png, &Limits::NONE).ok()?;
    let metadata = header.read_to_end().ok()?;
    match metadata.exif {
        _ if metadata.is_doubtful => None,
        None => Some(1),
        Some((start, nbytes)) => Some(orientation_of_tiff(&png[start..][..nbytes])?.unwrap_or(1)),
    }
}
