//! The reader of a scan's MCUs: in order, or with a seek table from one seek point to another.
//!
//! With a table, [`McuReader`] moves to the last known point before the wanted MCU, and records points that the table
//! lacks. Where it reaches the end of a segment, bit position and predictors must equal those of the next point. It
//! reads the first segment of a decode to its end for this check, the others only as far as needed: the ends of all
//! segments would cost a sixth of the decode, which is what a table by rows saves. One check is enough, because
//! [`super::bytes`] accepts only this image's own table. Still, any error after a move to a point may be caused by the
//! table: the caller then decodes again without it.

use core::ops::Range;

use crate::error::Error;
use crate::jpeg::entropy::two_places::Blocks;
use crate::jpeg::format::header::Header;
use crate::jpeg::sample_strips::NeededMcus;
use crate::jpeg::scans::scan_reader::ScanReader;
use crate::jpeg::seek::table::{SeekPoint, SeekTable};

/// A scan and the current MCU.
pub(crate) struct McuReader<'a, 'i> {
    scan: ScanReader<'a>,
    table: Option<&'i mut SeekTable>,
    mcus_x: usize,
    /// Next MCU.
    at: usize,
    /// The MCU at which the available bytes end. Reading on from there requires a move.
    end: usize,
    /// Whether the reader moved to a point, and whether a point was compared.
    has_moved: bool,
    has_compared: bool,
}

