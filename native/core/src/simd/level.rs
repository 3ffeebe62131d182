//! The levels, and their detection: the only place that looks up what the processor has.

use std::sync::OnceLock;

/// A set of instructions for which kernels are written. Only the levels of the target's architecture exist; a level
/// includes those below it. All levels give the same pixels, to the bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Portable Rust: the specification of all others.
    Scalar,
    /// x86-64 with AVX2, BMI1, BMI2, F16C, FMA, LZCNT, MOVBE and POPCNT (Haswell, Zen and later).
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 with F, BW, DQ, VL, VBMI, VBMI2 and VNNI (Ice Lake, Zen 4 and later, where wide vectors do not lower the clock).
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AArch64 with Advanced SIMD and CRC (all but the first processors of Armv8.0).
    #[cfg(target_arch = "aarch64")]
    Neon,
}

/// The names of a level's features, and whether the processor has all of them.
macro_rules! features {
    ($detected:ident: $($feature:tt),+) => {
        (&[$($feature),+], true $(&& std::arch::$detected!($feature))+)
    };
}

impl Level {
    /// All levels of this architecture, from the lowest to the highest.
    const ALL: &'static [Self] = &[
        Self::Scalar,
        #[cfg(target_arch = "x86_64")]
        Self::Avx2,
        #[cfg(target_arch = "x86_64")]
        Self::Avx512,
        #[cfg(target_arch = "aarch64")]
        Self::Neon,
    ];

    /// Its name in lower case: "scalar", "avx2", "avx512" or "neon".
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "avx512",
            #[cfg(target_arch = "aarch64")]
            Self::Neon => "neon",
        }
    }

    /// The features that a level adds to the one below it, and whether this processor has all of them.
    fn features(self) -> (&'static [&'static str], bool) {
        match self {
            Self::Scalar => (&[], true),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => features!(
                is_x86_feature_detected: "avx2", "bmi1", "bmi2", "lzcnt", "movbe", "fma", "f16c", "popcnt"
            ),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => features!(
                is_x86_feature_detected: "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vbmi", "avx512vbmi2",
                "avx512vnni"
            ),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => features!(is_aarch64_feature_detected: "neon", "crc"),
        }
    }
}

/// A level that this processor has. Only detection makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Available(Level);

impl Available {
    /// Portable Rust, which every processor runs.
    pub const SCALAR: Self = Self(Level::Scalar);

    /// All levels of this processor, from the lowest to the highest. The first is [`Self::SCALAR`].
    pub fn all() -> &'static [Self] {
        static ALL: OnceLock<Vec<Available>> = OnceLock::new();
        ALL.get_or_init(|| {
            let levels = Level::ALL.iter().take_while(|level| level.features().1);
            levels.copied().map(Self).collect()
        })
    }

    /// The highest level of this processor.
    pub fn best() -> Self {
        Self::all().last().copied().unwrap_or(Self::SCALAR)
    }

    /// The level of this processor that has this [name](Level::name).
    pub fn named(name: &str) -> Option<Self> {
        Self::all().iter().find(|level| level.0.name() == name).copied()
    }

    /// The level.
    #[must_use]
    pub fn level(self) -> Level {
        self.0
    }

    /// The processor features that kernels of this level may use.
    pub fn features(self) -> impl Iterator<Item = &'static str> {
        let levels = Level::ALL.iter().filter(move |level| **level <= self.0);
        levels.flat_map(|level| level.features().0).copied()
    }
}

/// Whether `pdep` takes a few cycles, on processors that have it. On the first two generations of AMD's Zen (family 17h,
/// and Hygon's 18h) it takes up to hundreds.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_fast_pdep() -> bool {
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

/// Whether the system says that no two of its processors share a core. False where it says nothing.
pub(crate) fn has_own_cores() -> bool {
    static OWN: OnceLock<bool> = OnceLock::new();
    *OWN.get_or_init(|| {
        std::fs::read("/sys/devices/system/cpu/smt/active").is_ok_and(|active| active.starts_with(b"0"))
    })
}

#[cfg(test)]
mod tests {
    use super::{Available, Level};

    #[test]
    fn levels_are_named_and_ordered() {
        let all = Available::all();

        assert_eq!(all.first(), Some(&Available::SCALAR));
        assert_eq!(all.last(), Some(&Available::best()));
        assert!(all.is_sorted());
        assert!(
            all.iter()
                .all(|&level| Available::named(level.level().name()) == Some(level))
        );
        assert_eq!(Available::named("mmx"), None);
        assert_eq!(Available::SCALAR.level(), Level::Scalar);
    }

    /// What `dispatch!` relies on: a kernel enables only features of its level.
    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn kernels_enable_features_of_their_level() {
        use std::{fs, path::Path};

        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
        let mut count = 0;
        while let Some(folder) = folders.pop() {
            for file in fs::read_dir(folder).unwrap() {
                let path = file.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = fs::read_to_string(&path).unwrap();
                for (at, attribute) in text.match_indices("#[target_feature(enable = \"") {
                    // A version is a file, or shares one with its specification.
                    let versions = ["avx2", "avx512", "neon"];
                    let started = |name: &str| text[..at].rfind(&format!("mod {name} {{"));
                    let within = versions.into_iter().filter(|name| started(name).is_some());
                    let name = within.max_by_key(|name| started(name));
                    let name = name.or(path.file_stem().and_then(|stem| stem.to_str()));
                    let Some(level) = Level::ALL.iter().find(|level| Some(level.name()) == name) else {
                        let is_version = name.is_some_and(|name| versions.contains(&name));
                        assert!(is_version || path.ends_with("level.rs"), "{}", path.display());
                        continue;
                    };
                    let (features, _) = text[at + attribute.len()..].split_once('"').unwrap();
                    for feature in features.split(',') {
                        let allowed = Available(*level).features().any(|allowed| allowed == feature);
                        assert!(allowed, "{}: {feature}", path.display());
                        count += 1;
                    }
                }
            }
        }
        assert!(count > 50, "the kernels were found");
    }
}
