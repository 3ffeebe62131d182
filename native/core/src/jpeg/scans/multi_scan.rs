//! The decoder of files of several scans: all scans fill the coefficients, then these become rows of the sink.
//!
//! Nothing is allocated before all scan headers are read and checked. The number of scans is limited. Memory is about
//! two bytes per sample of the rows down to the region's end; [`crate::jpeg::Limits`] limits it. A file with fewer bits
//! than blocks is refused. Rows below the region are neither kept nor decoded.

use super::intervals::{IntervalBytes, McuGrid};
use crate::error::{Error, corrupt};
use crate::jpeg::entropy::bit_reader::BitReader;
use crate::jpeg::entropy::huffman::{BandTableBuilder, HuffmanTables};
use crate::jpeg::entropy::progressive::{self, SpectralBand};
use crate::jpeg::entropy::refinement;
use crate::jpeg::format::header::Header;
use crate::jpeg::region::Region;
use crate::jpeg::sample_strips::{NeededMcus, SampleStrip};
use crate::jpeg::scans::coefficients::Coefficients;
use crate::jpeg::scans::script::{ScanContent, ScanSpec, Script};
use crate::jpeg::scans::sequential_scan::SequentialScanReader;
use crate::jpeg::strips::StripEmitter;
use crate::rows::RowSink;
use crate::simd::Available;

/// Tables and buffers that are kept from one image to the next.
pub(crate) struct MultiScanDecoder {
    coefficients: Coefficients,
    scan_decoder: ScanDecoder,
    used: Vec<u8>,
}

/// Decodes scans into coefficients.
struct ScanDecoder {
    table: BandTableBuilder,
    source: IntervalBytes,
    /// Made for the first sequential file.
    sequential: Option<SequentialScanReader>,
}

impl MultiScanDecoder {
    pub fn new() -> Self {
        MultiScanDecoder {
            coefficients: Coefficients::default(),
            scan_decoder: ScanDecoder {
                table: BandTableBuilder::new(),
                source: IntervalBytes::default(),
                sequential: None,
            },
            used: Vec::new(),
        }
    }

    /// See [`crate::jpeg::Decoder::decode`].
    pub fn decode<S: RowSink>(
        &mut self,
        (level, tables, planes): (Available, &mut HuffmanTables, &mut [SampleStrip; 3]),
        header: &Header<'_>,
        region: Region,
        sink: &mut S,
    ) -> Result<(), Error> {
        let script = Script::read(header)?;
        let needed = NeededMcus::of_sink(header, region, sink);
        let strips = StripEmitter {
            level,
            header,
            region,
            needed: &needed,
            planes,
            next: region.y,
        };
        let decoded = self.decode_strips(tables, &script, strips, sink);
        self.coefficients.shrink();
        self.scan_decoder.source.shrink();
        decoded
    }

    fn decode_strips<S: RowSink>(
        &mut self,
        tables: &mut HuffmanTables,
        script: &Script<'_>,
        mut strips: StripEmitter<'_>,
        sink: &mut S,
    ) -> Result<(), Error> {
        let rows = strips.needed.rows.clone();
        self.decode_scans(strips.level, tables, strips.header, script, rows.end)?;
        strips.begin()?;
        for row in rows.clone() {
            strips.transform_planes(row, &self.coefficients, &mut self.used, sink);
            strips.finish_row();
            strips.emit(row, sink);
            if row + 1 < rows.end {
                strips.advance();
            }
        }
        Ok(())
    }

    /// Decodes all coefficients of a file.
    pub fn decode_coefficients(
        &mut self,
        level: Available,
        tables: &mut HuffmanTables,
        header: &Header<'_>,
        script: &Script<'_>,
    ) -> Result<&Coefficients, Error> {
        self.decode_scans(level, tables, header, script, header.mcus_y)?;
        Ok(&self.coefficients)
    }

    /// The coefficients that were decoded.
    pub fn into_coefficients(self) -> Coefficients {
        self.coefficients
    }

    /// Decodes the coefficients of the first `mcu_rows` rows of MCUs.
    fn decode_scans(
        &mut self,
        level: Available,
        tables: &mut HuffmanTables,
        header: &Header<'_>,
        script: &Script<'_>,
        mcu_rows: usize,
    ) -> Result<(), Error> {
        // The first scan of a component has at least one bit per block.
        if Coefficients::count(header, header.mcus_y) > 8 * header.bytes.len() {
            return corrupt("fewer bits than blocks", header.bytes.len());
        }
        self.coefficients.begin(header, mcu_rows)?;
        for spec in &script.scans {
            self.scan_decoder
                .decode_scan(level, tables, header, spec, &mut self.coefficients)?;
        }
        Ok(())
    }
}

