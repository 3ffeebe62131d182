//! The passes over one source row that has arrived, and the output rows that it completes.

use super::planar::RowRing;
use super::{Resampler, WORD_FRACTION, kernels};
use crate::memory::Zero;
use crate::rows::ROW_SPARE;

impl Resampler {
    pub(super) fn push_convex(&mut self, y: usize) {
        let (h, v) = &self.convex;
        // Up to 7 fractional bits between the passes; fewer where fine weights need these bits to stay in 32.
        let fraction = 7.min(23 - h.taps.shift);
        while let Some(weights) = v.complete(self.made, y) {
            collect_offsets(&self.source, v.starts[self.made], y, weights.len(), &mut self.offsets);
            for plane in 0..self.planes {
                let rows = &self.source.values[plane * self.source.stride..];
                let line = &mut self.line[plane * self.line_stride..][..self.source.stride - ROW_SPARE];
                kernels::vertical_convex(self.level, rows, &self.offsets, weights, v.shift - fraction, line);
            }
            let drop = h.taps.shift + fraction;
            let (level, line, stride) = (self.level, &self.line, self.line_stride);
            if self.is_of_words {
                let (out, plane_stride) = self.words.rows_from(self.made);
                let drop = drop - WORD_FRACTION;
                kernels::horizontal_convex_words(level, line, stride, h, drop, out, plane_stride, self.planes);
            } else {
                let (out, plane_stride) = self.picture.rows_from(self.made);
                kernels::horizontal_convex(level, line, stride, h, drop, out, plane_stride, self.planes);
            }
            self.made += 1;
        }
    }

    pub(super) fn push_convex_horizontal_first(&mut self, y: usize) {
        let (h, v) = &self.convex;
        let planes = self.planes;
        let fraction = 7.min(23 - v.shift);
        let source = self.source.values[self.source.offset(y)..].chunks_exact(self.source.stride);
        for (line, row) in self.line.chunks_exact_mut(self.line_stride).zip(source).take(planes) {
            kernels::widen(self.level, row, line);
        }
        let offset = self.narrowed_words.offset(y);
        let out = &mut self.narrowed_words.values[offset..];
        kernels::horizontal_convex_words(
            self.level,
            &self.line,
            self.line_stride,
            h,
            h.taps.shift - fraction,
            out,
            self.narrowed_words.stride,
            planes,
        );
        while let Some(weights) = v.complete(self.made, y) {
            collect_offsets(
                &self.narrowed_words,
                v.starts[self.made],
                y,
                weights.len(),
                &mut self.offsets,
            );
            let rows = |plane: usize| &self.narrowed_words.values[plane * self.narrowed_words.stride..];
            let (level, offsets, drop) = (self.level, &self.offsets, v.shift + fraction);
            if self.is_of_words {
                for (plane, out) in self.words.rows_mut(self.made).into_iter().take(planes).enumerate() {
                    let (blocks, drop) = (out.len() - ROW_SPARE, drop - WORD_FRACTION);
                    kernels::vertical_words(level, rows(plane), offsets, weights, drop, &mut out[..blocks]);
                }
            } else {
                for (plane, out) in self.picture.rows_mut(self.made).into_iter().take(planes).enumerate() {
                    let blocks = out.len() - ROW_SPARE;
                    kernels::vertical_convex_words(level, rows(plane), offsets, weights, drop, &mut out[..blocks]);
                }
            }
            self.made += 1;
        }
    }

    pub(super) fn push_lobed(&mut self, y: usize) {
        let ((h, v), planes, stride) = (&self.lobed, self.planes, self.source.stride);
        for (plane, out) in self.narrowed.rows_mut(y).into_iter().take(planes).enumerate() {
            let line = &self.source.values[self.source.offset(y) + plane * stride..][..stride];
            kernels::horizontal_lobed(self.level, line, h, out);
        }
        while let Some(weights) = v.complete(self.made, y) {
            collect_offsets(&self.narrowed, v.starts[self.made], y, weights.len(), &mut self.offsets);
            for (plane, out) in self.picture.rows_mut(self.made).into_iter().take(planes).enumerate() {
                let rows = &self.narrowed.values[plane * self.narrowed.stride..];
                let blocks = out.len() - ROW_SPARE;
                kernels::vertical_lobed(self.level, rows, &self.offsets, weights, &mut out[..blocks]);
            }
            self.made += 1;
        }
    }

    pub(super) fn push_lobed_vertical_first(&mut self, y: usize) {
        let ((h, v), planes, stride) = (&self.lobed, self.planes, self.source.stride);
        while let Some(weights) = v.complete(self.made, y) {
            collect_offsets(&self.source, v.starts[self.made], y, weights.len(), &mut self.offsets);
            for (plane, out) in self.picture.rows_mut(self.made).into_iter().take(planes).enumerate() {
                let line = &mut self.clipped_line[..stride];
                let rows = &self.source.values[plane * stride..];
                kernels::vertical_lobed(
                    self.level,
                    rows,
                    &self.offsets,
                    weights,
                    &mut line[..stride - ROW_SPARE],
                );
                kernels::horizontal_lobed(self.level, line, h, out);
            }
            self.made += 1;
        }
    }
}

/// Collects the offsets of rows `start..start + count`. Rows after `last` have weight zero; `last` is read instead.
fn collect_offsets<T: Zero>(ring: &RowRing<T>, start: u32, last: usize, count: usize, offsets: &mut Vec<usize>) {
    let start = start as usize;
    offsets.clear();
    offsets.extend((start..start + count).map(|y| ring.offset(y.min(last))));
}
