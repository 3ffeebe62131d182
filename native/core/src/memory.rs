//! Memory whose amount follows from what a file declares: asked for so that its lack is an error of that image. An
//! allocation of the standard library ends the process instead.

use std::alloc::{Layout, alloc_zeroed};

use crate::error::Error;

/// A type of which all zero bits are a value.
///
/// # Safety
/// They are, and the type has a size.
pub(crate) unsafe trait Zero: Copy {}

// SAFETY: integers
unsafe impl Zero for u8 {}
// SAFETY: as above
unsafe impl Zero for i16 {}
// SAFETY: as above
unsafe impl Zero for i32 {}
// SAFETY: as above
unsafe impl Zero for u64 {}
// SAFETY: an array of such a type, not empty
unsafe impl<T: Zero> Zero for [T; 64] {}

fn refused<T>(count: usize) -> Error {
    Error::OutOfMemory {
        nbytes: count.saturating_mul(size_of::<T>()),
    }
}

/// `count` zeros, fresh from the allocator: what nobody touches never becomes real memory.
pub(crate) fn zeroed<T: Zero>(count: usize) -> Result<Vec<T>, Error> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let layout = Layout::array::<T>(count).map_err(|_| refused::<T>(count))?;
    // SAFETY: neither the type nor the count is empty.
    let start = unsafe { alloc_zeroed(layout) }.cast::<T>();
    if start.is_null() {
        return Err(refused::<T>(count));
    }
    // SAFETY: the global allocator's memory, with the layout of a vector of this capacity, and all of it values.
    Ok(unsafe { Vec::from_raw_parts(start, count, count) })
}

/// Makes `values` at least `len` long; if they grow, all are zeros.
pub(crate) fn grow<T: Zero>(values: &mut Vec<T>, len: usize) -> Result<(), Error> {
    if values.len() < len {
        *values = Vec::new(); // first: not both at once
        *values = zeroed(len)?;
    }
    Ok(())
}

/// Makes room for `count` more values.
pub(crate) fn reserve<T>(values: &mut Vec<T>, count: usize) -> Result<(), Error> {
    values.try_reserve(count).map_err(|_| refused::<T>(count))
}
