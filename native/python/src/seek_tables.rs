//! Seek tables (`index` in Python) of images as arguments, and reports on them as results.

use std::borrow::Cow;

use penstock_core::jpeg::{DecodeHints, SeekReport, SeekTableKind};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::inspect::PyStaticExpr;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use pyo3::{intern, type_hint_identifier, type_hint_subscript, type_hint_union};

use crate::bytes::Encoded;
use crate::stored_tables::StoredTables;
use crate::target::Target;

/// A seek table or None for each image.
pub enum SeekTables {
    /// Bytes.
    Each(Vec<Option<Encoded>>),
    /// Places in a file. A table is read when its image is decoded.
    Stored(StoredTables),
}

impl SeekTables {
    fn len(&self) -> usize {
        match self {
            Self::Each(tables) => tables.len(),
            Self::Stored(tables) => tables.len(),
        }
    }
}

impl FromPyObject<'_, '_> for SeekTables {
    type Error = PyErr;
    const INPUT_TYPE: PyStaticExpr = type_hint_subscript!(
        type_hint_identifier!("collections.abc", "Sequence"),
        type_hint_union!(
            type_hint_identifier!("typing_extensions", "Buffer"),
            type_hint_identifier!("builtins", "None")
        )
    );

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Some(fd) = object.getattr_opt(intern!(object.py(), "fd"))? {
            return StoredTables::of(&object, fd.extract()?).map(Self::Stored);
        }
        let index = |(i, object): (usize, PyResult<Bound<'_, PyAny>>)| {
            let object = object?;
            object.extract::<Option<Encoded>>().map_err(|error| {
                let named =
                    PyTypeError::new_err(format!("index {i} must be bytes or None: {}", error.value(object.py())));
                named.set_cause(object.py(), Some(error));
                named
            })
        };
        object
            .try_iter()?
            .enumerate()
            .map(index)
            .collect::<PyResult<_>>()
            .map(Self::Each)
    }
}

/// The list that receives reports.
pub struct FoundList<'py>(Bound<'py, PyList>);

impl<'py> FromPyObject<'_, 'py> for FoundList<'py> {
    type Error = PyErr;
    const INPUT_TYPE: PyStaticExpr = type_hint_subscript!(
        type_hint_identifier!("builtins", "list"),
        type_hint_subscript!(
            type_hint_identifier!("builtins", "tuple"),
            type_hint_identifier!("builtins", "int"),
            type_hint_identifier!("builtins", "bool"),
            type_hint_union!(
                type_hint_identifier!("builtins", "bytes"),
                type_hint_identifier!("builtins", "None")
            )
        )
    );

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self(object.cast::<PyList>()?.to_owned()))
    }
}

/// Hints for the decoding of each image.
pub struct HintsPerImage {
    tables: Option<SeekTables>,
    learn: Option<SeekTableKind>,
    threads: usize,
}

/// The largest number of threads for one image.
const MAX_THREADS: usize = 256;

impl HintsPerImage {
    /// Hints for `n` images. A list for reports is required with tables and with learning.
    pub fn new(
        n: usize,
        indices: Option<SeekTables>,
        learn: Option<&str>,
        has_found_list: bool,
        threads: usize,
    ) -> PyResult<Self> {
        if !(1..=MAX_THREADS).contains(&threads) {
            return Err(PyValueError::new_err(format!(
                "threads must be in [1, {MAX_THREADS}], got {threads}"
            )));
        }
        if let Some(indices) = &indices
            && indices.len() != n
        {
            let message = format!("indices of {n} images must have {n} elements, got {}", indices.len());
            return Err(PyValueError::new_err(message));
        }
        let has_tables = match &indices {
            Some(SeekTables::Each(tables)) => tables.iter().any(Option::is_some),
            Some(SeekTables::Stored(_)) => true,
            None => false,
        };
        if !has_found_list && (learn.is_some() || has_tables) {
            return Err(PyValueError::new_err(
                "indices and learn require a list `found`, which receives reports",
            ));
        }
        let learn = learn.map(kind_from_name).transpose()?;
        Ok(Self {
            tables: indices,
            learn,
            threads,
        })
    }

    /// Refuses tables that overlap the batch that is written.
    pub fn check_apart(&self, target: &Target<'_>) -> PyResult<()> {
        let Some(SeekTables::Each(tables)) = &self.tables else {
            return Ok(());
        };
        for (i, index) in tables.iter().enumerate() {
            if let Some(index) = index {
                target.check_apart(index, || format!("index {i}"))?;
            }
        }
        Ok(())
    }

    /// The seek table of image `i`, which is read from its file if there is one.
    pub fn table(&self, i: usize) -> Option<Cow<'_, [u8]>> {
        match self.tables.as_ref()? {
            SeekTables::Each(tables) => tables[i].as_ref().map(|table| Cow::Borrowed(table.bytes())),
            SeekTables::Stored(tables) => tables.read(i).map(Cow::Owned),
        }
    }

    /// The hints for an image with this table.
    pub fn with_table<'a>(&self, table: Option<&'a [u8]>) -> DecodeHints<'a> {
        DecodeHints {
            seek_table: table,
            learn: self.learn,
            threads: self.threads,
        }
    }

    /// Tells the caller if a file of tables could not be read.
    pub fn report_error(&self, py: Python<'_>) -> PyResult<()> {
        match &self.tables {
            Some(SeekTables::Stored(tables)) => tables.report_error(py),
            _ => Ok(()),
        }
    }
}

/// The kind with this name.
pub fn kind_from_name(name: &str) -> PyResult<SeekTableKind> {
    SeekTableKind::from_name(name)
        .ok_or_else(|| PyValueError::new_err(format!("kind must be one of rows, tiles, got '{name}'")))
}

/// Appends reports that are not empty to a caller's list.
pub fn append_found(
    list: Option<FoundList<'_>>,
    reports: impl IntoIterator<Item = (usize, SeekReport)>,
) -> PyResult<()> {
    let Some(FoundList(list)) = list else { return Ok(()) };
    for (i, report) in reports {
        if report != SeekReport::default() {
            let learned = report.learned.map(|bytes| PyBytes::new(list.py(), &bytes));
            list.append((i, report.damaged, learned))?;
        }
    }
    Ok(())
}
