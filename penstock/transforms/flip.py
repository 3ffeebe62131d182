"""Mirroring, left to right and top to bottom."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.sample import Array, SampleKeys
from penstock.transforms.base import Fusion, ImageSpec, Op, Params, Sizes, require_hwc, uniforms
from penstock.transforms.geometry import Geometry

__all__ = ["HorizontalFlip", "VerticalFlip"]


class _Flip(Op):
    """Base class of both flips; params: whether each sample is mirrored."""

    random: ClassVar[bool] = True
    axis: ClassVar[int]
    """Axis of the array: 0 vertical, 1 horizontal."""

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise ArgumentError(f"p must be in [0, 1], got {p!r}")
        self.p = float(p)

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:  # noqa: ARG002  # any size
        """Whether each image is mirrored: its number is below ``p``."""
        return uniforms(keys, stream, 1)[:, 0] < self.p

    def spec(self, spec: ImageSpec) -> ImageSpec:
        """The spec, unchanged."""
        return require_hwc(spec, self)

    def image(self, image: Array, params: Params) -> Array:
        """A mirrored view, or the image."""
        return np.flip(image, self.axis) if params else image

    def mask(self, mask: Array, params: Params) -> Array:
        """Mirror the mask as the image."""
        return np.flip(mask, self.axis) if params else mask

    def boxes(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:
        """Mirror, and keep x0 <= x1, y0 <= y1."""
        if not params:
            return boxes
        low, high = 1 - self.axis, 3 - self.axis
        moved = boxes.copy()
        moved[:, low], moved[:, high] = size[low] - boxes[:, high], size[low] - boxes[:, low]
        return moved

    def keypoints(self, points: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:
        """Mirror; left and right points are not exchanged."""
        if not params:
            return points
        moved = points.copy()
        moved[:, 1 - self.axis] = size[1 - self.axis] - points[:, 1 - self.axis]
        return moved

    def fuse(self, fusion: Fusion) -> bool:
        """Fuse always: a flip is applied last to a row."""
        fusion.flipped = True
        return True

    def compose(self, geometry: Geometry, params: Params) -> None:
        """Mirror."""
        geometry.flip(params, vertical=self.axis == 0)


class HorizontalFlip(_Flip):
    """Mirror left to right with probability ``p``.

    Parameters
    ----------
    p : float
        0 to 1.

    Raises
    ------
    ArgumentError
        If an argument is out of range.
    """

    axis: ClassVar[int] = 1


class VerticalFlip(_Flip):
    """Mirror top to bottom with probability ``p``.

    Parameters
    ----------
    p : float
        0 to 1.

    Raises
    ------
    ArgumentError
        If an argument is out of range.
    """

    axis: ClassVar[int] = 0
