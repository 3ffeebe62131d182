//! Instruction sets: which ones this processor has, and how kernels are called for them.
//!
//! A kernel has one version per [`Level`], each in a module of that name: `scalar`, the specification, and beside it
//! `avx2`, `avx512` or `neon`, one file each. All versions give the same result, to the bit. A kernel that has no version
//! for a level runs the version of the next lower level.
//!
//! [`dispatch!`] is the only place that calls a version with vector instructions. It takes an [`Available`], which only
//! the detection in [`level`] makes, so that these calls are sound.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "x86_64")]
pub(crate) mod interleave;
mod level;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;

pub(crate) use level::has_own_cores;
pub use level::{Available, Level};

#[cfg(target_arch = "x86_64")]
pub(crate) use level::has_fast_pdep;

/// Calls a kernel in the best version that an [`Available`] level allows.
///
/// ```text
/// dispatch!(level, [Avx512, Avx2], luma(planes, out))     avx512::luma, avx2::luma or scalar::luma of the caller's module
/// ```
///
/// Levels are listed from the highest to the lowest; those of other architectures are left out of the program. A version
/// must be a safe function, whose target features are among those of its [`Level`].
macro_rules! dispatch {
    ($available:expr, [$($level:ident),*], $kernel:ident($($argument:ident),* $(,)?)) => {{
        let level = $crate::simd::Available::level($available);
        $crate::simd::dispatch!(@call level, [$($level)*], $kernel($($argument),*))
    }};
    (@call $level:ident, [], $kernel:ident($($argument:ident),*)) => {{
        let _ = $level;
        scalar::$kernel($($argument),*)
    }};
    (@call $level:ident, [Avx512 $($rest:ident)*], $kernel:ident($($argument:ident),*)) => {
        $crate::simd::dispatch!(
            @choose "x86_64" $level Avx512, avx512::$kernel($($argument),*),
            $crate::simd::dispatch!(@call $level, [$($rest)*], $kernel($($argument),*))
        )
    };
    (@call $level:ident, [Avx2 $($rest:ident)*], $kernel:ident($($argument:ident),*)) => {
        $crate::simd::dispatch!(
            @choose "x86_64" $level Avx2, avx2::$kernel($($argument),*),
            $crate::simd::dispatch!(@call $level, [$($rest)*], $kernel($($argument),*))
        )
    };
    (@call $level:ident, [Neon $($rest:ident)*], $kernel:ident($($argument:ident),*)) => {
        $crate::simd::dispatch!(
            @choose "aarch64" $level Neon, neon::$kernel($($argument),*),
            $crate::simd::dispatch!(@call $level, [$($rest)*], $kernel($($argument),*))
        )
    };
    (@choose $arch:literal $level:ident $least:ident, $version:expr, $lower:expr) => {{
        #[cfg(target_arch = $arch)]
        {
            if $level >= $crate::simd::Level::$least {
                // SAFETY: the level is that of an `Available`: the processor has its features.
                unsafe { $version }
            } else {
                $lower
            }
        }
        #[cfg(not(target_arch = $arch))]
        {
            let _ = $level;
            $lower
        }
    }};
}
pub(crate) use dispatch;

/// Defines the modules `scalar` and `avx2` with versions of portable kernels. Both run the same source: that of `avx2` is
/// compiled with the instructions of the level. The source must be `#[inline(always)]`. There is no module `neon`: every
/// AArch64 target has NEON, so the compiler uses it in `scalar` too.
macro_rules! compile_versions {
    ($(
        fn $kernel:ident $(<$generic:ident: $bound:path>)? ($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?
            = $source:ident;
    )+) => {
        mod scalar {
            use super::*;

            $(pub(super) fn $kernel $(<$generic: $bound>)? ($($argument: $type),*) $(-> $result)? {
                $source($($argument),*)
            })+
        }

        #[cfg(target_arch = "x86_64")]
        mod avx2 {
            use super::*;

            $(#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,movbe,popcnt")]
            pub(super) fn $kernel $(<$generic: $bound>)? ($($argument: $type),*) $(-> $result)? {
                $source($($argument),*)
            })+
        }
    };
}
pub(crate) use compile_versions;

/// Orders the streaming stores before it with all later stores, as other processors see them.
pub(crate) fn fence_streaming_stores() {
    #[cfg(target_arch = "x86_64")]
    #[allow(unused_unsafe)] // a safe function in newer versions of Rust
    // SAFETY: every x86-64 processor has the instruction.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
}
