//! Rows of a batch from JPEGs: at a scale, on several threads, with late colour.

use std::time::Instant;

use super::sinks::TimedResampler;
use super::{FillError, FillOptions, FillTimes, Filler, Geometry, Row, begin_resize};
use crate::error::Error;
use crate::jpeg::{DecodeHints, Header, Region, Scale, SeekReport};
use crate::resample::Picture;

impl Filler {
    /// Decodes the part of the image that the row needs, and writes the row.
    #[allow(clippy::too_many_arguments)] // those of `fill`, and when it began
    pub(super) fn fill_jpeg(
        &mut self,
        header: &Header<'_>,
        hints: DecodeHints<'_>,
        geometry: &Geometry,
        options: &FillOptions,
        row: Row<'_>,
        times: &mut FillTimes,
        begun: Instant,
    ) -> Result<SeekReport, FillError> {
        let scale = geometry.scale(options.quality);
        let open_rows = most_rows_at_once(header, scale);
        let region = self.begin_jpeg(header, geometry, scale, options)?;
        if let Some((pictures, resized, report)) = self.fill_bands(header, hints, geometry, options, region) {
            times.resize += resized;
            times.decode += begun.elapsed().saturating_sub(resized);
            let begun = Instant::now();
            self.writer.write(&pictures, geometry, options, row)?;
            times.resize += begun.elapsed();
            return Ok(report);
        }
        let region = self.begin_jpeg(header, geometry, scale, options)?;
        let size = [region.width, open_rows];
        let mut sink = TimedResampler::new(
            &mut self.resampler,
            &mut self.late,
            &mut self.open,
            options.mode,
            self.level,
            size,
        )?;
        let decoded = self
            .decoder
            .decode_with_hints(header, region, hints, &mut sink, TimedResampler::restart);
        let resized = sink.spent;
        times.resize += resized;
        times.decode += begun.elapsed().saturating_sub(resized);
        let report = decoded?;
        let begun = Instant::now();
        self.finish(geometry, options, row)?;
        times.resize += begun.elapsed();
        Ok(report)
    }

    /// Starts a picture of a JPEG. Returns the part of the image at `scale` that is needed.
    pub(super) fn begin_jpeg(
        &mut self,
        header: &Header<'_>,
        geometry: &Geometry,
        scale: Scale,
        options: &FillOptions,
    ) -> Result<Region, Error> {
        if let Some(region) = self.late.begin(&mut self.resampler, header, geometry, scale, options)? {
            return Ok(region);
        }
        let open_rows = most_rows_at_once(header, scale);
        begin_resize(
            &mut self.resampler,
            geometry,
            scale,
            options,
            options.mode.channels(),
            open_rows,
        )
    }

    /// Takes the picture of a JPEG. None: there is no memory for it.
    pub(super) fn take_picture(&mut self) -> Option<Picture> {
        match self.late.windows() {
            Some(_) => self
                .late
                .convert(self.level, self.resampler.words())
                .ok()
                .map(std::mem::take),
            None => Some(self.resampler.take_picture()),
        }
    }
}

/// The most rows that are emitted at once: an MCU row, and the row before it if that needed the chroma below it.
pub(super) fn most_rows_at_once(header: &Header<'_>, scale: Scale) -> usize {
    8 * header.vmax / scale.denominator() + 1
}
