//! The way of a decode through its scan: MCU by MCU, or by an index from one known place to the next.
//!
//! With an index, [`Walk`] jumps to the last known entry before what is wanted, and notes the entries that the index
//! lacks. At the end of each segment that it comes to, bit position and predictors must be those of the entry there; the
//! first segment of a decode is read to its end for that, the others only as far as they are wanted (reading each to its
//! end would cost what a sixth of the decode costs: an index by rows saves just these ends). That is enough because
//! [`crate::jpeg::seek::bytes`] lets in no index but this image's own. Any error of a decode that began at entries may be the
//! index's fault all the same: whoever gave it decodes again without.

use core::ops::Range;

use crate::error::Error;
use crate::jpeg::format::header::Header;
use crate::jpeg::planes::Cover;
use crate::jpeg::scans::scan_reader::Scan;
use crate::jpeg::seek::table::{Entry, Index};

/// A scan, and how far it was read.
pub(crate) struct Walk<'a, 'i> {
    scan: Scan<'a>,
    index: Option<&'i mut Index>,
    mcus_x: usize,
    /// Next MCU.
    at: usize,
    /// Where what is at hand ends: going on from here takes a jump.
    end: usize,
    /// It was jumped to an entry, and entries were found to be right.
    jumped: bool,
    checked: bool,
}

impl<'a, 'i> Walk<'a, 'i> {
    pub fn new(mut scan: Scan<'a>, mcus_x: usize, index: Option<&'i mut Index>) -> Self {
        scan.keep_place(index.is_some());
        Walk {
            scan,
            index,
            mcus_x,
            at: 0,
            end: usize::MAX,
            jumped: false,
            checked: false,
        }
    }

    /// Moves to MCU `target`, which is not behind. Until the next move nothing is read from the segments after the one
    /// that MCU `last` is in.
    pub fn go(&mut self, target: usize, last: usize) -> Result<(), Error> {
        if self.entry_before(target).is_some_and(|(first, _)| first > self.at) {
            self.check()?;
        }
        if let Some((first, entry)) = self.entry_before(target)
            && (first > self.at || self.at >= self.end)
        {
            let end = self.entry_after(last);
            self.scan.seek(first, entry, end.map(|(_, entry)| entry));
            self.at = first;
            self.jumped = true;
            self.end = end.map_or(usize::MAX, |(first, _)| first);
        }
        self.skip(target)
    }

    /// The last MCU that is read before the next jump, if `columns` of `rows` are, and the next ones of row `row`.
    pub fn last_of_run(&self, columns: &Range<usize>, rows: &Range<usize>, row: usize) -> usize {
        let last = |row: usize| row * self.mcus_x + columns.end - 1;
        match &self.index {
            Some(index) if !index.is_gapless(columns) => last(row),
            _ => last(rows.end - 1),
        }
    }

    /// How many of the next `mcus` MCUs may be decoded at once.
    pub fn run(&self, mcus: usize) -> usize {
        match &self.index {
            Some(index) => mcus.min(self.next_to_note(index) - self.at),
            None => mcus,
        }
    }

    /// Decodes `mcus` MCUs: see [`Scan::decode`].
    pub fn decode(&mut self, mcus: usize, coefficients: &mut [i16], used: &mut [u8]) -> Result<(), Error> {
        self.scan.decode(coefficients, used)?;
        self.at += mcus;
        self.arrive()
    }

    /// If entries were relied upon and none was compared yet: reads on to the next one, which must be reached exactly.
    fn check(&mut self) -> Result<(), Error> {
        let Some(index) = &self.index else { return Ok(()) };
        let segment = index.segment(self.at);
        if self.jumped && !self.checked && self.at > index.first_mcu(segment) && segment + 1 < index.known() {
            let end = index.first_mcu(segment + 1);
            self.skip(end)?;
        }
        Ok(())
    }

    /// After the last MCU that a region needs: the scan's end is checked where that is it.
    pub fn end(&mut self, header: &Header<'_>, cover: &Cover) -> Result<(), Error> {
        if cover.columns.end == header.mcus_x && cover.rows.end == header.mcus_y {
            return self.finish();
        }
        self.check()
    }

    /// Checks that the scan ends here.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.scan.finish()
    }

    fn skip(&mut self, target: usize) -> Result<(), Error> {
        while self.at < target {
            let mcus = self.run(target - self.at);
            self.scan.skip(mcus)?;
            self.at += mcus;
            self.arrive()?;
        }
        Ok(())
    }

    /// At the start of a segment: compares with its entry, or notes it.
    fn arrive(&mut self) -> Result<(), Error> {
        let Some(index) = &mut self.index else { return Ok(()) };
        let segment = index.segment(self.at);
        if self.at != index.first_mcu(segment) || segment >= index.total() || segment > index.known() {
            return Ok(());
        }
        let place = self.scan.place();
        match (index.entries.get(segment), place) {
            (Some(entry), Ok(place)) if *entry == place => {
                self.checked = true;
                Ok(())
            }
            (Some(_), Ok(_)) => self.scan.corrupt("not what the index says"),
            (Some(_), Err(error)) => Err(error),
            (None, Ok(place)) if index.entries.last().is_none_or(|last| last.bits < place.bits) => {
                index.entries.push(place);
                Ok(())
            }
            (None, Ok(_)) => self.scan.corrupt("behind what the index says"),
            // damage after what may be all that is wanted: whoever reads on meets it again
            (None, Err(_)) => Ok(()),
        }
    }

    /// The MCU after this one that begins a segment without an entry.
    fn next_to_note(&self, index: &Index) -> usize {
        index.first_mcu((index.segment(self.at) + 1).max(index.known()))
    }

    /// The last known entry at or before an MCU, and its own MCU.
    fn entry_before(&self, mcu: usize) -> Option<(usize, Entry)> {
        let index = self.index.as_ref()?;
        let segment = index.segment(mcu).min(index.known() - 1);
        Some((index.first_mcu(segment), index.entries[segment]))
    }

    /// The start of the segment after the one that an MCU is in, if it is known.
    fn entry_after(&self, mcu: usize) -> Option<(usize, Entry)> {
        let index = self.index.as_ref()?;
        let segment = index.segment(mcu) + 1;
        Some((index.first_mcu(segment), *index.entries.get(segment)?))
    }
}
