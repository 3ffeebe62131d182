//! Rows of a batch from images of other formats than JPEG: at full size, on one thread.

use std::time::{Duration, Instant};

use super::{FillError, FillOptions, FillTimes, Filler, Geometry, Row, TimedResampler, begin_resize};
use crate::image::Header;
use crate::jpeg::{Scale, SeekReport};
use crate::rows::ROWS_AT_ONCE;

impl Filler {
    /// Decodes the part of the image that the row needs, and writes the row.
    pub(super) fn fill_encoded(
        &mut self,
        header: &Header<'_>,
        geometry: &Geometry,
        options: &FillOptions,
        row: Row<'_>,
        times: &mut FillTimes,
        begun: Instant,
    ) -> Result<SeekReport, FillError> {
        let region = begin_resize(&mut self.resampler, geometry, Scale::Full, options, 3, ROWS_AT_ONCE)?;
        let mut sink = TimedResampler {
            resampler: &mut self.resampler,
            spent: Duration::ZERO,
        };
        let decoded = match header {
            Header::Png(header) => self.png.decode(self.level, header, region, &mut sink),
            Header::WebP(header) => self.webp.decode(self.level, header, region, &mut sink),
            Header::Jpeg(header) => self.decoder.decode(header, region, &mut sink),
        };
        let resized = sink.spent;
        times.resize += resized;
        times.decode += begun.elapsed().saturating_sub(resized);
        decoded?;
        let begun = Instant::now();
        self.finish(geometry, options, row)?;
        times.resize += begun.elapsed();
        Ok(SeekReport::default())
    }
}
