//! Decoding with an table that may be wrong: the pixels are right all the same, and the caller is told. Here it is also
//! decided whether a second thread helps.

use crate::error::Error;
use crate::jpeg::decoder::{Decoder, Region};
use crate::jpeg::format::header::Header;
use crate::jpeg::seek::table::{SeekTable, SeekTableKind};
use crate::rows::RowSink;

/// What is known of an image beforehand, and whether more is to be report out.
#[derive(Debug, Clone, Copy, Default)]
pub struct DecodeHints<'a> {
    /// The image's table, as [`SeekTable::to_bytes`] made it; bytes from outside.
    pub seek_table: Option<&'a [u8]>,
    /// Note the entries that the decode comes by: in the given table, or in a new one of this kind.
    pub learn: Option<SeekTableKind>,
    /// Threads that may work on the image, this one included; 0 and 1 are the same. Small regions take one.
    pub threads: usize,
}

/// The smallest region for which threads are started; in fuzzing, which has small pictures, nearly every one.
const THREADED_PIXELS: usize = if cfg!(fuzzing) { 1 << 8 } else { 1 << 20 };

/// What was report out about an table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeekReport {
    /// The given table is damaged or of another image: it was not used.
    pub damaged: bool,
    /// The table with what was learned; None: nothing.
    pub learned: Option<Vec<u8>>,
}

impl DecodeHints<'_> {
    /// The table to begin with; [`SeekReport`] tells whether the given one is of use.
    pub(crate) fn open_table(&self, header: &Header<'_>) -> (Option<SeekTable>, SeekReport) {
        let given = self.seek_table.map(|bytes| SeekTable::parse(header, bytes));
        let report = SeekReport {
            damaged: matches!(given, Some(None)),
            learned: None,
        };
        (given.flatten().or_else(|| self.new_table(header)), report)
    }

    /// Threads are worth their start.
    pub(crate) fn uses_threads(&self, header: &Header<'_>, region: Region) -> bool {
        let pixels = region.width * region.height * region.scale.denominator().pow(2); // all of them are read
        self.threads > 1 && !header.has_several_scans && pixels >= THREADED_PIXELS
    }

    fn new_table(&self, header: &Header<'_>) -> Option<SeekTable> {
        let kind = self.learn.filter(|_| !header.has_several_scans)?;
        Some(SeekTable::new(header, kind))
    }

    /// What there is to tell of an table that knew `known` entries before.
    pub(crate) fn learned(&self, header: &Header<'_>, table: Option<&SeekTable>, known: usize) -> Option<Vec<u8>> {
        let table = table.filter(|table| self.learn.is_some() && table.known() > known)?;
        Some(table.to_bytes(header))
    }
}

impl Decoder {
    /// [`Self::decode`] with the help of an table, or without it where it turns out to be wrong. Then the sink sees rows a
    /// second time from the first one on, after `restart` was called.
    ///
    /// # Errors
    /// Likewise: the image's own.
    ///
    /// # Panics
    /// Likewise.
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
            // a wrong table, or damage where only learning looks: in a restart interval above the region
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
