//! Dequantisation and inverse DCT: the scalar specification, and the dispatch.
//!
//! Loeffler, Ligtenberg and Moschytz's algorithm with 13-bit constants, as in libjpeg's `jidctint.c`; where coefficients
//! are too large for it, it wraps and saturates as libjpeg-turbo's SIMD does (16 bits between the passes).

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;

use crate::simd::Level;

pub(crate) const F0298: i32 = 2446;
pub(crate) const F0390: i32 = 3196;
pub(crate) const F0541: i32 = 4433;
pub(crate) const F0765: i32 = 6270;
pub(crate) const F0899: i32 = 7373;
pub(crate) const F1175: i32 = 9633;
pub(crate) const F1501: i32 = 12299;
pub(crate) const F1847: i32 = 15137;
pub(crate) const F1961: i32 = 16069;
pub(crate) const F2053: i32 = 16819;
pub(crate) const F2562: i32 = 20995;
pub(crate) const F3072: i32 = 25172;

/// Spare bytes that a row of samples must have after the last block: blocks are written in pairs, or by fours but for
/// the last two.
pub(crate) const SPARE: usize = 8;

/// Which of a strip's blocks make up one row of blocks of a component: block `b` (from the left edge of the picture) is
/// number `first + b / per_mcu * stride + b % per_mcu`, minus the first MCU's share.
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

    /// The numbers of all blocks, from left to right.
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

/// Transforms a row of blocks into 8 rows of samples at the start of `out`, which are `pitch` apart.
/// `used[i]`: zigzag positions in use of `blocks[i]`, at least 1.
pub(crate) fn block_row(
    level: Level,
    blocks: &[[i16; 64]],
    used: &[u8],
    row: BlockRow,
    quant: &[i16; 64],
    out: &mut [u8],
    pitch: usize,
) {
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is only ever one that the processor has.
        Level::Avx512 => unsafe { avx512::block_row(blocks, used, row, quant, out, pitch) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx2 => unsafe { avx2::block_row(blocks, used, row, quant, out, pitch) },
        _ => {
            debug_assert!(
                used.len() <= blocks.len(),
                "which coefficients are in use does not matter here"
            );
            for (i, block) in row.indices().enumerate() {
                idct(&blocks[block], quant, &mut out[8 * i..], pitch);
            }
        }
    }
}

/// One block, whatever its coefficients.
pub(crate) fn idct(block: &[i16; 64], quant: &[i16; 64], out: &mut [u8], pitch: usize) {
    let mut work: [i16; 64] = core::array::from_fn(|i| block[i].wrapping_mul(quant[i]));
    if block[8..].iter().all(|&c| c == 0) {
        // libjpeg-turbo's short cut: the same, but that it wraps instead of saturating
        let top: [i16; 8] = core::array::from_fn(|i| work[i].wrapping_shl(2));
        work.as_chunks_mut().0.fill(top);
    } else {
        for column in 0..8 {
            let result = pass(core::array::from_fn(|row| work[8 * row + column]), 11);
            for (row, value) in result.into_iter().enumerate() {
                work[8 * row + column] = value;
            }
        }
    }
    for (line, row) in work.as_chunks().0.iter().zip(out.chunks_mut(pitch)) {
        for (sample, value) in row.iter_mut().zip(pass(*line, 18)) {
            *sample = (value.clamp(-128, 127) + 128) as u8;
        }
    }
}

/// One dimension. `shift`: 13 bits of the constants, less (first pass) or more (second) 2 bits kept between the passes,
/// and 3 of the transform's gain.
fn pass(x: [i16; 8], shift: u32) -> [i16; 8] {
    let w = |i: usize| i32::from(x[i]);
    let tmp2 = w(2) * F0541 + w(6) * (F0541 - F1847);
    let tmp3 = w(2) * (F0541 + F0765) + w(6) * F0541;
    let tmp0 = i32::from(x[0].wrapping_add(x[4])) << 13;
    let tmp1 = i32::from(x[0].wrapping_sub(x[4])) << 13;
    let even = [tmp0 + tmp3, tmp1 + tmp2, tmp1 - tmp2, tmp0 - tmp3];
    let (a, b) = (i32::from(x[3].wrapping_add(x[7])), i32::from(x[1].wrapping_add(x[5])));
    let z3 = a * (F1175 - F1961) + b * F1175;
    let z4 = a * F1175 + b * (F1175 - F0390);
    let odd = [
        w(7) * -F0899 + w(1) * (F1501 - F0899) + z4,
        w(5) * -F2562 + w(3) * (F3072 - F2562) + z3,
        w(5) * (F2053 - F2562) + w(3) * -F2562 + z4,
        w(7) * (F0298 - F0899) + w(1) * -F0899 + z3,
    ];
    let narrow = |v: i32| (v.wrapping_add(1 << (shift - 1)) >> shift).clamp(-32768, 32767) as i16;
    core::array::from_fn(|i| {
        narrow(if i < 4 {
            even[i].wrapping_add(odd[i])
        } else {
            even[7 - i].wrapping_sub(odd[7 - i])
        })
    })
}
