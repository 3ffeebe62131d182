"""Small values of records: arrays of the shape and dtype that the schema of the store says, columns, missing labels.

Without the check, assigning to a row of a batch would silently broadcast another shape and cast another dtype, and a
collated batch would differ from the schema. Both paths call this, such that filling equals collating.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import CorruptRecordError
from penstock.sample import Array, ArrayKind, ArraySpec, Field, Record, Value

if TYPE_CHECKING:
    from penstock.stores.base import Store

__all__ = ["LazyColumn", "get_array", "get_array_spec", "get_missing", "warn_of_missing_label"]


_warned: set[tuple[str, str]] = set()
_MISSING: Final = {"label": -1, "int": -1, "float": float("nan"), "text": ""}


def get_array_spec(field: Field) -> ArraySpec | None:
    """Return shape and dtype of the arrays of a field; None if they vary, or it holds no arrays."""
    kind = field.array
    return None if kind is None or kind.shape is None else ArraySpec(kind.shape, kind.dtype)


def get_missing(field: Field) -> Value:
    """Return what a sample holds where a record has no value: -1, NaN, an empty text.

    It is None for fields that need a value.

    An array of fixed shape is filled with -1 or NaN, one whose first length varies is empty. The same numbers are in a
    column (:meth:`penstock.Store.column`), so that a filled batch equals a collated one.
    """
    kind = field.array
    if kind is None:
        return _MISSING.get(field.kind)
    if kind.shape is None:
        return None if kind.empty_shape is None else np.zeros(kind.empty_shape, kind.dtype)
    if kind.dtype.kind not in "if":
        return None
    return np.full(kind.shape, np.nan if kind.dtype.kind == "f" else -1, kind.dtype)


def get_array(record: Record, field: str, kind: ArrayKind, store: str, missing: Array | None = None) -> Array:
    """The array of a record.

    Parameters
    ----------
    record : Record
        The record, from a store.
    field : str
        The field.
    kind : ArrayKind
        Its dtype and shapes.
    store : str
        URL of the store, for the error.
    missing : ndarray, optional
        The array of a record that has none, from :func:`get_missing`.

    Raises
    ------
    CorruptRecordError
        If the array has another shape or dtype; names store, key and index.
    """
    value = record.fields[field]
    array = np.asarray(missing if value is None else value)
    if array.dtype != kind.dtype or not kind.allows(array.shape):
        raise CorruptRecordError(
            f"field {field!r} must be {kind}, as the store's schema says, got {array.dtype} of shape {array.shape}",
            store=store,
            key=record.key,
            index=record.index,
        )
    return array


class LazyColumn:
    """A column of a store that is read when its first value is needed, or in parts, where the store does so.

    It is pickled without its values: a worker process reads them from its own store.
    """

    def __init__(self, store: Store, field: str) -> None:
        self._store, self._field = store, field
        self._values: Array | None = None
        self._is_label = self._may_miss = store.schema[field].kind == "label"

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> Array:
        found, values = None, self._values
        if values is None:
            indices = np.arange(*rows.indices(len(self._store))) if isinstance(rows, slice) else rows
            found = self._store.rows(self._field, indices)
        if found is None:
            if values is None:
                values = self._values = self._store.column(self._field)
                self._may_miss = self._is_label and len(self._store.find_missing(self._field)) > 0
            found = values[rows]
        if self._may_miss:
            self._warn(rows, found)
        return found

    def _warn(self, rows: slice | NDArray[np.int64], found: Array) -> None:
        """Warn if one of some records has no label: -1 may be a class, as the store knows."""
        empty = np.flatnonzero(found == _MISSING["label"])
        if not len(empty) or (self._store.url, self._field) in _warned:
            return
        indices = np.arange(*rows.indices(len(self._store))) if isinstance(rows, slice) else rows
        if self._store.lacks_value(self._field, indices[empty]).any():
            warn_of_missing_label(self._store.url, self._field)

    def __reduce__(self) -> tuple[object, ...]:
        return LazyColumn, (self._store, self._field)


def warn_of_missing_label(url: str, field: str) -> None:
    """Say, once for each field of a store and in each process, that batches hold -1 where a record has no label."""
    if (url, field) in _warned:
        return
    _warned.add((url, field))
    warnings.warn(
        f"{url}: some records have no value in field {field!r}, and batches hold -1 for them: leave them out with "
        "Subset, or tell the loss (torch.nn.CrossEntropyLoss(ignore_index=-1))",
        UserWarning,
        stacklevel=2,
    )
