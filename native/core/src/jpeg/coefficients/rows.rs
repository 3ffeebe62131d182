//! Records as coefficients: the rows of MCUs that a region needs.

use core::ops::Range;

use super::record::{Record, SegmentRow, Segments};
use super::segment::{Scratch, Window, read_segment};
use super::{SEGMENT, dc};
use crate::error::{Error, corrupt};
use crate::jpeg::format::header::Header;
use crate::simd::Available;

/// Memory that is used for one record after another.
pub(crate) struct RecordReader {
    window: Window,
    scratch: Scratch,
    blocks: Box<[[i16; 64]; SEGMENT]>,
    used: [u8; SEGMENT],
    dc: [i16; SEGMENT],
}

/// Blocks of a row of blocks of a component.
pub(crate) struct RecordRun<'r> {
    pub component: usize,
    /// The row of blocks within its row of MCUs.
    pub v: usize,
    pub columns: Range<usize>,
    pub blocks: &'r [[i16; 64]],
    pub used: &'r [u8],
}

impl RecordReader {
    pub fn new() -> Self {
        RecordReader {
            window: Window::new(),
            scratch: Scratch::new(),
            blocks: Box::new([[0; 64]; SEGMENT]),
            used: [0; SEGMENT],
            dc: [0; SEGMENT],
        }
    }

    /// Calls `take` with the blocks of a row of MCUs, of those segments for which `wants` is true (component, row of blocks
    /// within the MCU, block columns).
    pub fn read_row(
        &mut self,
        level: Available,
        header: &Header<'_>,
        row: SegmentRow<'_>,
        wants: impl Fn(usize, usize, &Range<usize>) -> bool,
        take: impl FnMut(RecordRun<'_>),
    ) -> Result<(), Error> {
        let needed = |i, v, columns: &Range<usize>| wants(i, v, columns).then(|| columns.clone());
        self.read_part(level, header, row, needed, take)
    }

    /// Calls `take` with the blocks of a row of MCUs that `needed` says for each segment (component, row of blocks within
    /// the MCU, block columns): some of its columns.
    pub fn read_part(
        &mut self,
        level: Available,
        header: &Header<'_>,
        mut row: SegmentRow<'_>,
        needed: impl Fn(usize, usize, &Range<usize>) -> Option<Range<usize>>,
        mut take: impl FnMut(RecordRun<'_>),
    ) -> Result<(), Error> {
        for (i, component) in header.components().iter().enumerate() {
            for v in 0..component.v {
                for segment in 0..row.cut.across() {
                    let Some((dc_bytes, ac_bytes)) = row.next() else {
                        return corrupt("a record of coefficients lacks a segment", 0);
                    };
                    let columns = row.cut.columns(segment, component.h);
                    let Some(needed) = needed(i, v, &columns) else {
                        continue;
                    };
                    let within = needed.start - columns.start..needed.end - columns.start;
                    let count = columns.len();
                    let (blocks, used, dc) = (
                        &mut self.blocks[..count],
                        &mut self.used[..count],
                        &mut self.dc[..count],
                    );
                    let mut read = dc::read_segment(dc_bytes, dc) == Some(dc_bytes.len());
                    if row.only_dc {
                        used.fill(1);
                    } else {
                        self.window.fill(ac_bytes);
                        let kind = usize::from(i > 0);
                        read &= read_segment(level, &self.window, kind, &within, blocks, used, &mut self.scratch);
                    }
                    if !read {
                        return corrupt("a segment of a record of coefficients is damaged", 0);
                    }
                    for (block, &dc) in blocks.iter_mut().zip(&*dc) {
                        block[0] = dc;
                    }
                    take(RecordRun {
                        component: i,
                        v,
                        columns: needed,
                        blocks: &blocks[within.clone()],
                        used: &used[within],
                    });
                }
            }
        }
        Ok(())
    }
}

/// Checks the head of a record, and returns where its segments are.
pub(crate) fn open<'a>(record: &Record<'a>, header: &Header<'a>) -> Result<Segments<'a>, Error> {
    record.open(super::record::Cut::new(header))
}
