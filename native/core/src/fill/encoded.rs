//! Rows of a batch from images of other formats than JPEG, at full size and on one thread; pixels of other modes than RGB.

use std::time::Instant;

use super::jpegs::most_rows_at_once;
use super::sinks::{ModeSink, TimedResampler};
use super::{FillError, FillOptions, FillTimes, Filler, Geometry, Mode, Row, begin_resize};
use crate::error::Error;
use crate::image::Header;
use crate::jpeg::{DecodeHints, Region, Scale, SeekReport};
use crate::rows::ROWS_AT_ONCE;

/// Refuses alpha that the decoders do not return, where it is asked for.
pub(super) fn check_alpha(header: &Header<'_>, mode: Mode) -> Result<(), Error> {
    if mode == Mode::Rgba && header.has_unread_alpha() {
        return Err(Error::Unsupported("alpha of this kind"));
    }
    Ok(())
}

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
        check_alpha(header, options.mode)?;
        self.late.leave();
        let (planes, level) = (options.mode.channels(), self.level);
        let region = begin_resize(
            &mut self.resampler,
            geometry,
            Scale::Full,
            options,
            planes,
            ROWS_AT_ONCE,
        )?;
        let size = [region.width, ROWS_AT_ONCE];
        let mut sink = TimedResampler::new(
            &mut self.resampler,
            &mut self.late,
            &mut self.open,
            options.mode,
            level,
            size,
        )?;
        let decoded = match header {
            Header::Png(header) => self.png.decode(level, header, region, &mut sink),
            Header::WebP(header) => self.webp.decode(level, header, region, &mut sink),
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

    /// Decodes a region as interleaved pixels of another mode than RGB.
    pub(super) fn decode_mode(
        &mut self,
        header: &Header<'_>,
        hints: DecodeHints<'_>,
        region: Region,
        mode: Mode,
        out: &mut [u8],
    ) -> Result<SeekReport, Error> {
        check_alpha(header, mode)?;
        let level = self.level;
        let open_rows = match header {
            Header::Jpeg(header) => most_rows_at_once(header, region.scale),
            Header::Png(_) | Header::WebP(_) => ROWS_AT_ONCE,
        };
        let mut sink = ModeSink::new(level, mode, out, &mut self.open, [region.width, open_rows])?;
        match header {
            Header::Png(header) => self.png.decode(level, header, region, &mut sink)?,
            Header::WebP(header) => self.webp.decode(level, header, region, &mut sink)?,
            Header::Jpeg(header) => {
                return self
                    .decoder
                    .decode_with_hints(header, region, hints, &mut sink, ModeSink::restart);
            }
        }
        Ok(SeekReport::default())
    }
}
