//! The seek table of a JPEG of one scan: the places inside the scan where decoding may begin, and the decoder's state
//! there.
//!
//! ```text
//!  scan    ├── segment 0 ──┼── segment 1 ──┼── segment 2 ──┼ ...      an MCU row each, or some 64 pixels of one
//!          point 0         point 1         point 2                    bit offset, DC predictor of each component
//! ```
//!
//! Offsets count the bits of the file as it is, with stuffing and restart markers, so that bytes before a seek point
//! are not read. A point at the start of a restart interval lies after its marker. The JPEG file itself is not changed.
//!
//! A table grows from the start of the scan: [`crate::jpeg::Decoder`] records the points that it passes.
//! [`super::bytes`] stores a table; [`super::mcu_reader`] uses and checks it. This module does not handle untrusted
//! bytes.

use core::ops::Range;

use crate::jpeg::format::header::Header;
use crate::jpeg::region::Region;

/// Approximate width in pixels of a segment of [`SeekTableKind::Tiles`].
const TILE_PIXELS: usize = 64;

/// How a picture is divided into segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekTableKind {
    /// One segment per row of MCUs. The table takes about 0.24 % of the file's size.
    Rows,
    /// One segment per 64 pixels of a row of MCUs. The table takes about 2 % of the file's size.
    Tiles,
}

impl SeekTableKind {
    /// The kind with the name "rows" or "tiles".
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "rows" => Some(SeekTableKind::Rows),
            "tiles" => Some(SeekTableKind::Tiles),
            _ => None,
        }
    }

    /// The name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            SeekTableKind::Rows => "rows",
            SeekTableKind::Tiles => "tiles",
        }
    }
}

/// The state of the entropy decoder at the start of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SeekPoint {
    /// Offset in bits from the start of the scan.
    pub bits: u64,
    /// DC predictor of each component. 0 for components that do not exist.
    pub predictors: [i32; 3],
}

/// The seek points of an image: those of its first segments, as far as they are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeekTable {
    pub(crate) kind: SeekTableKind,
    /// MCUs per segment (the last of a row may have fewer), and per row.
    step: usize,
    mcus_x: usize,
    /// Segments per row, and in total.
    per_row: usize,
    total: usize,
    /// Never empty: the first segment begins with the scan.
    pub(crate) points: Vec<SeekPoint>,
}

impl SeekTable {
    /// A table with only the first point.
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

    /// How the table divides the picture.
    pub fn kind(&self) -> SeekTableKind {
        self.kind
    }

    /// The number of segments whose start is known, at least 1.
    pub fn known(&self) -> usize {
        self.points.len()
    }

    /// MCUs of a segment; the last one of a row may have fewer.
    pub(crate) fn mcus_per_segment(&self) -> usize {
        self.step
    }

    /// The number of segments of the picture.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Whether the start of the region's last row of MCUs is known.
    pub(crate) fn reaches(&self, header: &Header<'_>, region: Region) -> bool {
        let last = (region.y + region.height - 1) / (region.scale.block() * header.vmax);
        self.known() > self.segment(last * self.mcus_x)
    }

    /// The segment of MCU `mcu`.
    pub(crate) fn segment(&self, mcu: usize) -> usize {
        mcu / self.mcus_x * self.per_row + mcu % self.mcus_x / self.step
    }

    /// The first MCU of a segment.
    pub(crate) fn first_mcu(&self, segment: usize) -> usize {
        segment / self.per_row * self.mcus_x + segment % self.per_row * self.step
    }

    /// Whether the segment after `columns` of a row is the one that holds the start of `columns` in the next row.
    pub(crate) fn is_gapless(&self, columns: &Range<usize>) -> bool {
        columns.start < self.step && columns.end == self.mcus_x
    }

    /// The earlier segment whose predictors are most similar: the one before, or at the start of a row the one above.
    pub(crate) fn neighbour(&self, segment: usize) -> usize {
        segment
            - if segment.is_multiple_of(self.per_row) {
                self.per_row
            } else {
                1
            }
    }
}
