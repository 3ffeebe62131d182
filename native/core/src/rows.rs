//! The interface between the decoder and the consumers of pixels: rows, passed on while they are in cache.

/// Bytes that every planar row has after its width rounded up to [`ROW_ALIGN`].
pub const ROW_SPARE: usize = 32;
/// Planar rows are written in steps of this many samples.
pub const ROW_ALIGN: usize = 32;

/// Rows that the decoders of PNG and WebP pass on at once.
pub const ROWS_AT_ONCE: usize = 8;

/// The least length of a planar row of `width` samples.
pub const fn planar_row_len(width: usize) -> usize {
    width.next_multiple_of(ROW_ALIGN) + ROW_SPARE
}

/// A rectangle of the samples of one component of a JPEG, at the scale at which its blocks have `block` x `block` samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComponentWindow {
    /// 1, 2, 4 or 8.
    pub block: usize,
    /// First column.
    pub x: usize,
    /// First row.
    pub y: usize,
    /// Columns; at least 1.
    pub width: usize,
    /// Rows; at least 1.
    pub height: usize,
}

/// Receives the decoded rows of a region from top to bottom, a few at a time.
pub trait RowSink {
    /// `true`: the sink wants planar r, g, b rows (for resizing). `false`: interleaved RGB.
    const PLANAR: bool;
    /// `true`: the sink wants the first component of a JPEG alone, in the first slice: its luma, if it stores one.
    const LUMA: bool = false;

    /// The memory of row `y`, counted from the top of the region.
    ///
    /// Planar: three slices, each at least [`planar_row_len`] of the region's width. Bytes beyond the width have no
    /// meaning. Interleaved: only the first slice is used; exactly `3 * width` bytes of it are written.
    fn row(&mut self, y: usize) -> [&mut [u8]; 3];

    /// The memory of the alpha of row `y`, for a decoder of an image that has alpha; empty if the sink wants none. A planar
    /// sink's row is as long as those of [`Self::row`]; it is written before the row is declared complete.
    fn alpha(&mut self, _y: usize) -> &mut [u8] {
        &mut []
    }

    /// The samples that the sink wants of each component of a JPEG instead of rows of pixels: neither upsampled nor
    /// converted. Only the decoder of JPEGs asks, and only for images of three components.
    #[inline]
    fn components(&self) -> Option<[ComponentWindow; 3]> {
        None
    }

    /// Memory for a component's blocks from column `x` and row `y` of its samples on, and the bytes from a row to the next.
    /// Blocks are written whole, where a part of them lies in the window. They are at most those of an MCU row.
    fn samples(&mut self, _component: usize, _x: usize, _y: usize) -> (&mut [u8], usize) {
        (&mut [], 0)
    }

    /// Declares the rows of each component's window before these complete.
    fn samples_done(&mut self, _ends: [usize; 3]) {}

    /// Declares rows before `end` complete. Called once per strip (about an MCU row), so that sinks can work on strips.
    fn done(&mut self, end: usize);
}

/// Interleaved RGB pixels in memory: the simplest sink.
#[derive(Debug)]
pub struct RgbPixels {
    /// Pixels of a row.
    pub width: usize,
    /// The rows, without gaps.
    pub bytes: Vec<u8>,
}

impl RgbPixels {
    /// Black pixels.
    #[must_use]
    pub fn new(width: usize, height: usize) -> Self {
        let bytes = vec![0; 3 * width * height];
        RgbPixels { width, bytes }
    }
}

impl RowSink for RgbPixels {
    const PLANAR: bool = false;

    fn row(&mut self, y: usize) -> [&mut [u8]; 3] {
        [
            &mut self.bytes[3 * self.width * y..][..3 * self.width],
            &mut [],
            &mut [],
        ]
    }

    fn done(&mut self, _end: usize) {}
}
