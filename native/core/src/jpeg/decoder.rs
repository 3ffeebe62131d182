//! Drives a decode: strips of MCUs from the scan to the sink.

use core::ops::Range;

use crate::error::Error;
use crate::jpeg::entropy::huffman::Tables;
use crate::jpeg::entropy::sequential::{Layout, PADDING, SLACK, WINDOW, Window};
use crate::jpeg::format::header::Header;
use crate::jpeg::format::markers::Color;
use crate::jpeg::kernels::color;
use crate::jpeg::kernels::idct::BlockRow;
use crate::jpeg::kernels::idct_scaled;
use crate::jpeg::planes::{Cover, Part, Plane};
use crate::jpeg::scale::Scale;
use crate::jpeg::scans::multi_scan::Progressive;
use crate::jpeg::scans::scan_reader::Scan;
use crate::jpeg::seek::mcu_reader::Walk;
use crate::jpeg::seek::table::{Index, Kind};
use crate::rows::RowSink;
use crate::simd::Available;

/// Blocks decoded before they are transformed: few enough to stay in the first-level cache beside the tables.
const RUN_BLOCKS: usize = 72;

/// A rectangle of samples of the picture at a scale, not empty and inside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Left edge.
    pub x: usize,
    /// Top edge.
    pub y: usize,
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// Size of the picture whose pixels are counted.
    pub scale: Scale,
}

impl Region {
    /// The whole picture.
    pub fn whole(header: &Header<'_>) -> Self {
        Self::whole_at(header, Scale::Full)
    }

    /// The whole picture at a scale.
    pub fn whole_at(header: &Header<'_>, scale: Scale) -> Self {
        Region {
            x: 0,
            y: 0,
            width: scale.side(header.width),
            height: scale.side(header.height),
            scale,
        }
    }

    fn is_inside(&self, header: &Header<'_>) -> bool {
        let Region { width, height, .. } = Self::whole_at(header, self.scale);
        let fits = |from: usize, length: usize, size: usize| length > 0 && from < size && length <= size - from;
        fits(self.x, self.width, width) && fits(self.y, self.height, height)
    }
}

/// Decodes one image after another, keeping its tables and buffers.
pub struct Decoder {
    pub(super) level: Available,
    pub(super) tables: Tables,
    pub(super) window: Window,
    coefficients: Box<[i16; 64 * RUN_BLOCKS + SLACK]>,
    used: [u8; RUN_BLOCKS],
    pub(super) planes: [Plane; 3],
    /// Made for the first progressive file.
    progressive: Option<Box<Progressive>>,
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

    /// A decoder that uses at most the kernels of `level`.
    pub fn with_level(level: Available) -> Self {
        Decoder {
            level,
            tables: Tables::new(),
            window: Window {
                bytes: Box::new([0; WINDOW + PADDING]),
                filled: 0,
                ended: false,
            },
            coefficients: Box::new([0; 64 * RUN_BLOCKS + SLACK]),
            used: [0; RUN_BLOCKS],
            planes: Default::default(),
            progressive: None,
        }
    }

    /// Decodes a region into `sink`: rows from top to bottom, each once. They are those of the whole picture at its scale.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the scan is found broken; rows handed over before that are of no use then. A scan is
    /// checked to its end only if the region reaches the picture's bottom right corner. A progressive file, of which all
    /// scans are read first, hands nothing over then; [`Error::Unsupported`] if scans are missing in it.
    /// [`Error::OutOfMemory`].
    ///
    /// # Panics
    /// If `region` is empty or not inside the picture.
    pub fn decode<S: RowSink>(&mut self, header: &Header<'_>, region: Region, sink: &mut S) -> Result<(), Error> {
        self.decode_by(header, region, None, sink)
    }

    /// The same by an index of this image, to which the entries are added that it lacks and the decode comes by. Those of
    /// progressive files are not looked at.
    ///
    /// # Errors
    /// Likewise. If the index knew more than [`Index::new`], it may be to blame: [`Self::decode`] tells.
    ///
    /// # Panics
    /// Likewise.
    pub fn decode_by<S: RowSink>(
        &mut self,
        header: &Header<'_>,
        region: Region,
        index: Option<&mut Index>,
        sink: &mut S,
    ) -> Result<(), Error> {
        assert!(
            region.is_inside(header),
            "region {region:?} is not inside {} x {}",
            header.width,
            header.height
        );
        if header.several_scans {
            let progressive = self.progressive.get_or_insert_with(|| Box::new(Progressive::new()));
            let shared = (self.level, &mut self.tables, &mut self.planes);
            return progressive.decode(shared, header, region, sink);
        }
        self.set_tables(header)?;
        let cover = Cover::new(header, region);
        let scan = Scan::new(self.level, header, Layout::new(header, &self.tables), &mut self.window);
        let mut walk = Walk::new(scan, header.mcus_x, index);
        let mut strips = Strips {
            level: self.level,
            header,
            region,
            cover: &cover,
            planes: &mut self.planes,
            next: region.y,
        };
        strips.begin()?;
        for row in cover.rows.clone() {
            let last = walk.last_of_run(&cover.columns, &cover.rows, row);
            walk.go(row * header.mcus_x + cover.columns.start, last)?;
            let mut column = cover.columns.start;
            while column < cover.columns.end {
                let mcus = walk.run((cover.columns.end - column).min(RUN_BLOCKS / header.blocks_per_mcu / 2 * 2));
                let used = &mut self.used[..mcus * header.blocks_per_mcu];
                walk.decode(mcus, &mut self.coefficients[..], used)?;
                strips.transform(row, column..column + mcus, self.coefficients.as_chunks().0, used);
                column += mcus;
            }
            strips.finish_row();
            strips.emit(row, sink);
            if row + 1 < cover.rows.end {
                strips.advance();
            }
        }
        walk.end(header, &cover)
    }

