//! Dequantisation and inverse DCT.
//!
//! The algorithm is that of Loeffler, Ligtenberg and Moschytz with 13-bit constants, as in libjpeg's `jidctint.c`.
//! Where coefficients are too large for it, it wraps and saturates as libjpeg-turbo's SIMD code does (16 bits between
//! the passes).

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;

pub(crate) mod scalar;

use crate::simd::{Available, dispatch};

/// Spare bytes of a row of samples after its last block: blocks are written two or four at a time.
pub(crate) const SPARE: usize = 8;

/// The blocks that make up one row of blocks of a component. Block `b` (from the left edge of the picture) has the
/// number `first + b / per_mcu * stride + b % per_mcu`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockRow {
    /// Block columns wanted, counted from the first decoded MCU.
    pub from: usize,
    pub to: usize,
    pub first: usize,
    /// Blocks of this component in a row of an MCU.
    pub per_mcu: usize,
    /// Blocks of all components in an MCU.
    pub stride: usize,
}

impl BlockRow {
    #[inline(always)]
    pub fn index(&self, block: usize) -> usize {
        self.first + block / self.per_mcu * self.stride + block % self.per_mcu
    }

    /// The numbers of the blocks, from left to right.
    #[inline(always)]
    pub fn indices(self) -> impl Iterator<Item = usize> {
        let mut within = self.from % self.per_mcu;
        let mut next = self.index(self.from);
        (self.from..self.to).map(move |_| {
            let index = next;
            (within, next) = (within + 1, next + 1);
            if within == self.per_mcu {
                (within, next) = (0, next + self.stride - self.per_mcu);
            }
            index
        })
    }
}

/// Transforms a row of blocks into 8 rows of samples at the start of `out`, which are `pitch` bytes apart. `used[i]`:
/// the number of zigzag positions in use of `blocks[i]`, at least 1.
pub(crate) fn block_row(
    level: Available,
    blocks: &[[i16; 64]],
    used: &[u8],
    row: BlockRow,
    quant: &[i16; 64],
    out: &mut [u8],
    pitch: usize,
) {
    dispatch!(
        level,
        [Avx512, Avx2, Neon],
        block_row(blocks, used, row, quant, out, pitch)
    )
}
