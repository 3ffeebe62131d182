//! The decode index of a baseline JPEG: where decoding may begin inside its scan, and what it must know there.
//!
//! ```text
//!  scan    ├── segment 0 ──┼── segment 1 ──┼── segment 2 ──┼ ...      an MCU row each, or some 64 pixels of one
//!          entry 0         entry 1         entry 2                    bit offset, DC predictor of each component
//! ```
//!
//! Offsets count the bits of the file as it is, stuffing and restart markers included, so that what lies before an entry
//! need not even be looked at. An entry at the start of a restart interval stands after its marker. A JPEG with an index
//! stays the file it was.
//!
//! An index grows from its start: [`crate::jpeg::Decoder`] notes what it passes. [`crate::jpeg::seek::bytes`] is how it is stored;
//! [`crate::jpeg::seek::mcu_reader`] is who uses it, and checks it. What is here trusts nobody's bytes and knows none.

use core::ops::Range;

use crate::jpeg::decoder::Region;
use crate::jpeg::format::header::Header;

/// Pixels that a segment of [`SeekTableKind::Tiles`] is wide, at least about.
const TILE_PIXELS: usize = 64;

/// How a picture is divided into segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekTableKind {
    /// One per row of MCUs: about +0.24 % of the file.
    Rows,
    /// One per 64 pixels of a row of MCUs: about +2 % of the file.
    Tiles,
}

impl SeekTableKind {
    /// The kind of that name: "rows" or "tiles".
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "rows" => Some(SeekTableKind::Rows),
            "tiles" => Some(SeekTableKind::Tiles),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            SeekTableKind::Rows => "rows",
            SeekTableKind::Tiles => "tiles",
        }
    }
}

/// What the entropy decoder must know at the start of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SeekPoint {
    /// Bits from the start of the scan.
    pub bits: u64,
    /// DC predictor of each component; of those that are not there, 0.
    pub predictors: [i32; 3],
}

/// The points of one image, from its first segment on as far as they are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeekTable {
    pub(crate) kind: SeekTableKind,
    /// MCUs per segment (the last of a row may have fewer) and per row.
    step: usize,
    mcus_x: usize,
    /// Segments per row, and in all.
    per_row: usize,
    total: usize,
    /// Never empty: the first segment begins where the scan does.
    pub(crate) points: Vec<SeekPoint>,
}

impl SeekTable {
    /// An index that knows nothing yet.
    pub fn new(header: &Header<'_>, kind: SeekTableKind) -> Self {
        let step = match kind {
            SeekTableKind::Rows => header.mcus_x,
            SeekTableKind::Tiles => (TILE_PIXELS / (8 * header.hmax)).clamp(1, header.mcus_x),
        };
        let per_row = header.mcus_x.div_ceil(step);
        SeekTable {
            kind,
            step,
            mcus_x: header.mcus_x,
            per_row,
            total: per_row * header.mcus_y,
            points: vec![SeekPoint::default()],
        }
    }

    /// How it divides the picture.
    pub fn kind(&self) -> SeekTableKind {
        self.kind
    }

    /// Segments whose start is known, at least 1.
    pub fn known(&self) -> usize {
        self.points.len()
    }

    /// Segments of the picture.
    pub fn total(&self) -> usize {
        self.total
    }

    /// It is known where the last row of MCUs of a region begins.
    pub(crate) fn reaches(&self, header: &Header<'_>, region: Region) -> bool {
        let last = (region.y + region.height - 1) / (region.scale.block() * header.vmax);
        self.known() > self.segment(last * self.mcus_x)
    }

    /// The segment that MCU `mcu` is in.
    pub(crate) fn segment(&self, mcu: usize) -> usize {
        mcu / self.mcus_x * self.per_row + mcu % self.mcus_x / self.step
    }

    /// The first MCU of a segment.
    pub(crate) fn first_mcu(&self, segment: usize) -> usize {
        segment / self.per_row * self.mcus_x + segment % self.per_row * self.step
    }

    /// Where `columns` of one row of MCUs end, the segment begins in which they begin in the next row.
    pub(crate) fn is_gapless(&self, columns: &Range<usize>) -> bool {
        columns.start < self.step && columns.end == self.mcus_x
    }

    /// The segment whose entry an entry's predictors resemble most, of those before it: its neighbour's, or at the start
    /// of a row the one above.
    pub(crate) fn neighbour(&self, segment: usize) -> usize {
        segment
            - if segment.is_multiple_of(self.per_row) {
                self.per_row
            } else {
                1
            }
    }
}
