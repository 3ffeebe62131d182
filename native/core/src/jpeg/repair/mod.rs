//! Decoding of damaged files, with the pixels that libjpeg-turbo makes of them: what is there is decoded, what is
//! missing is gray or repeats what is known, and damaged data are read on from the next restart marker.
//!
//! ```text
//! bytes ── header ── scans, as far as they go ── coefficients ── estimates ── idct ── ... ── RowSink
//!         (must be whole)   (bits, blocks)                        (smoothing)
//! ```
//!
//! The rules are those of libjpeg-turbo 3 (`jdhuff.c`, `jdphuff.c`, `jdmarker.c`, `jdcoefct.c`), where it warns and
//! continues. Where it gives up after the header, this decoder takes the picture as it is then. Nothing here is used
//! for files that are whole.

mod bits;
mod blocks;
mod smoothing;

use crate::error::{Error, corrupt};
use crate::jpeg::decoder::Decoder;
use crate::jpeg::format::header::BLOCK_BYTES;
use crate::jpeg::format::header::Limits;
use crate::jpeg::format::header::{Component, Header};
use crate::jpeg::format::markers::{Process, ZIGZAG, read_huffman, segment};
use crate::jpeg::region::Region;
use crate::jpeg::sample_strips::NeededMcus;
use crate::jpeg::scans::coefficients::Coefficients;
use crate::jpeg::scans::script::{SCAN_BUDGET, SCAN_LIMIT};
use crate::jpeg::strips::StripEmitter;
use crate::rows::RowSink;
use bits::{DamagedBits, SymbolTable};
use blocks::Band;
use smoothing::{ESTIMATED, Progress};

/// Blocks that a byte of the file may stand for. A header of some hundred bytes would cost as much time as the largest
/// picture; the Pillow path of the package has the same limit.
const MOST_BLOCKS_PER_BYTE: usize = 32;
/// The highest lowest bit that a scan may send, as in libjpeg.
const MAX_SHIFT: u8 = 13;

impl Decoder {
    /// Decodes a region of a file that [`Self::decode`] refuses because it is damaged or ends too early.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if nothing of the picture can be decoded. [`Error::TooManyBytes`] if its coefficients and
    /// pixels need more memory than `limits` allow, [`Error::OutOfMemory`].
    ///
    /// # Panics
    /// If `region` is not inside the picture.
    pub fn decode_damaged<S: RowSink>(
        &mut self,
        header: &Header<'_>,
        limits: &Limits,
        region: Region,
        sink: &mut S,
    ) -> Result<(), Error> {
        if header.record.is_some() {
            return self.decode(header, region, sink);
        }
        let count = Coefficients::count(header, header.mcus_y);
        limits.check_nbytes(count as u64 * BLOCK_BYTES + 3 * (region.width * region.height) as u64)?;
        if count > MOST_BLOCKS_PER_BYTE * header.bytes.len() {
            return corrupt("nearly all of the picture is missing", header.bytes.len());
        }
        let mut coefficients = Coefficients::default();
        coefficients.begin(header, header.mcus_y)?;
        DamagedScans::new(header, &mut coefficients).read()?;
        mark_nonzero(header, &mut coefficients);
        let needed = NeededMcus::new(header, region);
        let mut strips = StripEmitter {
            level: self.level,
            header,
            region,
            needed: &needed,
            planes: &mut self.planes,
            next: region.y,
        };
        let mut used = Vec::new();
        strips.begin()?;
        for row in needed.rows.clone() {
            strips.transform_planes(row, &coefficients, &mut used, sink);
            strips.finish_row();
            strips.emit(row, sink);
            if row + 1 < needed.rows.end {
                strips.advance();
            }
        }
        Ok(())
    }
}

/// Sets the words that say which coefficients are not zero.
fn mark_nonzero(header: &Header<'_>, coefficients: &mut Coefficients) {
    for (component, plane) in header.components().iter().zip(&mut coefficients.planes) {
        for row in 0..plane.rows() {
            let (blocks, nonzero) = plane.run(row, 0..header.mcus_x * component.h);
            for (block, nonzero) in blocks.iter().zip(nonzero) {
                let positions = ZIGZAG.iter().enumerate();
                *nonzero = positions
                    .filter(|&(_, &position)| block[usize::from(position)] != 0)
                    .fold(0, |bits, (k, _)| bits | 1 << k);
            }
        }
    }
}

/// A scan header that can be used.
struct DamagedScan<'a> {
    /// Positions in the frame of its components, and their tables.
    components: Vec<usize>,
    tables: Vec<(Option<SymbolTable<'a>>, Option<SymbolTable<'a>>)>,
    band: Band,
    refines: bool,
    is_sequential: bool,
    restart_interval: usize,
}

