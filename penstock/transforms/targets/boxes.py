"""Geometry of upright boxes: clipping, areas, visible shares, overlap. NumPy functions, used by ops."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["box_areas", "clip_boxes", "overlaps", "visible_shares"]


def clip_boxes(boxes: NDArray[np.float32], size: tuple[int, int]) -> NDArray[np.float32]:
    """Boxes, (n, 4), clipped to an image of ``size`` (width, height): a new array; one outside has no area."""
    return np.clip(boxes, np.float32(0), np.array([*size, *size], np.float32))


def box_areas(boxes: NDArray[np.float32]) -> NDArray[np.float64]:
    """Area of each box in pixels; 0 for one that is empty or inverted."""
    sides = np.maximum(boxes[:, 2:].astype(np.float64) - boxes[:, :2], 0)
    areas: NDArray[np.float64] = sides[:, 0] * sides[:, 1]
    return areas


def visible_shares(clipped: NDArray[np.float32], placed: NDArray[np.float32]) -> NDArray[np.float64]:
    """The visible area of each box: that of the clipped box / that of the box before; 0 for one without area."""
    whole = box_areas(placed)
    return np.divide(box_areas(clipped), whole, out=np.zeros(len(whole)), where=whole > 0)


def overlaps(boxes: NDArray[np.float32], windows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Intersection over union of each of (n, 4) boxes with each of (m, 4) windows: (m, n)."""
    low = np.maximum(windows[:, None, :2], boxes[None, :, :2])
    high = np.minimum(windows[:, None, 2:], boxes[None, :, 2:])
    common = np.prod(np.maximum(high - low, 0), axis=2)
    areas = np.prod(windows[:, 2:] - windows[:, :2], axis=1)
    union = areas[:, None] + box_areas(boxes) - common
    shares: NDArray[np.float64] = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return shares
