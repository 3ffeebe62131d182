//! The headers of all scans of a file of several scans, progressive or sequential. They are read before anything is
//! allocated or decoded. Files that libjpeg would decode with a warning, or with guessed coefficients, are refused.

use core::ops::{Range, RangeInclusive};

use crate::error::{Error, corrupt};
use crate::jpeg::entropy::unstuff::find_marker;
use crate::jpeg::format::header::{Component, Header};
use crate::jpeg::format::markers::{Process, read_huffman, segment};

/// Number of scans that any file may have. Encoders write about ten.
pub(crate) const SCAN_LIMIT: u64 = 100;
/// Pixels times scans that a file with more scans may have. The Pillow path of the package has the same two limits.
pub(crate) const SCAN_BUDGET: u64 = 1 << 28;
/// Number of coefficients, from the second in zigzag order on, that libjpeg guesses where their scans are missing.
const SMOOTHED: usize = 9;
/// The highest lowest bit that a scan may send, as in libjpeg.
const MAX_SHIFT: u8 = 13;

/// The coefficients that a scan sends, with the raw Huffman tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanContent<'a> {
    /// The DC coefficient without its lowest bits. One table per component of the scan.
    Dc([&'a [u8]; 3]),
    /// One more bit of the DC coefficient.
    DcBit,
    /// Zigzag positions `first..=last` without their lowest bits.
    Band { first: u8, last: u8, table: &'a [u8] },
    /// One more bit of the coefficients that are not zero, and new coefficients.
    BandBit { first: u8, last: u8, table: &'a [u8] },
    /// All coefficients: a scan of a sequential file. DC and AC tables per component.
    AllCoefficients([[&'a [u8]; 3]; 2]),
}

/// One scan.
#[derive(Debug, Clone)]
pub(crate) struct ScanSpec<'a> {
    pub content: ScanContent<'a>,
    /// Position in the frame of each component.
    components: [u8; 3],
    count: usize,
    /// The lowest bit that the scan sends.
    pub shift: u8,
    /// MCUs between restart markers. 0: there are none.
    pub restart_interval: usize,
    /// Offsets of the entropy-coded bytes, restart markers included.
    pub start: usize,
    pub end: usize,
}

impl ScanSpec<'_> {
    /// Position in the frame of each component.
    pub fn components(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        self.components[..self.count].iter().map(|&c| usize::from(c))
    }
}

/// All scans of a file, in order.
#[derive(Debug)]
pub(crate) struct Script<'a> {
    pub scans: Vec<ScanSpec<'a>>,
    /// Byte ranges of comments and application segments between the scans, markers included.
    pub metadata: Vec<Range<usize>>,
    /// Offset of the marker that ends the image.
    pub end: usize,
}

/// The state of reading scan headers.
struct ScriptReader<'a, 'h> {
    header: &'h Header<'a>,
    sequential: bool,
    huffman: [[Option<&'a [u8]>; 4]; 2],
    restart_interval: usize,
    /// Per component and zigzag position, the lowest bit that was sent. -1: none yet.
    sent: [[i8; 64]; 3],
    scans: Vec<ScanSpec<'a>>,
    metadata: Vec<Range<usize>>,
}

impl<'a> Script<'a> {
    /// Reads from the first scan to the end of the image.
    ///
    /// # Errors
    /// [`Error::Corrupt`]: too many scans, scans that do not continue earlier ones, damaged markers.
    /// [`Error::Unsupported`]: missing scans (libjpeg guesses their coefficients), or quantisation tables between
    /// scans.
    pub fn read(header: &Header<'a>) -> Result<Self, Error> {
        let (bytes, pixels) = (header.bytes, header.width as u64 * header.height as u64);
        let allowed = SCAN_LIMIT.max(SCAN_BUDGET / pixels);
        let mut reader = ScriptReader {
            header,
            sequential: header.process == Process::Sequential,
            huffman: header.huffman,
            restart_interval: header.restart_interval,
            sent: [[-1; 64]; 3],
            scans: Vec::with_capacity(16),
            metadata: Vec::new(),
        };
        let (_, body, offset) = segment(bytes, header.scan - 4)?;
        let mut at = offset + body.len();
        reader.read_scan(body, offset, &mut at)?;
        loop {
            while bytes.get(at..at + 2) == Some(&[0xff, 0xff]) {
                at += 1;
            }
            if bytes.get(at..at + 2) == Some(&[0xff, 0xd9]) {
                reader.check_complete(at)?;
                return Ok(Script {
                    scans: reader.scans,
                    metadata: reader.metadata,
                    end: at,
                });
            }
            let (marker, body, offset) = segment(bytes, at)?;
            at = offset + body.len();
            match marker {
                0xda if reader.scans.len() as u64 >= allowed => return corrupt("more scans than are allowed", offset),
                0xda => reader.read_scan(body, offset, &mut at)?,
                _ => reader.read_segment(marker, body, offset)?,
            }
        }
    }
}

impl<'a> ScriptReader<'a, '_> {
    /// Reads a segment between scans.
    fn read_segment(&mut self, marker: u8, body: &'a [u8], offset: usize) -> Result<(), Error> {
        match (marker, body) {
            (0xc4, _) => read_huffman(&mut self.huffman, body, offset)?,
            (0xdd, &[high, low]) => self.restart_interval = u16::from_be_bytes([high, low]) as usize,
            (0xdd, _) => return corrupt("restart interval of wrong length", offset),
            (0xe0..=0xef | 0xfe, _) => self.metadata.push(offset - 4..offset + body.len()),
            (0xdb, _) => return Err(Error::Unsupported("quantisation tables between scans")),
            _ => return Err(Error::Unsupported("unknown marker between scans")),
        }
        Ok(())
    }

    /// Reads a scan header. `at` moves to the end of the scan's data.
    fn read_scan(&mut self, body: &[u8], offset: usize, at: &mut usize) -> Result<(), Error> {
        let Some((&count, rest)) = body.split_first() else {
            return corrupt("empty scan header", offset);
        };
        let count = usize::from(count);
        let Some((selectors, &[first, last, bits])) = rest.split_at_checked(2 * count) else {
            return corrupt("scan header of wrong length", offset);
        };
        let (before, shift) = (bits >> 4, bits & 15);
        let in_order = match first {
            _ if self.sequential => (first, last, bits) == (0, 63, 0),
            0 => last == 0,
            _ => first <= last && last < 64 && count == 1,
        };
        if !in_order || !(1..=3).contains(&count) || shift > MAX_SHIFT || (before > 0 && before != shift + 1) {
            return corrupt("invalid progression parameters in a scan header", offset);
        }
        let (mut components, mut tables) = ([0; 3], [0; 3]);
        for (i, pair) in selectors.chunks_exact(2).enumerate() {
            let position = self.find_component(pair[0])?;
            if i > 0 && position <= components[i - 1] {
                return Err(Error::Unsupported("components out of order"));
            }
            (components[i], tables[i]) = (position, pair[1]);
            self.record_sent(usize::from(position), first..=last, before, shift, offset)?;
        }
        let end = self.end_of_data(*at);
        let content = self.content(first, last, before > 0, &tables[..count], offset)?;
        self.scans.push(ScanSpec {
            content,
            components,
            count,
            shift,
            restart_interval: self.restart_interval,
            start: core::mem::replace(at, end),
            end,
        });
        Ok(())
    }

    fn content(
        &self,
        first: u8,
        last: u8,
        refines: bool,
        tables: &[u8],
        offset: usize,
    ) -> Result<ScanContent<'a>, Error> {
        let table = |class: usize, id: u8| match self.huffman[class].get(usize::from(id)) {
            Some(&Some(raw)) => Ok(raw),
            _ => corrupt("missing Huffman table", offset),
        };
        if first > 0 {
            let table = table(1, tables[0] & 15)?;
            return Ok(if refines {
                ScanContent::BandBit { first, last, table }
            } else {
                ScanContent::Band { first, last, table }
            });
        }
        if refines {
            return Ok(ScanContent::DcBit);
        }
        let mut raw = [[&[][..]; 3]; 2];
        for (i, &id) in tables.iter().enumerate() {
            raw[0][i] = table(0, id >> 4)?;
            if self.sequential {
                raw[1][i] = table(1, id & 15)?;
            }
        }
        Ok(if self.sequential {
            ScanContent::AllCoefficients(raw)
        } else {
            ScanContent::Dc(raw[0])
        })
    }

    /// Position in the frame of the component with this identifier.
    fn find_component(&self, id: u8) -> Result<u8, Error> {
        let matches = |c: &Component| c.id == id;
        let components = self.header.components();
        match components.iter().position(matches) {
            Some(position) if components.iter().rposition(matches) == Some(position) => Ok(position as u8),
            _ => Err(Error::Unsupported("scan of an unknown component")),
        }
    }

    /// Records that bits down to `shift` were sent. They must continue those of earlier scans.
    fn record_sent(
        &mut self,
        component: usize,
        band: RangeInclusive<u8>,
        before: u8,
        shift: u8,
        offset: usize,
    ) -> Result<(), Error> {
        let sent = &mut self.sent[component];
        if *band.start() > 0 && sent[0] < 0 {
            return corrupt("AC coefficients before the DC coefficient", offset);
        }
        let expected = if before == 0 { -1 } else { before as i8 };
        for k in band {
            if sent[usize::from(k)] != expected {
                return corrupt("a scan does not continue the scans before it", offset);
            }
            sent[usize::from(k)] = shift as i8;
        }
        Ok(())
    }

    /// The end of the entropy-coded bytes that begin at `at`.
    fn end_of_data(&self, mut at: usize) -> usize {
        let bytes = self.header.bytes;
        loop {
            at += find_marker(&bytes[at..]);
            match bytes.get(at..at + 2) {
                Some(&[0xff, 0xd0..=0xd7]) => at += 2,
                _ => return at,
            }
        }
    }

    /// libjpeg smooths blocks with unknown coefficients. Pillow decodes such files.
    fn check_complete(&self, offset: usize) -> Result<(), Error> {
        for sent in &self.sent[..self.header.components().len()] {
            if sent[0] < 0 {
                return corrupt("a component without a scan", offset);
            }
            if sent[1..=SMOOTHED].iter().any(|&bit| bit != 0) {
                return Err(Error::Unsupported("progressive, with scans missing"));
            }
        }
        Ok(())
    }
}
