//! Tables for byte shuffles between three planes and interleaved pixels.

/// A byte of a shuffle's control that gives zero.
const ZERO: u8 = 0x80;

/// `INTERLEAVE[v][c]`: which of 16 samples of channel `c` go to each byte of the v-th vector of 16 interleaved pixels.
pub(crate) static INTERLEAVE: [[[u8; 16]; 3]; 3] = {
    let mut shuffles = [[[ZERO; 16]; 3]; 3];
    let mut i = 0;
    while i < 48 {
        shuffles[i / 16][i % 3][i % 16] = (i / 3) as u8;
        i += 1;
    }
    shuffles
};

/// `DEINTERLEAVE[c][v]`: which bytes of the v-th vector of 16 interleaved pixels go to each of 16 samples of channel `c`.
pub(crate) static DEINTERLEAVE: [[[u8; 16]; 3]; 3] = {
    let mut shuffles = [[[ZERO; 16]; 3]; 3];
    let mut i = 0;
    while i < 48 {
        shuffles[i % 3][i / 16][i / 3] = (i % 16) as u8;
        i += 1;
    }
    shuffles
};

/// `PIXEL[v][i]`: the pixel, of 64, that byte `i` of the v-th vector of interleaved pixels belongs to.
pub(crate) static PIXEL: [[u8; 64]; 3] = {
    let mut pixels = [[0; 64]; 3];
    let mut i = 0;
    while i < 192 {
        pixels[i / 64][i % 64] = (i / 3) as u8;
        i += 1;
    }
    pixels
};

/// `CHANNEL[v][c]`: a bit for each byte of the v-th vector of 64 interleaved pixels that belongs to channel `c`.
pub(crate) const CHANNEL: [[u64; 3]; 3] = {
    let mut masks = [[0; 3]; 3];
    let mut i = 0;
    while i < 192 {
        masks[i / 64][i % 3] |= 1 << (i % 64);
        i += 1;
    }
    masks
};
