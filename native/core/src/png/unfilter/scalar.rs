//! One byte at a time: the specification.

pub fn up(line: &[u8], above: &[u8], out: &mut [u8]) {
    for ((out, x), b) in out.iter_mut().zip(line).zip(above) {
        *out = x.wrapping_add(*b);
    }
}

pub fn sub(pixel: usize, line: &[u8], out: &mut [u8]) {
    for (i, x) in line.iter().enumerate() {
        let a = if i < pixel { 0 } else { out[i - pixel] };
        out[i] = x.wrapping_add(a);
    }
}

pub fn average(pixel: usize, line: &[u8], above: &[u8], out: &mut [u8]) {
    for (i, (x, b)) in line.iter().zip(above).enumerate() {
        let a = if i < pixel { 0 } else { out[i - pixel] };
        out[i] = x.wrapping_add(a.midpoint(*b));
    }
}

pub fn paeth(pixel: usize, line: &[u8], above: &[u8], out: &mut [u8]) {
    for (i, (x, b)) in line.iter().zip(above).enumerate() {
        let (a, c) = if i < pixel {
            (0, 0)
        } else {
            (out[i - pixel], above[i - pixel])
        };
        out[i] = x.wrapping_add(nearest(a, *b, c));
    }
}

/// Of the pixels to the left, above, and above on the left, the one that is nearest to a + b - c; the first of equals.
fn nearest(a: u8, b: u8, c: u8) -> u8 {
    let [x, y, z] = [a, b, c].map(i16::from);
    let [to_a, to_b, to_c] = [(y - z).abs(), (x - z).abs(), (x + y - 2 * z).abs()];
    if to_a <= to_b && to_a <= to_c {
        a
    } else if to_b <= to_c {
        b
    } else {
        c
    }
}
