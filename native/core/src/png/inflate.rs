//! Inflated lines, from IDAT chunks: a window of the inflated bytes that slides over them.
//!
//! ```text
//!  window:  |<- 32 KiB that may be copied again ->|<- inflated, not yet read ->|<- room ->|
//! ```

use fdeflate::Decompressor;

use super::chunks::Chunk;
use crate::error::{Error, corrupt};
use crate::memory::grow;

/// How far back deflate copies from.
const HISTORY: usize = 32 << 10;
/// Room after the history, beside that for a line.
const ROOM: usize = 64 << 10;
/// Bytes inflated beyond those that are asked for: with them, the inflater stays in its fast loop to the end.
const AHEAD: usize = 320;

/// Reads inflated bytes in order.
pub(super) struct DataReader<'a> {
    bytes: &'a [u8],
    inflater: Decompressor,
    /// The IDAT chunk that is read.
    chunk: Chunk<'a>,
    /// What is left of it.
    rest: &'a [u8],
    /// Bytes of the picture that are not yet inflated: no more are inflated than the header declares.
    remaining: u64,
    /// The bytes in the window that are inflated and not yet read.
    start: usize,
    end: usize,
}

impl<'a> DataReader<'a> {
    /// Reads `total` bytes from a chunk on and those after it.
    pub fn new(bytes: &'a [u8], chunk: Chunk<'a>, total: u64) -> Self {
        Self {
            bytes,
            inflater: Decompressor::new(),
            rest: chunk.body,
            chunk,
            remaining: total,
            start: 0,
            end: 0,
        }
    }

    /// The next `nbytes` bytes, in `window`. `soon`: bytes that will be asked for after these.
    pub fn next<'w>(&mut self, nbytes: usize, soon: u64, window: &'w mut Vec<u8>) -> Result<&'w [u8], Error> {
        if self.end - self.start < nbytes {
            self.make_room(nbytes, window)?;
            let wanted = (nbytes as u64 + soon).min(self.remaining + (self.end - self.start) as u64) as usize;
            while self.end - self.start < nbytes {
                self.inflate(wanted, window)?;
            }
        }
        let line = &window[self.start..][..nbytes];
        self.start += nbytes;
        Ok(line)
    }

    /// Moves the bytes that are still needed to the start of the window if there is no room after them.
    fn make_room(&mut self, nbytes: usize, window: &mut Vec<u8>) -> Result<(), Error> {
        grow_keeping(window, self.end, HISTORY + ROOM + nbytes + AHEAD)?;
        if window.len() - self.start < nbytes + AHEAD {
            let kept = self.start.min(self.end.saturating_sub(HISTORY));
            window.copy_within(kept..self.end, 0);
            self.start -= kept;
            self.end -= kept;
        }
        Ok(())
    }

    /// Inflates some bytes, so that the window holds at most about `wanted` unread ones.
    fn inflate(&mut self, wanted: usize, window: &mut [u8]) -> Result<(), Error> {
        let most = (self.remaining as usize).min(window.len() - self.end);
        let limit = self.end + most.min((self.start + wanted + AHEAD).saturating_sub(self.end));
        let (read, written) = self
            .inflater
            .read(self.rest, &mut window[..limit], self.end, false)
            .or_else(|_| corrupt("the compressed data are damaged", self.chunk.offset))?;
        self.rest = &self.rest[read..];
        self.end += written;
        self.remaining -= written as u64;
        if written == 0 && !self.next_chunk()? {
            return corrupt("the compressed data end too early", self.chunk.offset);
        }
        Ok(())
    }

    /// Goes to the next IDAT chunk, if this one is read and there is another.
    fn next_chunk(&mut self) -> Result<bool, Error> {
        if !self.rest.is_empty() {
            return Ok(false);
        }
        let next = Chunk::at(self.bytes, self.chunk.end())?;
        if next.name != *b"IDAT" {
            return Ok(false);
        }
        (self.chunk, self.rest) = (next, next.body);
        Ok(true)
    }

    /// Checks that the stream ends here, with the checksum of what was inflated.
    pub fn finish(&mut self, window: &mut [u8]) -> Result<(), Error> {
        while !self.inflater.is_done() {
            let (read, written) = self
                .inflater
                .read(self.rest, &mut window[..self.end], self.end, false)
                .or_else(|_| corrupt("the compressed data are damaged", self.chunk.offset))?;
            self.rest = &self.rest[read..];
            if written > 0 || !self.inflater.is_done() && !self.next_chunk()? {
                return corrupt("the compressed data do not end after the last line", self.chunk.offset);
            }
        }
        Ok(())
    }
}

/// Makes the window at least `len` long and keeps its first `kept` bytes.
fn grow_keeping(window: &mut Vec<u8>, kept: usize, len: usize) -> Result<(), Error> {
    if window.len() >= len {
        return Ok(());
    }
    let mut grown = Vec::new();
    grow(&mut grown, len)?;
    grown[..kept].copy_from_slice(&window[..kept]);
    *window = grown;
    Ok(())
}
