//! The specification of how a segment is read.

use core::ops::Range;

use super::{GROUPS, Kind, MASK_CODES, RUN, Scratch, WIDEST, WIDTHS, Window, positions_in_use};
use crate::jpeg::coefficients::{SEGMENT, position};

/// See [`super::read_segment`].
pub(super) fn read_segment(
    window: &Window,
    kind: Kind,
    needed: &Range<usize>,
    blocks: &mut [[i16; 64]],
    used: &mut [u8],
    scratch: &mut Scratch,
) -> bool {
    let Some(Groups { mut at, count, raw }) = read_groups(window, kind, used, scratch) else {
        return false;
    };
    blocks.as_flattened_mut().fill(0);
    for i in 0..count {
        let (group, width) = (usize::from(scratch.kinds[i] / 16), u32::from(scratch.kinds[i] % 16));
        let number = usize::from(scratch.places[i]);
        if needed.contains(&number) {
            let values = read_group(window, at, scratch.masks[i], width);
            for (coefficient, value) in values.into_iter().enumerate() {
                blocks[number][position(group, coefficient)] = value;
            }
        }
        at += (scratch.masks[i].count_ones() * width) as usize;
    }
    window.is_read(at, raw)
}

/// Reads the values of a group.
pub(super) fn read_group(window: &Window, mut at: usize, mask: u8, width: u32) -> [i16; GROUPS] {
    let mut values = [0; GROUPS];
    for coefficient in (0..8).filter(|coefficient| mask >> coefficient & 1 == 1) {
        let value = (window.bits(at) & ((1 << width) - 1)) as i32 - (1 << (width - 1));
        values[coefficient] = if value < 0 { value } else { value + 1 } as i16;
        at += width as usize;
    }
    values
}

/// The groups that a segment has.
pub(super) struct Groups {
    /// Where their values begin.
    pub at: usize,
    pub count: usize,
    /// How many masks are bytes.
    pub raw: usize,
}

/// Reads the heads and the masks of a segment: kinds, blocks and masks of its groups, and which positions of each block are
/// in use. None if the bytes are corrupt.
pub(super) fn read_groups(window: &Window, kind: Kind, used: &mut [u8], scratch: &mut Scratch) -> Option<Groups> {
    let runs = used.len().div_ceil(RUN);
    let mut at = 8 * runs.div_ceil(2);
    let mut take = |count: u32| {
        let bits = window.bits(at) & ((1 << count) - 1);
        at += count as usize;
        bits
    };
    let mut groups = 0;
    for run in 0..runs {
        let from = run * RUN;
        let to = (from + RUN).min(used.len());
        let profile = usize::from(window.byte(run / 2) >> (run % 2 * 4) & 15);
        let Some(widths) = profile.checked_sub(1).map(|number| &WIDTHS[kind][number]) else {
            continue;
        };
        let own = (1 << widths.count_bits) - 1;
        let codes: [u64; RUN] = core::array::from_fn(|i| if from + i < to { take(widths.count_bits) } else { 0 });
        for (block, code) in (from..to).zip(codes) {
            let count = if code == own {
                take(4) as usize
            } else {
                widths.first_count + code as usize
            };
            if count > GROUPS {
                return None;
            }
            for group in 0..count {
                let width = if code == own {
                    take(4)
                } else {
                    let added = (widths.added >> (8 * group) & 255).count_ones();
                    (widths.least >> (8 * group) & 255) + take(added)
                };
                if width > WIDEST.into() {
                    return None;
                }
                if width > 0 {
                    scratch.kinds[groups] = (16 * group) as u16 + width as u16;
                    scratch.places[groups] = block as u16;
                    groups += 1;
                }
            }
        }
    }
    let codes = &MASK_CODES[kind];
    let mut raw = 0;
    for i in 0..groups {
        let group = usize::from(scratch.kinds[i]);
        let code = take(codes.bits[group].into()) as usize;
        scratch.masks[i] = codes.masks[group][code];
        if scratch.masks[i] == 0 {
            raw += 1;
            scratch.masks[i] = window.byte(window.filled.wrapping_sub(raw));
        }
    }
    let mut present = [0; SEGMENT];
    for i in 0..groups {
        let group = usize::from(scratch.kinds[i] / 16);
        present[usize::from(scratch.places[i])] |= u64::from(scratch.masks[i]) << (8 * group);
    }
    for (used, present) in used.iter_mut().zip(present) {
        *used = positions_in_use(present);
    }
    Some(Groups { at, count: groups, raw })
}
