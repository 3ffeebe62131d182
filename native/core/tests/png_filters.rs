//! All levels undo the filters of PNG lines in the same way.

use penstock_core::png::unfilter::{Filter, unfilter};
use penstock_core::simd::Available;

/// Bytes that are noise, or runs of few values: as they are in photographs and in masks.
fn bytes(len: usize, seed: u32, is_noise: bool) -> Vec<u8> {
    let noise = |i: u32| (i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 24) as u8;
    let run = |i: u32| noise((i + seed) / 37) & noise((i + seed) / 53) & noise(seed) & 3;
    (0..len as u32)
        .map(|i| if is_noise { noise(i) } else { run(i) })
        .collect()
}

#[test]
fn levels_agree_for_every_length() {
    let filters = (0..5).filter_map(Filter::from_byte);
    for (filter, pixel) in filters.flat_map(|filter| [1, 2, 3, 4, 6, 8].map(|pixel| (filter, pixel))) {
        for (len, seed) in (0..40).map(|i| i * pixel).chain([300 * pixel; 12]).zip(0..) {
            let line = bytes(len, seed, seed % 3 == 0);
            let above = bytes(len, 7 * seed + 1, seed % 2 == 0);
            let undo = |level| {
                let mut out = vec![0xa5; len];
                unfilter(level, filter, pixel, &line, &above, &mut out);
                out
            };

            let expected = undo(Available::SCALAR);

            for &level in Available::all() {
                assert_eq!(undo(level), expected, "{filter:?}, {pixel} bytes, {len}, {level:?}");
            }
        }
    }
}

#[test]
fn a_part_of_a_line_is_the_same() {
    let (line, above) = (bytes(120, 1, true), bytes(120, 2, true));
    for filter in (0..5).filter_map(Filter::from_byte) {
        let [mut whole, mut part] = [[0; 120]; 2];

        unfilter(Available::best(), filter, 3, &line, &above, &mut whole);
        unfilter(Available::best(), filter, 3, &line[..60], &above, &mut part);

        assert_eq!(whole[..60], part[..60]);
    }
}
