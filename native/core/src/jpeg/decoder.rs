//! The decoder: reads the MCUs of a scan and turns them into rows, one MCU row at a time.

use core::ops::Range;

use crate::error::Error;
use crate::jpeg::coefficients::{self, record::Record, rows::RecordReader};
use crate::jpeg::entropy::huffman::HuffmanTables;
use crate::jpeg::entropy::sequential::{McuLayout, Window};
use crate::jpeg::format::header::Header;
use crate::jpeg::mcu_rows::{McuRows, RowBuffers};
use crate::jpeg::region::Region;
use crate::jpeg::sample_strips::{NeededMcus, SampleStrip};
use crate::jpeg::scans::multi_scan::MultiScanDecoder;
use crate::jpeg::scans::scan_reader::ScanReader;
use crate::jpeg::seek::mcu_reader::{self, McuReader};
use crate::jpeg::seek::table::{SeekTable, SeekTableKind};
use crate::jpeg::strips::StripEmitter;
use crate::rows::RowSink;
use crate::simd::{Available, has_own_cores};

/// Blocks to pass over from which on tables for that are built. To build them takes as long as they save in 1,000 blocks.
const MIN_SKIPPED_BLOCKS: usize = 2000;

/// Decodes one image after another and keeps its tables and buffers.
pub struct Decoder {
    pub(super) level: Available,
    pub(super) tables: HuffmanTables,
    pub(super) window: Window,
    rows: RowBuffers,
    pub(super) planes: [SampleStrip; 3],
    /// Made for the first file of several scans, and for the first record of coefficients.
    multi_scan: Option<Box<MultiScanDecoder>>,
    records: Option<Box<RecordReader>>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A decoder that uses the best kernels of this processor.
    pub fn new() -> Self {
        Self::with_level(Available::best())
    }

    /// A decoder that uses the kernels of `level`.
    pub fn with_level(level: Available) -> Self {
        Decoder {
            level,
            tables: HuffmanTables::new(),
            window: Window::new(),
            rows: RowBuffers::new(level > Available::SCALAR && has_own_cores()),
            planes: Default::default(),
            multi_scan: None,
            records: None,
        }
    }

    /// Whether two rows of MCUs are decoded at once where a seek table knows both. The result is the same. By default,
    /// this is done with vector instructions if no two processors share a core: it takes 4 to 6 % less time on x86-64,
    /// but 2 % more instructions.
    #[must_use]
    pub fn with_two_rows(mut self, enabled: bool) -> Self {
        self.rows.two_at_once = enabled;
        self
    }

    /// Decodes a region into `sink`: each row once, from top to bottom. The rows equal those of the whole picture at
    /// its scale.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the scan is damaged. Rows that the sink received before are not valid. A scan is
    /// checked to its end only if the region reaches the bottom right corner of the picture. A file of several scans is
    /// read before the sink receives a row; [`Error::Unsupported`] if scans are missing in it. [`Error::OutOfMemory`].
    ///
    /// # Panics
    /// If `region` is empty or not inside the picture.
    pub fn decode<S: RowSink>(&mut self, header: &Header<'_>, region: Region, sink: &mut S) -> Result<(), Error> {
        self.decode_with_table(header, region, None, sink)
    }

    /// [`Self::decode`] with the seek table of this image. Seek points that the table lacks and that the decode passes
    /// are added to it. Files of several scans do not use it.
    ///
    /// # Errors
    /// As [`Self::decode`]. Where the table has more points than [`SeekTable::new`], the table may be the cause;
    /// [`Self::decode`] decides.
    ///
    /// # Panics
    /// As [`Self::decode`].
    pub fn decode_with_table<S: RowSink>(
        &mut self,
        header: &Header<'_>,
        region: Region,
        table: Option<&mut SeekTable>,
        sink: &mut S,
    ) -> Result<(), Error> {
        assert!(
            region.is_inside(header),
            "region {region:?} must lie inside the picture of {} x {}",
            header.width,
            header.height
        );
        if let Some(record) = &header.record {
            return self.decode_record(record, header, region, sink);
        }
        if header.has_several_scans {
            let multi_scan = self.multi_scan.get_or_insert_with(|| Box::new(MultiScanDecoder::new()));
            let shared = (self.level, &mut self.tables, &mut self.planes);
            return multi_scan.decode(shared, header, region, sink);
        }
        self.set_tables(header)?;
        let needed = NeededMcus::of_sink(header, region, sink);
        self.prepare_skip(header, mcu_reader::passed_over(header, &needed, table.as_deref()));
        let mut rows = McuRows::new(
            self.level,
            header,
            &needed,
            &self.tables,
            &mut self.window,
            &mut self.rows,
            table,
        );
        let mut strips = StripEmitter {
            level: self.level,
            header,
            region,
            needed: &needed,
            planes: &mut self.planes,
            next: region.y,
        };
        strips.begin()?;
        for row in needed.rows.clone() {
            rows.begin(row)?;
            while let Some(run) = rows.next_run()? {
                strips.transform(row, run.columns, run.blocks, run.used, sink);
            }
            strips.finish_row();
            strips.emit(row, sink);
            if row + 1 < needed.rows.end {
                strips.advance();
            }
        }
        rows.finish()
    }

