//! Strips: coefficients of one MCU row at a time become samples, then rows of the sink.

use core::ops::Range;

use crate::error::Error;
use crate::jpeg::format::header::Header;
use crate::jpeg::format::markers::Color;
use crate::jpeg::kernels::idct::BlockRow;
use crate::jpeg::kernels::{color, idct_scaled};
use crate::jpeg::region::Region;
use crate::jpeg::sample_strips::{NeededBlocks, NeededMcus, SampleStrip};
use crate::jpeg::scans::coefficients::Coefficients;
use crate::rows::{ComponentWindow, RowSink};
use crate::simd::Available;

/// Converts coefficients to rows of the sink, one MCU row at a time.
pub(super) struct StripEmitter<'a> {
    pub level: Available,
    pub header: &'a Header<'a>,
    pub region: Region,
    pub needed: &'a NeededMcus,
    pub planes: &'a mut [SampleStrip; 3],
    /// The next row of the picture to emit.
    pub next: usize,
}

impl StripEmitter<'_> {
    pub fn begin(&mut self) -> Result<(), Error> {
        if self.needed.windows.is_some() {
            return Ok(());
        }
        for ((component, part), plane) in self
            .header
            .components()
            .iter()
            .zip(needed_blocks(self.needed))
            .zip(&mut *self.planes)
        {
            let strip = part.scaled.block * component.v;
            plane.begin(part, strip, self.needed.rows.start * strip)?;
        }
        Ok(())
    }

    /// Transforms the coefficients of some MCUs of row `row` to samples.
    pub(super) fn transform<S: RowSink>(
        &mut self,
        row: usize,
        mcus: Range<usize>,
        blocks: &[[i16; 64]],
        used: &[u8],
        sink: &mut S,
    ) {
        let mut first = 0;
        let parts = self.header.components().iter().zip(needed_blocks(self.needed));
        for (i, ((component, part), plane)) in parts.zip(&mut *self.planes).enumerate() {
            let (start, end) = (mcus.start * component.h, mcus.end * component.h);
            let columns = part.columns.start.max(start)..part.columns.end.min(end);
            for v in 0..component.v {
                let order = BlockRow {
                    from: columns.start - start,
                    to: columns.end.saturating_sub(start),
                    first: first + v * component.h,
                    per_mcu: component.h,
                    stride: self.header.blocks_per_mcu,
                };
                if part.rows.contains(&(row * component.v + v)) {
                    let quant = &self.header.quant[component.quant];
                    let size = part.scaled.block;
                    let (out, pitch) = if self.needed.windows.is_some() {
                        sink.samples(i, size * columns.start, size * (row * component.v + v))
                    } else {
                        plane.strip_from(size * v, size * columns.start)
                    };
                    idct_scaled::block_row(self.level, size, blocks, used, order, quant, out, pitch);
                }
            }
            first += component.h * component.v;
        }
    }

    /// Transforms the coefficients of row `row` of MCUs to samples.
    pub fn transform_planes<S: RowSink>(
        &mut self,
        row: usize,
        coefficients: &Coefficients,
        used: &mut Vec<u8>,
        sink: &mut S,
    ) {
        for (i, component) in self.header.components().iter().enumerate() {
            for v in 0..component.v {
                let Some(columns) = self.needed.columns_of(i, row * component.v + v) else {
                    continue;
                };
                let (blocks, nonzero) = coefficients.planes[i].row(row * component.v + v);
                used.clear();
                used.extend(
                    nonzero[columns.clone()]
                        .iter()
                        .map(|n| 64 - (n | 1).leading_zeros() as u8),
                );
                self.transform_blocks((i, row, v), columns.clone(), &blocks[columns], used, sink);
            }
        }
    }

    /// Transforms blocks of one row of blocks to samples: those of component `i` in row `v` of row `row` of MCUs, which
    /// must be needed.
    pub fn transform_blocks<S: RowSink>(
        &mut self,
        (i, row, v): (usize, usize, usize),
        columns: Range<usize>,
        blocks: &[[i16; 64]],
        used: &[u8],
        sink: &mut S,
    ) {
        let component = &self.header.components()[i];
        let Some(part) = &self.needed.needed_blocks[i] else {
            return;
        };
        let order = BlockRow {
            from: 0,
            to: columns.len(),
            first: 0,
            per_mcu: 1,
            stride: 1,
        };
        let (size, quant) = (part.scaled.block, &self.header.quant[component.quant]);
        let (out, pitch) = if self.needed.windows.is_some() {
            sink.samples(i, size * columns.start, size * (row * component.v + v))
        } else {
            self.planes[i].strip_from(size * v, size * columns.start)
        };
        idct_scaled::block_row(self.level, size, blocks, used, order, quant, out, pitch);
    }

    pub fn finish_row(&mut self) {
        for (plane, part) in self.planes.iter_mut().zip(needed_blocks(self.needed)) {
            plane.extend_edges(part);
        }
    }

    /// Emits all rows that are complete after MCU row `row`.
    pub fn emit<S: RowSink>(&mut self, row: usize, sink: &mut S) {
        if let Some(windows) = self.needed.windows {
            return self.emit_samples(row, windows, sink);
        }
        let end = self.region.y + self.region.height;
        let ready = if row + 1 == self.needed.rows.end {
            end
        } else {
            // The last row needs the chroma row below it.
            end.min(
                (row + 1) * self.region.scale.block() * self.header.vmax
                    - usize::from(self.needed.uses_neighbour_rows()),
            )
        };
        if ready <= self.next {
            return;
        }
        while self.next < ready {
            self.emit_row(self.next, sink);
            self.next += 1;
        }
        sink.done(ready - self.region.y);
    }

    /// Declares the samples of MCU row `row` complete.
    fn emit_samples<S: RowSink>(&mut self, row: usize, windows: [ComponentWindow; 3], sink: &mut S) {
        let mut ends = [0; 3];
        for ((end, component), window) in ends.iter_mut().zip(self.header.components()).zip(windows) {
            let rows = (row + 1) * window.block * component.v;
            *end = rows.clamp(window.y, window.y + window.height) - window.y;
        }
        sink.samples_done(ends);
    }

    fn emit_row<S: RowSink>(&mut self, y: usize, sink: &mut S) {
        let Region { x, width, .. } = self.region;
        let level = self.level;
        let mut needed_blocks = needed_blocks(self.needed);
        let mut sources = self.planes.iter_mut().map(|plane| {
            needed_blocks
                .next()
                .map_or(&[][..], |part| plane.pixels(level, part, x, y, width))
        });
        let mut sources: [&[u8]; 3] = core::array::from_fn(|_| sources.next().unwrap_or_default());
        let color = self.header.color;
        if S::LUMA {
            let [luma, ..] = sink.row(y - self.region.y);
            luma[..width].copy_from_slice(&sources[0][..width]);
            return;
        }
        if color == Color::Gray {
            sources = [sources[0]; 3];
        }
        let out = sink.row(y - self.region.y);
        if S::PLANAR {
            color::planar(level, color, sources, width, out);
        } else {
            let [pixels, ..] = out;
            color::interleaved(level, color, sources, width, pixels);
        }
    }

    pub fn advance(&mut self) {
        if self.needed.windows.is_some() {
            return;
        }
        for (plane, _) in self.planes.iter_mut().zip(needed_blocks(self.needed)) {
            plane.advance();
        }
    }
}

pub(super) fn needed_blocks(needed: &NeededMcus) -> impl Iterator<Item = &NeededBlocks> {
    needed.needed_blocks.iter().flatten()
}
