//! Decoding with a thread that reads ahead: for a large picture of which no place to begin inside is known.
//!
//! ```text
//!  thread beside:  scan ── entropy ──> row of coefficients ──┐      ┌── spare row
//!  calling thread:                                           └──> idct ── upsample ── color ── RowSink
//! ```
//!
//! The same steps in the same order as [`Decoder::decode_by`]'s: the same pixels. Reading is the greater half. Where the
//! system starts no thread, the calling one does both.

use std::sync::mpsc;
use std::thread;

use crate::error::Error;
use crate::jpeg::decoder::{Decoder, Region, Strips};
use crate::jpeg::entropy::sequential::{Layout, SLACK};
use crate::jpeg::format::header::Header;
use crate::jpeg::planes::Cover;
use crate::jpeg::scans::scan_reader::Scan;
use crate::jpeg::seek::mcu_reader::Walk;
use crate::jpeg::seek::table::Index;
use crate::memory;
use crate::rows::RowSink;

/// Rows of MCUs that reading may be ahead.
const DEPTH: usize = 6;

/// The coefficients of a row of MCUs.
struct Coefficients {
    blocks: Vec<i16>,
    used: Vec<u8>,
}

impl Decoder {
    /// [`Self::decode_by`] on two threads, or on one where the second cannot be started; of a sequential file.
    ///
    /// # Errors
    /// Likewise.
    pub(super) fn decode_ahead<S: RowSink>(
        &mut self,
        header: &Header<'_>,
        region: Region,
        mut index: Option<&mut Index>,
        sink: &mut S,
    ) -> Result<(), Error> {
        self.set_tables(header)?;
        let cover = Cover::new(header, region);
        let scan = Scan::new(self.level, header, Layout::new(header, &self.tables), &mut self.window);
        let walk = Walk::new(scan, header.mcus_x, index.as_deref_mut());
        let mut strips = Strips {
            level: self.level,
            header,
            region,
            cover: &cover,
            planes: &mut self.planes,
            next: region.y,
        };
        strips.begin()?;
        let (give, rows) = mpsc::sync_channel(DEPTH);
        let (give_back, spare) = mpsc::channel();
        let decoded = thread::scope(|scope| {
            // both ends of both channels live in the scope: whichever side ends first, the other is told
            let reader = thread::Builder::new().spawn_scoped(scope, || read(walk, header, &cover, give, spare));
            let Ok(reader) = reader else { return None };
            for (row, coefficients) in cover.rows.clone().zip(rows) {
                let Coefficients { blocks, used } = &coefficients;
                strips.transform(row, cover.columns.clone(), blocks.as_chunks().0, used);
                let _ = give_back.send(coefficients);
                strips.finish_row();
                strips.emit(row, sink);
                if row + 1 < cover.rows.end {
                    strips.advance();
                }
            }
            Some(reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        decoded.unwrap_or_else(|| self.decode_by(header, region, index, sink))
    }
}

/// Reads all rows; ends early where the other side did.
fn read(
    mut walk: Walk<'_, '_>,
    header: &Header<'_>,
    cover: &Cover,
    give: mpsc::SyncSender<Coefficients>,
    spare: mpsc::Receiver<Coefficients>,
) -> Result<(), Error> {
    let columns = cover.columns.clone();
    let blocks = columns.len() * header.blocks_per_mcu;
    for row in cover.rows.clone() {
        let mut coefficients = match spare.try_recv() {
            Ok(coefficients) => coefficients,
            Err(_) => Coefficients {
                blocks: memory::zeroed(64 * blocks + SLACK)?,
                used: memory::zeroed(blocks)?,
            },
        };
        walk.go(
            row * header.mcus_x + columns.start,
            walk.last_of_run(&columns, &cover.rows, row),
        )?;
        let mut column = columns.start;
        while column < columns.end {
            let mcus = walk.run(columns.end - column);
            let done = (column - columns.start) * header.blocks_per_mcu;
            let used = &mut coefficients.used[done..][..mcus * header.blocks_per_mcu];
            walk.decode(mcus, &mut coefficients.blocks[64 * done..], used)?;
            column += mcus;
        }
        if give.send(coefficients).is_err() {
            return Ok(());
        }
    }
    walk.end(header, cover)
}