    /// Decodes a region of a record of coefficients.
    fn decode_record<S: RowSink>(
        &mut self,
        record: &Record<'_>,
        header: &Header<'_>,
        region: Region,
        sink: &mut S,
    ) -> Result<(), Error> {
        let needed = NeededMcus::of_sink(header, region, sink);
        let segments = coefficients::rows::open(record, header)?;
        let only_dc = needed.needed_blocks.iter().flatten().all(|part| part.scaled.block == 1);
        let reader = self.records.get_or_insert_with(|| Box::new(RecordReader::new()));
        let mut strips = StripEmitter {
            level: self.level,
            header,
            region,
            needed: &needed,
            planes: &mut self.planes,
            next: region.y,
        };
        strips.begin()?;
        for row in needed.rows.clone() {
            let part_of = |i: usize, v: usize, columns: &Range<usize>| {
                let all = needed.columns_of(i, row * header.components()[i].v + v)?;
                let common = columns.start.max(all.start)..columns.end.min(all.end);
                (!common.is_empty()).then_some(common)
            };
            reader.read_part(self.level, header, segments.row(row, only_dc)?, part_of, |run| {
                strips.transform_blocks((run.component, row, run.v), run.columns, run.blocks, run.used, sink);
            })?;
            strips.finish_row();
            strips.emit(row, sink);
            if row + 1 < needed.rows.end {
                strips.advance();
            }
        }
        Ok(())
    }

    /// Reads a scan once and makes its seek table. No pixel is computed.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the scan is damaged, up to its end. [`Error::Unsupported`]: several scans.
    pub fn build_seek_table(&mut self, header: &Header<'_>, kind: SeekTableKind) -> Result<SeekTable, Error> {
        if header.has_several_scans || header.record.is_some() {
            return Err(Error::Unsupported(
                "an index needs a single scan, this file has several (progressive or not)",
            ));
        }
        self.set_tables(header)?;
        self.prepare_skip(header, header.mcus_x * header.mcus_y);
        let scan = ScanReader::new(
            self.level,
            header,
            McuLayout::new(header, &self.tables),
            &mut self.window,
        );
        let mut table = SeekTable::new(header, kind);
        let mut reader = McuReader::new(scan, header.mcus_x, Some(&mut table));
        reader.move_to(header.mcus_x * header.mcus_y, 0)?;
        reader.finish()?;
        Ok(table)
    }

    /// The seek table by rows as far as a region needs it, if it is cheap to make: restart intervals begin at every
    /// row, and only their markers have to be found.
    pub(crate) fn seek_table_from_markers(&mut self, header: &Header<'_>, region: Region) -> Option<SeekTable> {
        if header.restart_interval == 0
            || !header.mcus_x.is_multiple_of(header.restart_interval)
            || header.has_several_scans
            || header.record.is_some()
        {
            return None;
        }
        self.set_tables(header).ok()?;
        let scan = ScanReader::new(
            self.level,
            header,
            McuLayout::new(header, &self.tables),
            &mut self.window,
        );
        let mut table = SeekTable::new(header, SeekTableKind::Rows);
        let mut reader = McuReader::new(scan, header.mcus_x, Some(&mut table));
        reader
            .move_to(NeededMcus::new(header, region).rows.end * header.mcus_x, 0)
            .ok()?;
        Some(table)
    }

    /// Builds the tables that pass over blocks, if `mcus` MCUs to pass over are worth it.
    pub(super) fn prepare_skip(&mut self, header: &Header<'_>, mcus: usize) {
        if mcus * header.blocks_per_mcu < MIN_SKIPPED_BLOCKS {
            return;
        }
        for component in header.components() {
            self.tables.prepare_skip(component.ac);
        }
    }

    pub(super) fn set_tables(&mut self, header: &Header<'_>) -> Result<(), Error> {
        for component in header.components() {
            let [dc, ac] =
                [header.huffman[0][component.dc], header.huffman[1][component.ac]].map(Option::unwrap_or_default);
            if !self.tables.set_dc(component.dc, dc) || !self.tables.set_ac(component.ac, ac) {
                return Err(Error::Corrupt {
                    what: "bad Huffman table",
                    offset: header.scan,
                });
            }
        }
        Ok(())
    }
}
