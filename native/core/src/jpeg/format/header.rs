//! The header: everything before the entropy-coded bytes. Reading it is cheap and allocates nothing.
//!
//! The rules are those of libjpeg (`jdmarker.c`, `jdinput.c`, `default_decompress_parms`). Where libjpeg warns, this is
//! an error.

use crate::error::Error;
use crate::jpeg::coefficients::record::{Record, is_record};
use crate::jpeg::format::markers::{self, FrameHeader, Markers, Process};

pub use crate::jpeg::format::markers::Color;

/// Bytes that are held of a block of a file of several scans: its coefficients, and the word that marks those that are
/// not zero.
pub(crate) const BLOCK_BYTES: u64 = (size_of::<[i16; 64]>() + size_of::<u64>()) as u64;

/// Limits on what a header may declare.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Largest `width * height` accepted.
    pub max_pixels: u64,
    /// Largest number of bytes that decoding may take: those that the decoder holds of the whole picture (coefficients of
    /// a JPEG of several scans, pixels of an interlaced PNG or of a WebP), and the decoded pixels where the caller gets
    /// them.
    pub max_nbytes: u64,
}

impl Limits {
    /// No limit: for reading a header only.
    pub const NONE: Self = Self::pixels(u64::MAX);

    /// A limit on pixels only.
    pub const fn pixels(max_pixels: u64) -> Self {
        Limits {
            max_pixels,
            max_nbytes: u64::MAX,
        }
    }

    /// Checks a number of bytes.
    ///
    /// # Errors
    /// [`Error::TooManyBytes`].
    pub fn check_nbytes(&self, nbytes: u64) -> Result<(), Error> {
        let max_nbytes = self.max_nbytes;
        if nbytes > max_nbytes {
            return Err(Error::TooManyBytes { nbytes, max_nbytes });
        }
        Ok(())
    }
}

/// A component of the picture.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Component {
    pub id: u8,
    /// Blocks per MCU, across and down.
    pub h: usize,
    pub v: usize,
    pub quant: usize,
    pub dc: usize,
    pub ac: usize,
    /// Size in samples, without the padding of the last blocks.
    pub width: usize,
    pub height: usize,
}

