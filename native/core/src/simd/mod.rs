//! The one place where the processor's abilities are looked up.

#[cfg(target_arch = "x86_64")]
pub(crate) mod vector;

use std::sync::OnceLock;

/// Which kernels run. Every level gives the same pixels, to the bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Portable Rust: the specification of all others.
    Scalar,
    /// x86-64 with AVX2, BMI1, BMI2, LZCNT, POPCNT, MOVBE and FMA (Haswell, Zen and later).
    Avx2,
    /// AVX-512 with bytes, permutations of bytes and products of bytes or words summed to 32 bits (F, BW, DQ, VL, VBMI,
    /// VNNI: Ice Lake, Zen 4 and later, where wide vectors do not cost clock). What has no kernel of its own runs that
    /// of AVX2.
    Avx512,
}

impl Level {
    /// This level if the processor has it, else the best below it. Kernels are dispatched on the result only, which is
    /// what makes calling them sound.
    #[must_use]
    pub fn available(self) -> Self {
        self.min(detect())
    }
}

/// The best level of this processor (looked up once).
pub fn detect() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        if has_avx2() {
            return if has_avx512() { Level::Avx512 } else { Level::Avx2 };
        }
        Level::Scalar
    })
}

/// The levels of this processor, from scalar up: what tests go through.
pub fn levels() -> &'static [Level] {
    match detect() {
        Level::Scalar => &[Level::Scalar],
        Level::Avx2 => &[Level::Scalar, Level::Avx2],
        Level::Avx512 => &[Level::Scalar, Level::Avx2, Level::Avx512],
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
        && is_x86_feature_detected!("movbe")
        && is_x86_feature_detected!("fma")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("avx512vnni")
}

/// Whether `pdep` takes a few cycles, on processors that have it: AMD's first two generations of Zen (family 17h, and
/// Hygon's 18h) take up to hundreds.
#[cfg(target_arch = "x86_64")]
pub(crate) fn deposits_fast() -> bool {
    static FAST: OnceLock<bool> = OnceLock::new();
    #[allow(unused_unsafe)] // a safe function in newer versions of Rust
    let cpuid = |leaf| unsafe {
        // SAFETY: every x86-64 processor has the instruction.
        core::arch::x86_64::__cpuid(leaf)
    };
    *FAST.get_or_init(|| {
        let vendor = cpuid(0).ebx;
        let version = cpuid(1).eax;
        let family = (version >> 8 & 15) + (version >> 20 & 255);
        let zen = vendor == u32::from_le_bytes(*b"Auth") || vendor == u32::from_le_bytes(*b"Hygo");
        !(zen && matches!(family, 0x17 | 0x18))
    })
}
