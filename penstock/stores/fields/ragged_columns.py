"""The values of a field whose length differs from record to record, of all records: joined as they are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from penstock.errors import ArgumentError, CorruptRecordError
from penstock.ragged import Ragged
from penstock.sample import Array, ArrayKind, Field

__all__ = ["join_values", "refuse_fixed"]


def refuse_fixed(name: str, field: Field) -> ArrayKind:
    """The array of a field whose first length varies, and no other.

    Raises
    ------
    ArgumentError
        If the field is of another kind.
    """
    kind = field.array
    if kind is None or kind.axes[0] is not None or any(each is None for each in kind.axes[1:]):
        raise ArgumentError(
            f"field {name!r} must be an array whose first length varies, such as 'int64[*]', got {field.kind}; "
            "column() has the values of other small fields"
        )
    return kind


def join_values(name: str, kind: ArrayKind, values: Iterable[Any], store: str) -> Ragged:
    """The arrays of all records, concatenated; empty where a record has none.

    Raises
    ------
    CorruptRecordError
        If one is not of its kind.
    """
    empty = np.zeros(kind.empty_shape or (0,), kind.dtype)
    arrays: list[Array] = []
    for index, value in enumerate(values):
        array = empty if value is None else np.asarray(value)
        if array.dtype != kind.dtype or not kind.allows(array.shape):
            raise CorruptRecordError(
                f"field {name!r} must be {kind}, got {array.dtype} of shape {array.shape}", store=store, index=index
            )
        arrays.append(array)
    offsets = np.zeros(len(arrays) + 1, np.int64)
    np.cumsum([len(array) for array in arrays], out=offsets[1:])
    return Ragged(np.concatenate(arrays) if arrays else empty, offsets)
