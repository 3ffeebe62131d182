//! Huffman codes for writing: optimal codes for given counts, and their declaration in a DHT segment.

/// The longest code that a JPEG may have.
const LONGEST: usize = 16;

/// Codes of one table.
pub(crate) struct HuffmanCode {
    /// The body of the DHT segment: 16 counts, then the symbols.
    pub dht_body: Vec<u8>,
    /// Per symbol: the code, right-aligned, and its length in bits. Length 0: no code.
    codes: [(u16, u8); 256],
}

impl HuffmanCode {
    /// The code, of at most 16 bits per symbol, that writes symbols with these counts in the fewest bits.
    pub fn optimal(counts: &[u64; 256]) -> Self {
        let mut symbols: Vec<(u64, u8)> = (0..=255)
            .filter(|&s| counts[usize::from(s)] > 0)
            .map(|s| (counts[usize::from(s)], s))
            .collect();
        symbols.sort_unstable();
        // An additional rarest symbol takes the code of all ones, which is not allowed.
        let weights: Vec<u64> = core::iter::once(0)
            .chain(symbols.iter().map(|&(count, _)| count))
            .collect();
        let lengths = code_lengths(&weights);
        let mut by_length: Vec<(u8, u8)> = symbols.iter().zip(&lengths[1..]).map(|(&(_, s), &l)| (l, s)).collect();
        by_length.sort_unstable();
        let mut code = HuffmanCode {
            dht_body: vec![0; LONGEST],
            codes: [(0, 0); 256],
        };
        let (mut next, mut before) = (0u32, 0);
        for &(length, symbol) in &by_length {
            next <<= length - before;
            before = length;
            code.codes[usize::from(symbol)] = (next as u16, length);
            code.dht_body[usize::from(length) - 1] += 1;
            code.dht_body.push(symbol);
            next += 1;
        }
        code
    }

    /// The code of a symbol and its length.
    pub fn code_of(&self, symbol: u8) -> (u16, u8) {
        self.codes[usize::from(symbol)]
    }
}

/// Lengths of an optimal code of at most 16 bits for ascending weights: package-merge (Larmore and Hirschberg, "A fast
/// algorithm for optimal length-limited Huffman codes", 1990).
fn code_lengths(weights: &[u64]) -> Vec<u8> {
    // Per level: weights of leaves and of pairs of the level below, ascending, and whether each is a leaf.
    let mut levels: Vec<Vec<(u64, bool)>> = Vec::with_capacity(LONGEST);
    for level in 0..LONGEST {
        let mut items: Vec<(u64, bool)> = weights.iter().map(|&weight| (weight, true)).collect();
        if let Some(below) = level.checked_sub(1) {
            items.extend(levels[below].chunks_exact(2).map(|pair| (pair[0].0 + pair[1].0, false)));
            items.sort_by_key(|&(weight, _)| weight);
        }
        levels.push(items);
    }
    let mut lengths = vec![0; weights.len()];
    let mut taken = 2 * weights.len() - 2;
    for items in levels.iter().rev() {
        let leaves = items[..taken].iter().filter(|&&(_, leaf)| leaf).count();
        for length in &mut lengths[..leaves] {
            *length += 1;
        }
        taken = 2 * (taken - leaves);
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(counts: &[u64; 256], code: &HuffmanCode) -> u64 {
        (0..=255u8)
            .map(|s| counts[usize::from(s)] * u64::from(code.code_of(s).1))
            .sum()
    }

    #[test]
    fn codes_are_prefix_free_and_never_all_ones() {
        for most in [1, 2, 3, 17, 162, 256] {
            let counts: [u64; 256] = core::array::from_fn(|s| if s < most { (s as u64 * 7919) % 1000 + 1 } else { 0 });
            let code = HuffmanCode::optimal(&counts);
            let used: Vec<(u16, u8)> = (0..=255)
                .map(|s| code.code_of(s))
                .filter(|&(_, length)| length > 0)
                .collect();
            assert_eq!(used.len(), most);
            for (i, &(a, la)) in used.iter().enumerate() {
                assert!(la <= 16 && u32::from(a) != (1 << la) - 1);
                for &(b, lb) in &used[i + 1..] {
                    let shorter = la.min(lb);
                    assert_ne!(a >> (la - shorter), b >> (lb - shorter));
                }
            }
        }
    }

    #[test]
    fn steep_counts_stay_within_sixteen_bits() {
        let mut counts = [0; 256];
        let (mut a, mut b) = (1u64, 1u64);
        for count in &mut counts[..40] {
            *count = a;
            (a, b) = (b, a + b);
        }
        let code = HuffmanCode::optimal(&counts);
        let space: u32 = (0..=255)
            .filter(|&s| code.code_of(s).1 > 0)
            .map(|s| 1 << (16 - code.code_of(s).1))
            .sum();
        assert_eq!(space, (1 << 16) - 1, "every code but that of all ones is in use");
    }

    #[test]
    fn ordinary_counts_get_the_lengths_of_huffmans_algorithm() {
        let mut counts = [0; 256];
        counts[..5].copy_from_slice(&[15, 7, 6, 6, 5]);
        // 15 gets 1 bit, the others 3 bits; one of the rarest shares its prefix with the code of all ones.
        assert_eq!(
            cost(&counts, &HuffmanCode::optimal(&counts)),
            15 + 3 * (7 + 6 + 6) + 4 * 5
        );
    }
}