/// Reads the scans of a damaged file, as far as they go.
struct DamagedScans<'a, 'c> {
    header: &'c Header<'a>,
    coefficients: &'c mut Coefficients,
    huffman: [[Option<&'a [u8]>; 4]; 2],
    restart_interval: usize,
    progress: Progress,
    count: u64,
}

impl<'a, 'c> DamagedScans<'a, 'c> {
    fn new(header: &'c Header<'a>, coefficients: &'c mut Coefficients) -> Self {
        DamagedScans {
            header,
            coefficients,
            huffman: header.huffman,
            restart_interval: header.restart_interval,
            progress: Progress {
                sent: [[-1; ESTIMATED]; 3],
                before: [[-1; ESTIMATED]; 3],
                last_row: 0,
            },
            count: 0,
        }
    }

    fn read(&mut self) -> Result<(), Error> {
        let header = self.header;
        if !header.has_several_scans {
            let Some(scan) = self.single_scan() else {
                return corrupt("bad Huffman table", header.scan);
            };
            self.read_scan(&scan, &mut DamagedBits::new(header.bytes, header.scan));
            return Ok(());
        }
        let (_, body, offset) = segment(header.bytes, header.scan - 4)?;
        let Some(scan) = self.scan(body) else {
            return corrupt("a scan header that cannot be used", offset);
        };
        let mut bits = DamagedBits::new(header.bytes, offset + body.len());
        self.read_scan(&scan, &mut bits);
        self.read_further_scans(&mut bits);
        if header.process == Process::Progressive {
            if self.count == 1 {
                self.progress.before = [[-1; ESTIMATED]; 3];
            }
            self.progress.smooth(header, self.coefficients);
        }
        Ok(())
    }

    /// Reads the segments and scans behind the first scan, up to the end or to something that cannot be used.
    fn read_further_scans(&mut self, bits: &mut DamagedBits<'a>) {
        let bytes = self.header.bytes;
        let allowed = SCAN_LIMIT.max(SCAN_BUDGET / (self.header.width as u64 * self.header.height as u64));
        while self.count < allowed {
            let marker = match bits.marker.take() {
                Some(marker) => marker,
                None => bits.find_marker(),
            };
            bits.marker = None;
            if matches!(marker, 0x01 | 0xd0..=0xd7) {
                continue; // markers without a segment
            }
            let Some(at) = bits.offset().checked_sub(2) else { return };
            let Ok((_, body, offset)) = segment(bytes, at) else {
                return;
            };
            bits.move_to(offset + body.len());
            match (marker, body) {
                (0xda, _) => {
                    let Some(scan) = self.scan(body) else { return };
                    bits.drop_bits();
                    bits.is_spent = false;
                    self.read_scan(&scan, bits);
                }
                (0xc4, _) => {
                    if read_huffman(&mut self.huffman, body, offset).is_err() {
                        return;
                    }
                }
                (0xdd, &[high, low]) => self.restart_interval = usize::from(u16::from_be_bytes([high, low])),
                (0xe0..=0xef | 0xfe | 0xdc | 0xcc, _) => {}
                _ => return,
            }
        }
    }

    /// The scan of a file of one scan.
    fn single_scan(&self) -> Option<DamagedScan<'a>> {
        let components = self.header.components();
        let tables = components.iter().map(|c| self.tables_of(c.dc, c.ac, true, true));
        Some(DamagedScan {
            components: (0..components.len()).collect(),
            tables: tables.collect::<Option<_>>()?,
            band: Band {
                first: 0,
                last: 63,
                shift: 0,
            },
            refines: false,
            is_sequential: true,
            restart_interval: self.restart_interval,
        })
    }

    fn tables_of(
        &self,
        dc: usize,
        ac: usize,
        needs_dc: bool,
        needs_ac: bool,
    ) -> Option<(Option<SymbolTable<'a>>, Option<SymbolTable<'a>>)> {
        let table = |class: usize, id: usize| {
            let raw = (*self.huffman[class].get(id)?)?;
            SymbolTable::new(raw, class == 0)
        };
        let dc = if needs_dc { Some(table(0, dc)?) } else { None };
        let ac = if needs_ac { Some(table(1, ac)?) } else { None };
        Some((dc, ac))
    }

    /// The scan of a scan header; None where libjpeg gives up.
    fn scan(&mut self, body: &[u8]) -> Option<DamagedScan<'a>> {
        let (&count, rest) = body.split_first()?;
        let (selectors, &[first, last, bits]) = rest.split_at_checked(2 * usize::from(count))? else {
            return None;
        };
        let (before, shift) = (bits >> 4, bits & 15);
        let is_sequential = self.header.process == Process::Sequential;
        let is_possible = if is_sequential {
            (first, last, bits) == (0, 63, 0)
        } else if first == 0 {
            last == 0
        } else {
            first <= last && last < 64 && count == 1
        };
        if !is_possible || !(1..=3).contains(&count) || shift > MAX_SHIFT || (before > 0 && before != shift + 1) {
            return None;
        }
        let (mut components, mut tables) = (Vec::new(), Vec::new());
        let refines = before > 0;
        for pair in selectors.chunks_exact(2) {
            let matches = |component: &Component| component.id == pair[0];
            let position = self.header.components().iter().position(matches)?;
            if components.contains(&position) {
                return None;
            }
            let needs_dc = first == 0 && !refines;
            let needs_ac = is_sequential || first > 0;
            components.push(position);
            tables.push(self.tables_of(usize::from(pair[1] >> 4), usize::from(pair[1] & 15), needs_dc, needs_ac)?);
        }
        Some(DamagedScan {
            components,
            tables,
            band: Band {
                first: first.into(),
                last: last.into(),
                shift,
            },
            refines,
            is_sequential,
            restart_interval: self.restart_interval,
        })
    }

