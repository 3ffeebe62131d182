//! The way of a decode through its scan: MCU by MCU, or by an table from one known point to the next.
//!
//! With an table, [`McuReader`] jumps to the last known point before what is wanted, and notes the points that the table
//! lacks. At the end of each segment that it comes to, bit position and predictors must be those of the point there; the
//! first segment of a decode is read to its end for that, the others only as far as they are wanted (reading each to its
//! end would cost what a sixth of the decode costs: an table by rows saves just these ends). That is enough because
//! [`crate::jpeg::seek::bytes`] lets in no table but this image's own. Any error of a decode that began at points may be the
//! table's fault all the same: whoever gave it decodes again without.

use core::ops::Range;

use crate::error::Error;
use crate::jpeg::format::header::Header;
use crate::jpeg::sample_strips::NeededMcus;
use crate::jpeg::scans::scan_reader::ScanReader;
use crate::jpeg::seek::table::{SeekPoint, SeekTable};

/// A scan, and how far it was read.
pub(crate) struct McuReader<'a, 'i> {
    scan: ScanReader<'a>,
    table: Option<&'i mut SeekTable>,
    mcus_x: usize,
    /// Next MCU.
    at: usize,
    /// Where what is at hand ends: going on from here takes a jump.
    end: usize,
    /// It was jumped to an point, and points were found to be right.
    jumped: bool,
    checked: bool,
}

impl<'a, 'i> McuReader<'a, 'i> {
    pub fn new(mut scan: ScanReader<'a>, mcus_x: usize, table: Option<&'i mut SeekTable>) -> Self {
        scan.track_offsets(table.is_some());
        McuReader {
            scan,
            table,
            mcus_x,
            at: 0,
            end: usize::MAX,
            jumped: false,
            checked: false,
        }
    }

    /// Moves to MCU `target`, which is not behind. Until the next move nothing is read from the segments after the one
    /// that MCU `last` is in.
    pub fn move_to(&mut self, target: usize, last: usize) -> Result<(), Error> {
        if self.point_before(target).is_some_and(|(first, _)| first > self.at) {
            self.check()?;
        }
        if let Some((first, point)) = self.point_before(target)
            && (first > self.at || self.at >= self.end)
        {
            let end = self.point_after(last);
            self.scan.seek(first, point, end.map(|(_, point)| point));
            self.at = first;
            self.jumped = true;
            self.end = end.map_or(usize::MAX, |(first, _)| first);
        }
        self.skip(target)
    }

    /// The last MCU that is read before the next jump, if `columns` of `rows` are, and the next ones of row `row`.
    pub fn last_of_run(&self, columns: &Range<usize>, rows: &Range<usize>, row: usize) -> usize {
        let last = |row: usize| row * self.mcus_x + columns.end - 1;
        match &self.table {
            Some(table) if !table.is_gapless(columns) => last(row),
            _ => last(rows.end - 1),
        }
    }

    /// How many of the next `mcus` MCUs may be decoded at once.
    pub fn mcus_until_point(&self, mcus: usize) -> usize {
        match &self.table {
            Some(table) => mcus.min(self.next_unknown(table) - self.at),
            None => mcus,
        }
    }

    /// Decodes `mcus` MCUs: see [`ScanReader::decode`].
    pub fn decode(&mut self, mcus: usize, coefficients: &mut [i16], used: &mut [u8]) -> Result<(), Error> {
        self.scan.decode(coefficients, used)?;
        self.at += mcus;
        self.compare_or_record()
    }

    /// If points were relied upon and none was compared yet: reads on to the next one, which must be reached exactly.
    fn check(&mut self) -> Result<(), Error> {
        let Some(table) = &self.table else { return Ok(()) };
        let segment = table.segment(self.at);
        if self.jumped && !self.checked && self.at > table.first_mcu(segment) && segment + 1 < table.known() {
            let end = table.first_mcu(segment + 1);
            self.skip(end)?;
        }
        Ok(())
    }

    /// After the last MCU that a region needs: the scan's end is checked where that is it.
    pub fn finish_region(&mut self, header: &Header<'_>, cover: &NeededMcus) -> Result<(), Error> {
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
            let mcus = self.mcus_until_point(target - self.at);
            self.scan.skip(mcus)?;
            self.at += mcus;
            self.compare_or_record()?;
        }
        Ok(())
    }

    /// At the start of a segment: compares with its point, or notes it.
    fn compare_or_record(&mut self) -> Result<(), Error> {
        let Some(table) = &mut self.table else { return Ok(()) };
        let segment = table.segment(self.at);
        if self.at != table.first_mcu(segment) || segment >= table.total() || segment > table.known() {
            return Ok(());
        }
        let point = self.scan.seek_point();
        match (table.points.get(segment), point) {
            (Some(known), Ok(point)) if *known == point => {
                self.checked = true;
                Ok(())
            }
            (Some(_), Ok(_)) => self.scan.corrupt("not what the table says"),
            (Some(_), Err(error)) => Err(error),
            (None, Ok(point)) if table.points.last().is_none_or(|last| last.bits < point.bits) => {
                table.points.push(point);
                Ok(())
            }
            (None, Ok(_)) => self.scan.corrupt("behind what the table says"),
            // damage after what may be all that is wanted: whoever reads on meets it again
            (None, Err(_)) => Ok(()),
        }
    }

    /// The MCU after this one that begins a segment without an point.
    fn next_unknown(&self, table: &SeekTable) -> usize {
        table.first_mcu((table.segment(self.at) + 1).max(table.known()))
    }

    /// The last known point at or before an MCU, and its own MCU.
    fn point_before(&self, mcu: usize) -> Option<(usize, SeekPoint)> {
        let table = self.table.as_ref()?;
        let segment = table.segment(mcu).min(table.known() - 1);
        Some((table.first_mcu(segment), table.points[segment]))
    }

    /// The start of the segment after the one that an MCU is in, if it is known.
    fn point_after(&self, mcu: usize) -> Option<(usize, SeekPoint)> {
        let table = self.table.as_ref()?;
        let segment = table.segment(mcu) + 1;
        Some((table.first_mcu(segment), *table.points.get(segment)?))
    }
}
