//! Decoding with an index that may be wrong: the pixels are right all the same, and the caller is told. Here it is also
//! decided whether a second thread helps.

use crate::error::Error;
use crate::jpeg::decoder::{Decoder, Region};
use crate::jpeg::format::header::Header;
use crate::jpeg::seek::table::{Index, Kind};
use crate::rows::RowSink;

/// What is known of an image beforehand, and whether more is to be found out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Guide<'a> {
    /// The image's index, as [`Index::to_bytes`] made it; bytes from outside.
    pub index: Option<&'a [u8]>,
    /// Note the entries that the decode comes by: in the given index, or in a new one of this kind.
    pub learn: Option<Kind>,
    /// Threads that may work on the image, this one included; 0 and 1 are the same. Small regions take one.
    pub threads: usize,
}

/// The smallest region for which threads are started; in fuzzing, which has small pictures, nearly every one.
const SHARED_PIXELS: usize = if cfg!(fuzzing) { 1 << 8 } else { 1 << 20 };

/// What was found out about an index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// The given index is damaged or of another image: it was not used.
    pub damaged: bool,
    /// The index with what was learned; None: nothing.
    pub learned: Option<Vec<u8>>,
}

impl Guide<'_> {
    /// The index to begin with; [`Found`] tells whether the given one is of use.
    pub(crate) fn start(&self, header: &Header<'_>) -> (Option<Index>, Found) {
        let given = self.index.map(|bytes| Index::parse(header, bytes));
        let found = Found {
            damaged: matches!(given, Some(None)),
            learned: None,
        };
        (given.flatten().or_else(|| self.fresh(header)), found)
    }

    /// Threads are worth their start.
    pub(crate) fn shares(&self, header: &Header<'_>, region: Region) -> bool {
        let pixels = region.width * region.height * region.scale.denominator().pow(2); // all of them are read
        self.threads > 1 && !header.several_scans && pixels >= SHARED_PIXELS
    }

    fn fresh(&self, header: &Header<'_>) -> Option<Index> {
        let kind = self.learn.filter(|_| !header.several_scans)?;
        Some(Index::new(header, kind))
    }

    /// What there is to tell of an index that knew `known` entries before.
    pub(crate) fn learned(&self, header: &Header<'_>, index: Option<&Index>, known: usize) -> Option<Vec<u8>> {
        let index = index.filter(|index| self.learn.is_some() && index.known() > known)?;
        Some(index.to_bytes(header))
    }
}

impl Decoder {
    /// [`Self::decode`] with the help of an index, or without it where it turns out to be wrong. Then the sink sees rows a
    /// second time from the first one on, after `again` was called.
    ///
    /// # Errors
    /// Likewise: the image's own.
    ///
    /// # Panics
    /// Likewise.
    pub fn decode_guided<S: RowSink>(
        &mut self,
        header: &Header<'_>,
        region: Region,
        guide: Guide<'_>,
        sink: &mut S,
        again: impl FnOnce(&mut S),
    ) -> Result<Found, Error> {
        let (mut index, mut found) = guide.start(header);
        let known = index.as_ref().map_or(1, Index::known);
        let mut decoded = self.decode_on(guide, header, region, index.as_mut(), sink);
        if matches!(decoded, Err(Error::Corrupt { .. })) && index.is_some() {
            // a wrong index, or damage where only learning looks: in a restart interval above the region
            again(sink);
            (index, found.damaged) = (None, found.damaged || known > 1);
            decoded = self.decode_on(guide, header, region, None, sink);
        }
        decoded?;
        found.learned = guide.learned(header, index.as_ref(), known);
        Ok(found)
    }

    fn decode_on<S: RowSink>(
        &mut self,
        guide: Guide<'_>,
        header: &Header<'_>,
        region: Region,
        index: Option<&mut Index>,
        sink: &mut S,
    ) -> Result<(), Error> {
        if guide.shares(header, region) {
            self.decode_ahead(header, region, index, sink)
        } else {
            self.decode_by(header, region, index, sink)
        }
    }
}
