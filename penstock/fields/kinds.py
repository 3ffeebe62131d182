"""What kind of field some values are, from the values alone: scalars, arrays, boxes.

Names play no part here, but where a function takes one. Nothing is read, and nothing is converted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from penstock.sample import Array

__all__ = ["are_corners", "find_array_kind"]

_LEAST_EDGE = 2.0
"""Boxes without an edge above this are shares of an image."""


def find_array_kind(arrays: Sequence[Array]) -> str | None:
    """The kind of small arrays of one number of axes; None if they differ in it, or hold no numbers.

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