    /// Records that a scan of a progressive file begins.
    fn note_progress(&mut self, scan: &DamagedScan<'a>) {
        for &component in &scan.components {
            let (sent, before) = (&mut self.progress.sent[component], &mut self.progress.before[component]);
            if self.count > 0 {
                before[1..].copy_from_slice(&sent[1..]);
            } else {
                before[1..].fill(0); // as libjpeg does
            }
            for bit in sent.iter_mut().take(scan.band.last + 1).skip(scan.band.first) {
                *bit = scan.band.shift as i8;
            }
        }
    }

    fn read_scan(&mut self, scan: &DamagedScan<'a>, bits: &mut DamagedBits<'a>) {
        if !scan.is_sequential {
            self.note_progress(scan);
        }
        self.count += 1;
        let header = self.header;
        let is_interleaved = scan.components.len() > 1 || header.components().len() == 1 && scan.is_sequential;
        let (across, down) = match scan.components[..] {
            [only] if !is_interleaved => {
                let component = &header.components()[only];
                (component.width.div_ceil(8), component.height.div_ceil(8))
            }
            _ => (header.mcus_x, header.mcus_y),
        };
        let down_per_mcu = header.components()[scan.components[0]].v;
        let mut state = ScanState::default();
        let mut left = scan.restart_interval;
        for row in 0..down {
            for column in 0..across {
                if !bits.is_spent {
                    self.progress.last_row = if is_interleaved { row } else { row / down_per_mcu };
                }
                if scan.restart_interval > 0 {
                    if left == 0 {
                        bits.restart(state.next_restart);
                        state = ScanState {
                            next_restart: (state.next_restart + 1) & 7,
                            ..ScanState::default()
                        };
                        left = scan.restart_interval;
                    }
                    left -= 1;
                }
                if bits.is_spent {
                    continue;
                }
                self.read_mcu(scan, bits, &mut state, (row, column), is_interleaved);
            }
        }
    }

    /// Reads all blocks of an MCU.
    fn read_mcu(
        &mut self,
        scan: &DamagedScan<'a>,
        bits: &mut DamagedBits<'a>,
        state: &mut ScanState,
        (row, column): (usize, usize),
        is_interleaved: bool,
    ) {
        for (i, (&position, tables)) in scan.components.iter().zip(&scan.tables).enumerate() {
            let component = &self.header.components()[position];
            let (h, v) = if is_interleaved {
                (component.h, component.v)
            } else {
                (1, 1)
            };
            for y in 0..v {
                let (blocks, _) = self.coefficients.planes[position].run(row * v + y, column * h..(column + 1) * h);
                for block in blocks {
                    state.read_block(scan, bits, tables, i, block);
                }
            }
        }
    }
}

/// What is carried from one block of a scan to the next.
#[derive(Default)]
struct ScanState {
    predictors: [i32; 3],
    run: u32,
    next_restart: u8,
}

impl ScanState {
    fn read_block<'a>(
        &mut self,
        scan: &DamagedScan<'a>,
        bits: &mut DamagedBits<'a>,
        tables: &(Option<SymbolTable<'a>>, Option<SymbolTable<'a>>),
        component: usize,
        block: &mut [i16; 64],
    ) {
        let (band, predictor) = (scan.band, &mut self.predictors[component]);
        match (tables, scan.refines) {
            ((Some(dc), Some(ac)), _) => *predictor = blocks::read_all(bits, (dc, ac), *predictor, block),
            ((Some(dc), None), _) => *predictor = blocks::read_dc(bits, dc, *predictor, band.shift, block),
            ((None, Some(ac)), false) => blocks::read_band(bits, ac, band, &mut self.run, block),
            ((None, Some(ac)), true) => blocks::refine_band(bits, ac, band, &mut self.run, block),
            ((None, None), _) => blocks::refine_dc(bits, band.shift, block),
        }
    }
}
