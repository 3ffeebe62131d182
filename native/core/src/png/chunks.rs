//! Chunks: a length, a name, a body and a checksum.

use crate::error::{Error, corrupt};

/// A chunk of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk<'a> {
    pub name: [u8; 4],
    pub body: &'a [u8],
    /// Where its length is.
    pub offset: usize,
}

impl<'a> Chunk<'a> {
    /// The chunk at `offset`, which lies whole in the file.
    pub fn at(bytes: &'a [u8], offset: usize) -> Result<Self, Error> {
        let rest = bytes.get(offset..).unwrap_or_default();
        let Some((&[a, b, c, d, e, f, g, h], rest)) = rest.split_first_chunk() else {
            return corrupt("the file ends before its IEND chunk", offset);
        };
        let (name, nbytes) = ([e, f, g, h], u32::from_be_bytes([a, b, c, d]) as usize);
        if !name.iter().all(u8::is_ascii_alphabetic) {
            return corrupt("a chunk's name is not made of letters", offset);
        }
        if rest.len() < nbytes.saturating_add(4) {
            return corrupt("the file ends inside a chunk", offset);
        }
        let body = &rest[..nbytes];
        Ok(Self { name, body, offset })
    }

    /// Where the next chunk begins.
    pub fn end(&self) -> usize {
        self.offset + 12 + self.body.len()
    }

    /// Compares the checksum.
    pub fn check(&self, bytes: &[u8]) -> Result<(), Error> {
        let covered = &bytes[self.offset + 4..][..4 + self.body.len()];
        let stored = &bytes[self.end() - 4..self.end()];
        if crc32fast::hash(covered).to_be_bytes() != stored {
            return corrupt("the checksum of a chunk is wrong", self.offset);
        }
        Ok(())
    }
}
