//! One large image on several threads: bands of rows, each decoded from a seek point.
//!
//! Every band is made like a separate picture, with the rows above and below that its taps need. The pixels depend
//! neither on the number of bands nor on the number of threads that the system starts. Where anything fails, these
//! functions return None: the caller then uses one thread, which returns the error.

use std::ops::Range;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use super::jpegs::most_rows_at_once;
use super::{FillOptions, Filler, Geometry, RgbSink, TimedResampler};
use crate::jpeg::{DecodeHints, Header, Region, SeekReport, SeekTable};
use crate::resample::Picture;

/// Bands per thread: more than one, because some bands take longer.
const PER_THREAD: usize = 2;

impl Filler {
    /// The picture of an image in bands from top to bottom, and the time of resizing on one thread.
    pub(super) fn fill_bands(
        &mut self,
        header: &Header<'_>,
        hints: DecodeHints<'_>,
        geometry: &Geometry,
        options: &FillOptions,
        region: Region,
    ) -> Option<(Vec<Picture>, Duration, SeekReport)> {
        let (table, report) = self.seek_table_for(header, hints, region)?;
        let bands = split_rows(geometry.stored_rows(), hints.threads, |rows| rows);
        let (made, threads) = self.run_on_threads(hints.threads, bands, |filler, rows| {
            let geometry = geometry.band(&rows);
            let open_rows = most_rows_at_once(header, region.scale);
            let region = filler.begin_jpeg(header, &geometry, region.scale, options).ok()?;
            let (size, level) = ([region.width, open_rows], filler.level);
            let (resampler, late, open) = (&mut filler.resampler, &mut filler.late, &mut filler.open);
            let mut sink = TimedResampler::new(resampler, late, open, options.mode, level, size).ok()?;
            filler
                .decoder
                .decode_with_table(header, region, Some(&mut table.clone()), &mut sink)
                .ok()?;
            let spent = sink.spent;
            Some((filler.take_picture()?, spent))
        })?;
        let spent = made.iter().map(|(_, spent)| *spent).sum::<Duration>() / threads;
        Some((made.into_iter().map(|(picture, _)| picture).collect(), spent, report))
    }

    /// Decodes a region as interleaved RGB.
    pub(super) fn decode_bands(
        &mut self,
        header: &Header<'_>,
        hints: DecodeHints<'_>,
        region: Region,
        out: &mut [u8],
    ) -> Option<SeekReport> {
        let (table, report) = self.seek_table_for(header, hints, region)?;
        let mut rest = out;
        let bands = split_rows(region.height, hints.threads, |rows| {
            let (band, after) = std::mem::take(&mut rest).split_at_mut(3 * region.width * rows.len());
            rest = after;
            (rows, band)
        });
        self.run_on_threads(hints.threads, bands, |filler, (rows, out)| {
            let width = region.width;
            let band = Region {
                y: region.y + rows.start,
                height: rows.len(),
                ..region
            };
            filler
                .decoder
                .decode_with_table(header, band, Some(&mut table.clone()), &mut RgbSink { out, width })
                .ok()
        })?;
        Some(report)
    }

    /// A seek table that covers the region, if threads are wanted and there is such a table.
    fn seek_table_for(
        &mut self,
        header: &Header<'_>,
        hints: DecodeHints<'_>,
        region: Region,
    ) -> Option<(SeekTable, SeekReport)> {
        if !hints.uses_threads(header, region) {
            return None;
        }
        let (given, mut report) = hints.open_table(header);
        if let Some(table) = given.filter(|table| table.reaches(header, region)) {
            return Some((table, report));
        }
        let table = self.decoder.seek_table_from_markers(header, region)?;
        if hints.learn == Some(table.kind()) {
            report.learned = Some(table.to_bytes(header));
        }
        Some((table, report))
    }

    /// Calls `work` for all bands, in any order. Returns the results and the number of threads, or None if `work`
    /// failed.
    fn run_on_threads<B: Send, R: Send>(
        &mut self,
        threads: usize,
        bands: Vec<B>,
        work: impl Fn(&mut Filler, B) -> Option<R> + Sync,
    ) -> Option<(Vec<R>, u32)> {
        let results = Mutex::new(bands.iter().map(|_| None).collect::<Vec<_>>());
        let queue = Mutex::new(bands.into_iter().enumerate());
        let next = || queue.lock().ok()?.next();
        let run = |filler: &mut Filler| {
            while let Some((i, band)) = next() {
                let result = work(filler, band);
                let Ok(mut results) = results.lock() else { return };
                results[i] = result;
            }
        };
        let level = self.level;
        let working = thread::scope(|scope| {
            let spawn = |_| thread::Builder::new().spawn_scoped(scope, || run(&mut Filler::with_level(level)));
            // If the system starts no more threads, the running ones take all bands from the queue.
            let started: Vec<_> = (1..threads).map_while(|i| spawn(i).ok()).collect();
            run(self);
            let working = 1 + started.len() as u32;
            for thread in started {
                // The scope waits only until their work is done, not until the threads have ended.
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
            working
        });
        let results: Option<Vec<R>> = results.into_inner().ok()?.into_iter().collect();
        Some((results?, working))
    }
}

/// Divides `rows` rows into bands of about the same size, in order.
fn split_rows<B>(rows: usize, threads: usize, make: impl FnMut(Range<usize>) -> B) -> Vec<B> {
    let count = (PER_THREAD * threads).min(rows);
    (0..count)
        .map(|i| rows * i / count..rows * (i + 1) / count)
        .map(make)
        .collect()
}
