"""What kind of field some values are, and how the kinds of several are united: arrays, boxes, encoded images.

Names play no part here. Nothing is read, and nothing is converted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.sample import Array, DType, Field

__all__ = [
    "EMPTY",
    "NOTHING",
    "NUMBER_DTYPES",
    "ValueKind",
    "are_corners",
    "find_array_kind",
    "name_array_kind",
    "unite_kinds",
]

NUMBER_DTYPES: Final = frozenset(
    {"bool", "float16", "float32", "float64"} | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
"""Dtypes of arrays that fields hold."""
NOTHING: Final = "none"
EMPTY: Final = "empty"
"""What is no kind yet: that of None, and that of an empty list."""
_ENCODED: Final = frozenset({"image", "mask", "bytes"})

_LEAST_EDGE = 2.0
"""Boxes without an edge above this are shares of an image."""


@dataclass(frozen=True, slots=True)
class ValueKind:
    """The kind that a value, or several together, could have."""

    kind: str  # a kind of field, :data:`NOTHING` or :data:`EMPTY`
    is_list: bool = False  # whether all values are lists, which JSON could hold too
    images: int = 0  # of bytes: how many more of the values are encoded images than are others

    @property
    def is_known(self) -> bool:
        """Whether a field could be made of it."""
        return self.kind not in {NOTHING, EMPTY}


def unite_kinds(one: ValueKind, other: ValueKind) -> ValueKind | None:
    """The kind of a field that has values of both kinds; None if there is none.

    Bytes are images if most of the values are: one that is damaged is an error of its record.
    """
    if {one.kind, other.kind} <= _ENCODED:
        images = one.images + other.images
        encoded = ({one.kind, other.kind} - {"bytes"}) if images > 0 else ()
        return ValueKind(next(iter(encoded), "bytes"), images=images)
    if one.kind == other.kind:
        return ValueKind(one.kind, one.is_list and other.is_list)
    for a, b in ((one, other), (other, one)):
        if a.kind == NOTHING:
            return b
        if a.kind == EMPTY and b.kind != NOTHING:
            return _unite_with_empty(b)
        if (a.kind == "json" and b.is_list) or (a.kind == "float" and b.kind in {"int", "label"}):
            return a
    return _unite_shapes(one, other)


def _unite_with_empty(other: ValueKind) -> ValueKind | None:
    array = Field(other.kind).array
    if other.kind == "json":
        return other
    if array is None:
        return None
    axes = ["*" if lengths is None else str(lengths[0]) for lengths in array.axes]
    return ValueKind(f"{array.dtype.name}[{','.join(['*', *axes[1:]])}]", other.is_list)


def _unite_shapes(one: ValueKind, other: ValueKind) -> ValueKind | None:
    first, second = Field(one.kind), Field(other.kind)
    are_lists = one.is_list and other.is_list
    are_pixels = first.pixels is not None and second.pixels is not None
    a, b = (first.pixels, second.pixels) if are_pixels else (first.array, second.array)
    if a is None or b is None or (are_pixels and a.dtype != b.dtype):
        return None
    dtype = np.promote_types(a.dtype, b.dtype).name
    if len(a.axes) != len(b.axes) or dtype not in NUMBER_DTYPES:
        return ValueKind("json") if are_lists else None
    axes = ("*" if x != y or x is None else str(x[0]) for x, y in zip(a.axes, b.axes, strict=True))
    return ValueKind(f"{'pixels:' if are_pixels else ''}{dtype}[{','.join(axes)}]", are_lists)


def name_array_kind(dtype: DType, shape: Iterable[int]) -> str:
    """The kind of a field of arrays that all have this dtype and shape."""
    return f"{dtype.name}[{','.join(map(str, shape))}]"


def find_array_kind(arrays: Sequence[Array]) -> str | None:
    """Return the kind of small arrays of one number of axes; None if they differ in it, or hold no numbers.

    An axis of different lengths is ``*``. Empty lists, whose dtype and axes nobody knows, only say that the first axis
    varies.
    """
    filled = [array for array in arrays if array.size] or list(arrays)
    dtype = np.result_type(*{array.dtype.newbyteorder("=") for array in filled}) if filled else np.dtype(object)
    axes = {array.ndim for array in filled}
    if dtype.kind not in "iufb" or len(axes) != 1 or axes == {0}:
        return None
    known = [array.shape for array in arrays if array.ndim in axes]
    lengths = [str(axis.pop()) if len(axis) == 1 else "*" for axis in map(set, zip(*known, strict=True))]
    if len(filled) < len(arrays):
        lengths[0] = "*"
    return f"{dtype.name}[{','.join(lengths)}]"


def are_corners(arrays: Iterable[Array]) -> bool:
    """Whether arrays of shape (n, 4) look like boxes xyxy in pixels: sides are not negative, and an edge is above 2."""
    boxes = np.concatenate([array.reshape(-1, 4) for array in arrays])
    return len(boxes) > 0 and bool((boxes[:, 2:] >= boxes[:, :2]).all()) and bool(boxes.max() > _LEAST_EDGE)
