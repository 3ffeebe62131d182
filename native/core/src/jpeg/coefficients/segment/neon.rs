//! The values of a group are read in vectors; heads and masks as the specification reads them.

use core::arch::aarch64::*;
use core::ops::Range;

use super::scalar::{self, Groups, read_groups};
use super::{GROUPS, Kind, Scratch, WINDOW, Window};
use crate::jpeg::coefficients::position;
use crate::simd::neon::{load_words, load8, load16, store_words};

/// How many coefficients lie before each in the group of a mask.
static RANKS: [[u8; GROUPS]; 256] = {
    let mut all = [[0; GROUPS]; 256];
    let mut i = 0;
    while i < 256 * GROUPS {
        let (mask, bit) = (i / GROUPS, i % GROUPS);
        all[mask][bit] = (mask as u32 & ((1 << bit) - 1)).count_ones() as u8;
        i += 1;
    }
    all
};

/// The widest value that lies in two bytes wherever it begins.
const MOST: u16 = 9;

/// See [`super::read_segment`].
#[target_feature(enable = "neon")]
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
    let parts = scratch.kinds[..count].iter().zip(&scratch.places).zip(&scratch.masks);
    for ((&kind, &place), &mask) in parts {
        let (number, group, width) = (usize::from(place), usize::from(kind / 16), kind % 16);
        let to = blocks[number].as_chunks_mut().0.get_mut(group);
        if let Some(to) = to.filter(|_| needed.contains(&number)) {
            if width > MOST {
                *to = scalar::read_group(window, at, mask, width.into());
            } else {
                store_words(to, read_group(window, at, mask, width as u8));
            }
        }
        at += mask.count_ones() as usize * usize::from(width);
    }
    for (block, used) in blocks.iter_mut().zip(used).take(needed.end).skip(needed.start) {
        if *used > 1 {
            put_in_order(block);
        }
    }
    window.is_read(at, raw)
}

/// Where the bytes of each pair of rows lie in a block in zigzag order.
static NATURAL: [[u8; 16]; 8] = {
    let mut all = [[0; 16]; 8];
    let mut k = 0;
    while k < 64 {
        let to = position(k / GROUPS, k % GROUPS);
        all[to / 8][to % 8 * 2] = 2 * k as u8;
        all[to / 8][to % 8 * 2 + 1] = 2 * k as u8 + 1;
        k += 1;
    }
    all
};

/// Puts a block from zigzag order in natural order.
#[inline]
#[target_feature(enable = "neon")]
fn put_in_order(block: &mut [i16; 64]) {
    let rows: [_; 8] = core::array::from_fn(|i| vreinterpretq_u8_s16(load_words(&block.as_chunks().0[i])));
    let low = uint8x16x4_t(rows[0], rows[1], rows[2], rows[3]);
    let high = uint8x16x4_t(rows[4], rows[5], rows[6], rows[7]);
    for (to, from) in block.as_chunks_mut().0.iter_mut().zip(&NATURAL) {
        let from = load16(from);
        // Places beyond a table give zeros, or what there was.
        let v = vqtbx4q_u8(vqtbl4q_u8(low, from), high, vsubq_u8(from, vdupq_n_u8(64)));
        store_words(to, vreinterpretq_s16_u8(v));
    }
}

/// Reads the values of a group.
#[inline]
#[target_feature(enable = "neon")]
fn read_group(window: &Window, at: usize, mask: u8, width: u8) -> int16x8_t {
    let bytes = load16(&window.bytes[(at / 8) & (WINDOW - 1)..]);
    let starts = vmla_u8(
        vdup_n_u8((at % 8) as u8),
        load8(&RANKS[usize::from(mask)]),
        vdup_n_u8(width),
    );
    // The two bytes of each value.
    let first = vshr_n_u8::<3>(starts);
    let pairs = vcombine_u8(
        vzip1_u8(first, vadd_u8(first, vdup_n_u8(1))),
        vzip2_u8(first, vadd_u8(first, vdup_n_u8(1))),
    );
    let within = vreinterpretq_s16_u16(vmovl_u8(vand_u8(starts, vdup_n_u8(7))));
    let v = vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(bytes, pairs)), vnegq_s16(within));
    let v = vreinterpretq_s16_u16(vandq_u16(v, vdupq_n_u16((1 << width) - 1)));
    let v = vsubq_s16(v, vdupq_n_s16((1 << width) >> 1));
    // A comparison that holds is -1.
    let v = vsubq_s16(v, vreinterpretq_s16_u16(vcgezq_s16(v)));
    let present = vtstq_u16(
        vdupq_n_u16(mask.into()),
        vmovl_u8(load8(&[1, 2, 4, 8, 16, 32, 64, 128])),
    );
    vandq_s16(v, vreinterpretq_s16_u16(present))
}
