//! The border between decoding and whatever consumes pixels: rows, handed over while they are still in cache.

/// Spare bytes that every planar row has after its width rounded up to [`ROW_ALIGN`].
pub const ROW_SPARE: usize = 32;
/// Planar rows are written in steps of this many samples.
pub const ROW_ALIGN: usize = 32;

/// Length that a planar row of `width` samples must have at least.
pub const fn planar_row_len(width: usize) -> usize {
    width.next_multiple_of(ROW_ALIGN) + ROW_SPARE
}

/// Receives decoded rows of a region from top to bottom, a few at a time.
pub trait RowSink {
    /// `true`: planar r, g, b rows are wanted (resizing); `false`: interleaved RGB.
    const PLANAR: bool;

    /// Where row `y` (0-based within the region) is to be written.
    ///
    /// Planar: three slices, each at least [`planar_row_len`] of the region's width; what lies beyond the width
    /// is overwritten with anything. Interleaved: only the first slice is used, of which exactly `3 * width`
    /// bytes are written.
    fn row(&mut self, y: usize) -> [&mut [u8]; 3];

    /// Rows up to `end` (exclusive) are complete. Called once per strip (about an MCU row), so that sinks can work on
    /// strips and time themselves.
    fn done(&mut self, end: usize);
}
