//! CRC-32C (Castagnoli) of bytes, as RFC 3720 defines it: the checksum of TFRecord files.

use crate::simd::{Available, dispatch};

/// The polynomial, its bits reversed.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// `TABLES[k][b]`: what byte `b` adds to the remainder, if `k` bytes follow it in a group of eight.
static TABLES: [[u32; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            remainder = (remainder >> 1) ^ if remainder & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][byte] = remainder;
        byte += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[k - 1][byte];
            tables[k][byte] = (before >> 8) ^ tables[0][(before & 255) as usize];
            byte += 1;
        }
        k += 1;
    }
    tables
};

/// The CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8], level: Available) -> u32 {
    let remainder = !0;
    !dispatch!(level, [Avx2, Neon], update(remainder, bytes))
}

mod scalar {
    use super::TABLES;

    /// The remainder after `bytes`, by tables for eight bytes at once.
    pub(super) fn update(remainder: u32, bytes: &[u8]) -> u32 {
        let (groups, rest) = bytes.as_chunks::<8>();
        let mut remainder = remainder;
        for group in groups {
            let mixed = (u64::from_le_bytes(*group) ^ u64::from(remainder)).to_le_bytes();
            remainder = mixed
                .iter()
                .zip(TABLES.iter().rev())
                .fold(0, |sum, (&byte, table)| sum ^ table[usize::from(byte)]);
        }
        for &byte in rest {
            remainder = (remainder >> 8) ^ TABLES[0][usize::from(byte ^ remainder.to_le_bytes()[0])];
        }
        remainder
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use core::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};

    /// The remainder after `bytes`, by the instruction of SSE4.2, which AVX2 includes.
    #[target_feature(enable = "avx2")]
    pub(super) fn update(remainder: u32, bytes: &[u8]) -> u32 {
        let (groups, rest) = bytes.as_chunks::<8>();
        let wide = groups.iter().fold(u64::from(remainder), |remainder, group| {
            _mm_crc32_u64(remainder, u64::from_le_bytes(*group))
        });
        rest.iter()
            .fold(wide as u32, |remainder, &byte| _mm_crc32_u8(remainder, byte))
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use core::arch::aarch64::{__crc32cb, __crc32cd};

    /// The remainder after `bytes`, by the instructions for it.
    #[target_feature(enable = "crc")]
    pub(super) fn update(remainder: u32, bytes: &[u8]) -> u32 {
        let (groups, rest) = bytes.as_chunks::<8>();
        let remainder = groups.iter().fold(remainder, |remainder, group| {
            __crc32cd(remainder, u64::from_le_bytes(*group))
        });
        rest.iter()
            .fold(remainder, |remainder, &byte| __crc32cb(remainder, byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_standard() {
        // RFC 3720, B.4, and the check value of the catalogue of CRCs.
        let ascending: Vec<u8> = (0..32).collect();
        let cases: [(&[u8], u32); 5] = [
            (b"", 0),
            (b"123456789", 0xE306_9283),
            (&[0; 32], 0x8A91_36AA),
            (&[255; 32], 0x62A8_AB43),
            (&ascending, 0x46DD_794E),
        ];
        for &level in Available::all() {
            for (bytes, expected) in cases {
                assert_eq!(crc32c(bytes, level), expected, "{bytes:?}");
            }
        }
    }

    #[test]
    fn levels_agree_at_every_length_and_alignment() {
        let source: Vec<u8> = (0..600_u32).map(|i| (i * 7 + i / 251) as u8).collect();
        for start in 0..9 {
            for end in start..source.len() {
                let bytes = &source[start..end];
                let expected = crc32c(bytes, Available::SCALAR);
                for &level in Available::all() {
                    assert_eq!(crc32c(bytes, level), expected, "{start}..{end}");
                }
            }
        }
    }
}