/// How many MCUs are passed over, at most, where `needed` ones are decoded with the points of `table`.
pub(crate) fn passed_over(header: &Header<'_>, needed: &NeededMcus, table: Option<&SeekTable>) -> usize {
    let mut end = 0;
    let passed = needed.rows.clone().map(|row| {
        let target = row * header.mcus_x + needed.columns.start;
        let known = table.map_or(0, |table| table.first_mcu(table.segment(target).min(table.known() - 1)));
        let interval = target
            .checked_rem(header.restart_interval)
            .map_or(0, |rest| target - rest);
        let from = core::mem::replace(&mut end, target + needed.columns.len());
        target - from.max(known).max(interval)
    });
    passed.sum()
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
            has_moved: false,
            has_compared: false,
        }
    }

    /// Moves forward to MCU `target`. Until the next move, only bytes up to the end of the segment of MCU `last` are
    /// read.
    pub fn move_to(&mut self, target: usize, last: usize) -> Result<(), Error> {
        self.seek(target, last)?;
        self.skip(target)
    }

    /// Moves to the last known point before MCU `target`, if it lies ahead.
    fn seek(&mut self, target: usize, last: usize) -> Result<(), Error> {
        if self.point_before(target).is_some_and(|(first, _)| first > self.at) {
            self.compare_next_point()?;
        }
        if let Some((first, point)) = self.point_before(target)
            && (first > self.at || self.at >= self.end)
        {
            let end = self.point_after(last);
            self.scan.seek(first, point, end.map(|(_, point)| point));
            self.at = first;
            self.has_moved = true;
            self.end = end.map_or(usize::MAX, |(first, _)| first);
        }
        Ok(())
    }

    /// Whether row `row` of MCUs can be decoded together with the one before: the points of both, up to the MCU before
    /// column `end`, are known.
    pub fn knows_rows(&self, row: usize, end: usize) -> bool {
        let known = |table: &SeekTable| table.known() > table.segment(row * self.mcus_x + end - 1);
        self.table.as_deref().is_some_and(known)
    }

    /// Moves to `columns` of row `row`, which [`Self::knows_rows`], and moves `above` to the same columns of the row
    /// before. The blocks may be overwritten.
    pub fn move_to_rows(
        &mut self,
        above: &mut ScanReader<'a>,
        row: usize,
        columns: &Range<usize>,
        own: Blocks<'_>,
        blocks_above: Blocks<'_>,
    ) -> Result<(), Error> {
        let [target, last] = [columns.start, columns.end - 1].map(|column| row * self.mcus_x + column);
        if let Some((first, point)) = self.point_before(target - self.mcus_x) {
            let end = self.point_after(last - self.mcus_x);
            above.seek(first, point, end.map(|(_, point)| point));
        }
        self.seek(target, last)?;
        self.scan.skip_two(above, target - self.at, own, blocks_above)?;
        self.at = target;
        Ok(())
    }

    /// Decodes `mcus` MCUs here, and as many at `above`.
    pub fn decode_two(
        &mut self,
        above: &mut ScanReader<'a>,
        mcus: usize,
        own: Blocks<'_>,
        blocks_above: Blocks<'_>,
    ) -> Result<(), Error> {
        self.scan.decode_two(above, own, blocks_above)?;
        self.at += mcus;
        if let Some(table) = &self.table {
            let at = self.at - self.mcus_x;
            let segment = table.segment(at);
            if at == table.first_mcu(segment) && table.points.get(segment) != Some(&above.seek_point()?) {
                return above.corrupt("the data contradict the index");
            }
        }
        self.compare_or_record()
    }

    /// The last MCU to read before the next move, for `columns` of row `row` and of the rows after it.
    pub fn last_before_move(&self, columns: &Range<usize>, rows: &Range<usize>, row: usize) -> usize {
        let last = |row: usize| row * self.mcus_x + columns.end - 1;
        match &self.table {
            Some(table) if !table.is_gapless(columns) => last(row),
            _ => last(rows.end - 1),
        }
    }

    /// The number of the next `mcus` MCUs that can be decoded in one call.
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

    /// If a move was made and no point was compared yet: reads on to the next point and compares.
    fn compare_next_point(&mut self) -> Result<(), Error> {
        let Some(table) = &self.table else { return Ok(()) };
        let segment = table.segment(self.at);
        if self.has_moved && !self.has_compared && self.at > table.first_mcu(segment) && segment + 1 < table.known() {
            let end = table.first_mcu(segment + 1);
            self.skip(end)?;
        }
        Ok(())
    }

    /// Finishes after the last MCU of a region. Where that is the last MCU of the picture, the scan must end.
    pub fn finish_region(&mut self, header: &Header<'_>, needed: &NeededMcus) -> Result<(), Error> {
        if needed.columns.end == header.mcus_x && needed.rows.end == header.mcus_y {
            return self.finish();
        }
        self.compare_next_point()
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

    /// At the start of a segment: compares with its seek point, or records it.
    fn compare_or_record(&mut self) -> Result<(), Error> {
        let Some(table) = &mut self.table else { return Ok(()) };
        let segment = table.segment(self.at);
        if self.at != table.first_mcu(segment) || segment >= table.total() || segment > table.known() {
            return Ok(());
        }
        let point = self.scan.seek_point();
        match (table.points.get(segment), point) {
            (Some(known), Ok(point)) if *known == point => {
                self.has_compared = true;
                Ok(())
            }
            (Some(_), Ok(_)) => self.scan.corrupt("the data contradict the index"),
            (Some(_), Err(error)) => Err(error),
            (None, Ok(point)) if table.points.last().is_none_or(|last| last.bits < point.bits) => {
                table.points.push(point);
                Ok(())
            }
            (None, Ok(_)) => self.scan.corrupt("the data contradict the index"),
            // Damage behind what may be the last needed MCU. Reading on finds it again.
            (None, Err(_)) => Ok(()),
        }
    }

    /// The first MCU after this one that begins a segment without a seek point.
    fn next_unknown(&self, table: &SeekTable) -> usize {
        table.first_mcu((table.segment(self.at) + 1).max(table.known()))
    }

    /// The last known point at or before an MCU, and the MCU of that point.
    fn point_before(&self, mcu: usize) -> Option<(usize, SeekPoint)> {
        let table = self.table.as_ref()?;
        let segment = table.segment(mcu).min(table.known() - 1);
        Some((table.first_mcu(segment), table.points[segment]))
    }

    /// The point after the segment of an MCU, if it is known.
    fn point_after(&self, mcu: usize) -> Option<(usize, SeekPoint)> {
        let table = self.table.as_ref()?;
        let segment = table.segment(mcu) + 1;
        Some((table.first_mcu(segment), *table.points.get(segment)?))
    }
}
