//! The level that kernels run at: the processor's best, or a lower one for tests and measurements.

use std::sync::atomic::{AtomicUsize, Ordering};

use penstock_core::simd::Available;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The position of the level in [`Available::all`]. A position past its end means the best level.
static LEVEL: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The level of calls that begin now.
pub fn level() -> Available {
    let levels = Available::all();
    let position = LEVEL.load(Ordering::Relaxed);
    levels.get(position).copied().unwrap_or_else(Available::best)
}

/// Returns the processor features that the kernels use. It is empty where they are portable code.
///
/// Returns
/// -------
/// list of str
///     For instance ``["avx2", "bmi2", "fma", "f16c"]``.
#[pyfunction]
pub fn features() -> Vec<&'static str> {
    level().features().collect()
}

/// Sets the level of the kernels for calls that begin from now on, in any thread: for tests and measurements.
///
/// Parameters
/// ----------
/// name : {"scalar", "avx2", "avx512", "neon"} or None
///     The level. None: the processor's best. The pixels are the same at every level.
///
/// Raises
/// ------
/// ValueError
///     This processor has no level of that name.
#[pyfunction]
#[pyo3(signature = (name))]
pub fn level_override(name: Option<&str>) -> PyResult<()> {
    let levels = Available::all();
    let position = match name {
        None => usize::MAX,
        Some(name) => levels
            .iter()
            .position(|level| level.level().name() == name)
            .ok_or_else(|| {
                let names: Vec<_> = levels.iter().map(|level| level.level().name()).collect();
                PyValueError::new_err(format!(
                    "name must be one of {} on this processor, got '{name}'",
                    names.join(", ")
                ))
            })?,
    };
    LEVEL.store(position, Ordering::Relaxed);
    Ok(())
}
