//! Chroma upsampling by libjpeg's rules (`jdsample.c`): triangle filters ("fancy") for a factor of two; repetition for
//! other factors and for components of at most two columns.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

use crate::simd::{Available, dispatch};

/// How rows of a component become rows of the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Upsample {
    /// The component has the size of the picture.
    None,
    /// Each sample is repeated `across` times, each row `down` times.
    Repeat { across: usize, down: usize },
    /// Triangle filter across.
    H2V1,
    /// Triangle filter down.
    H1V2,
    /// Triangle filter both ways.
    H2V2,
}

impl Upsample {
    /// The method that libjpeg uses for a component of `width` samples. `fancy`: triangle filters are allowed.
    pub fn choose(across: usize, down: usize, width: usize, fancy: bool) -> Self {
        match (across, down) {
            (1, 1) => Upsample::None,
            (1, 2) if fancy => Upsample::H1V2,
            (2, 1) if fancy && width > 2 => Upsample::H2V1,
            (2, 2) if fancy && width > 2 => Upsample::H2V2,
            _ => Upsample::Repeat { across, down },
        }
    }

    /// Whether a sample's left and right neighbours are used.
    pub fn uses_neighbour_columns(self) -> bool {
        matches!(self, Upsample::H2V1 | Upsample::H2V2)
    }

    /// Whether a sample's upper and lower neighbours are used.
    pub fn uses_neighbour_rows(self) -> bool {
        matches!(self, Upsample::H1V2 | Upsample::H2V2)
    }
}

/// Kernels read up to this many bytes past the end of a row.
pub(crate) const SPARE: usize = 64;
/// Kernels write up to this many bytes past the end of their output.
pub(crate) const SPARE_OUT: usize = 128;

/// Upsamples `count` samples to the start of `out`, which is [`SPARE_OUT`] longer. `near`, `far`: the rows nearest and
/// next nearest to the output row, from one sample before the first. `lower`: the output row is below the middle of the
/// near row.
pub(crate) fn row(
    level: Available,
    kind: Upsample,
    near: &[u8],
    far: &[u8],
    lower: bool,
    count: usize,
    out: &mut [u8],
) {
    match kind {
        Upsample::None => out[..count].copy_from_slice(&near[1..=count]),
        Upsample::Repeat { across, .. } => repeat(&near[1..=count], across, out),
        Upsample::H2V1 => dispatch!(level, [Avx2, Neon], h2v1(near, count, out)),
        Upsample::H2V2 => dispatch!(level, [Avx512, Avx2, Neon], h2v2(near, far, count, out)),
        Upsample::H1V2 => dispatch!(level, [Avx2, Neon], h1v2(near, far, lower, count, out)),
    }
}

fn repeat(samples: &[u8], across: usize, out: &mut [u8]) {
    for (pixels, &sample) in out.chunks_exact_mut(across).zip(samples) {
        pixels.fill(sample);
    }
}
