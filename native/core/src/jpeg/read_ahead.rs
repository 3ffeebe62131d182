//! Decoding on two threads, one of which reads ahead: for a large picture without seek points inside it.
//!
//! ```text
//!  thread beside:  scan ── entropy ──> row of coefficients ──┐      ┌── spare row
//!  calling thread:                                           └──> idct ── upsample ── color ── RowSink
//! ```
//!
//! The steps and their order are those of [`Decoder::decode_with_table`], and so are the pixels. Reading takes more
//! than half of the time. Where the system cannot start a thread, the calling thread does both.

use std::sync::mpsc;
use std::thread;

use crate::error::Error;
use crate::jpeg::decoder::Decoder;
use crate::jpeg::entropy::sequential::{McuLayout, SLACK};
use crate::jpeg::format::header::Header;
use crate::jpeg::region::Region;
use crate::jpeg::sample_strips::NeededMcus;
use crate::jpeg::scans::scan_reader::ScanReader;
use crate::jpeg::seek::mcu_reader::{self, McuReader};
use crate::jpeg::seek::table::SeekTable;
use crate::jpeg::strips::StripEmitter;
use crate::memory;
use crate::rows::RowSink;

/// Rows of MCUs that the reading thread may be ahead.
const DEPTH: usize = 6;

/// The coefficients of a row of MCUs.
struct CoefficientRow {
    blocks: Vec<i16>,
    used: Vec<u8>,
}

impl Decoder {
    /// [`Self::decode_with_table`] of a file of one scan, on two threads, or on one where the second cannot be started.
    ///
    /// # Errors
    /// As [`Self::decode_with_table`].
    pub(super) fn decode_on_two_threads<S: RowSink>(
        &mut self,
        header: &Header<'_>,
        region: Region,
        mut table: Option<&mut SeekTable>,
        sink: &mut S,
    ) -> Result<(), Error> {
        self.set_tables(header)?;
        let needed = NeededMcus::of_sink(header, region, sink);
        self.prepare_skip(header, mcu_reader::passed_over(header, &needed, table.as_deref()));
        let scan = ScanReader::new(
            self.level,
            header,
            McuLayout::new(header, &self.tables),
            &mut self.window,
        );
        let reader = McuReader::new(scan, header.mcus_x, table.as_deref_mut());
        let mut strips = StripEmitter {
            level: self.level,
            header,
            region,
            needed: &needed,
            planes: &mut self.planes,
            next: region.y,
        };
        strips.begin()?;
        let (give, rows) = mpsc::sync_channel(DEPTH);
        let (give_back, spare) = mpsc::channel();
        let decoded = thread::scope(|scope| {
            // Both ends of both channels live in the scope: when either side ends, the other side's channel closes.
            let reader = thread::Builder::new().spawn_scoped(scope, || read(reader, header, &needed, give, spare));
            let Ok(reader) = reader else { return None };
            for (row, coefficients) in needed.rows.clone().zip(rows) {
                let CoefficientRow { blocks, used } = &coefficients;
                strips.transform(row, needed.columns.clone(), blocks.as_chunks().0, used, sink);
                let _ = give_back.send(coefficients);
                strips.finish_row();
                strips.emit(row, sink);
                if row + 1 < needed.rows.end {
                    strips.advance();
                }
            }
            Some(reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        decoded.unwrap_or_else(|| self.decode_with_table(header, region, table, sink))
    }
}

/// Reads all rows. Ends early if the other side did.
fn read(
    mut reader: McuReader<'_, '_>,
    header: &Header<'_>,
    needed: &NeededMcus,
    give: mpsc::SyncSender<CoefficientRow>,
    spare: mpsc::Receiver<CoefficientRow>,
) -> Result<(), Error> {
    let columns = needed.columns.clone();
    let blocks = columns.len() * header.blocks_per_mcu;
    for row in needed.rows.clone() {
        let mut coefficients = match spare.try_recv() {
            Ok(coefficients) => coefficients,
            Err(_) => CoefficientRow {
                blocks: memory::zeroed(64 * blocks + SLACK)?,
                used: memory::zeroed(blocks)?,
            },
        };
        reader.move_to(
            row * header.mcus_x + columns.start,
            reader.last_before_move(&columns, &needed.rows, row),
        )?;
        let mut column = columns.start;
        while column < columns.end {
            let mcus = reader.mcus_until_point(columns.end - column);
            let done = (column - columns.start) * header.blocks_per_mcu;
            let used = &mut coefficients.used[done..][..mcus * header.blocks_per_mcu];
            reader.decode(mcus, &mut coefficients.blocks[64 * done..], used)?;
            column += mcus;
        }
        if give.send(coefficients).is_err() {
            return Ok(());
        }
    }
    reader.finish_region(header, needed)
}
