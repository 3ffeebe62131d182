//! The kernels' specification. Every other implementation gives the same integers.

use super::taps::Taps;

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

/// `out[i] = (Σ weights of i · line[start of i ..]) >> drop`, rounded half up. Weights are non-negative.
pub fn horizontal_convex(line: &[i16], taps: &Taps<i16>, drop: u32, out: &mut [u8]) {
    let weights = taps.weights.chunks_exact(taps.stride);
    for ((out, &start), weights) in out.iter_mut().zip(&taps.starts).zip(weights) {
        let sum: i32 = line[start as usize..]
            .iter()
            .zip(weights)
            .map(|(x, w)| i32::from(*x) * i32::from(*w))
            .sum();
        *out = ((sum + (1 << (drop - 1))) >> drop) as u8;
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
pub fn horizontal_lobed(line: &[u8], taps: &Taps<i32>, out: &mut [u8]) {
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
