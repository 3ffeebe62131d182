"""The values of one field of all records, joined: arrays with a value for each record, and arrays of varying length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from penstock.errors import ArgumentError, CorruptRecordError, StoreError
from penstock.ragged import Ragged
from penstock.sample import Array, ArrayKind, DType, Field
from penstock.stores.fields.exact_casts import cast_exactly, to_float, to_whole

__all__ = ["get_column_dtype", "get_missing", "join_values", "make_column", "refuse_fixed"]

_MAX_TEXT_NBYTES: Final = 4 << 30
_DTYPES: Final[dict[str, DType]] = {"label": np.dtype("<i8"), "int": np.dtype("<i8"), "float": np.dtype("<f8")}


def get_column_dtype(field: Field) -> DType | None:
    """Return the dtype of the column of a field of numbers; None for other kinds."""
    return _DTYPES.get(field.kind)


def get_missing(dtype: DType) -> float:
    """Return what a column or a row holds for a missing value: -1, or NaN; ValueError if the dtype has neither."""
    if dtype.base.kind == "f":
        return np.nan
    if dtype.base.kind == "i":
        return -1
    raise ValueError(f"{dtype.base} has no value for a missing one")


def make_column(name: str, values: Sequence[object], field: Field, store: str) -> Array:
    """A read-only column of some values; None becomes -1 or NaN in each number, and an empty text.

    Raises ValueError or TypeError if a value is not of the kind of the field. Raises StoreError if texts, each of which
    takes the memory of the longest, need more than 4 GiB.
    """
    dtype = get_column_dtype(field) if field.array is None else field.array.dtype
    if dtype is None:
        texts = ["" if value is None else value for value in values]
        longest = max((len(str(text)) for text in texts), default=0)
        if 4 * longest * len(texts) > _MAX_TEXT_NBYTES:
            raise StoreError(
                f"a column of {len(texts)} texts of up to {longest} characters needs more than {_MAX_TEXT_NBYTES} "
                f"bytes; read field {name!r} from the records instead",
                store=store or None,
            )
        column = np.array(texts, np.str_)
    else:
        shape = () if field.array is None else field.array.shape or ()
        if any(value is None for value in values):
            missing = np.full(shape, get_missing(dtype), dtype) if shape else get_missing(dtype)
            values = [missing if value is None else value for value in values]
        if shape:
            values = [cast_exactly(np.asarray(value), dtype) for value in values]
        elif not set(map(type, values)) <= {int, float} - {int if dtype.kind == "f" else float}:
            values = [to_float(value) if dtype.kind == "f" else to_whole(value) for value in values]
        column = np.array(values, dtype).reshape(len(values), *shape)
    column.flags.writeable = False
    return column


def refuse_fixed(name: str, field: Field) -> ArrayKind:
    """Return the array of a field whose first length varies, and no other.

    Raises ArgumentError if the field is of another kind.
    """
    kind = field.array
    if kind is None or kind.axes[0] is not None or any(each is None for each in kind.axes[1:]):
        raise ArgumentError(
            f"field {name!r} must be an array whose first length varies, such as 'int64[*]', got {field.kind}; "
            "column() has the values of other small fields"
        )
    return kind


def join_values(name: str, kind: ArrayKind, values: Iterable[object], store: str) -> Ragged:
    """The arrays of all records, concatenated; empty where a record has none.

    Raises CorruptRecordError if one is not of its kind.
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
