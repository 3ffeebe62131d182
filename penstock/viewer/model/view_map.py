"""Which part of the original an image shows, after the ops that were applied: its outline in the original.

Nine points of the original are moved as keypoints, op by op. The projective map that explains where they are, inverted,
takes the corners of the image to the original. Called by :mod:`.steps`; nothing here knows an op.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.transforms.base import Op
from penstock.transforms.targets.moved_targets import Step

__all__ = ["ViewMap", "find_enlargement"]

_TOLERANCE: Final = 2e-3
"""Largest distance of a point from where the map has it, as a share of the longer side."""


class ViewMap:
    """Follows points of an original through ops.

    Parameters
    ----------
    size : (int, int)
        Width and height of the original.
    """

    def __init__(self, size: tuple[int, int]) -> None:
        width, height = size
        across, down = np.meshgrid(np.array([0, 0.5, 1]) * width, np.array([0, 0.5, 1]) * height)
        self.size = size
        self._before = np.stack([across.ravel(), down.ravel()], axis=1)
        self._points = self._before.astype(np.float32)

    def follow(self, step: Step) -> None:
        """Apply an op."""
        if type(step.op).keypoints is not Op.keypoints:
            self._points = step.op.keypoints(self._points, step.params, step.size)

    def outline(self, size: tuple[int, int]) -> NDArray[np.float64] | None:
        """Corners of an image of this width and height, (4, 2), in pixels of the original, from its left top corner on.

        None where no projective map explains the ops, as after an elastic deformation.
        """
        after = self._points.astype(np.float64)
        if not np.isfinite(after).all():
            return None
        forward = _fit(self._before, after)
        if forward is None:
            return None
        there = _apply(forward, self._before)
        if there is None or np.abs(there - after).max() > _TOLERANCE * max(*self.size, *size):
            return None
        corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], np.float64) * size
        try:
            return _apply(np.linalg.inv(forward).astype(np.float64), corners)
        except np.linalg.LinAlgError:
            return None


def find_enlargement(outline: NDArray[np.float64], size: tuple[int, int]) -> float:
    """How many pixels of an image of this size, across and down, a pixel of its outline has become; 0: unknown."""
    x, y = outline[:, 0], outline[:, 1]
    area = abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2
    return float(np.sqrt(size[0] * size[1] / area)) if area else 0.0


def _fit(before: NDArray[np.float64], after: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """The projective map, (3, 3), with the least error for pairs of points; None if there is none."""
    scale = max(1.0, float(np.abs(before).max()), float(np.abs(after).max()))
    (x, y), (u, v) = before.T / scale, after.T / scale
    zero, one = np.zeros_like(x), np.ones_like(x)
    rows = np.concatenate([
        np.stack([x, y, one, zero, zero, zero, -u * x, -u * y], axis=1),
        np.stack([zero, zero, zero, x, y, one, -v * x, -v * y], axis=1),
    ])  # fmt: skip
    found, _, rank, _ = np.linalg.lstsq(rows, np.concatenate([u, v]), rcond=None)
    if rank < 8:
        return None
    unit = np.append(found, 1.0).reshape(3, 3)
    to_pixels = np.diag([scale, scale, 1.0])
    matrix: NDArray[np.float64] = to_pixels @ unit @ np.linalg.inv(to_pixels)
    return matrix


def _apply(matrix: NDArray[np.float64], points: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Points, (n, 2), where a map takes them; None if one is at infinity."""
    moved = np.column_stack([points, np.ones(len(points))]) @ matrix.T
    if np.abs(moved[:, 2]).min() < 1e-9:
        return None
    result: NDArray[np.float64] = moved[:, :2] / moved[:, 2:]
    return result
