//! Philox4x32-10, and uniform numbers with (seed, epoch, index, stream) as their key. `penstock.rng` is the
//! specification.
//!
//! J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

/// Applies ten rounds to one counter.
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let ([mut a, mut b, mut c, mut d], [mut k0, mut k1]) = (counter, key);
    for _ in 0..10 {
        let (p, q) = (0xD251_1F53 * u64::from(a), 0xCD9E_8D57 * u64::from(c));
        (a, b, c, d) = ((q >> 32) as u32 ^ b ^ k0, q as u32, (p >> 32) as u32 ^ d ^ k1, p as u32);
        (k0, k1) = (k0.wrapping_add(0x9E37_79B9), k1.wrapping_add(0xBB67_AE85));
    }
    [a, b, c, d]
}

/// Fills each sample's row of `out` (rows of equal length, one per index) with uniform numbers in [0, 1).
///
/// # Panics
/// If `out.len()` is not a multiple of `indices.len()`.
pub fn uniforms(seed: u64, epoch: u32, indices: &[i64], stream: u16, out: &mut [f64]) {
    if out.is_empty() {
        return;
    }
    assert!(out.len().is_multiple_of(indices.len()));
    let key = [seed as u32, (seed >> 32) as u32];
    for (row, &index) in out.chunks_exact_mut(out.len() / indices.len()).zip(indices) {
        for (block, pair) in row.chunks_mut(2).enumerate() {
            let counter = u32::from(stream) << 16 | block as u32;
            let words = philox4x32([index as u32, (index >> 32) as u32, epoch, counter], key);
            for (out, w) in pair.iter_mut().zip(words.as_chunks::<2>().0) {
                let wide = u64::from(w[0]) << 32 | u64::from(w[1]);
                *out = (wide >> 11) as f64 * (1.0 / (1u64 << 53) as f64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::philox4x32;

    /// The known answers in the authors' library Random123.
    #[test]
    fn known_answers() {
        let zeros = philox4x32([0; 4], [0; 2]);
        let ones = philox4x32([u32::MAX; 4], [u32::MAX; 2]);

        assert_eq!(zeros, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }
}
