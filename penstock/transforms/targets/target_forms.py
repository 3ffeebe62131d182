"""Boxes, keypoints and masks in the form for ops, and results in the form for collation.

Called by :mod:`penstock.transforms.pipeline` for each value, before and after ops. Values of the right form are
unchanged; others are converted, or refused by an error that says their shape.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.sample import Tree
from penstock.transforms.base import ImageLike

__all__ = ["apply_to_rows", "as_boxes", "as_collatable", "as_keypoints", "refuse_other_size"]


def as_boxes(boxes: object) -> NDArray[np.float32]:
    """Return boxes as float32, (n, 4), or (4,) for one box; an empty list becomes (0, 4)."""
    array = _numbers(boxes, "boxes")
    if array.shape == (4,) or (array.ndim == 2 and array.shape[1] == 4):
        return array
    if array.ndim == 1 and array.size == 0:
        return array.reshape(0, 4)
    advice = ""
    if array.ndim == 2 and array.shape[1] > 4:
        advice = "; put what else there is (class, score) into a field of its own"
    raise ArgumentError(
        f"boxes must have shape (n, 4), or (4,) for one, x0, y0, x1, y1 in pixels, got {array.shape}{advice}"
    )


def as_keypoints(points: object) -> NDArray[np.float32]:
    """Return keypoints as float32, (n, [K,] 2 or 3), or (2,) or (3,) for one; an empty list becomes (0, 2)."""
    array = _numbers(points, "keypoints")
    if array.ndim in {1, 2, 3} and array.shape[-1] in {2, 3}:
        return array
    if array.ndim == 1 and array.size == 0:
        return array.reshape(0, 2)
    raise ArgumentError(
        "keypoints must have shape (n, 2) or (n, 3), or (n, K, 2) or (n, K, 3) for objects of K points, x and y in "
        f"pixels and visibility, got {array.shape}"
    )


def apply_to_rows(
    move: Callable[[NDArray[np.float32]], NDArray[np.float32]], rows: NDArray[np.float32]
) -> NDArray[np.float32]:
    """``move(rows)``, where ``rows`` may also be a single row, or rows of objects, (n, K, columns)."""
    if rows.ndim == 2:
        return move(rows)
    return move(rows.reshape(-1, rows.shape[-1])).reshape(rows.shape)


def refuse_other_size(mask: ImageLike, size: tuple[int, int]) -> None:
    """Raise unless ``mask`` is HW, of the image's ``size`` (width, height)."""
    shape: tuple[int, ...] = getattr(mask, "shape", ())
    if len(shape) not in {2, 3} or (len(shape) == 3 and shape[:2] != size[::-1]):
        raise ArgumentError(
            f"a mask must be an HW array, got {_describe_value(mask)}; give each mask a field of its own"
        )
    if shape[:2] != size[::-1]:
        raise ArgumentError(
            f"a mask must have the size of its image, {size[0]} x {size[1]} pixels, got {shape[1]} x {shape[0]}"
        )


def as_collatable(value: Tree) -> Tree:
    """Return a C-contiguous and writable array, as torch needs it; other values unchanged."""
    if isinstance(value, np.ndarray) and not (value.flags.c_contiguous and value.flags.writeable):
        return value.copy(order="C")
    return value


def _numbers(values: object, what: str) -> NDArray[np.float32]:
    try:
        return np.asarray(values, np.float32)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{what} must be an array of numbers, got {_describe_value(values)}") from error


def _describe_value(value: object) -> str:
    shape = getattr(value, "shape", None)
    return f"{type(value).__name__} {value!r:.80}" if shape is None else f"shape {tuple(shape)}"
