"""Checks of the values that writers store, and small fields in msgpack: arrays as shape and bytes, JSON as text.

Values are checked against the kind of their field, both when they are packed and when they are read: a checksum shows
that bytes were not changed, not that they were valid when written. :mod:`.lmdb_pack.format` calls this for each record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from penstock.errors import PackError
from penstock.sample import Array, ArrayKind, DType, Field
from penstock.stores.fields.exact_casts import as_numbers, cast_exactly, to_float, to_whole

__all__ = [
    "SMALL_TYPES",
    "ArrayReader",
    "cast_values",
    "check_pixels",
    "check_small",
    "check_text",
    "dump_json",
    "pack_small",
]

SMALL_TYPES: Final[Mapping[str, type]] = {"label": int, "int": int, "float": float, "text": str, "json": str}
"""The type of a stored value, by kind; small arrays are stored as lists."""


def check_small(name: str, field: Field, value: object) -> Any:
    """Return the value of a small field, of the type of its kind; None where the record has no value.

    Returns
    -------
    int, float, str, ndarray or None
        An array is C-contiguous and little-endian. An object for JSON is its text.

    Raises
    ------
    PackError
        If the value is not of the kind of the field.
    """
    kind = field.array
    try:
        if field.kind == "json":
            return check_text(f"field {name!r}", dump_json(value))
        if value is None:
            if kind is not None and kind.shape is not None and kind.dtype.kind not in "if":
                raise PackError(
                    f"field {name!r} must have a value in each record: {kind.dtype} has none for a missing one"
                )
            return None
        if kind is None:
            if field.kind != "text":
                return to_float(value) if field.kind == "float" else to_whole(value)
            if not isinstance(value, str):
                raise TypeError("it is no text")  # noqa: TRY301  # one handler
            return check_text(f"field {name!r}", str(value))
        array = as_numbers(value, kind.dtype)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, PackError):
            raise
        raise PackError(f"field {name!r} must be of kind {field.kind}, got {type(value).__name__}: {error}") from error
    if array.shape == (0,) and kind.empty_shape is not None:
        array = array.reshape(kind.empty_shape)
    if not kind.allows(array.shape):
        raise PackError(
            f"field {name!r} must be of kind {field.kind} ({kind}), got {array.dtype} of shape {array.shape}"
        )
    return np.ascontiguousarray(cast_values(name, field, array, kind.dtype), kind.dtype.newbyteorder("<"))


def cast_values(name: str, field: Field, values: Array, dtype: DType) -> Array:
    """Cast numbers to the dtype of a field: floats may be rounded, since the schema says it; nothing else may change.

    Raises PackError if a number would, or is of another kind: a float is no integer, -1 no unsigned one.
    """
    try:
        if not np.can_cast(values.dtype, dtype, "same_kind"):
            raise ValueError(f"that is not a dtype for {dtype}")  # noqa: TRY301  # one handler
        return cast_exactly(values, dtype, may_round=True)
    except ValueError as error:
        raise PackError(f"field {name!r} must be of kind {field.kind}, got {values.dtype}: {error}") from error


def dump_json(value: object, default: Callable[[Any], object] | None = None) -> str:
    """Return a value as JSON; ``default`` converts what JSON does not know.

    Raises TypeError or ValueError if JSON cannot hold it: a dict must have texts as keys, which 1 is not.
    """
    text = json.dumps(value, default=default, ensure_ascii=False, allow_nan=False)
    nested: list[Iterable[object]] = [[value]]
    while nested:
        for each in nested.pop():
            if isinstance(each, dict):
                if other := [key for key in each if not isinstance(key, str)]:
                    raise TypeError(f"a key of a dict must be text, got {other[0]!r:.80}")
                nested.append(each.values())
            elif isinstance(each, list | tuple):
                nested.append(each)
    return text


def pack_small(name: str, field: Field, value: object) -> object:
    """Return the value of a small field as msgpack holds it; raises as :func:`check_small`."""
    small = check_small(name, field, value)
    return [list(small.shape), small.tobytes()] if isinstance(small, np.ndarray) else small


def check_text(what: str, text: str) -> str:
    """Return the text; PackError if it is not valid Unicode."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PackError(f"{what} must be valid UTF-8, got {text!a:.200}") from error
    return text


def check_pixels(name: str, kind: ArrayKind, value: object) -> Array:
    """Return an image as a C-contiguous little-endian array of the kind of its field.

    Raises PackError if it is no array, or of another dtype or shape. Values are never converted.
    """
    if not isinstance(value, np.ndarray):
        raise PackError(f"field {name!r} must be an array of pixels ({kind}), got {type(value).__name__}")
    if value.dtype != kind.dtype or not kind.allows(value.shape) or value.size == 0:
        raise PackError(f"field {name!r} must be pixels ({kind}), got {value.dtype} of shape {value.shape}")
    return np.ascontiguousarray(value, kind.dtype.newbyteorder("<"))


class ArrayReader:
    """Makes the arrays of one field from stored values. It is called for each record: constants are computed once."""

    __slots__ = ("_dtype", "_empty", "_fixed", "_is_bool", "_kind", "name")

    def __init__(self, name: str, kind: ArrayKind) -> None:
        self.name, self._kind = name, kind
        self._dtype = kind.dtype.newbyteorder("<")
        self._is_bool = kind.dtype == np.bool_
        self._empty = kind.empty_shape
        self._fixed = None if kind.shape is None else list(kind.shape)

    def read(self, value: list[object]) -> Array:
        """Return the array, a view of its bytes; ValueError if the kind of the field does not allow it."""
        shape, content = value if len(value) == 2 else (None, None)
        if type(shape) is not list or type(content) is not bytes:
            raise ValueError(f"its field {self.name!r} must be the shape and the bytes of an array")
        # 4.0 and True equal 4 and 1 and are no lengths: the stored shape is never used itself
        shape = self._fixed if shape == self._fixed else self._check_shape(shape)
        if self._is_bool and content.strip(b"\0\1"):
            raise ValueError(f"its field {self.name!r} is bool and must have no bytes other than 0 and 1")
        try:
            return np.frombuffer(content, self._dtype).reshape(shape)
        except (ValueError, OverflowError) as error:
            raise ValueError(
                f"the {len(content)} bytes of its field {self.name!r} are not those of shape {tuple(shape)}"
            ) from error

    def _check_shape(self, shape: list[object]) -> list[int]:
        if shape == [0] and self._empty is not None:
            return list(self._empty)
        axes = self._kind.axes
        if len(shape) == len(axes):
            pairs = zip(shape, axes, strict=True)
            found = [
                length
                for length, lengths in pairs
                if type(length) is int and length >= 0 and (lengths is None or length in lengths)
            ]
            if len(found) == len(axes):
                return found
        raise ValueError(f"its field {self.name!r} has shape {tuple(shape)!s:.200}; the schema says {self._kind}")
