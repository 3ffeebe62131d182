"""The source of each output pixel: the plan of a chunk, composed op by op.

::

    source image ──region──> x0, y0, x1, y1 ──resize──> width x height ──window──> left, top ──flip──> row of the batch

All fused geometric ops together are one row of nine numbers per image, so that the native core decodes the region only
and computes each pixel once. A crop before the resize shrinks the region; a crop after it narrows the window; after a
flip, windows are mirrored back, because the flip is applied last. Ops that cannot be expressed exactly (a second
resize, a resize after a flip) return False from :meth:`Op.fuse`. A window that leaves the image needs padding, and its
row takes the general path, unless it is the frame of a letterbox, whose colour is a part of the plan.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock import _native

__all__ = ["Geometry"]

_X0Y0, _X1Y1, _SIZE, _ORIGIN = slice(0, 2), slice(2, 4), slice(4, 6), slice(6, 8)
_FLIP: Final = 8


class Geometry:
    """The plan of a chunk.

    Attributes
    ----------
    plan : ndarray, shape (n, 9), int32
        x0, y0, x1, y1, width, height, left, top, flip: see ``penstock._native.fill``.
    size : ndarray, shape (n, 2)
        Width and height of each image at this point of the pipeline.
    padded : ndarray, shape (n,), bool, or None
        Rows that the plan cannot express; None if there are none.
    """

    __slots__ = ("_flipped", "_framed", "_resized", "padded", "plan", "size")

    def __init__(self, sizes: NDArray[np.int32]) -> None:
        self.plan = np.zeros((len(sizes), _native.GEOMETRY_COLUMNS), np.int32)
        self.plan[:, _X1Y1] = sizes
        self.plan[:, _SIZE] = sizes
        self.size = sizes
        self.padded: NDArray[np.bool_] | None = None
        self._resized = False
        self._flipped = False
        self._framed = False

    def crop(self, windows: NDArray[np.int32], may_pad: bool = False) -> None:
        """Crop each image to a window, (n, 4): left, top, width, height; ``may_pad``: windows may leave the image."""
        corner, extent = windows[:, :2], windows[:, 2:]
        if may_pad:
            self._mark_padded(corner, extent)
        if self._flipped:
            corner = self._unflipped(corner, extent)
        plan = self.plan
        if self._resized:
            plan[:, _ORIGIN] += corner
            if self._framed:
                self._mark_beside(extent)
        else:
            start = plan[:, _X0Y0]
            start += corner
            np.add(start, extent, out=plan[:, _X1Y1])
            plan[:, _SIZE] = extent
        self.size = extent

    def resize(self, sizes: NDArray[np.int32]) -> None:
        """Resize each image to its size, (n, 2): once, and before any flip."""
        assert not self._resized
        assert not self._flipped
        self._resized = True
        self.plan[:, _SIZE] = sizes
        self.size = sizes

    def frame(self, corner: NDArray[np.int32], sizes: NDArray[np.int32]) -> None:
        """Frame each image, at (n, 2) left and top, in a larger one of one colour; once, after a resize."""
        assert self._resized
        assert not self._flipped
        self._framed = True
        self.plan[:, _ORIGIN] -= corner
        self.size = sizes

    def flip(self, chosen: NDArray[np.bool_], vertical: bool) -> None:
        """Mirror the chosen images."""
        self._flipped = True
        self.plan[:, _FLIP] ^= chosen * np.int32(2 if vertical else 1)

    def _mark_padded(self, corner: NDArray[np.int32], extent: NDArray[np.int32]) -> None:
        inside = np.minimum(corner, self.size - extent - corner)
        if inside.min(initial=0) < 0:
            outside = np.any(inside < 0, axis=1)
            self.padded = outside if self.padded is None else outside | self.padded

    def _mark_beside(self, extent: NDArray[np.int32]) -> None:
        """Mark windows that show nothing of the image, which the native core refuses."""
        origin = self.plan[:, _ORIGIN]
        beside = np.any((origin + extent <= 0) | (origin >= self.plan[:, _SIZE]), axis=1)
        if beside.any():
            self.padded = beside if self.padded is None else beside | self.padded

    def _unflipped(self, corner: NDArray[np.int32], extent: NDArray[np.int32]) -> NDArray[np.int32]:
        flipped = (self.plan[:, _FLIP, None] & np.array([1, 2], np.int32)) != 0
        return np.where(flipped, self.size - corner - extent, corner)
