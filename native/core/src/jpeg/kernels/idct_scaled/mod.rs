//! Inverse DCTs to 4 x 4, 2 x 2 or 1 sample of a block.
//!
//! The algorithm is that of libjpeg's `jidctred.c` (T. Lane). The outputs are averages of neighbours in the full
//! transform; for averages, many coefficients have no effect. The arithmetic is that of [`super::idct`]. Where
//! coefficients are too large for it, it wraps and saturates as libjpeg-turbo does.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

use crate::jpeg::kernels::idct::{self, BlockRow};
use crate::simd::{Available, dispatch};

/// Transforms a row of blocks into `size` rows of samples, each block into `size` columns: 8, 4, 2 or 1. The other
/// arguments are those of [`idct::block_row`].
#[allow(clippy::too_many_arguments)] // a kernel's operands
pub(crate) fn block_row(
    level: Available,
    size: usize,
    blocks: &[[i16; 64]],
    used: &[u8],
    row: BlockRow,
    quant: &[i16; 64],
    out: &mut [u8],
    pitch: usize,
) {
    match size {
        8 => idct::block_row(level, blocks, used, row, quant, out, pitch),
        4 => dispatch!(
            level,
            [Avx512, Avx2, Neon],
            block_row_4x4(blocks, used, row, quant, out, pitch)
        ),
        2 => dispatch!(level, [Avx2, Neon], block_row_2x2(blocks, used, row, quant, out, pitch)),
        _ => {
            for (sample, block) in out.iter_mut().zip(row.indices()) {
                *sample = scalar::transform_1x1(blocks[block][0], quant[0]);
            }
        }
    }
}
