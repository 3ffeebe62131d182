//! Checksums that the formats of other programs use.

use penstock_core::crc32c as core;
use pyo3::prelude::*;

use crate::bytes::Encoded;
use crate::level::level;

/// Releasing the GIL takes as long as the checksum of some kilobytes.
const DETACHED: usize = 1 << 16;

/// Returns the CRC-32C (Castagnoli) of bytes, as RFC 3720 defines it.
///
/// Parameters
/// ----------
/// content : buffer
///     Contiguous bytes.
///
/// Returns
/// -------
/// int
///     0 to 2**32 - 1; 0 for no bytes.
///
/// Raises
/// ------
/// TypeError
///     ``content`` is not contiguous bytes in one dimension.
#[pyfunction]
pub fn crc32c(py: Python<'_>, content: Encoded) -> u32 {
    let bytes = content.bytes();
    let level = level();
    if bytes.len() < DETACHED {
        return core::crc32c(bytes, level);
    }
    py.detach(|| core::crc32c(bytes, level))
}
