//! The specification of the kernels. All other versions give the same integers.

use super::arranged_taps;

/// `out[i] = (Σ weights[t] · rows[offsets[t] + i]) >> drop`, rounded half up. Weights are non-negative.
pub fn vertical_convex(rows: &[u8], offsets: &[usize], weights: &[i16], drop: u32, out: &mut [i16]) {
    for (i, out) in out.iter_mut().enumerate() {
        let sum: i32 = offsets
            .iter()
            .zip(weights)
            .map(|(o, w)| i32::from(rows[o + i]) * i32::from(*w))
            .sum();
        *out = ((sum + (1 << (drop - 1))) >> drop) as i16;
    }
}

/// `out[i] = (Σ weights of i · line[start of i ..]) >> drop`, rounded half up, for each plane. Lines of planes are
/// `line_stride` apart, rows `out_stride`. Weights are non-negative.
pub fn horizontal_convex(
    line: &[i16],
    line_stride: usize,
    horizontal: &arranged_taps::ConvexTaps,
    drop: u32,
    out: &mut [u8],
    out_stride: usize,
    planes: usize,
) {
    narrow_lines(line, line_stride, horizontal, drop, out, out_stride, planes, |sum| {
        sum as u8
    });
}

/// `out[i] = row[i]`.
pub fn widen(row: &[u8], out: &mut [i16]) {
    out.iter_mut().zip(row).for_each(|(out, x)| *out = i16::from(*x));
}

/// [`horizontal_convex`] to values of 16 bits: `drop` leaves some fractional ones.
pub fn horizontal_convex_words(
    line: &[i16],
    line_stride: usize,
    horizontal: &arranged_taps::ConvexTaps,
    drop: u32,
    out: &mut [i16],
    out_stride: usize,
    planes: usize,
) {
    narrow_lines(line, line_stride, horizontal, drop, out, out_stride, planes, |sum| {
        sum as i16
    });
}

#[allow(clippy::too_many_arguments)] // those of both functions above
fn narrow_lines<T>(
    line: &[i16],
    line_stride: usize,
    horizontal: &arranged_taps::ConvexTaps,
    drop: u32,
    out: &mut [T],
    out_stride: usize,
    planes: usize,
    convert: impl Fn(i32) -> T,
) {
    let taps = &horizontal.taps;
    for plane in 0..planes {
        let line = &line[plane * line_stride..];
        let out = &mut out[plane * out_stride..][..taps.starts.len()];
        let weights = taps.weights.chunks_exact(taps.stride);
        for ((out, &start), weights) in out.iter_mut().zip(&taps.starts).zip(weights) {
            let values = line[start as usize..].iter().zip(weights);
            let sum: i32 = values.map(|(x, w)| i32::from(*x) * i32::from(*w)).sum();
            *out = convert((sum + (1 << (drop - 1))) >> drop);
        }
    }
}

/// `out[i] = (Σ weights[t] · rows[offsets[t] + i]) >> drop`, rounded half up. Weights are non-negative.
pub fn vertical_convex_words(rows: &[i16], offsets: &[usize], weights: &[i16], drop: u32, out: &mut [u8]) {
    for (i, out) in out.iter_mut().enumerate() {
        let sum: i32 = offsets
            .iter()
            .zip(weights)
            .map(|(o, w)| i32::from(rows[o + i]) * i32::from(*w))
            .sum();
        *out = ((sum + (1 << (drop - 1))) >> drop) as u8;
    }
}

/// [`vertical_convex_words`] to values of 16 bits: `drop` leaves some fractional ones. The compiler finds the vectors.
#[inline(always)]
pub fn vertical_words(rows: &[i16], offsets: &[usize], weights: &[i16], drop: u32, out: &mut [i16]) {
    const STEP: usize = 32;
    for (at, out) in out.as_chunks_mut::<STEP>().0.iter_mut().enumerate() {
        let mut sums = [1 << (drop - 1); STEP];
        for (offset, weight) in offsets.iter().zip(weights) {
            let row: &[i16; STEP] = rows[offset + STEP * at..].first_chunk().expect("rows are padded");
            for (sum, x) in sums.iter_mut().zip(row) {
                *sum += i32::from(*x) * i32::from(*weight);
            }
        }
        *out = sums.map(|sum| (sum >> drop) as i16);
    }
}

/// `out[i] = (Σ weights[t] · rows[offsets[t] + i]) >> 22`, rounded half up, clipped to 0..=255.
pub fn vertical_lobed(rows: &[u8], offsets: &[usize], weights: &[i32], out: &mut [u8]) {
    for (i, out) in out.iter_mut().enumerate() {
        *out = clip(
            offsets
                .iter()
                .zip(weights)
                .map(|(o, w)| i32::from(rows[o + i]) * w)
                .sum(),
        );
    }
}

/// `out[i] = (Σ weights of i · line[start of i ..]) >> 22`, rounded half up, clipped to 0..=255.
pub fn horizontal_lobed(line: &[u8], horizontal: &arranged_taps::LobedTaps, out: &mut [u8]) {
    let taps = &horizontal.taps;
    let weights = taps.weights.chunks_exact(taps.stride);
    for ((out, &start), weights) in out.iter_mut().zip(&taps.starts).zip(weights) {
        *out = clip(
            line[start as usize..]
                .iter()
                .zip(weights)
                .map(|(x, w)| i32::from(*x) * w)
                .sum(),
        );
    }
}

fn clip(sum: i32) -> u8 {
    ((sum + (1 << 21)) >> 22).clamp(0, 255) as u8
}
