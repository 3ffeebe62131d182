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

/// Bytes that the values of a segment are copied into: more than twice as many as there are. A remainder takes the place of
/// the bounds check.
const PADDED: usize = 256;

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
    let (values, large) = rest.split_at_checked(total.div_ceil(8))?;
    let mut padded = [0; PADDED];
    padded.get_mut(..values.len())?.copy_from_slice(values);
    let large = &large[..large.len().min(SEGMENT)];
    let mut added = [0; SEGMENT];
    added[..large.len()].copy_from_slice(large);
    let mut before = i16::from_le_bytes(*first);
    let (mut at, mut count) = (0, 0);
    for (run, out) in out.chunks_mut(RUN).enumerate() {
        let width = width(run);
        let ones = (1u16 << width) - 1;
        let largest = if width > 0 { ones } else { u16::MAX };
        for coefficient in out {
            let bytes = padded[at / 8 % (PADDED / 2)..]
                .first_chunk()
                .map_or(0, |bytes| u32::from_le_bytes(*bytes));
            let value = (bytes >> (at % 8)) as u16 & ones;
            at += width;
            // Without a branch: which values are large cannot be foreseen.
            let is_large = value == largest;
            let more = u16::from(added[count % SEGMENT]) & u16::from(is_large).wrapping_neg();
            let value = value.wrapping_add(more);
            count += usize::from(is_large);
            before = before.wrapping_add((value >> 1) as i16 ^ -((value & 1) as i16));
            *coefficient = before;
        }
    }
    let nbytes = bytes.len() - rest.len() + total.div_ceil(8) + count;
    (count <= large.len()).then_some(nbytes)
}

/// Appends the coefficients of a segment. Returns false if a difference is too large.
pub(super) fn write_segment(coefficients: &[i16], out: &mut Vec<u8>) -> bool {
    let Some(&first) = coefficients.first() else {
        return true;
    };
    let mut before = first;
    let mut values = [0; SEGMENT];
    let values = &mut values[..coefficients.len()];
    for (value, &coefficient) in values.iter_mut().zip(coefficients) {
        let difference = coefficient.wrapping_sub(core::mem::replace(&mut before, coefficient));
        *value = (difference << 1 ^ difference >> 15) as u16;
    }
    let mut chosen = [0; SEGMENT / RUN];
    for (run, chosen) in values.chunks(RUN).zip(&mut chosen) {
        match best_width(run) {
            Some(width) => *chosen = width,
            None => return false,
        }
    }
    out.extend(first.to_le_bytes());
    let runs = values.len().div_ceil(RUN);
    out.extend(chosen[..runs].chunks(2).map(|pair| {
        let next = pair.get(1).copied().unwrap_or(0);
        (pair[0] | next << 4) as u8
    }));
    let (mut held, mut count) = (0u64, 0);
    let (mut large, mut larges) = ([0; SEGMENT], 0);
    for (run, &width) in values.chunks(RUN).zip(&chosen) {
        let ones = (1 << width) - 1;
        for &value in run {
            held |= u64::from(value.min(ones)) << count;
            count += width;
            if value >= ones && width > 0 {
                large[larges] = (value - ones) as u8;
                larges += 1;
            }
            if count >= 32 {
                out.extend((held as u32).to_le_bytes());
                held >>= 32;
                count -= 32;
            }
        }
    }
    out.extend_from_slice(&held.to_le_bytes()[..count.div_ceil(8) as usize]);
    out.extend_from_slice(&large[..larges]);
    true
}

/// The width that takes the fewest bits for the values of a run. None if one is too large for any.
fn best_width(run: &[u16]) -> Option<u32> {
    let most = run.iter().copied().max().unwrap_or(0);
    if most == 0 {
        return Some(0);
    }
    let fewest = (1..=15u32)
        .map(|width| (width, (1 << width) - 1))
        .filter(|&(_, ones)| most.saturating_sub(ones) <= 255)
        .map(|(width, ones)| {
            let larges = run.iter().map(|&value| u16::from(value >= ones)).sum::<u16>();
            (u32::from(larges) * 8 + width * run.len() as u32, width)
        })
        .min();
    fewest.map(|(_, width)| width)
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
                assert!(u8::try_from(bytes.len()).is_ok());
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
