//! Seek tables in a file: read without the GIL, one by one while images are decoded, or several together.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::sync::OnceLock;

use penstock_core::seek_table_file::read_table;
use pyo3::exceptions::PyOSError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::arrays::Array;
use crate::errors::invalid_argument;

/// Places of seek tables in a file: Python's `TablesInFile`.
pub struct StoredTables {
    file: ManuallyDrop<File>,
    entries: Vec<[u8; 16]>,
    numbers: Array<i64>,
    error: OnceLock<io::Error>,
    errors: Py<PyList>,
}

impl StoredTables {
    /// The attributes of a Python object.
    pub fn of(object: &Bound<'_, PyAny>, fd: i32) -> PyResult<Self> {
        let py = object.py();
        let errors = object.getattr(intern!(py, "errors"))?.cast_into::<PyList>()?;
        let entries = object.getattr(intern!(py, "entries"))?.extract()?;
        let numbers = object.getattr(intern!(py, "numbers"))?.extract()?;
        Self::new(fd, entries, numbers, errors.unbind())
    }

    fn new(fd: i32, entries: Array<u8>, numbers: Array<i64>, errors: Py<PyList>) -> PyResult<Self> {
        let (n, directory) = (numbers.values().len(), entries.values().as_chunks::<16>().0);
        // With the GIL: other threads add entries.
        let entry = |&number: &i64| directory.get(usize::try_from(number).ok()?).copied();
        let found: Option<Vec<_>> = numbers.values().iter().map(entry).collect();
        let is_directory = entries.shape() == [directory.len(), 16];
        let Some(entries) = found.filter(|_| numbers.shape() == [n] && is_directory && fd >= 0) else {
            return Err(invalid_argument(format!(
                "entries and numbers must have shapes [m, 16] and [n], numbers must be in [0, m), and fd must be a \
                 descriptor, got {:?}, {:?} and {fd}",
                entries.shape(),
                numbers.shape()
            )));
        };
        // SAFETY: the caller keeps the descriptor open during the call; it is not closed here.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
        let error = OnceLock::new();
        Ok(Self {
            file,
            entries,
            numbers,
            error,
            errors,
        })
    }

    /// Number of tables.
    pub fn len(&self) -> usize {
        self.numbers.values().len()
    }

    /// Reads table `i`; None if there is none, or it is damaged. An error is kept for [`Self::report_error`].
    pub fn read(&self, i: usize) -> Option<Vec<u8>> {
        let (entry, number) = (&self.entries[i], self.numbers.values()[i]);
        let table = read_table(&self.file, entry, number as u64);
        table.unwrap_or_else(|error| {
            let _ = self.error.set(error); // the first one is reported
            None
        })
    }

    /// Appends the first error to the caller's list.
    pub fn report_error(&self, py: Python<'_>) -> PyResult<()> {
        match self.error.get() {
            Some(error) => self.errors.bind(py).append(as_exception(error).value(py)),
            None => Ok(()),
        }
    }
}

/// Reads seek tables of several records from a file of them.
///
/// Parameters
/// ----------
/// fd : int
///     The descriptor of the file, which stays open during the call.
/// entries : ndarray, shape (m, 16), uint8
///     The file's directory: offset, length and checksum of each table.
/// numbers : ndarray, shape (n,), int64
///     The numbers of the records.
///
/// Returns
/// -------
/// list of (bytes or None)
///     None for a record without a table, or with a damaged one.
///
/// Raises
/// ------
/// OSError
///     The system cannot read the file.
/// ValueError
///     If a number is outside of the directory.
#[pyfunction]
pub fn read_tables<'py>(
    py: Python<'py>,
    fd: i32,
    entries: Array<u8>,
    numbers: Array<i64>,
) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
    let stored = StoredTables::new(fd, entries, numbers, PyList::empty(py).unbind())?;
    let tables: Vec<_> = py.detach(|| (0..stored.len()).map(|i| stored.read(i)).collect());
    if let Some(error) = stored.error.get() {
        return Err(as_exception(error));
    }
    let as_bytes = |table: Option<Vec<u8>>| table.map(|table| PyBytes::new(py, &table));
    Ok(tables.into_iter().map(as_bytes).collect())
}

/// The exception for an error of the system, with the system's words alone.
pub fn as_exception(error: &io::Error) -> PyErr {
    let text = error.to_string();
    let Some(number) = error.raw_os_error() else {
        return PyOSError::new_err(text);
    };
    let words = text.strip_suffix(&format!(" (os error {number})")).unwrap_or(&text);
    PyOSError::new_err((number, words.to_owned()))
}