impl ScanDecoder {
    /// Decodes a scan.
    fn decode_scan(
        &mut self,
        level: Available,
        tables: &mut HuffmanTables,
        header: &Header<'_>,
        spec: &ScanSpec<'_>,
        coefficients: &mut Coefficients,
    ) -> Result<(), Error> {
        match spec.content {
            ScanContent::Dc(raw) => {
                for (id, raw) in raw.iter().take(spec.components().count()).enumerate() {
                    if !tables.set_dc(id, raw) {
                        return corrupt("bad Huffman table", spec.start);
                    }
                }
                let mut predictors = [0; 3];
                self.for_each_dc(level, header, spec, coefficients, |bits, component, fresh, block| {
                    if fresh {
                        predictors = [0; 3];
                    }
                    progressive::decode_dc(
                        bits,
                        tables.dc(component),
                        &mut predictors[component],
                        spec.shift,
                        block,
                    )
                })
            }
            ScanContent::DcBit => self.for_each_dc(level, header, spec, coefficients, |bits, _, _, block| {
                progressive::refine_dc(bits, spec.shift, block.0);
                true
            }),
            ScanContent::Band { first, last, table } => self.decode_bands(
                level,
                header,
                spec,
                (first, last, table),
                coefficients,
                progressive::decode_band,
            ),
            ScanContent::BandBit { first, last, table } => self.decode_bands(
                level,
                header,
                spec,
                (first, last, table),
                coefficients,
                refinement::refine_band,
            ),
            ScanContent::AllCoefficients(raw) => {
                let rows = McuGrid::new(header, spec, coefficients).down;
                let reader = self.sequential.get_or_insert_with(SequentialScanReader::new);
                reader.scan(level, tables, (header, spec, raw), rows, coefficients)
            }
        }
    }

    /// Calls `decode` for every block of a DC scan, with its component's position in the scan. `fresh`: a restart
    /// interval begins, and the predictors must be reset first.
    fn for_each_dc(
        &mut self,
        level: Available,
        header: &Header<'_>,
        spec: &ScanSpec<'_>,
        coefficients: &mut Coefficients,
        mut decode: impl FnMut(&mut BitReader<&[u8]>, usize, bool, (&mut [i16; 64], &mut u64)) -> bool,
    ) -> Result<(), Error> {
        let interleaved = spec.components().count() > 1;
        let grid = McuGrid::new(header, spec, coefficients);
        self.source
            .for_each_run(level, header.bytes, spec, &grid, |bits, row, columns, mut fresh| {
                let mut good = true;
                for column in columns {
                    for (position, component) in spec.components().enumerate() {
                        let frame = &header.components()[component];
                        let (h, v) = if interleaved { (frame.h, frame.v) } else { (1, 1) };
                        for y in 0..v {
                            let columns = column * h..(column + 1) * h;
                            let (blocks, nonzero) = coefficients.planes[component].run(row * v + y, columns);
                            for block in blocks.iter_mut().zip(nonzero) {
                                good &= decode(bits, position, core::mem::take(&mut fresh), block);
                            }
                        }
                    }
                }
                good
            })
    }

    /// Calls `decode` for every run of blocks of a band.
    fn decode_bands(
        &mut self,
        level: Available,
        header: &Header<'_>,
        spec: &ScanSpec<'_>,
        (first, last, raw): (u8, u8, &[u8]),
        coefficients: &mut Coefficients,
        decode: impl Fn(
            Available,
            &mut BitReader<&[u8]>,
            &crate::jpeg::entropy::huffman::BandTable,
            &SpectralBand,
            &mut u32,
            (&mut [[i16; 64]], &mut [u64]),
        ) -> bool,
    ) -> Result<(), Error> {
        let pairs = matches!(spec.content, ScanContent::Band { .. });
        let Some(table) = self.table.build(raw, pairs) else {
            return corrupt("bad Huffman table", spec.start);
        };
        let band = SpectralBand::new(first, last, spec.shift);
        let grid = McuGrid::new(header, spec, coefficients);
        let mut run = 0;
        for component in spec.components() {
            let plane = &mut coefficients.planes[component];
            self.source
                .for_each_run(level, header.bytes, spec, &grid, |bits, row, columns, fresh| {
                    if fresh {
                        run = 0;
                    }
                    decode(level, bits, table, &band, &mut run, plane.run(row, columns))
                })?;
        }
        Ok(())
    }
}
