//! The blocks of each component that a region needs, and strips of their samples.

use core::ops::Range;

use crate::error::Error;
use crate::jpeg::format::header::{Component, Header};
use crate::jpeg::kernels::color;
use crate::jpeg::kernels::idct;
use crate::jpeg::kernels::upsample::{self, Upsample};
use crate::jpeg::region::Region;
use crate::jpeg::scale::ScaledComponent;
use crate::memory::grow;
use crate::rows::{ComponentWindow, RowSink};

/// Samples before the first of each row: its left neighbour, and alignment.
const ORIGIN: usize = 32;
/// Rows that are kept from the strip before.
const CONTEXT: usize = 1;

/// The blocks of a component that a region needs.
#[derive(Debug, Clone)]
pub(crate) struct NeededBlocks {
    pub scaled: ScaledComponent,
    /// Ranges of block columns and of block rows.
    pub columns: Range<usize>,
    pub rows: Range<usize>,
}

impl NeededBlocks {
    fn new(component: &Component, header: &Header<'_>, region: Region) -> Self {
        let scaled = ScaledComponent::new(component, header, region.scale);
        let upsample = scaled.upsample;
        let blocks = |from: usize, length: usize, factor: usize, neighbours: bool, size: usize| {
            let margin = usize::from(neighbours);
            let first = (from / factor).saturating_sub(margin);
            let end = ((from + length - 1) / factor + 1 + margin).min(size);
            first / scaled.block..end.div_ceil(scaled.block)
        };
        NeededBlocks {
            columns: blocks(
                region.x,
                region.width,
                scaled.across,
                upsample.uses_neighbour_columns(),
                scaled.width,
            ),
            rows: blocks(
                region.y,
                region.height,
                scaled.down,
                upsample.uses_neighbour_rows(),
                scaled.height,
            ),
            scaled,
        }
    }

    fn of_window(component: &Component, header: &Header<'_>, window: ComponentWindow) -> Self {
        let scaled = ScaledComponent::alone(component, header, window.block);
        let blocks = |from: usize, length: usize| from / scaled.block..(from + length).div_ceil(scaled.block);
        assert!(
            window.x + window.width <= scaled.width && window.y + window.height <= scaled.height,
            "{window:?} must lie inside the component of {} x {}",
            scaled.width,
            scaled.height
        );
        NeededBlocks {
            columns: blocks(window.x, window.width),
            rows: blocks(window.y, window.height),
            scaled,
        }
    }
}

/// The MCUs that hold the needed blocks of the components that are needed.
#[derive(Debug, Clone)]
pub(crate) struct NeededMcus {
    /// Of the first components: those that are needed.
    pub needed_blocks: [Option<NeededBlocks>; 3],
    pub columns: Range<usize>,
    pub rows: Range<usize>,
    /// Where the sink wants samples instead of pixels.
    pub windows: Option<[ComponentWindow; 3]>,
}

impl NeededMcus {
    pub fn new(header: &Header<'_>, region: Region) -> Self {
        Self::of_blocks(header.components(), |component, _| {
            NeededBlocks::new(component, header, region)
        })
    }

    /// What a sink needs: the region, or the samples of each component that it asks for.
    pub fn of_sink<S: RowSink>(header: &Header<'_>, region: Region, sink: &S) -> Self {
        match sink.components() {
            Some(windows) => Self {
                windows: Some(windows),
                ..Self::of_blocks(header.components(), |component, i| {
                    NeededBlocks::of_window(component, header, windows[i])
                })
            },
            None if S::LUMA => Self::of_blocks(&header.components()[..1], |component, _| {
                NeededBlocks::new(component, header, region)
            }),
            None => Self::new(header, region),
        }
    }

    fn of_blocks(components: &[Component], blocks: impl Fn(&Component, usize) -> NeededBlocks) -> Self {
        let mut needed = NeededMcus {
            needed_blocks: [const { None }; 3],
            columns: 0..0,
            rows: 0..0,
            windows: None,
        };
        let join = |all: &mut Range<usize>, blocks: &Range<usize>, per_mcu: usize| {
            let (start, end) = (blocks.start / per_mcu, blocks.end.div_ceil(per_mcu));
            *all = if Range::is_empty(all) {
                start..end
            } else {
                all.start.min(start)..all.end.max(end)
            };
        };
        let slots = needed.needed_blocks.iter_mut().enumerate();
        for (component, (i, slot)) in components.iter().zip(slots) {
            let part = blocks(component, i);
            join(&mut needed.columns, &part.columns, component.h);
            join(&mut needed.rows, &part.rows, component.v);
            *slot = Some(part);
        }
        needed
    }

