"""How penstock lays out the HDF5 files that it writes, so that every kind of field is read back as it was.

::

    image   variable-length uint8 (N,)         encoded images, masks, bytes
    crop    uint8 (N, H, W, C)                 pixels of one shape; other shapes: variable-length, and ``crop.shape``
    label   int64 (N,)                         -1 and ``label.missing`` (numbers of rows) where a record has none
    boxes   variable-length float32 (N,)       x1 y1 x2 y2 x1 y1 ..., the other axes are in the layout
    key     UTF-8 text (N,)
    penstock_layout   one text, JSON           dataset and kind of each field, names of classes, entries left out

Other programs read the same datasets by name. :mod:`.hdf5.writer` writes the layout, :mod:`.hdf5.store` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import numpy as np

from penstock.errors import ArgumentError, StoreFormatError
from penstock.sample import ArrayKind, DType, Field, Schema
from penstock.stores.hdf5.roles import DatasetRoles, FieldSource
from penstock.stores.hdf5.survey import FoundDataset, Survey
from penstock.stores.writing import CommittedRecords, Skipped

__all__ = ["LAYOUT", "Hdf5Layout", "array_kind", "element_dtype", "needs_shapes", "row_shape"]

LAYOUT: Final = "penstock_layout"
"""The dataset of the layout."""

_VERSION: Final = 1
_NUMBERS: Final[Mapping[str, DType]] = {
    "label": np.dtype(np.int64),
    "int": np.dtype(np.int64),
    "float": np.dtype(np.float64),
}


def array_kind(field: Field) -> ArrayKind | None:
    """Return dtype and shapes of a field of pixels or of a small array; None for other kinds."""
    return field.pixels or field.array


def element_dtype(field: Field) -> DType:
    """Return the dtype of the stored numbers of a field; bool is stored as uint8, encoded bytes too."""
    kind = array_kind(field)
    if kind is None:
        return _NUMBERS.get(field.kind, np.dtype(np.uint8))
    return np.dtype(np.uint8) if kind.dtype == np.bool_ else kind.dtype


def row_shape(field: Field) -> tuple[int, ...] | None:
    """The shape of a record's value, if all have one: () for a number; None for values of variable length."""
    if field.kind in _NUMBERS:
        return ()
    kind = array_kind(field)
    return None if kind is None else kind.shape


def needs_shapes(field: Field) -> bool:
    """Return whether the number of elements does not give the shape of a value."""
    kind = array_kind(field)
    if kind is None or kind.shape is not None:
        return False
    rest = kind.axes[1:]
    return kind.axes[0] is not None or any(each is None or len(each) != 1 or each[0] == 0 for each in rest)


class Hdf5Layout:
    """The content of the dataset :data:`LAYOUT`.

    Parameters
    ----------
    schema : Schema
        The fields.
    nbytes : int
        Bytes of the blobs of all records.
    skipped : sequence of Skipped
        Entries of the source that were left out.
    missing : iterable of str
        Names of the fields that some records have no value of.
    """

    def __init__(
        self, schema: Schema, nbytes: int, skipped: tuple[Skipped, ...] = (), missing: frozenset[str] = frozenset()
    ) -> None:
        self.schema, self.nbytes, self.skipped, self.missing = schema, nbytes, skipped, missing
        self.key = "key"
        names = set(schema.fields)
        while self.key in names:
            self.key += "_"

    def name_dataset(self, field: str) -> str:
        """Return the dataset of a field: its name, or another one where that is taken."""
        return f"{field}_" if field == LAYOUT else field

    def to_text(self) -> str:
        """Return the JSON text."""
        return json.dumps(
            {
                "version": _VERSION,
                "schema": self.schema.to_json(),
                "nbytes": self.nbytes,
                "skipped": [list(entry) for entry in self.skipped],
                "missing": sorted(self.missing),
            }
        )

    @classmethod
    def from_text(cls, text: str) -> Hdf5Layout:
        """Parse the JSON text.

        Raises StoreFormatError if it is no layout, or of another version.
        """
        try:
            entry = json.loads(text)
            if entry["version"] != _VERSION:
                raise StoreFormatError(
                    f"the version of the layout must be {_VERSION}, got {entry['version']!r:.50}; install the version "
                    "of penstock-data that wrote the file"
                )
            held = CommittedRecords.from_json({"records": 0, **entry})
            return cls(
                Schema.from_json(entry["schema"]), held.nbytes, held.skipped, frozenset(map(str, entry["missing"]))
            )
        except ArgumentError as error:
            raise StoreFormatError(f"the layout of the file is wrong: {error.message}") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, StoreFormatError):
                raise
            raise StoreFormatError(f"the layout of the file ({LAYOUT}) is damaged: {error}") from error

    def assign(self, survey: Survey) -> DatasetRoles:
        """Return the roles of the datasets, as they were written.

        Raises StoreFormatError if a dataset is missing, or is not what the layout says.
        """
        key = self._get(survey, self.key, "text", None)
        fields = {
            name: self._assign_field(survey, name, field, key.count) for name, field in self.schema.fields.items()
        }
        return DatasetRoles(fields, key, key.count)

    def _assign_field(self, survey: Survey, name: str, field: Field, count: int) -> FieldSource:
        dataset = self.name_dataset(name)
        shape = row_shape(field)
        form = "text" if field.kind in {"text", "json"} else "ragged" if shape is None else "array"
        dtype = None if form == "text" else element_dtype(field)
        found = self._get(survey, dataset, form, dtype, shape or (), count)
        shapes = missing = None
        if needs_shapes(field):
            kind = array_kind(field)
            assert kind is not None, "only arrays have shapes"
            axes = (len(kind.axes),)
            shapes = self._get(survey, f"{dataset}.shape", "array", np.dtype(np.int64), axes, count)
        if name in self.missing:
            missing = self._get(survey, f"{dataset}.missing", "array", np.dtype(np.int64))
        axes_of = "NHWC" if field.pixels is not None and shape is not None else ""
        return FieldSource(field, found, axes_of, shapes=shapes, missing=missing)

    @staticmethod
    def _get(
        survey: Survey,
        name: str,
        form: str,
        dtype: DType | None,
        shape: tuple[int, ...] = (),
        count: int | None = None,
    ) -> FoundDataset:
        found = survey.datasets.get(name)
        expected_shape = (found.count if found is not None and count is None else count, *shape)
        if found is None or (found.form, found.dtype, found.shape) != (form, dtype or found.dtype, expected_shape):
            expected = f"{form} {dtype or ''}".strip()
            got = "none" if found is None else found.describe()
            raise StoreFormatError(f"dataset {name!r} must be {expected} of the layout's shape, got {got}")
        return found
