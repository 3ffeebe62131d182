//! A JPEG's quantised coefficients without a serial code: to the bit, at about the size of the JPEG.
//!
//! A component is rows of blocks, a row is segments of up to 64 blocks. A segment is read in three loops over all of it:
//! the heads of the blocks (how many groups of coefficients, and how many bits a value of each group has), the masks of
//! the groups (which of the 8 coefficients are not zero), and the values. No loop depends on a value that it has read
//! before, only on positions, and these are sums.
//!
//! DC coefficients lie apart, so that thumbnails read nothing else.

mod convert;
mod dc;
mod rebuild;
pub(crate) mod record;
pub(crate) mod rows;
mod segment;
mod tables;

use crate::jpeg::format::markers::ZIGZAG;

pub use convert::{to_jpeg, to_record};
pub use record::is_record;

/// Groups of a block: eight coefficients each, in zigzag order.
const GROUPS: usize = 8;
/// The most blocks of a segment, and the blocks of a run, which share a profile.
pub(crate) const SEGMENT: usize = 64;
const RUN: usize = 16;

/// The natural position of coefficient `i` of a group.
const fn position(group: usize, i: usize) -> usize {
    ZIGZAG[GROUPS * group + i] as usize
}

/// Four coefficients in natural order, the first in the lowest bits.
#[inline]
fn four_of(block: &[i16; 64], at: usize) -> u64 {
    let four: [i16; 4] = *block[at..].first_chunk().expect("four coefficients");
    let [a, b, c, d] = four.map(|coefficient| u64::from(coefficient.cast_unsigned()));
    a | b << 16 | c << 32 | d << 48
}

/// Bit i: coefficient i of four is not zero.
#[inline]
fn nonzero_of(four: u64) -> u64 {
    const LOW: u64 = 0x7fff_7fff_7fff_7fff;
    let nonzero = (((four & LOW) + LOW) | four) & !LOW;
    // The product has bits 0, 16, 32 and 48 in its bits 48 to 51.
    (nonzero >> 15).wrapping_mul(1 << 48 | 1 << 33 | 1 << 18 | 1 << 3) >> 48
}
