//! Drives the decoding of a JPEG of several scans: all of them into the coefficients, then strips of those to the sink.
//!
//! Nothing is allocated before the whole script was read and found possible: the number of scans is limited, memory is
//! two bytes per sample of the rows down to the region's end (and a bit; [`crate::jpeg::Limits`] has a cap on it), and a file
//! with fewer bits than blocks is refused. Rows below the region are neither kept nor decoded, in any scan.

use core::ops::Range;

use crate::error::Error;
use crate::jpeg::decoder::{Region, Strips, parts};
use crate::jpeg::entropy::bit_reader::{BitPosition, BitReader, LOAD};
use crate::jpeg::entropy::huffman::{BandTable, Tables};
use crate::jpeg::entropy::progressive::{self, Band};
use crate::jpeg::entropy::refinement;
use crate::jpeg::entropy::unstuff::unstuff;
use crate::jpeg::format::header::Header;
use crate::jpeg::kernels::idct::BlockRow;
use crate::jpeg::kernels::idct_scaled;
use crate::jpeg::planes::{Cover, Plane};
use crate::jpeg::scans::coefficients::Coefficients;
use crate::jpeg::scans::script::{Part, ScanPlan, Script};
use crate::jpeg::scans::sequential_scan::WholeReader;
use crate::memory;
use crate::rows::RowSink;
use crate::simd::Available;

/// Bytes that unstuffing may write past what it keeps.
const ROOM: usize = 64;
/// Bytes of a scan that are kept between images.
const KEPT_BYTES: usize = 4 << 20;

/// What decoding keeps from one image to the next.
pub(crate) struct Progressive {
    coefficients: Coefficients,
    reader: Reader,
    used: Vec<u8>,
}

/// Reads scans.
struct Reader {
    table: BandTable,
    source: Source,
    /// Made for the first sequential file.
    whole: Option<WholeReader>,
}

/// The unstuffed bytes of a restart interval.
#[derive(Default)]
struct Source {
    /// As long as the longest scan so far, and [`ROOM`].
    bytes: Vec<u8>,
    filled: usize,
}

/// The MCUs of a scan.
struct Grid {
    /// MCUs per row.
    across: usize,
    /// Rows that are wanted, and all rows.
    down: usize,
    all: usize,
}

fn corrupt<T>(what: &'static str, offset: usize) -> Result<T, Error> {
    Err(Error::Corrupt { what, offset })
}

impl Progressive {
    pub fn new() -> Self {
        Progressive {
            coefficients: Coefficients::default(),
            reader: Reader {
                table: BandTable::new(),
                source: Source::default(),
                whole: None,
            },
            used: Vec::new(),
        }
    }

    /// See [`crate::jpeg::Decoder::decode`].
    pub fn decode<S: RowSink>(
        &mut self,
        (level, tables, planes): (Available, &mut Tables, &mut [Plane; 3]),
        header: &Header<'_>,
        region: Region,
        sink: &mut S,
    ) -> Result<(), Error> {
        let script = Script::read(header)?;
        let cover = Cover::new(header, region);
        let strips = Strips {
            level,
            header,
            region,
            cover: &cover,
            planes,
            next: region.y,
        };
        let decoded = self.decode_strips(tables, &script, strips, sink);
        self.coefficients.shrink();
        self.reader.source.shrink();
        decoded
    }

    fn decode_strips<S: RowSink>(
        &mut self,
        tables: &mut Tables,
        script: &Script<'_>,
        mut strips: Strips<'_>,
        sink: &mut S,
    ) -> Result<(), Error> {
        let rows = strips.cover.rows.clone();
        self.read(strips.level, tables, strips.header, script, rows.end)?;
        strips.begin()?;
        for row in rows.clone() {
            strips.transform_planes(row, &self.coefficients, &mut self.used);
            strips.finish_row();
            strips.emit(row, sink);
            if row + 1 < rows.end {
                strips.advance();
            }
        }
        Ok(())
    }

    /// All coefficients of a file, ours until the next one.
    pub fn coefficients(
        &mut self,
        level: Available,
        tables: &mut Tables,
        header: &Header<'_>,
        script: &Script<'_>,
    ) -> Result<&Coefficients, Error> {
        self.read(level, tables, header, script, header.mcus_y)?;
        Ok(&self.coefficients)
    }

    /// Reads the coefficients of the first `mcu_rows` rows of MCUs.
    fn read(
        &mut self,
        level: Available,
        tables: &mut Tables,
        header: &Header<'_>,
        script: &Script<'_>,
        mcu_rows: usize,
    ) -> Result<(), Error> {
        // the first scan of a component takes a bit of each block at least
        if Coefficients::count(header, header.mcus_y) > 8 * header.bytes.len() {
            return corrupt("fewer bits than blocks", header.bytes.len());
        }
        self.coefficients.begin(header, mcu_rows)?;
        for plan in &script.scans {
            self.reader.scan(level, tables, header, plan, &mut self.coefficients)?;
        }
        Ok(())
    }
}