/// A JPEG that this decoder reads.
#[derive(Debug, Clone)]
pub struct Header<'a> {
    pub(crate) bytes: &'a [u8],
    /// Where the coefficients are kept without Huffman codes. The other fields are those of the JPEG.
    pub(crate) record: Option<Record<'a>>,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) color: Color,
    components: [Component; 3],
    count: usize,
    /// Largest sampling factors: an MCU is `8 * hmax` by `8 * vmax` pixels.
    pub(crate) hmax: usize,
    pub(crate) vmax: usize,
    pub(crate) mcus_x: usize,
    pub(crate) mcus_y: usize,
    pub(crate) blocks_per_mcu: usize,
    pub(crate) restart_interval: usize,
    /// Whether the file has several scans, each with its own tables. The fields above then hold what was declared
    /// before the first scan. This is true of all progressive files, and of sequential ones whose first scan lacks a
    /// component.
    pub(crate) has_several_scans: bool,
    pub(crate) process: Process,
    /// Offset of the first entropy-coded byte, or of the first scan header's body if there are several scans.
    pub(crate) scan: usize,
    pub(crate) quant: [[i16; 64]; 4],
    /// Raw DHT bodies (16 counts, then symbols) by class (DC, AC) and id.
    pub(crate) huffman: [[Option<&'a [u8]>; 4]; 2],
}

impl<'a> Header<'a> {
    /// Reads the segments before the scan.
    ///
    /// # Errors
    /// [`Error::Unsupported`]: arithmetic coding, lossless, 12 bits, a number of components other than 1 or 3,
    /// fractional sampling, height given later (DNL). [`Error::TooLarge`], [`Error::TooManyBytes`]: above `limits`.
    /// [`Error::Corrupt`]: everything else.
    ///
    /// The bytes may also be a record of coefficients ([`crate::jpeg::to_record`]).
    pub fn parse(bytes: &'a [u8], limits: &Limits) -> Result<Self, Error> {
        let record = is_record(bytes).then(|| Record::read(bytes)).transpose()?;
        let bytes = record.map_or(bytes, |record| record.before);
        let markers = Markers::read(bytes)?;
        let frame = &markers.frame;
        check_frame(frame, limits)?;
        let count = frame.count;
        let mut components = [Component::default(); 3];
        for (component, declared) in components.iter_mut().zip(frame.components()) {
            *component = Component {
                id: declared.id,
                h: if count == 1 { 1 } else { declared.h as usize },
                v: if count == 1 { 1 } else { declared.v as usize },
                quant: declared.quant as usize,
                ..Component::default()
            };
        }
        let used = &mut components[..count];
        let hmax = used.iter().map(|c| c.h).max().unwrap_or(1);
        let vmax = used.iter().map(|c| c.v).max().unwrap_or(1);
        let blocks_per_mcu = used.iter().map(|c| c.h * c.v).sum();
        if used.iter().any(|c| hmax % c.h != 0 || vmax % c.v != 0) {
            return Err(Error::Unsupported("fractional chroma sampling"));
        }
        if blocks_per_mcu > markers::MAX_BLOCKS_PER_MCU {
            return Err(Error::Unsupported("more than 10 blocks per MCU"));
        }
        for component in &mut *used {
            component.width = (frame.width * component.h).div_ceil(hmax);
            component.height = (frame.height * component.v).div_ceil(vmax);
            if markers.quant_seen & 1 << component.quant == 0 {
                return Err(Error::Corrupt {
                    what: "missing quantisation table",
                    offset: markers.sos_offset,
                });
            }
        }
        let has_several_scans = frame.process == Process::Progressive || markers.first_scan()? != count;
        let scan = if has_several_scans {
            markers.sos_offset // `Script` reads the scans
        } else {
            single_scan(&markers, used, record.is_some())?
        };
        let (mcus_x, mcus_y) = (frame.width.div_ceil(8 * hmax), frame.height.div_ceil(8 * vmax));
        let header = Header {
            bytes,
            record,
            width: frame.width,
            height: frame.height,
            color: markers.color(),
            components,
            count,
            hmax,
            vmax,
            mcus_x,
            mcus_y,
            blocks_per_mcu,
            restart_interval: markers.restart_interval,
            has_several_scans: has_several_scans && record.is_none(),
            process: frame.process,
            scan,
            quant: markers.quant,
            huffman: markers.huffman,
        };
        limits.check_nbytes(header.held_nbytes())?;
        Ok(header)
    }

    /// Bytes that the decoder holds of the whole picture: coefficients, if there are several scans.
    pub fn held_nbytes(&self) -> u64 {
        match self.has_several_scans {
            true => (self.mcus_x * self.mcus_y * self.blocks_per_mcu) as u64 * BLOCK_BYTES,
            false => 0,
        }
    }

    /// Width in pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Height in pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// MCUs between restart markers. 0: there are none.
    pub fn restart_interval(&self) -> usize {
        self.restart_interval
    }

    /// Whether the file has several scans. Decoding reads all of them before it emits the first row.
    pub fn has_several_scans(&self) -> bool {
        self.has_several_scans
    }

    /// Colour space of the stored components.
    pub fn color(&self) -> Color {
        self.color
    }

    pub(crate) fn components(&self) -> &[Component] {
        &self.components[..self.count]
    }

    /// The header of a picture that consists of one sequential scan of this picture. `positions`: those of the scan's
    /// components in the frame. Each component has the table whose number is its position in the scan.
    pub(crate) fn for_single_scan(
        &self,
        positions: impl Iterator<Item = usize>,
        tables: [[&'a [u8]; 3]; 2],
        restart_interval: usize,
        start: usize,
    ) -> Self {
        let mut components = [Component::default(); 3];
        let mut count = 0;
        for (i, (component, position)) in components.iter_mut().zip(positions).enumerate() {
            *component = Component {
                dc: i,
                ac: i,
                ..self.components[position]
            };
            count = i + 1;
        }
        if count == 1 {
            (components[0].h, components[0].v) = (1, 1);
        }
        let used = &components[..count];
        Header {
            blocks_per_mcu: used.iter().map(|c| c.h * c.v).sum(),
            mcus_x: if count == 1 {
                used[0].width.div_ceil(8)
            } else {
                self.mcus_x
            },
            mcus_y: if count == 1 {
                used[0].height.div_ceil(8)
            } else {
                self.mcus_y
            },
            huffman: tables.map(|[first, second, third]| [Some(first), Some(second), Some(third), None]),
            components,
            count,
            restart_interval,
            has_several_scans: false,
            scan: start,
            ..self.clone()
        }
    }
}

/// Sets the tables of the components for a file of one scan. Returns the offset of the scan's data. `is_record`: no
/// Huffman table is needed.
fn single_scan(markers: &Markers<'_>, components: &mut [Component], is_record: bool) -> Result<usize, Error> {
    let scan = markers.scan(&markers.frame)?;
    for (component, (dc, ac)) in components.iter_mut().zip(scan.tables) {
        (component.dc, component.ac) = (dc, ac);
        if !is_record && (markers.huffman[0][dc].is_none() || markers.huffman[1][ac].is_none()) {
            return Err(Error::Unsupported(
                "a Huffman table is missing in the file (abbreviated format)",
            ));
        }
    }
    Ok(scan.start)
}

fn check_frame(frame: &FrameHeader, limits: &Limits) -> Result<(), Error> {
    match frame.process {
        Process::Sequential | Process::Progressive => {}
        Process::Lossless => return Err(Error::Unsupported("lossless")),
        Process::Arithmetic => return Err(Error::Unsupported("arithmetic coding")),
        Process::Hierarchical => return Err(Error::Unsupported("hierarchical")),
    }
    if frame.precision != 8 {
        return Err(Error::Unsupported("bits per sample must be 8"));
    }
    if frame.count != 1 && frame.count != 3 {
        return Err(Error::Unsupported("the number of components must be 1 or 3"));
    }
    if frame.height == 0 {
        return Err(Error::Unsupported("the height is not in the header (DNL)"));
    }
    if frame.width == 0 {
        return Err(Error::Corrupt {
            what: "the width is 0",
            offset: frame.offset,
        });
    }
    if frame.width > markers::MAX_SIDE || frame.height > markers::MAX_SIDE {
        return Err(Error::Unsupported("width and height must be at most 65500 pixels"));
    }
    if frame.width as u64 * frame.height as u64 > limits.max_pixels {
        return Err(Error::TooLarge {
            width: frame.width as u32,
            height: frame.height as u32,
            max_pixels: limits.max_pixels,
        });
    }
    Ok(())
}
