//! The specification of how a segment is read.

use super::{GROUPS, Kind, MASK_CODES, RAW, RUN, Scratch, WIDEST, WIDTHS, Window, positions_in_use};
use crate::jpeg::coefficients::position;

/// See [`super::read_segment`].
pub(super) fn read_segment(
    window: &Window,
    kind: Kind,
    blocks: &mut [[i16; 64]],
    used: &mut [u8],
    scratch: &mut Scratch,
) -> bool {
    let runs = blocks.len().div_ceil(RUN);
    let mut at = 8 * runs.div_ceil(2);
    let mut take = |count: u32| {
        let bits = window.bits(at) & ((1 << count) - 1);
        at += count as usize;
        bits
    };
    let mut groups = 0;
    for run in 0..runs {
        let from = run * RUN;
        let to = (from + RUN).min(blocks.len());
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
                return false;
            }
            for group in 0..count {
                let width = if code == own {
                    take(4)
                } else {
                    let added = (widths.added >> (8 * group) & 255).count_ones();
                    (widths.least >> (8 * group) & 255) + take(added)
                };
                if width > WIDEST.into() {
                    return false;
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
        if scratch.masks[i] & RAW != 0 {
            raw += 1;
            scratch.masks[i] = window.byte(window.filled.wrapping_sub(raw)).into();
        }
    }
    blocks.as_flattened_mut().fill(0);
    for i in 0..groups {
        let (group, width) = (usize::from(scratch.kinds[i] / 16), u32::from(scratch.kinds[i] % 16));
        for coefficient in (0..8).filter(|coefficient| scratch.masks[i] >> coefficient & 1 == 1) {
            let value = take(width) as i32 - (1 << (width - 1));
            let value = if value < 0 { value } else { value + 1 };
            blocks[usize::from(scratch.places[i])][position(group, coefficient)] = value as i16;
        }
    }
    for (block, used) in blocks.iter().zip(used) {
        *used = positions_in_use(block);
    }
    window.is_read(at, raw)
}