impl Reader {
    /// Adds what a scan sends.
    fn scan(
        &mut self,
        level: Available,
        tables: &mut Tables,
        header: &Header<'_>,
        plan: &ScanPlan<'_>,
        coefficients: &mut Coefficients,
    ) -> Result<(), Error> {
        match plan.part {
            Part::Dc(raw) => {
                for (id, raw) in raw.iter().take(plan.components().count()).enumerate() {
                    if !tables.set_dc(id, raw) {
                        return corrupt("bad Huffman table", plan.start);
                    }
                }
                let mut predictors = [0; 3];
                self.first_of_blocks(level, header, plan, coefficients, |bits, component, fresh, block| {
                    if fresh {
                        predictors = [0; 3];
                    }
                    progressive::dc(
                        bits,
                        tables.dc(component),
                        &mut predictors[component],
                        plan.shift,
                        block,
                    )
                })
            }
            Part::DcBit => self.first_of_blocks(level, header, plan, coefficients, |bits, _, _, block| {
                progressive::dc_bit(bits, plan.shift, block.0);
                true
            }),
            Part::Band { first, last, table } => self.bands(
                level,
                header,
                plan,
                (first, last, table),
                coefficients,
                progressive::decode,
            ),
            Part::BandBit { first, last, table } => self.bands(
                level,
                header,
                plan,
                (first, last, table),
                coefficients,
                refinement::refine,
            ),
            Part::Whole(raw) => {
                let rows = Grid::new(header, plan, coefficients).down;
                let reader = self.whole.get_or_insert_with(WholeReader::new);
                reader.scan(level, tables, (header, plan, raw), rows, coefficients)
            }
        }
    }

    /// Calls `decode` for every block of a DC scan, with its component's place in the scan; `fresh`: predictors are to
    /// be forgotten first.
    fn first_of_blocks(
        &mut self,
        level: Available,
        header: &Header<'_>,
        plan: &ScanPlan<'_>,
        coefficients: &mut Coefficients,
        mut decode: impl FnMut(&mut BitReader<&[u8]>, usize, bool, (&mut [i16; 64], &mut u64)) -> bool,
    ) -> Result<(), Error> {
        let interleaved = plan.components().count() > 1;
        let grid = Grid::new(header, plan, coefficients);
        self.source
            .each_run(level, header.bytes, plan, &grid, |bits, row, columns, mut fresh| {
                let mut good = true;
                for column in columns {
                    for (place, component) in plan.components().enumerate() {
                        let frame = &header.components()[component];
                        let (h, v) = if interleaved { (frame.h, frame.v) } else { (1, 1) };
                        for y in 0..v {
                            let columns = column * h..(column + 1) * h;
                            let (blocks, nonzero) = coefficients.planes[component].run(row * v + y, columns);
                            for block in blocks.iter_mut().zip(nonzero) {
                                good &= decode(bits, place, core::mem::take(&mut fresh), block);
                            }
                        }
                    }
                }
                good
            })
    }

    /// Calls `decode` for every run of blocks of a band.
    fn bands(
        &mut self,
        level: Available,
        header: &Header<'_>,
        plan: &ScanPlan<'_>,
        (first, last, raw): (u8, u8, &[u8]),
        coefficients: &mut Coefficients,
        decode: impl Fn(
            Available,
            &mut BitReader<&[u8]>,
            &crate::jpeg::entropy::huffman::RunTable,
            &Band,
            &mut u32,
            (&mut [[i16; 64]], &mut [u64]),
        ) -> bool,
    ) -> Result<(), Error> {
        let pairs = matches!(plan.part, Part::Band { .. });
        let Some(table) = self.table.build(raw, pairs) else {
            return corrupt("bad Huffman table", plan.start);
        };
        let band = Band::new(first, last, plan.shift);
        let grid = Grid::new(header, plan, coefficients);
        let mut run = 0;
        for component in plan.components() {
            let plane = &mut coefficients.planes[component];
            self.source
                .each_run(level, header.bytes, plan, &grid, |bits, row, columns, fresh| {
                    if fresh {
                        run = 0;
                    }
                    decode(level, bits, table, &band, &mut run, plane.run(row, columns))
                })?;
        }
        Ok(())
    }
}

