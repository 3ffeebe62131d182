//! Decoding with a seek table that may be wrong. The pixels are right in any case, and the caller receives a report.
//! This also decides whether threads are used.

use crate::error::Error;
use crate::jpeg::decoder::Decoder;
use crate::jpeg::format::header::Header;
use crate::jpeg::region::Region;
use crate::jpeg::seek::table::{SeekTable, SeekTableKind};
use crate::rows::RowSink;

/// What the caller knows of an image, and whether it wants to know more.
#[derive(Debug, Clone, Copy, Default)]
pub struct DecodeHints<'a> {
    /// The image's seek table, as [`SeekTable::to_bytes`] made it. It is not trusted.
    pub seek_table: Option<&'a [u8]>,
    /// Record the seek points that the decode passes, in the given table or in a new one of this kind.
    pub learn: Option<SeekTableKind>,
    /// Threads that may work on the image, the calling thread included. 0 means 1. Small regions take one thread.
    pub threads: usize,
}

/// The smallest number of pixels for which threads are started. Fuzzing has small pictures, so it is small there.
const THREADED_PIXELS: usize = if cfg!(fuzzing) { 1 << 8 } else { 1 << 20 };

/// What decoding found out about a seek table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeekReport {
    /// The given table is damaged or belongs to another image. It was not used.
    pub damaged: bool,
    /// The table with the recorded points. None: nothing was recorded.
    pub learned: Option<Vec<u8>>,
}

impl DecodeHints<'_> {
    /// The table to begin with, and a report of whether the given one is valid.
    pub(crate) fn open_table(&self, header: &Header<'_>) -> (Option<SeekTable>, SeekReport) {
        let given = self.seek_table.map(|bytes| SeekTable::parse(header, bytes));
        let report = SeekReport {
            damaged: matches!(given, Some(None)),
            learned: None,
        };
        (given.flatten().or_else(|| self.new_table(header)), report)
    }

    /// Whether the region is large enough for threads.
    pub(crate) fn uses_threads(&self, header: &Header<'_>, region: Region) -> bool {
        let pixels = region.width * region.height * region.scale.denominator().pow(2); // pixels in the file: all of them are decoded
        self.threads > 1 && !header.has_several_scans && pixels >= THREADED_PIXELS
    }

    fn new_table(&self, header: &Header<'_>) -> Option<SeekTable> {
        let kind = self.learn.filter(|_| !header.has_several_scans)?;
        Some(SeekTable::new(header, kind))
    }

    /// The bytes of a table that had `known` points before, if it has more now and they are wanted.
    pub(crate) fn learned(&self, header: &Header<'_>, table: Option<&SeekTable>, known: usize) -> Option<Vec<u8>> {
        let table = table.filter(|table| self.learn.is_some() && table.known() > known)?;
        Some(table.to_bytes(header))
    }
}

impl Decoder {
    /// [`Self::decode`] with hints. If the seek table turns out to be wrong, it decodes again without: `restart` is
    /// called, and the sink receives the rows again from the first.
    ///
    /// # Errors
    /// As [`Self::decode`].
    ///
    /// # Panics
    /// As [`Self::decode`].
    pub fn decode_with_hints<S: RowSink>(
        &mut self,
        header: &Header<'_>,
        region: Region,
        hints: DecodeHints<'_>,
        sink: &mut S,
        restart: impl FnOnce(&mut S),
    ) -> Result<SeekReport, Error> {
        let (mut table, mut report) = hints.open_table(header);
        let known = table.as_ref().map_or(1, SeekTable::known);
        let mut decoded = self.decode_once(hints, header, region, table.as_mut(), sink);
        if matches!(decoded, Err(Error::Corrupt { .. })) && table.is_some() {
            // The table is wrong, or a restart interval above the region is damaged, which only recording reads.
            restart(sink);
            (table, report.damaged) = (None, report.damaged || known > 1);
            decoded = self.decode_once(hints, header, region, None, sink);
        }
        decoded?;
        report.learned = hints.learned(header, table.as_ref(), known);
        Ok(report)
    }

    fn decode_once<S: RowSink>(
        &mut self,
        hints: DecodeHints<'_>,
        header: &Header<'_>,
        region: Region,
        table: Option<&mut SeekTable>,
        sink: &mut S,
    ) -> Result<(), Error> {
        if hints.uses_threads(header, region) {
            self.decode_on_two_threads(header, region, table, sink)
        } else {
            self.decode_with_table(header, region, table, sink)
        }
    }
}