    /// Goes through a scan once and makes its index; no pixel is made.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the scan is found broken, up to its end. [`Error::Unsupported`]: progressive.
    pub fn index(&mut self, header: &Header<'_>, kind: Kind) -> Result<Index, Error> {
        if header.several_scans {
            return Err(Error::Unsupported("an index of several scans, progressive or not"));
        }
        self.set_tables(header)?;
        let scan = Scan::new(self.level, header, Layout::new(header, &self.tables), &mut self.window);
        let mut index = Index::new(header, kind);
        let mut walk = Walk::new(scan, header.mcus_x, Some(&mut index));
        walk.go(header.mcus_x * header.mcus_y, 0)?;
        walk.finish()?;
        Ok(index)
    }

    /// The index by rows as far as a region needs it, where that takes next to nothing: restart intervals begin at every
    /// row, and only their markers are looked for.
    pub(crate) fn index_by_markers(&mut self, header: &Header<'_>, region: Region) -> Option<Index> {
        if header.restart_interval == 0
            || !header.mcus_x.is_multiple_of(header.restart_interval)
            || header.several_scans
        {
            return None;
        }
        self.set_tables(header).ok()?;
        let scan = Scan::new(self.level, header, Layout::new(header, &self.tables), &mut self.window);
        let mut index = Index::new(header, Kind::Rows);
        let mut walk = Walk::new(scan, header.mcus_x, Some(&mut index));
        walk.go(Cover::new(header, region).rows.end * header.mcus_x, 0).ok()?;
        Some(index)
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

/// From coefficients to rows of the sink, one MCU row at a time.
pub(super) struct Strips<'a> {
    pub level: Available,
    pub header: &'a Header<'a>,
    pub region: Region,
    pub cover: &'a Cover,
    pub planes: &'a mut [Plane; 3],
    /// Next row of the picture to be handed over.
    pub next: usize,
}

impl Strips<'_> {
    pub fn begin(&mut self) -> Result<(), Error> {
        for ((component, part), plane) in self
            .header
            .components()
            .iter()
            .zip(parts(self.cover))
            .zip(&mut *self.planes)
        {
            let strip = part.scaled.block * component.v;
            plane.begin(part, strip, self.cover.rows.start * strip)?;
        }
        Ok(())
    }

    /// The coefficients of some MCUs of row `row` to samples.
    pub(super) fn transform(&mut self, row: usize, mcus: Range<usize>, blocks: &[[i16; 64]], used: &[u8]) {
        let mut first = 0;
        for ((component, part), plane) in self
            .header
            .components()
            .iter()
            .zip(parts(self.cover))
            .zip(&mut *self.planes)
        {
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
                    let pitch = plane.pitch;
                    let quant = &self.header.quant[component.quant];
                    let size = part.scaled.block;
                    let out = plane.strip_from(size * v, size * columns.start);
                    idct_scaled::block_row(self.level, size, blocks, used, order, quant, out, pitch);
                }
            }
            first += component.h * component.v;
        }
    }

    pub fn finish_row(&mut self) {
        for (plane, part) in self.planes.iter_mut().zip(parts(self.cover)) {
            plane.extend_edges(part);
        }
    }

    /// Hands over all rows that are complete after MCU row `row`.
    pub fn emit<S: RowSink>(&mut self, row: usize, sink: &mut S) {
        let end = self.region.y + self.region.height;
        let ready = if row + 1 == self.cover.rows.end {
            end
        } else {
            // the last row needs the chroma below it
            end.min((row + 1) * self.region.scale.block() * self.header.vmax - usize::from(self.cover.looks_down()))
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

    fn emit_row<S: RowSink>(&mut self, y: usize, sink: &mut S) {
        let Region { x, width, .. } = self.region;
        let level = self.level;
        let mut parts = parts(self.cover);
        let mut sources = self.planes.iter_mut().map(|plane| {
            parts
                .next()
                .map_or(&[][..], |part| plane.pixels(level, part, x, y, width))
        });
        let mut sources: [&[u8]; 3] = core::array::from_fn(|_| sources.next().unwrap_or_default());
        let color = self.header.color;
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
        for (plane, _) in self.planes.iter_mut().zip(parts(self.cover)) {
            plane.advance();
        }
    }
}

pub(super) fn parts(cover: &Cover) -> impl Iterator<Item = &Part> {
    cover.parts.iter().flatten()
}