impl Grid {
    /// A scan of one component has its blocks for MCUs, without those that only fill the last MCUs of others.
    fn new(header: &Header<'_>, plan: &ScanPlan<'_>, coefficients: &Coefficients) -> Self {
        let mut components = plan.components();
        let first = components.next().unwrap_or(0);
        let (component, rows) = (&header.components()[first], coefficients.planes[first].rows());
        if components.next().is_some() {
            return Grid {
                across: header.mcus_x,
                down: rows / component.v,
                all: header.mcus_y,
            };
        }
        let all = component.height.div_ceil(8);
        Grid {
            across: component.width.div_ceil(8),
            down: rows.min(all),
            all,
        }
    }

    /// The row of the first of some MCUs, and those of them that lie in it.
    fn run(&self, mcus: Range<usize>) -> (usize, Range<usize>) {
        let (row, column) = (mcus.start / self.across, mcus.start % self.across);
        (row, column..self.across.min(column + mcus.len()))
    }
}

impl Source {
    /// Calls `decode` with the bits, a row, columns of it, and whether they begin a restart interval, for all wanted MCUs
    /// of a scan in order.
    fn each_run(
        &mut self,
        level: Available,
        file: &[u8],
        plan: &ScanPlan<'_>,
        grid: &Grid,
        mut decode: impl FnMut(&mut BitReader<&[u8]>, usize, Range<usize>, bool) -> bool,
    ) -> Result<(), Error> {
        let (wanted, total) = (grid.across * grid.down, grid.across * grid.all);
        let interval = if plan.restart_interval == 0 {
            total
        } else {
            plan.restart_interval
        };
        let (mut at, mut next) = (plan.start, 0);
        while next < wanted {
            if next > 0 {
                let number = (next / interval - 1) as u8 & 7;
                if file.get(at..at + 2) != Some(&[0xff, 0xd0 | number]) {
                    return corrupt("restart marker missing or out of order", at);
                }
                at += 2;
            }
            let length = self.fill(level, &file[at..plan.end])?;
            let mut bits = BitReader::new(&self.bytes[..self.filled + LOAD], BitPosition::default());
            let length_in_bits = 8 * self.filled as isize;
            let end = total.min(next + interval);
            let mut fresh = true;
            while next < end.min(wanted) {
                let (row, columns) = grid.run(next..end.min(wanted));
                next += columns.len();
                if !decode(&mut bits, row, columns, core::mem::take(&mut fresh)) {
                    return corrupt("invalid Huffman code or coefficient", at);
                }
                if bits.position().next_bit() > length_in_bits {
                    return corrupt("image data end too early", at + length);
                }
            }
            at += length;
            if next == end && length_in_bits - bits.position().next_bit() >= 8 {
                return corrupt("image data longer than the image", at);
            }
        }
        if wanted == total && at != plan.end {
            return corrupt("image data longer than the image", at);
        }
        Ok(())
    }

    /// Unstuffs the interval at the start of `data`; tells its length in the file.
    fn fill(&mut self, level: Available, data: &[u8]) -> Result<usize, Error> {
        memory::grow(&mut self.bytes, data.len() + ROOM)?;
        let progress = unstuff(level, data, &mut self.bytes);
        self.filled = progress.written;
        self.bytes[self.filled..][..LOAD].fill(0);
        Ok(progress.read)
    }

    /// Gives the memory of an unusually large file back.
    fn shrink(&mut self) {
        if self.bytes.len() > KEPT_BYTES {
            *self = Source::default();
        }
    }
}

impl Strips<'_> {
    /// The coefficients of row `row` of MCUs to samples.
    fn transform_planes(&mut self, row: usize, coefficients: &Coefficients, used: &mut Vec<u8>) {
        for (((component, part), plane), coefficients) in self
            .header
            .components()
            .iter()
            .zip(parts(self.cover))
            .zip(&mut *self.planes)
            .zip(&coefficients.planes)
        {
            for v in 0..component.v {
                let row = row * component.v + v;
                if !part.rows.contains(&row) {
                    continue;
                }
                let (blocks, nonzero) = coefficients.row(row);
                let columns = part.columns.clone();
                used.clear();
                used.extend(
                    nonzero[columns.clone()]
                        .iter()
                        .map(|n| 64 - (n | 1).leading_zeros() as u8),
                );
                let order = BlockRow {
                    from: 0,
                    to: columns.len(),
                    first: 0,
                    per_mcu: 1,
                    stride: 1,
                };
                let (size, pitch, quant) = (part.scaled.block, plane.pitch, &self.header.quant[component.quant]);
                let out = plane.strip_from(size * v, size * columns.start);
                idct_scaled::block_row(self.level, size, &blocks[columns], used, order, quant, out, pitch);
            }
        }
    }
}
