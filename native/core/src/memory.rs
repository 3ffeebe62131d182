//! Allocation of memory whose size depends on what a file declares. Failure is an error of that image; the standard
//! library would abort the process.

use std::alloc::{Layout, alloc_zeroed};

use crate::error::Error;

/// A type for which all bits zero is a valid value.
///
/// # Safety
/// All bits zero is a valid value, and the type is not zero-sized.
pub unsafe trait Zero: Copy {}

// SAFETY: an integer.
unsafe impl Zero for u8 {}
// SAFETY: an integer.
unsafe impl Zero for u16 {}
// SAFETY: an integer.
unsafe impl Zero for i16 {}
// SAFETY: an integer.
unsafe impl Zero for i32 {}
// SAFETY: an integer.
unsafe impl Zero for u64 {}
// SAFETY: the number 0.
unsafe impl Zero for f32 {}
// SAFETY: the number 0.
unsafe impl Zero for f64 {}
// SAFETY: an array of such a type, not empty.
unsafe impl<T: Zero> Zero for [T; 64] {}

fn refused<T>(count: usize) -> Error {
    Error::OutOfMemory {
        nbytes: count.saturating_mul(size_of::<T>()),
    }
}

/// `count` zeros, allocated as zeroed memory: pages that are not used take no memory.
pub(crate) fn zeroed<T: Zero>(count: usize) -> Result<Vec<T>, Error> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let layout = Layout::array::<T>(count).map_err(|_| refused::<T>(count))?;
    // SAFETY: neither the type nor the count is zero-sized.
    let start = unsafe { alloc_zeroed(layout) }.cast::<T>();
    if start.is_null() {
        return Err(refused::<T>(count));
    }
    // SAFETY: the memory comes from the global allocator with the layout of a vector of this capacity, and zeros are
    // valid.
    Ok(unsafe { Vec::from_raw_parts(start, count, count) })
}

/// Makes `values` at least `len` long. If they grow, all values are zero.
pub(crate) fn grow<T: Zero>(values: &mut Vec<T>, len: usize) -> Result<(), Error> {
    if values.len() < len {
        *values = Vec::new(); // first: not both at once
        *values = zeroed(len)?;
    }
    Ok(())
}

/// Reserves capacity for `count` more values.
pub(crate) fn reserve<T>(values: &mut Vec<T>, count: usize) -> Result<(), Error> {
    values.try_reserve(count).map_err(|_| refused::<T>(count))
}
