//! The DC coefficients of a segment of blocks.
//!
//! ```text
//! first        2 bytes: the coefficient of the first block
//! widths       a nibble for each run of 16 blocks, to a whole byte
//! values       bits, to a whole byte: for each block the difference to the block before, as many bits as its run's
//!              width (0 for the first); 0, -1, 1, -2, ... are 0, 1, 2, 3, ...
//! large ones   a byte for each value whose bits are all ones (of a width above 0), which is added to it
//! ```

use super::{RUN, SEGMENT};

/// The most bytes of a segment.
pub(super) const MOST: usize = 2 + SEGMENT / RUN / 2 + SEGMENT * 15 / 8 + SEGMENT;

/// Reads the coefficients of a segment. Returns the bytes that it takes; None if the bytes are corrupt.
pub(super) fn read_segment(bytes: &[u8], out: &mut [i16]) -> Option<usize> {
    let (first, rest) = bytes.split_first_chunk()?;
    let runs = out.len().div_ceil(RUN);
    let (widths, rest) = rest.split_at_checked(runs.div_ceil(2))?;
    let width = |run: usize| usize::from(widths[run / 2] >> (run % 2 * 4) & 15);
    let total: usize = out
        .chunks(RUN)
        .enumerate()
        .map(|(run, out)| width(run) * out.len())
        .sum();
    let (values, mut large) = rest.split_at_checked(total.div_ceil(8))?;
    let mut padded = [0; MOST + 8];
    padded.get_mut(..values.len())?.copy_from_slice(values);
    let mut before = i16::from_le_bytes(*first);
    let mut at = 0;
    for (run, out) in out.chunks_mut(RUN).enumerate() {
        let width = width(run);
        let ones = (1u16 << width) - 1;
        for coefficient in out {
            let bytes = padded[at / 8..]
                .first_chunk()
                .map_or(0, |bytes| u32::from_le_bytes(*bytes));
            let mut value = (bytes >> (at % 8)) as u16 & ones;
            at += width;
            if value == ones && width > 0 {
                let (&more, rest) = large.split_first()?;
                large = rest;
                value = value.wrapping_add(more.into());
            }
            before = before.wrapping_add((value >> 1) as i16 ^ -((value & 1) as i16));
            *coefficient = before;
        }
    }
    Some(bytes.len() - large.len())
}

/// Appends the coefficients of a segment. Returns false if a difference is too large.
pub(super) fn write_segment(coefficients: &[i16], out: &mut Vec<u8>) -> bool {
    let Some(&first) = coefficients.first() else {
        return true;
    };
    let mut before = first;
    let values: Vec<u16> = coefficients
        .iter()
        .map(|&coefficient| {
            let difference = coefficient.wrapping_sub(core::mem::replace(&mut before, coefficient));
            (difference << 1 ^ difference >> 15) as u16
        })
        .collect();
    let mut chosen = Vec::new();
    for run in values.chunks(RUN) {
        let bits = |width: u32| {
            let ones = (1u32 << width) - 1;
            run.iter()
                .try_fold(width as usize * run.len(), |bits, &value| match u32::from(value) {
                    value if value < ones || (value == 0 && width == 0) => Some(bits),
                    value if width > 0 && value - ones <= 255 => Some(bits + 8),
                    _ => None,
                })
        };
        match (0..=15).filter_map(|width| Some((bits(width)?, width))).min() {
            Some((_, width)) => chosen.push(width),
            None => return false,
        }
    }
    out.extend(first.to_le_bytes());
    out.extend(
        chosen
            .chunks(2)
            .map(|pair| pair[0] as u8 | (pair.get(1).copied().unwrap_or(0) as u8) << 4),
    );
    let (mut held, mut count, mut large) = (0u32, 0, Vec::new());
    for (run, &width) in values.chunks(RUN).zip(&chosen) {
        let ones = (1u32 << width) - 1;
        for &value in run {
            let value = u32::from(value);
            held |= value.min(ones) << count;
            count += width;
            if value >= ones && width > 0 {
                large.push((value - ones) as u8);
            }
            while count >= 8 {
                out.push(held as u8);
                held >>= 8;
                count -= 8;
            }
        }
    }
    if count > 0 {
        out.push(held as u8);
    }
    out.extend(large);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_come_back() {
        let mut state = 1u32;
        let mut random = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 16
        };
        for spread in [1, 2, 5, 40, 600, 3000] {
            for count in [1, 15, 16, 17, 63, 64] {
                let coefficients: Vec<i16> = (0..count)
                    .map(|_| (random() % (2 * spread)) as i16 - spread as i16)
                    .collect();
                let mut bytes = Vec::new();
                assert!(write_segment(&coefficients, &mut bytes));
                assert!(bytes.len() <= MOST);
                let mut back = vec![0; count];
                assert_eq!(read_segment(&bytes, &mut back), Some(bytes.len()));
                assert_eq!(back, coefficients);
                assert_eq!(
                    read_segment(&bytes[..bytes.len() - 1], &mut back).filter(|&n| n == bytes.len()),
                    None
                );
            }
        }
    }
}
