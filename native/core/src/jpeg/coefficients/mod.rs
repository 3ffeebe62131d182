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
