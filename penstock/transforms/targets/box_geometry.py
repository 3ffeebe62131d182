"""Geometry of upright boxes and points: clipping, areas, visible shares, overlap, maps. Used by ops.

A size (width, height), a corner or a factor is that of all boxes, or has a row for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.sample import Array

__all__ = [
    "AFFINE_NUMBERS",
    "box_areas",
    "clip_boxes",
    "invert_map",
    "move_points",
    "overlaps",
    "place_boxes",
    "scale_boxes",
    "scale_points",
    "shift_boxes",
    "shift_points",
    "visible_shares",
]

AFFINE_NUMBERS: Final = 6
"""Numbers of an affine map; a projective one has 8."""


Size = tuple[int, int] | Array
"""Width and height, or a row of them for each box."""


def clip_boxes(boxes: NDArray[np.float32], size: Size) -> NDArray[np.float32]:
    """Clip boxes, (n, 4), to an image of ``size`` (width, height): a new array; one outside has no area."""
    return np.clip(boxes, np.float32(0), np.tile(np.asarray(size, np.float32), 2))


def shift_boxes(boxes: NDArray[np.float32], corner: Array) -> NDArray[np.float32]:
    """Move boxes, (n, 4), by the first two numbers of ``corner``, x and y in pixels."""
    return boxes + np.asarray(corner[..., [0, 1, 0, 1]], np.float32)


def scale_boxes(boxes: NDArray[np.float32], new: Size, old: Size) -> NDArray[np.float32]:
    """Boxes, (n, 4), of an image of size ``old`` that is resized to ``new``."""
    ratio = np.asarray(new, np.float64) / old
    return np.asarray(boxes * np.concatenate([ratio, ratio], axis=-1), np.float32)


def shift_points(points: NDArray[np.float32], corner: Array) -> NDArray[np.float32]:
    """Shift points as :func:`shift_boxes` does boxes; further columns are unchanged."""
    moved = points.copy()
    moved[:, :2] += np.asarray(corner[:2], np.float32)
    return moved


def scale_points(points: NDArray[np.float32], new: Size, old: Size) -> NDArray[np.float32]:
    """Points as :func:`scale_boxes`; further columns are unchanged."""
    moved = points.copy()
    moved[:, :2] = points[:, :2] * (np.asarray(new, np.float64) / old)
    return moved


def box_areas(boxes: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the area of each box in pixels; 0 for one that is empty or inverted."""
    sides = np.maximum(boxes[:, 2:].astype(np.float64) - boxes[:, :2], 0)
    areas: NDArray[np.float64] = sides[:, 0] * sides[:, 1]
    return areas


def visible_shares(clipped: NDArray[np.float32], placed: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the visible area of each box: that of the clipped box / that of the box before; 0 for one without area."""
    whole = box_areas(placed)
    return np.divide(box_areas(clipped), whole, out=np.zeros(len(whole)), where=whole > 0)


def overlaps(boxes: NDArray[np.float32], windows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the intersection over union of each of (n, 4) boxes with each of (m, 4) windows: (m, n)."""
    low = np.maximum(windows[:, None, :2], boxes[None, :, :2])
    high = np.minimum(windows[:, None, 2:], boxes[None, :, 2:])
    common = np.prod(np.maximum(high - low, 0), axis=2)
    areas = np.prod(windows[:, 2:] - windows[:, :2], axis=1)
    union = areas[:, None] + box_areas(boxes) - common
    shares: NDArray[np.float64] = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return shares


def invert_map(matrix: Sequence[float]) -> NDArray[np.float64]:
    """The inverse map, from the image to the result: 3 x 3, on homogeneous coordinates."""
    full = [*matrix, 0.0, 0.0, 1.0] if len(matrix) == AFFINE_NUMBERS else [*matrix, 1.0]
    return np.asarray(np.linalg.inv(np.array(full, np.float64).reshape(3, 3)), np.float64)


def place_boxes(boxes: NDArray[np.float32], onward: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.float32]:
    """Return the upright boxes around the mapped corners.

    A box without area becomes a point, and so stays without area.
    """
    limits = np.array(size, np.float64)
    sides = boxes.reshape(-1, 2, 2).astype(np.float64)
    if np.any(onward[2, :2]):  # a projective map may mirror points far outside the image
        sides = np.clip(sides, 0, limits)
    x, y = sides[:, [0, 1, 1, 0], 0], sides[:, [0, 0, 1, 1], 1]
    corners = _project(np.stack([x, y], axis=2).reshape(-1, 2), onward).reshape(-1, 4, 2)
    moved = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    empty = np.any(sides[:, 1] <= sides[:, 0], axis=1)
    moved[empty, 2:] = moved[empty, :2]
    return np.asarray(moved, np.float32)


def move_points(points: NDArray[np.float32], onward: NDArray[np.float64]) -> NDArray[np.float32]:
    """Map points, also to positions outside the image; further columns are unchanged."""
    moved = points.copy()
    moved[:, :2] = _project(points[:, :2].astype(np.float64), onward)
    return moved


def _project(points: NDArray[np.float64], onward: NDArray[np.float64]) -> NDArray[np.float64]:
    """Map points of the image, (n, 2)."""
    moved = np.column_stack([points, np.ones(len(points))]) @ onward.T
    projected: NDArray[np.float64] = moved[:, :2] / moved[:, 2:]
    return projected
