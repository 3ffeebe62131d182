//! One large image on several threads: bands of rows, each decoded from where its index says that it begins.
//!
//! Every band is made as a picture of its own would be, with what its taps need from above and below: the pixels do not
//! depend on how many there are, nor on how many threads the system starts. Where anything goes wrong nothing is said here:
//! whoever asked does it on one thread and finds the same.

use std::ops::Range;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use super::{Filler, Geometry, Recipe, Rgb, Timed, begin, strip_rows};
use crate::jpeg::{Found, Guide, Header, Index, Region};
use crate::resample::Picture;

/// Bands per thread: some take longer than others.
const PER_THREAD: usize = 2;

impl Filler {
    /// The picture of an image, in bands from top to bottom, and how long resizing took on one thread.
    pub(super) fn fill_bands(
        &mut self,
        header: &Header<'_>,
        guide: Guide<'_>,
        geometry: &Geometry,
        recipe: &Recipe,
        region: Region,
    ) -> Option<(Vec<Picture>, Duration, Found)> {
        let (index, found) = self.index_for(header, guide, region)?;
        let bands = split(geometry.seen()[1], guide.threads, |rows| rows);
        let (made, threads) = self.side_by_side(guide.threads, bands, |filler, rows| {
            let geometry = geometry.band(&rows);
            let open_rows = strip_rows(header, region.scale);
            let needed = begin(&mut filler.resampler, &geometry, region.scale, recipe, 3, open_rows).ok()?;
            let mut sink = Timed {
                resampler: &mut filler.resampler,
                spent: Duration::ZERO,
            };
            filler
                .decoder
                .decode_by(header, needed, Some(&mut index.clone()), &mut sink)
                .ok()?;
            let spent = sink.spent;
            Some((filler.resampler.take_picture(), spent))
        })?;
        let spent = made.iter().map(|(_, spent)| *spent).sum::<Duration>() / threads;
        Some((made.into_iter().map(|(picture, _)| picture).collect(), spent, found))
    }

    /// A region as interleaved RGB.
    pub(super) fn decode_bands(
        &mut self,
        header: &Header<'_>,
        guide: Guide<'_>,
        region: Region,
        out: &mut [u8],
    ) -> Option<Found> {
        let (index, found) = self.index_for(header, guide, region)?;
        let mut rest = out;
        let bands = split(region.height, guide.threads, |rows| {
            let (band, after) = std::mem::take(&mut rest).split_at_mut(3 * region.width * rows.len());
            rest = after;
            (rows, band)
        });
        self.side_by_side(guide.threads, bands, |filler, (rows, out)| {
            let width = region.width;
            let band = Region {
                y: region.y + rows.start,
                height: rows.len(),
                ..region
            };
            filler
                .decoder
                .decode_by(header, band, Some(&mut index.clone()), &mut Rgb { out, width })
                .ok()
        })?;
        Some(found)
    }

    /// An index that knows where the last row of a region begins, if threads are wanted and there is one.
    fn index_for(&mut self, header: &Header<'_>, guide: Guide<'_>, region: Region) -> Option<(Index, Found)> {
        if !guide.shares(header, region) {
            return None;
        }
        let (given, mut found) = guide.start(header);
        if let Some(index) = given.filter(|index| index.reaches(header, region)) {
            return Some((index, found));
        }
        let index = self.decoder.index_by_markers(header, region)?;
        if guide.learn == Some(index.kind()) {
            found.learned = Some(index.to_bytes(header));
        }
        Some((index, found))
    }

    /// `work` on all bands, in any order: the results, and how many threads there were. None: on one band it failed.
    fn side_by_side<B: Send, R: Send>(
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
            // where no more are to be had, those that run take all bands from the queue
            let started: Vec<_> = (1..threads).map_while(|i| spawn(i).ok()).collect();
            run(self);
            let working = 1 + started.len() as u32;
            for thread in started {
                // the scope would wait for their work alone, not for their end
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
            working
        });
        let results: Option<Vec<R>> = results.into_inner().ok()?.into_iter().collect();
        Some((results?, working))
    }
}

/// `rows` rows in bands of about the same size, in order.
fn split<B>(rows: usize, threads: usize, make: impl FnMut(Range<usize>) -> B) -> Vec<B> {
    let count = (PER_THREAD * threads).min(rows);
    (0..count)
        .map(|i| rows * i / count..rows * (i + 1) / count)
        .map(make)
        .collect()
}
