"""The values of small fields as msgpack stores them: numbers and texts as they are, an array as its shape and bytes.

What is packed is checked against its field's kind, and so is what is read: a checksum tells that bytes are those that
were written, not that whoever wrote them meant well. :mod:`.lmdb_format` calls this for each record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PackError
from penstock.sample import ArrayKind, Field

__all__ = ["SMALL_TYPES", "ArrayReader", "pack_small"]

SMALL_TYPES: Final[Mapping[str, type]] = {"label": int, "int": int, "float": float, "text": str}
"""The type of what is stored, by kind; small arrays are stored as lists."""


def pack_small(name: str, field: Field, value: Any) -> Any:
    """A small field's value as it is stored; PackError if it is not of the field's kind."""
    kind = field.array
    try:
        if kind is None:
            small = SMALL_TYPES[field.kind](value)
            if type(small) is int and not -(2**63) <= small < 2**63:
                raise PackError(f"field {name!r} is {field.kind}, a number of 64 bits; got {value!r:.200}")
            return small
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, PackError):
            raise
        raise PackError(f"field {name!r} is {field.kind}; got {type(value).__name__}: {error}") from error
    if array.shape == (0,) and kind.empty_shape is not None:
        array = array.reshape(kind.empty_shape)
    if not np.can_cast(array.dtype, kind.dtype, "same_kind") or not kind.allows(array.shape):
        raise PackError(f"field {name!r} is {field.kind}, {kind}; got {array.dtype} of shape {array.shape}")
    return [list(array.shape), np.ascontiguousarray(array, kind.dtype.newbyteorder("<")).tobytes()]


class ArrayReader:
    """Makes the arrays of one field of what is stored; read for each record, so what does not change is kept."""

    __slots__ = ("_dtype", "_empty", "_fixed", "_is_bool", "_kind", "name")

    def __init__(self, name: str, kind: ArrayKind) -> None:
        self.name, self._kind = name, kind
        self._dtype = kind.dtype.newbyteorder("<")
        self._is_bool = kind.dtype == np.bool_
        self._empty = kind.empty_shape
        self._fixed = None if kind.shape is None else list(kind.shape)

    def read(self, value: list[Any]) -> NDArray[Any]:
        """The array, a view of its bytes; ValueError if it is not one that the field's kind allows."""
        shape, content = value if len(value) == 2 else (None, None)
        if type(shape) is not list or type(content) is not bytes:
            raise ValueError(f"its field {self.name!r} is not the shape and the bytes of an array")
        # 4.0 and True equal 4 and 1, and are no lengths: the shape that is used is never the stored one
        shape = self._fixed if shape == self._fixed else self._allowed(shape)
        if self._is_bool and content.strip(b"\0\1"):
            raise ValueError(f"its field {self.name!r} has bytes other than 0 and 1")
        try:
            return np.frombuffer(content, self._dtype).reshape(shape)
        except (ValueError, OverflowError) as error:
            raise ValueError(
                f"the {len(content)} bytes of its field {self.name!r} are not those of shape {tuple(shape)}"
            ) from error

    def _allowed(self, shape: list[Any]) -> list[int]:
        if shape == [0] and self._empty is not None:
            return list(self._empty)
        axes = self._kind.axes
        if len(shape) == len(axes):
            for length, lengths in zip(shape, axes, strict=True):
                if type(length) is not int or length < 0 or not (lengths is None or length in lengths):
                    break
            else:
                return shape
        raise ValueError(f"its field {self.name!r} has shape {tuple(shape)!s:.200}; the schema says {self._kind}")
