//! The scans of a JPEG that has several, progressive or sequential: what each of them sends, and with what. Read in one
//! walk over the markers, before anything is allocated or decoded; refuses what libjpeg would only warn of, and what it
//! would not decode plainly.

use core::ops::{Range, RangeInclusive};

use crate::error::Error;
use crate::jpeg::entropy::unstuff::find_marker;
use crate::jpeg::format::header::{Component, Header};
use crate::jpeg::format::markers::{Process, read_huffman, segment};

/// Scans that a file may have whatever its size; encoders write about ten.
pub(crate) const SCAN_LIMIT: u64 = 100;
/// Pixels times scans that a file of more scans may cost. Both numbers are those of the package's path through Pillow.
pub(crate) const SCAN_BUDGET: u64 = 1 << 28;
/// Coefficients, in zigzag order from the second on, that libjpeg makes up where their scans are missing.
const SMOOTHED: usize = 9;
/// Highest bit at which a scan may begin, as in libjpeg.
const MAX_SHIFT: u8 = 13;

/// What a scan sends of each of its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanContent<'a> {
    /// The DC coefficient without its lowest bits, with a raw table per component of the scan.
    Dc([&'a [u8]; 3]),
    /// One more bit of the DC coefficient.
    DcBit,
    /// Zigzag positions `first..=last` without their lowest bits.
    Band { first: u8, last: u8, table: &'a [u8] },
    /// One more bit of those that are not zero, and new ones.
    BandBit { first: u8, last: u8, table: &'a [u8] },
    /// All of them: a scan of a sequential file, with the raw tables of each component, DC and AC.
    AllCoefficients([[&'a [u8]; 3]; 2]),
}

/// One scan.
#[derive(Debug, Clone)]
pub(crate) struct ScanSpec<'a> {
    pub content: ScanContent<'a>,
    /// Place in the frame of each component.
    components: [u8; 3],
    count: usize,
    /// Lowest bit sent.
    pub shift: u8,
    /// MCUs between restart markers; 0: none.
    pub restart_interval: usize,
    /// The entropy-coded bytes, restart markers included.
    pub start: usize,
    pub end: usize,
}

impl ScanSpec<'_> {
    /// Place in the frame of each component.
    pub fn components(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        self.components[..self.count].iter().map(|&c| usize::from(c))
    }
}

/// All scans of a file, in order.
#[derive(Debug)]
pub(crate) struct Script<'a> {
    pub scans: Vec<ScanSpec<'a>>,
    /// Comments and application segments between the scans: from marker to end.
    pub metadata: Vec<Range<usize>>,
    /// Offset of the marker that ends the image.
    pub end: usize,
}

/// What the walk has seen.
struct ScriptReader<'a, 'h> {
    header: &'h Header<'a>,
    sequential: bool,
    huffman: [[Option<&'a [u8]>; 4]; 2],
    restart_interval: usize,
    /// Per component and zigzag position the lowest bit that was sent; -1: none yet.
    sent: [[i8; 64]; 3],
    scans: Vec<ScanSpec<'a>>,
    metadata: Vec<Range<usize>>,
}

fn corrupt<T>(what: &'static str, offset: usize) -> Result<T, Error> {
    Err(Error::Corrupt { what, offset })
}

impl<'a> Script<'a> {
    /// Walks from the first scan to the end of the image.
    ///
    /// # Errors
    /// [`Error::Corrupt`]: more scans than allowed, a progression out of order, markers that cannot be followed.
    /// [`Error::Unsupported`]: scans are missing (libjpeg guesses what they would have sent), or quantisation tables
    /// stand between them.
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
    /// Takes in any other segment.
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

    /// Takes in a scan by its header; `at` moves behind its data.
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
            return corrupt("progression that is none", offset);
        }
        let (mut components, mut tables) = ([0; 3], [0; 3]);
        for (i, pair) in selectors.chunks_exact(2).enumerate() {
            let place = self.find_component(pair[0])?;
            if i > 0 && place <= components[i - 1] {
                return Err(Error::Unsupported("components out of order"));
            }
            (components[i], tables[i]) = (place, pair[1]);
            self.record_sent(usize::from(place), first..=last, before, shift, offset)?;
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

    /// Place in the frame of the component that the file calls `id`.
    fn find_component(&self, id: u8) -> Result<u8, Error> {
        let matches = |c: &Component| c.id == id;
        let components = self.header.components();
        match components.iter().position(matches) {
            Some(place) if components.iter().rposition(matches) == Some(place) => Ok(place as u8),
            _ => Err(Error::Unsupported("scan of an unknown component")),
        }
    }

    /// FoundList that bits down to `shift` were sent, which must follow upon those of earlier scans.
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
            return corrupt("coefficients before the first of their block", offset);
        }
        let expected = if before == 0 { -1 } else { before as i8 };
        for k in band {
            if sent[usize::from(k)] != expected {
                return corrupt("scan that does not follow upon the ones before", offset);
            }
            sent[usize::from(k)] = shift as i8;
        }
        Ok(())
    }

    /// Where the entropy-coded bytes from `at` on end.
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

    /// libjpeg smooths blocks of which it does not know all; that is left to it.
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
