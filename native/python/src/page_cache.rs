//! Files that are mapped: the system loads ranges of them while Python goes on; bytes are written to them.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use pyo3::prelude::*;

use crate::arrays::Array;
use crate::bytes::Encoded;
use crate::errors::invalid_argument;
use crate::memory::BufferArgument;
use crate::stored_tables::as_exception;

/// Linux reads at most so much ahead for one request, on most devices; of larger ones it drops the rest.
const REQUEST: usize = 128 << 10;

/// Has the system read ranges of a mapped file that are not in its page cache. Does not wait for the disk.
///
/// Parameters
/// ----------
/// mapped : buffer
///     The map of a file, from its first byte.
/// begins, sizes : ndarray, shape (n,), int64
///     The ranges, in bytes. What lies outside of the map is left out.
/// most_nbytes : int
///     Bytes to ask for at most. The first ranges count.
///
/// Returns
/// -------
/// int
///     The bytes that were asked for: 0 if the ranges are in the page cache. It is only a hint, and errors
///     are ignored.
///
/// Raises
/// ------
/// ValueError
///     If ``begins`` and ``sizes`` differ in length.
#[pyfunction]
#[pyo3(signature = (mapped, begins, sizes, *, most_nbytes))]
pub fn read_ahead(
    py: Python<'_>,
    mapped: Encoded,
    begins: Array<i64>,
    sizes: Array<i64>,
    most_nbytes: usize,
) -> PyResult<usize> {
    if begins.shape() != sizes.shape() {
        let (begins, sizes) = (begins.shape(), sizes.shape());
        return Err(invalid_argument(format!(
            "begins and sizes must have the same length, got shapes {begins:?} and {sizes:?}"
        )));
    }
    let map = mapped.buffer();
    let (start, len) = (map.buf_ptr() as usize, map.len_bytes());
    let (begins, sizes) = (begins.values(), sizes.values());
    Ok(py.detach(|| {
        let pages = Pages::new(start, len);
        let mut asked = 0;
        for (&begin, &size) in begins.iter().zip(sizes) {
            let left = most_nbytes - asked;
            let range = usize::try_from(begin).ok().zip(usize::try_from(size).ok());
            if let Some((begin, size)) = range.filter(|_| left > 0) {
                asked += pages.ask_for(begin, size.min(left)).min(left);
            }
        }
        asked
    }))
}

/// Writes bytes to a file that exists, without the GIL. The file is closed again.
///
/// Parameters
/// ----------
/// path : path
///     The file. A symbolic link is refused.
/// identity : (int, int)
///     Its device and inode.
/// offset : int
///     Where to write, in bytes.
/// content : buffer
///     Contiguous bytes.
///
/// Raises
/// ------
/// OSError
///     If the system refuses; with ``errno.ESTALE`` if another file is at the path.
/// TypeError
///     ``content`` is not contiguous bytes in one dimension.
#[pyfunction]
pub fn write_at(py: Python<'_>, path: PathBuf, identity: (u64, u64), offset: u64, content: Encoded) -> PyResult<()> {
    let bytes = content.bytes();
    let write = || {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
        let seen = file.metadata()?;
        if (seen.dev(), seen.ino()) != identity {
            return Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
        file.write_all_at(bytes, offset)
    };
    py.detach(write).map_err(|error| as_exception(&error))
}

/// The pages of a map.
struct Pages {
    start: usize,
    len: usize,
    page: usize,
}

impl Pages {
    fn new(start: usize, len: usize) -> Self {
        // SAFETY: it only returns a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        Self {
            start,
            len,
            page: usize::try_from(page).unwrap_or(4096),
        }
    }

    /// Asks for the pages of a range. Returns their bytes, or 0 if they are there.
    fn ask_for(&self, begin: usize, size: usize) -> usize {
        let end = begin.saturating_add(size).min(self.len);
        let is_empty = begin >= end;
        let begin = begin - begin % self.page;
        if is_empty || !self.start.is_multiple_of(self.page) || self.is_resident(begin, end) {
            return 0;
        }
        for at in (begin..end).step_by(REQUEST) {
            let size = REQUEST.min(end - at);
            // SAFETY: the range lies inside a buffer that is exported during the call, and starts with a page. This
            // advice changes neither its bytes nor its mapping.
            unsafe { libc::madvise((self.start + at) as *mut libc::c_void, size, libc::MADV_WILLNEED) };
        }
        end - begin
    }

    /// Whether the first, the middle and the last page of a range are in the page cache. What was read is there as a
    /// whole, or the system has dropped its oldest part; the outer pages may have come with the ranges beside it.
    fn is_resident(&self, begin: usize, end: usize) -> bool {
        let last = end - 1 - (end - 1) % self.page;
        let middle = begin.midpoint(last);
        [begin, middle - middle % self.page, last].into_iter().all(|page| {
            let mut resident = 0u8;
            let address = (self.start + page) as *mut libc::c_void;
            // SAFETY: as in `ask_for`; the call writes one byte, for one page.
            let done = unsafe { libc::mincore(address, 1, (&raw mut resident).cast()) };
            done == 0 && resident & 1 == 1
        })
    }
}
