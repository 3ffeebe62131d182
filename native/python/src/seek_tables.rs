//! Seek tables (`index` in Python) of images as arguments, and reports on them as results.

use penstock_core::jpeg::{DecodeHints, SeekReport, SeekTableKind};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::inspect::PyStaticExpr;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use pyo3::{type_hint_identifier, type_hint_subscript, type_hint_union};

use crate::bytes::Encoded;
use crate::target::Target;

/// A seek table or None for each image.
pub struct SeekTables(pub Vec<Option<Encoded>>);

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
            .map(Self)
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
    tables: Vec<Option<Encoded>>,
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
        if let Some(SeekTables(indices)) = &indices
            && indices.len() != n
        {
            let message = format!("indices of {n} images must have {n} elements, got {}", indices.len());
            return Err(PyValueError::new_err(message));
        }
        let indices = indices.map_or_else(Vec::new, |indices| indices.0);
        if !has_found_list && (learn.is_some() || indices.iter().any(Option::is_some)) {
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
        for (i, index) in self.tables.iter().enumerate() {
            if let Some(index) = index {
                target.check_apart(index, || format!("index {i}"))?;
            }
        }
        Ok(())
    }

    /// The hints for image `i`.
    pub fn of_image(&self, i: usize) -> DecodeHints<'_> {
        DecodeHints {
            seek_table: self.tables.get(i).and_then(Option::as_ref).map(Encoded::bytes),
            learn: self.learn,
            threads: self.threads,
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
