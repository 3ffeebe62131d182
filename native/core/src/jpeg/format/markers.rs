//! The marker segments of a JPEG up to its first scan. [`super::header`] checks what they declare.

use crate::error::{Error, corrupt};

/// libjpeg's `JPEG_MAX_DIMENSION`.
pub(crate) const MAX_SIDE: usize = 65500;
/// libjpeg's `D_MAX_BLOCKS_IN_MCU`.
pub(crate) const MAX_BLOCKS_PER_MCU: usize = 10;

/// Natural position of the coefficient at each zigzag position.
pub(crate) const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21,
    28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63,
];

/// The colour space of the stored components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Color {
    /// One component.
    Gray,
    /// Three components: luma and two chroma differences (JFIF).
    YCbCr,
    /// Three components stored as they are.
    Rgb,
    /// Any other number of components.
    Other,
}

/// How the file is coded, by its SOF marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Process {
    /// Baseline or extended sequential, Huffman coded: SOF0, SOF1.
    Sequential,
    /// Progressive, Huffman coded: SOF2.
    Progressive,
    /// Lossless: SOF3.
    Lossless,
    /// Arithmetic coding of any kind: SOF9 to SOF11.
    Arithmetic,
    /// Differential frames: SOF5 to SOF7, SOF13 to SOF15.
    Hierarchical,
}

/// A component as the frame header declares it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeclaredComponent {
    pub id: u8,
    pub h: u8,
    pub v: u8,
    pub quant: u8,
}

/// The frame header.
#[derive(Debug, Clone)]
pub(crate) struct FrameHeader {
    pub offset: usize,
    pub process: Process,
    pub precision: u8,
    pub width: usize,
    pub height: usize,
    pub count: usize,
    declared: [DeclaredComponent; 4],
}

impl FrameHeader {
    /// At most the first four components.
    pub fn components(&self) -> &[DeclaredComponent] {
        &self.declared[..self.count.min(4)]
    }
}

/// The scan header of a scan that holds all components.
pub(crate) struct ScanHeader {
    pub start: usize,
    /// DC and AC table of each component.
    pub tables: [(usize, usize); 3],
}

/// Everything that is declared before the first scan.
pub(crate) struct Markers<'a> {
    pub frame: FrameHeader,
    pub quant: [[i16; 64]; 4],
    /// Bit i: table i is declared.
    pub quant_seen: u8,
    pub huffman: [[Option<&'a [u8]>; 4]; 2],
    pub restart_interval: usize,
    jfif: bool,
    adobe: Option<u8>,
    /// Body of the first SOS segment and its offset.
    sos: &'a [u8],
    pub sos_offset: usize,
}

impl<'a> Markers<'a> {
    /// Reads all segments up to the first SOS.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        if !bytes.starts_with(&[0xff, 0xd8, 0xff]) {
            return corrupt("not a JPEG", 0);
        }
        let mut frame = None;
        let mut found = MarkerTables {
            quant: [[0; 64]; 4],
            quant_seen: 0,
            huffman: [[None; 4]; 2],
            restart_interval: 0,
            jfif: false,
            adobe: None,
        };
        let mut at = 2;
        loop {
            let (marker, body, offset) = segment(bytes, at)?;
            at = offset + body.len();
            match marker {
                0xc4 => read_huffman(&mut found.huffman, body, offset)?,
                0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                    if frame.replace(read_frame(marker, body, offset)?).is_some() {
                        return corrupt("two frame headers", offset);
                    }
                }
                0xdb => found.quant(body, offset)?,
                0xdd => match body {
                    [high, low] => found.restart_interval = u16::from_be_bytes([*high, *low]) as usize,
                    _ => return corrupt("restart interval of wrong length", offset),
                },
                // libjpeg treats shorter ones as unknown segments.
                0xe0 => found.jfif |= body.len() >= 14 && body.starts_with(b"JFIF\0"),
                0xee if body.len() >= 12 && body.starts_with(b"Adobe") => found.adobe = Some(body[11]),
                0xe1..=0xef | 0xfe | 0xcc => {}
                0xda => {
                    let Some(frame) = frame else {
                        return corrupt("scan before the frame header", offset);
                    };
                    let MarkerTables {
                        quant,
                        quant_seen,
                        huffman,
                        restart_interval,
                        jfif,
                        adobe,
                    } = found;
                    return Ok(Markers {
                        frame,
                        quant,
                        quant_seen,
                        huffman,
                        restart_interval,
                        jfif,
                        adobe,
                        sos: body,
                        sos_offset: offset,
                    });
                }
                _ => return Err(Error::Unsupported("unknown marker")),
            }
        }
    }

    /// libjpeg's rule (`default_decompress_parms`).
    pub fn color(&self) -> Color {
        let ids = |ids: [u8; 3]| self.frame.components().iter().map(|c| c.id).eq(ids);
        match (self.frame.count, self.jfif, self.adobe) {
            (1, ..) => Color::Gray,
            (3, true, _) => Color::YCbCr,
            (3, false, Some(0)) => Color::Rgb,
            (3, false, None) if ids(*b"RGB") => Color::Rgb,
            (3, ..) => Color::YCbCr,
            _ => Color::Other,
        }
    }

    /// Number of components in the first scan.
    pub fn first_scan(&self) -> Result<usize, Error> {
        match self.sos.first() {
            Some(&count) => Ok(usize::from(count)),
            None => corrupt("empty scan header", self.sos_offset),
        }
    }

    /// Reads the first scan's header. It must hold all components of `frame`.
    pub fn scan(&self, frame: &FrameHeader) -> Result<ScanHeader, Error> {
        let (body, offset) = (self.sos, self.sos_offset);
        let Some((&count, rest)) = body.split_first() else {
            return corrupt("empty scan header", offset);
        };
        let count = count as usize;
        if count != frame.count {
            return Err(Error::Unsupported("several scans"));
        }
        let Some((selectors, &[start, end, approximation])) = rest.split_at_checked(2 * count) else {
            return corrupt("scan header of wrong length", offset);
        };
        if (start, end, approximation) != (0, 63, 0) {
            return Err(Error::Unsupported("spectral selection in a sequential scan"));
        }
        let mut tables = [(0, 0); 3];
        for (i, (pair, table)) in selectors.chunks_exact(2).zip(&mut tables).enumerate() {
            let component = &frame.components()[i];
            if frame.components()[..i].iter().any(|other| other.id == component.id) || pair[0] != component.id {
                return Err(Error::Unsupported("components out of order"));
            }
            *table = ((pair[1] >> 4) as usize, (pair[1] & 15) as usize);
            if table.0 > 3 || table.1 > 3 {
                return corrupt("Huffman table number over 3", offset);
            }
        }
        Ok(ScanHeader {
            start: offset + body.len(),
            tables,
        })
    }
}

