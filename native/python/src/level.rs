//! Which kernels calls run: the processor's best, or a lower level for tests and measurements.

use std::sync::atomic::{AtomicU8, Ordering};

use penstock_core::simd::{self, Level};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The level in force plus 1; 0: not looked up yet.
static LEVEL: AtomicU8 = AtomicU8::new(0);

/// The level of calls that begin now.
pub fn level() -> Level {
    match LEVEL.load(Ordering::Relaxed) {
        0 => simd::detect(),
        l if l == Level::Scalar as u8 + 1 => Level::Scalar,
        l if l == Level::Avx2 as u8 + 1 => Level::Avx2,
        _ => Level::Avx512,
    }
}

/// The instruction sets that the kernels use on this processor; empty: portable code.
///
/// Returns
/// -------
/// list of str
///     For instance ``["avx2", "bmi2", "fma", "f16c"]``.
#[pyfunction]
pub fn features() -> Vec<&'static str> {
    let level = level();
    let mut names = vec![];
    if level >= Level::Avx2 {
        names.extend(["avx2", "bmi1", "bmi2", "lzcnt", "movbe", "fma"]);
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("f16c") {
            names.push("f16c");
        }
    }
    if level >= Level::Avx512 {
        names.extend([
            "avx512f",
            "avx512bw",
            "avx512dq",
            "avx512vl",
            "avx512vbmi",
            "avx512vnni",
        ]);
    }
    names
}

/// Lets calls that begin from now on, in any thread, run the kernels of a lower level: for tests and measurements.
///
/// Parameters
/// ----------
/// name : {"scalar", "avx2", "avx512"} or None
///     The level; None: the processor's best. The pixels are the same at every level.
///
/// Raises
/// ------
/// ValueError
///     Not a level, or this processor lacks it.
#[pyfunction]
#[pyo3(signature = (name))]
pub fn level_override(name: Option<&str>) -> PyResult<()> {
    let level = match name {
        None => simd::detect(),
        Some("scalar") => Level::Scalar,
        Some("avx2") if simd::detect() >= Level::Avx2 => Level::Avx2,
        Some("avx512") if simd::detect() >= Level::Avx512 => Level::Avx512,
        Some(name) => {
            return Err(PyValueError::new_err(format!(
                "{name:?} is not a level of this processor"
            )));
        }
    };
    LEVEL.store(level as u8 + 1, Ordering::Relaxed);
    Ok(())
}
