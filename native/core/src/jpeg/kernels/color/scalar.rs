//! Colour conversion, one pixel at a time: the specification.

/// Converts one pixel.
fn rgb(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    const HALF: i32 = 1 << 15;
    let red = y + ((91881 * cr + HALF) >> 16);
    let green = y + ((-22554 * cb - 46802 * cr + HALF) >> 16);
    let blue = y + ((116130 * cb + HALF) >> 16);
    [red, green, blue].map(|v| v.clamp(0, 255) as u8)
}

/// See [`super::interleaved`]. Samples are not converted where `ycbcr` is false.
pub(crate) fn interleaved(ycbcr: bool, [a, b, c]: [&[u8]; 3], out: &mut [u8]) {
    for (((pixel, &a), &b), &c) in out.as_chunks_mut().0.iter_mut().zip(a).zip(b).zip(c) {
        *pixel = if ycbcr { rgb(a, b, c) } else { [a, b, c] };
    }
}

/// See [`super::planar`].
pub(crate) fn planar(sources: [&[u8]; 3], width: usize, [red, green, blue]: [&mut [u8]; 3]) {
    for i in 0..width {
        [red[i], green[i], blue[i]] = rgb(sources[0][i], sources[1][i], sources[2][i]);
    }
}