struct MarkerTables<'a> {
    quant: [[i16; 64]; 4],
    quant_seen: u8,
    huffman: [[Option<&'a [u8]>; 4]; 2],
    restart_interval: usize,
    jfif: bool,
    adobe: Option<u8>,
}

impl MarkerTables<'_> {
    fn quant(&mut self, mut body: &[u8], offset: usize) -> Result<(), Error> {
        while let Some((&kind, rest)) = body.split_first() {
            let (wide, id) = (kind >> 4 != 0, (kind & 15) as usize);
            let Some((values, rest)) = rest.split_at_checked(if wide { 128 } else { 64 }) else {
                return corrupt("quantisation table longer than its segment", offset);
            };
            if id > 3 {
                return corrupt("quantisation table number over 3", offset);
            }
            // Dequantisation keeps 16 bits of the product, as libjpeg-turbo does: the sign of a 16-bit entry does not
            // matter.
            for (k, &natural) in ZIGZAG.iter().enumerate() {
                self.quant[id][natural as usize] = if wide {
                    i16::from_be_bytes([values[2 * k], values[2 * k + 1]])
                } else {
                    values[k] as i16
                };
            }
            self.quant_seen |= 1 << id;
            body = rest;
        }
        Ok(())
    }
}

/// Adds the tables of a DHT segment.
pub(crate) fn read_huffman<'a>(
    tables: &mut [[Option<&'a [u8]>; 4]; 2],
    mut body: &'a [u8],
    offset: usize,
) -> Result<(), Error> {
    while let Some((&kind, rest)) = body.split_first() {
        let symbols: usize = rest.iter().take(16).map(|&n| n as usize).sum();
        let (class, id) = ((kind >> 4) as usize, (kind & 15) as usize);
        let Some((table, rest)) = rest.split_at_checked(16 + symbols) else {
            return corrupt("Huffman table longer than its segment", offset);
        };
        if class > 1 || id > 3 || symbols > 256 {
            return corrupt("bad Huffman table", offset);
        }
        tables[class][id] = Some(table);
        body = rest;
    }
    Ok(())
}

/// Reads the segment at `at`. Returns its marker, its body and the offset of the body.
pub(crate) fn segment(bytes: &[u8], at: usize) -> Result<(u8, &[u8], usize), Error> {
    let mut at = at;
    if bytes.get(at).is_some_and(|&byte| byte != 0xff) {
        return corrupt("a marker is missing", at);
    }
    while bytes.get(at + 1) == Some(&0xff) {
        at += 1;
    }
    let Some(&[_, marker, high, low]) = bytes.get(at..).and_then(<[u8]>::first_chunk) else {
        return corrupt("the file ends in its header", bytes.len());
    };
    if matches!(marker, 0 | 0x01 | 0xd0..=0xd9) {
        return corrupt("a marker that is not allowed before the scan", at);
    }
    let length = u16::from_be_bytes([high, low]) as usize;
    let (start, end) = (at + 4, at + 2 + length);
    match bytes.get(start..end) {
        Some(body) => Ok((marker, body, start)),
        None if length < 2 => corrupt("segment shorter than its length field", at),
        None => corrupt("segment longer than the file", at),
    }
}

fn read_frame(marker: u8, body: &[u8], offset: usize) -> Result<FrameHeader, Error> {
    let Some((&[precision, h1, h0, w1, w0, count], list)) = body.split_first_chunk() else {
        return corrupt("frame header too short", offset);
    };
    let count = count as usize;
    if list.len() != 3 * count {
        return corrupt("frame header of wrong length", offset);
    }
    let mut declared = [DeclaredComponent::default(); 4];
    for (declared, entry) in declared.iter_mut().zip(list.chunks_exact(3)) {
        *declared = DeclaredComponent {
            id: entry[0],
            h: entry[1] >> 4,
            v: entry[1] & 15,
            quant: entry[2],
        };
        if !(1..=4).contains(&declared.h) || !(1..=4).contains(&declared.v) || declared.quant > 3 {
            return corrupt("component with bad sampling factors or table", offset);
        }
    }
    Ok(FrameHeader {
        offset,
        process: match marker {
            0xc0 | 0xc1 => Process::Sequential,
            0xc2 => Process::Progressive,
            0xc3 => Process::Lossless,
            0xc9..=0xcb => Process::Arithmetic,
            _ => Process::Hierarchical,
        },
        precision,
        width: u16::from_be_bytes([w1, w0]) as usize,
        height: u16::from_be_bytes([h1, h0]) as usize,
        count,
        declared,
    })
}
