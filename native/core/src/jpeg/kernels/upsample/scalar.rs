//! The triangle filters, one sample at a time: the specification. See [`super::row`] for the arguments.

pub(crate) fn h2v1(near: &[u8], count: usize, out: &mut [u8]) {
    for (pair, s) in out.chunks_exact_mut(2).zip(near.windows(3)).take(count) {
        let s: [u16; 3] = [s[0].into(), s[1].into(), s[2].into()];
        pair[0] = ((3 * s[1] + s[0] + 1) >> 2) as u8;
        pair[1] = ((3 * s[1] + s[2] + 2) >> 2) as u8;
    }
}

pub(crate) fn h2v2(near: &[u8], far: &[u8], count: usize, out: &mut [u8]) {
    for ((pair, near), far) in out
        .chunks_exact_mut(2)
        .zip(near.windows(3))
        .zip(far.windows(3))
        .take(count)
    {
        let s: [u16; 3] = core::array::from_fn(|i| 3 * u16::from(near[i]) + u16::from(far[i]));
        pair[0] = ((3 * s[1] + s[0] + 8) >> 4) as u8;
        pair[1] = ((3 * s[1] + s[2] + 7) >> 4) as u8;
    }
}

pub(crate) fn h1v2(near: &[u8], far: &[u8], lower: bool, count: usize, out: &mut [u8]) {
    let bias = if lower { 2 } else { 1 };
    for ((sample, &near), &far) in out.iter_mut().zip(&near[1..]).zip(&far[1..]).take(count) {
        *sample = ((3 * u16::from(near) + u16::from(far) + bias) >> 2) as u8;
    }
}
