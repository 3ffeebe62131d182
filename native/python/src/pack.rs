//! Packs: blobs are found, checked and looked at without the GIL; pages are hashed.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use penstock_core::image::Header;
use penstock_core::jpeg::Limits;
use penstock_core::pack;
use pyo3::prelude::*;

use crate::arrays::{Array, NewArray};
use crate::bytes::Encoded;
use crate::errors::invalid_argument;

/// Bytes from which on the GIL is released to hash them: to get it again may take longer than to hash fewer.
const DETACHED: usize = 1 << 20;

/// Finds a blob of each of several records of a mapped pack, and compares checksums.
///
/// Parameters
/// ----------
/// mapped : buffer
///     The map of the pack's file.
/// begins, sizes : ndarray, shape (m,), int64
///     Where the value of each record of the pack lies in it; 0 where that is unknown.
/// numbers : ndarray, shape (n,), int64
///     The numbers of the records to find.
/// blobs : int
///     Blobs of a record.
/// part : int
///     Which blob: 1 to ``blobs``. 0 are the small fields.
/// check : bool
///     Whether to compare the checksums of the blobs.
/// file : (path, (int, int, int, int)), optional
///     Where the mapped file was; its device, inode, size and time of the last change, in nanoseconds. None: it is not
///     looked at.
///
/// Returns
/// -------
/// places : ndarray, shape (n, 2), int64
///     Where each blob begins and ends in ``mapped``; -1 for what is damaged, unknown or outside of the pack, and for
///     all if another file is at the path now. A new array.
/// sizes : ndarray, shape (n, 2), int32
///     Of blobs that are images: as `sizes`. A new array.
/// complete : bool
///     Whether each blob was found.
///
/// Raises
/// ------
/// ValueError
///     If the arrays differ in length.
#[pyfunction]
#[pyo3(signature = (mapped, begins, sizes, numbers, *, blobs, part, check, file))]
#[allow(clippy::too_many_arguments)] // Python's keyword arguments
pub fn find_blobs<'py>(
    py: Python<'py>,
    mapped: Encoded,
    begins: Array<i64>,
    sizes: Array<i64>,
    numbers: Array<i64>,
    blobs: u16,
    part: usize,
    check: bool,
    file: Option<(PathBuf, (u64, u64, u64, i128))>,
) -> PyResult<(NewArray<'py, i64>, NewArray<'py, i32>, bool)> {
    let n = numbers.values().len();
    if numbers.shape() != [n] || begins.shape() != sizes.shape() || begins.shape().len() != 1 {
        return Err(invalid_argument(
            "begins, sizes and numbers must have one axis, and begins and sizes the same length".to_owned(),
        ));
    }
    // With the GIL: other threads add to these arrays.
    let values: Vec<_> = (numbers.values().iter())
        .map(|&number| locate(number, begins.values(), sizes.values()))
        .collect();
    let (mut places, mut sizes_found) = (NewArray::empty(py, &[n, 2])?, NewArray::empty(py, &[n, 2])?);
    let numbers = numbers.values();
    let out = places.values_mut().as_chunks_mut::<2>().0;
    let out_sizes = sizes_found.values_mut().as_chunks_mut::<2>().0;
    let map = mapped.bytes();
    let is_complete = py.detach(|| {
        let mut is_complete = true;
        let is_same =
            file.is_none_or(|(path, identity)| fs::metadata(path).is_ok_and(|seen| identify(&seen) == identity));
        for (i, (place, size_found)) in out.iter_mut().zip(out_sizes).enumerate() {
            let value = values[i].clone().filter(|_| is_same).and_then(|range| map.get(range));
            let blob = value.and_then(|value| pack::find_part(value, numbers[i] as u64, blobs, part, check));
            *place = blob.map_or([-1; 2], |blob| {
                let begin = (blob.as_ptr().addr() - map.as_ptr().addr()) as i64;
                [begin, begin + blob.len() as i64]
            });
            *size_found = blob.map_or([0; 2], size_of);
            is_complete &= blob.is_some();
        }
        is_complete
    });
    Ok((places, sizes_found, is_complete))
}

/// Hashes the pages of some bytes with xxh3_64.
///
/// Parameters
/// ----------
/// content : buffer
///     Contiguous bytes. The last page may be shorter than the others.
/// page_nbytes : int
///     Bytes of a page, at least 1.
///
/// Returns
/// -------
/// ndarray, shape (ceil(len(content) / page_nbytes),), uint64
///     A new array.
///
/// Raises
/// ------
/// TypeError
///     ``content`` is not contiguous bytes in one dimension.
/// ValueError
///     ``page_nbytes`` is 0.
#[pyfunction]
pub fn hash_pages(py: Python<'_>, content: Encoded, page_nbytes: usize) -> PyResult<NewArray<'_, u64>> {
    let bytes = content.bytes();
    if page_nbytes == 0 {
        return Err(invalid_argument("page_nbytes must be at least 1, got 0".to_owned()));
    }
    let mut hashes = NewArray::empty(py, &[bytes.len().div_ceil(page_nbytes)])?;
    let out = hashes.values_mut();
    if bytes.len() < DETACHED {
        pack::hash_pages(bytes, page_nbytes, out);
    } else {
        py.detach(|| pack::hash_pages(bytes, page_nbytes, out));
    }
    Ok(hashes)
}

/// Where the value of a record lies, if that is known.
fn locate(number: i64, begins: &[i64], sizes: &[i64]) -> Option<Range<usize>> {
    let number = usize::try_from(number).ok()?;
    let begin = usize::try_from(*begins.get(number)?).ok().filter(|&begin| begin > 0)?;
    let size = usize::try_from(*sizes.get(number)?).ok()?;
    Some(begin..begin.checked_add(size)?)
}

/// Device, inode, size and time of the last change.
fn identify(seen: &fs::Metadata) -> (u64, u64, u64, i128) {
    let time = i128::from(seen.mtime()) * 1_000_000_000 + i128::from(seen.mtime_nsec());
    (seen.dev(), seen.ino(), seen.size(), time)
}

/// Width and height of an encoded image; zeros for what the decoders do not read.
pub fn size_of(image: &[u8]) -> [i32; 2] {
    match Header::parse(image, &Limits::NONE) {
        Ok(header) => [header.width() as i32, header.height() as i32],
        Err(_) => [0, 0],
    }
}
