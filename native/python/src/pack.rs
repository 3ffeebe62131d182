//! Blobs of packs: found and checked without the GIL.

use penstock_core::pack;
use pyo3::prelude::*;

use crate::arrays::{Array, NewArray};
use crate::bytes::Encoded;
use crate::errors::invalid_argument;

/// Finds a blob of each of several records of a mapped pack, and compares checksums.
///
/// Parameters
/// ----------
/// mapped : buffer
///     The map of the pack's file.
/// begins, sizes : ndarray, shape (n,), int64
///     Where the value of each record lies in it.
/// numbers : ndarray, shape (n,), int64
///     The numbers of the records.
/// blobs : int
///     Blobs of a record.
/// part : int
///     Which blob: 1 to ``blobs``. 0 are the small fields.
/// check : bool
///     Whether to compare the checksums of the blobs.
///
/// Returns
/// -------
/// ndarray, shape (n, 2), int64
///     Where each blob begins and ends in ``mapped``; -1 for what is damaged. A new array.
///
/// Raises
/// ------
/// ValueError
///     If the arrays differ in length.
#[pyfunction]
#[pyo3(signature = (mapped, begins, sizes, numbers, *, blobs, part, check))]
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
) -> PyResult<NewArray<'py, i64>> {
    let n = numbers.values().len();
    if [&begins, &sizes, &numbers].iter().any(|array| array.shape() != [n]) {
        return Err(invalid_argument(
            "begins, sizes and numbers must have one axis and the same length".to_owned(),
        ));
    }
    let mut places = NewArray::empty(py, &[n, 2])?;
    let (begins, sizes, numbers) = (begins.values(), sizes.values(), numbers.values());
    let out = places.values_mut().as_chunks_mut::<2>().0;
    let file = mapped.bytes();
    py.detach(|| {
        for (i, place) in out.iter_mut().enumerate() {
            let begin = usize::try_from(begins[i]).ok();
            let size = usize::try_from(sizes[i]).ok();
            let value = begin
                .zip(size)
                .and_then(|(begin, size)| file.get(begin..begin.checked_add(size)?));
            let blob = value.and_then(|value| pack::find_part(value, numbers[i] as u64, blobs, part, check));
            *place = blob.map_or([-1; 2], |blob| {
                let begin = (blob.as_ptr().addr() - file.as_ptr().addr()) as i64;
                [begin, begin + blob.len() as i64]
            });
        }
    });
    Ok(places)
}