    /// The block columns of a component that are needed of a row of blocks. None: not this row.
    pub fn columns_of(&self, component: usize, row: usize) -> Option<Range<usize>> {
        let part = self.needed_blocks[component].as_ref()?;
        part.rows.contains(&row).then(|| part.columns.clone())
    }

    /// Whether a component needs the row of samples above or below.
    pub fn uses_neighbour_rows(&self) -> bool {
        self.needed_blocks
            .iter()
            .flatten()
            .any(|part| part.scaled.upsample.uses_neighbour_rows())
    }
}

/// A strip of a component's samples, and a row of context above it.
#[derive(Debug, Default)]
pub(crate) struct SampleStrip {
    samples: Vec<u8>,
    pub pitch: usize,
    /// Rows in a strip.
    strip: usize,
    /// The sample row at the start of the strip, and the sample column at the start of each row.
    top: usize,
    left: usize,
    upsampled: Vec<u8>,
}

impl SampleStrip {
    /// Prepares for strips of `strip` rows, from sample row `top` on.
    pub fn begin(&mut self, part: &NeededBlocks, strip: usize, top: usize) -> Result<(), Error> {
        let ScaledComponent {
            block,
            across,
            upsample,
            ..
        } = part.scaled;
        let width = block * part.columns.len();
        self.pitch = (ORIGIN + width + upsample::SPARE.max(color::SPARE).max(idct::SPARE)).next_multiple_of(32);
        self.strip = strip;
        self.top = top;
        self.left = block * part.columns.start;
        grow(&mut self.samples, (CONTEXT + strip) * self.pitch + upsample::SPARE)?;
        if upsample != Upsample::None {
            grow(&mut self.upsampled, width * across + upsample::SPARE_OUT + color::SPARE)?;
        }
        Ok(())
    }

    /// The samples from the strip's row `row` and the component's column `x` on, and the bytes from a row to the next.
    pub fn strip_from(&mut self, row: usize, x: usize) -> (&mut [u8], usize) {
        let start = (CONTEXT + row) * self.pitch + ORIGIN + x - self.left;
        (&mut self.samples[start..], self.pitch)
    }

    /// Repeats the component's first and last column beyond its edges, as the triangle filters require.
    pub fn extend_edges(&mut self, part: &NeededBlocks) {
        let ScaledComponent {
            block, width, upsample, ..
        } = part.scaled;
        if !upsample.uses_neighbour_columns() {
            return;
        }
        let end = width.min(block * part.columns.end) - self.left;
        for row in self.samples.chunks_exact_mut(self.pitch).skip(CONTEXT).take(self.strip) {
            row[ORIGIN - 1] = row[ORIGIN];
            row[ORIGIN + end] = row[ORIGIN + end - 1];
        }
    }

    /// Moves on by a strip and keeps the last row as context.
    pub fn advance(&mut self) {
        self.samples
            .copy_within(self.strip * self.pitch..(self.strip + CONTEXT) * self.pitch, 0);
        self.top += self.strip;
    }

    /// The samples of row `y` of the component, from the sample before `x` on. The row must be in the strip or its
    /// context.
    fn row_before(&self, x: usize, y: usize) -> &[u8] {
        let start = (y + CONTEXT - self.top) * self.pitch + ORIGIN + x - self.left - 1;
        &self.samples[start..start + self.pitch - (x - self.left)]
    }

    /// Row `y` of the picture, upsampled: `width` pixels from pixel `x` on.
    pub fn pixels(
        &mut self,
        level: crate::simd::Available,
        part: &NeededBlocks,
        x: usize,
        y: usize,
        width: usize,
    ) -> &[u8] {
        let ScaledComponent {
            across, down, upsample, ..
        } = part.scaled;
        let row = y / down;
        if upsample == Upsample::None {
            return &self.row_before(x, row)[1..];
        }
        let lower = y % down * 2 >= down;
        let other = match (upsample.uses_neighbour_rows(), lower) {
            (false, _) => row,
            (true, false) => row.saturating_sub(1),
            (true, true) => (row + 1).min(part.scaled.height - 1),
        };
        let first = x / across;
        let count = (x + width - 1) / across + 1 - first;
        let mut upsampled = core::mem::take(&mut self.upsampled);
        let (near, far) = (self.row_before(first, row), self.row_before(first, other));
        upsample::row(level, upsample, near, far, lower, count, &mut upsampled);
        self.upsampled = upsampled;
        &self.upsampled[x - first * across..]
    }
}
