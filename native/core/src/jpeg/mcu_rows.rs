//! Rows of MCUs as coefficients: one after the other, or two at once where the seek table knows both.
//!
//! Two rows at once are read like one: the blocks of the upper row are returned in runs as they are decoded, those of
//! the lower row are kept, and returned when it is its turn.

use core::ops::Range;

use crate::error::Error;
use crate::jpeg::entropy::huffman::HuffmanTables;
use crate::jpeg::entropy::sequential::{McuLayout, SLACK, Window};
use crate::jpeg::entropy::two_places::Blocks;
use crate::jpeg::format::header::Header;
use crate::jpeg::sample_strips::NeededMcus;
use crate::jpeg::scans::scan_reader::ScanReader;
use crate::jpeg::seek::mcu_reader::McuReader;
use crate::jpeg::seek::table::SeekTable;
use crate::memory::grow;
use crate::simd::Available;

/// Blocks decoded before they are transformed: few enough to stay in the first-level cache beside the tables.
const RUN_BLOCKS: usize = 72;

/// Memory that is used for one image after another.
pub(super) struct RowBuffers {
    /// Whether two rows are decoded at once where that is possible.
    pub two_at_once: bool,
    coefficients: Box<[i16; 64 * RUN_BLOCKS + SLACK]>,
    used: [u8; RUN_BLOCKS],
    /// The bytes of the upper of two rows, and the blocks of the lower one.
    window: Window,
    lower: Vec<i16>,
    lower_used: Vec<u8>,
}

impl RowBuffers {
    pub fn new(two_at_once: bool) -> Self {
        RowBuffers {
            two_at_once,
            coefficients: Box::new([0; 64 * RUN_BLOCKS + SLACK]),
            used: [0; RUN_BLOCKS],
            window: Window::new(),
            lower: Vec::new(),
            lower_used: Vec::new(),
        }
    }
}

/// How a row is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RowOrder {
    Alone,
    /// Together with the row below.
    Upper,
    /// It has been read with the row above.
    Lower,
}

/// Reads the needed MCUs of a scan.
pub(super) struct McuRows<'a, 'i> {
    header: &'a Header<'a>,
    needed: &'a NeededMcus,
    /// At the lower of two rows.
    reader: McuReader<'a, 'i>,
    upper: ScanReader<'a>,
    coefficients: &'a mut [i16],
    used: &'a mut [u8],
    lower: &'a mut Vec<i16>,
    lower_used: &'a mut Vec<u8>,
    two_at_once: bool,
    order: RowOrder,
    /// The next column of the row.
    column: usize,
}

/// Some MCUs of a row.
pub(super) struct Run<'r> {
    pub columns: Range<usize>,
    pub blocks: &'r [[i16; 64]],
    pub used: &'r [u8],
}

impl<'a, 'i> McuRows<'a, 'i> {
    pub fn new(
        level: Available,
        header: &'a Header<'a>,
        needed: &'a NeededMcus,
        tables: &'a HuffmanTables,
        window: &'a mut Window,
        buffers: &'a mut RowBuffers,
        table: Option<&'i mut SeekTable>,
    ) -> Self {
        let scan = |window| ScanReader::new(level, header, McuLayout::new(header, tables), window);
        let mut upper = scan(&mut buffers.window);
        upper.track_offsets(table.is_some());
        McuRows {
            header,
            needed,
            reader: McuReader::new(scan(window), header.mcus_x, table),
            upper,
            coefficients: &mut buffers.coefficients[..],
            used: &mut buffers.used,
            lower: &mut buffers.lower,
            lower_used: &mut buffers.lower_used,
            two_at_once: buffers.two_at_once,
            order: RowOrder::Alone,
            column: 0,
        }
    }

    /// Moves to the next needed row, which is `row`.
    pub fn begin(&mut self, row: usize) -> Result<(), Error> {
        let NeededMcus { columns, rows, .. } = self.needed;
        self.column = columns.start;
        if self.order == RowOrder::Upper {
            self.order = RowOrder::Lower;
            return Ok(());
        }
        if self.two_at_once && row + 1 < rows.end && self.reader.knows_rows(row + 1, columns.end) {
            self.order = RowOrder::Upper;
            let blocks = columns.len() * self.header.blocks_per_mcu;
            grow(self.lower, 64 * blocks + SLACK)?;
            grow(self.lower_used, blocks)?;
            return self.reader.move_to_rows(
                &mut self.upper,
                row + 1,
                columns,
                Blocks::new(self.lower, self.lower_used),
                Blocks::new(self.coefficients, self.used),
            );
        }
        self.order = RowOrder::Alone;
        let last = self.reader.last_before_move(columns, rows, row);
        self.reader.move_to(row * self.header.mcus_x + columns.start, last)
    }

    /// Decodes more MCUs of the row. None after the last one.
    pub fn next_run(&mut self) -> Result<Option<Run<'_>>, Error> {
        let NeededMcus { columns, .. } = self.needed;
        let per_mcu = self.header.blocks_per_mcu;
        let from = self.column;
        let most = (columns.end - from).min(RUN_BLOCKS / per_mcu / 2 * 2);
        if most == 0 {
            return Ok(None);
        }
        self.column += most;
        let blocks = most * per_mcu;
        let mut own = Blocks::new(self.coefficients, self.used).part(0, blocks);
        let first = (from - columns.start) * per_mcu;
        match self.order {
            RowOrder::Alone => {
                let mut done = 0;
                while done < most {
                    let mcus = self.reader.mcus_until_point(most - done);
                    let Blocks { coefficients, used } = own.reborrow().part(done * per_mcu, mcus * per_mcu);
                    self.reader.decode(mcus, coefficients, used)?;
                    done += mcus;
                }
            }
            RowOrder::Upper => {
                let lower = Blocks::new(self.lower, self.lower_used).part(first, blocks);
                self.reader.decode_two(&mut self.upper, most, lower, own.reborrow())?;
            }
            RowOrder::Lower => own = Blocks::new(self.lower, self.lower_used).part(first, blocks),
        }
        Ok(Some(Run {
            columns: from..self.column,
            blocks: own.coefficients.as_chunks().0,
            used: own.used,
        }))
    }

    /// Finishes after the last row: see [`McuReader::finish_region`].
    pub fn finish(&mut self) -> Result<(), Error> {
        self.reader.finish_region(self.header, self.needed)
    }
}
