"""Mirroring, left to right and top to bottom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.sample import Array, SampleKeys
from penstock.transforms.base import Fusion, ImageSpec, Op, Params, Sizes, require_hwc, uniforms
from penstock.transforms.checks import as_integer, as_probability
from penstock.transforms.program.geometry import Geometry

__all__ = ["HorizontalFlip", "VerticalFlip"]

Pair = tuple[int, int]


class _Flip(Op):
    """Base class of both flips; params: whether each sample is mirrored."""

    random: ClassVar[bool] = True
    axis: ClassVar[int]
    """Axis of the array: 0 vertical, 1 horizontal."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = as_probability(p)

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:  # noqa: ARG002  # any size
        """Return whether each image is mirrored: its number is below ``p``."""
        return uniforms(keys, stream, 1)[:, 0] < self.p

    def spec(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec, unchanged."""
        return require_hwc(spec, self)

    def image(self, image: Array, params: Params) -> Array:
        """Return a mirrored view, or the image."""
        return np.flip(image, self.axis) if params else image

    def mask(self, mask: Array, params: Params) -> Array:
        """Mirror the mask as the image."""
        return np.flip(mask, self.axis) if params else mask

    def boxes(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:
        """Mirror, and keep x0 <= x1, y0 <= y1."""
        if not np.any(params):
            return boxes
        low, high = 1 - self.axis, 3 - self.axis
        side = np.asarray(size, np.float32)[..., low]
        moved = boxes.copy()
        moved[:, low], moved[:, high] = side - boxes[:, high], side - boxes[:, low]
        return np.where(np.asarray(params)[..., None], moved, boxes)

    def keypoints(self, points: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:
        """Mirror; points keep their order, see :meth:`reorder`."""
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
    keypoint_pairs : sequence of (int, int), optional
        Points of an object that change their names with the flip, such as the left and the right eye: their rows are
        exchanged. Numbered from 0 among the points of an object. Default: none, with a warning where there are
        keypoints; ``[]`` says that no name changes.
    num_keypoints : int, optional
        The number K of points of an object, for keypoints of shape (n * K, 2 or 3); those of shape (n, K, 2 or 3) say
        it themselves.

    Raises
    ------
    ArgumentError
        If an argument is out of range; later, if there are pairs and K is not known, or less than a pair's number.
    """

    axis: ClassVar[int] = 1

    def __init__(
        self, p: float = 0.5, keypoint_pairs: Sequence[Pair] | None = None, num_keypoints: int | None = None
    ) -> None:
        super().__init__(p)
        self.keypoint_pairs = None if keypoint_pairs is None else tuple(_as_pair(pair) for pair in keypoint_pairs)
        numbers = [number for pair in self.keypoint_pairs or () for number in pair]
        if len(set(numbers)) < len(numbers):
            raise ArgumentError(f"keypoint_pairs must have each point at most once, got {keypoint_pairs!r:.200}")
        least = max(numbers, default=0) + 1
        self.num_keypoints = (
            None if num_keypoints is None else as_integer(num_keypoints, "num_keypoints", least, 1 << 16)
        )

    def reorder(self, points: NDArray[np.float32], params: Params) -> NDArray[np.float32]:
        """Exchange the points of each pair."""
        if not params or not self.keypoint_pairs:
            return points
        count = points.shape[1] if points.ndim == 3 else self.num_keypoints
        if count is None:
            raise ArgumentError(
                f"{self!r} needs keypoints of shape (n, K, 2) or (n, K, 3), got {points.shape}; give num_keypoints=K, "
                "the number of points of an object"
            )
        if count <= max(map(max, self.keypoint_pairs)) or points.size % (count * points.shape[-1]):
            raise ArgumentError(f"{self!r} needs all points of each object, got keypoints of shape {points.shape}")
        order = np.arange(count)
        for left, right in self.keypoint_pairs:
            order[[left, right]] = right, left
        exchanged: NDArray[np.float32] = points.reshape(-1, count, points.shape[-1])[:, order].reshape(points.shape)
        return exchanged

    def __repr__(self) -> str:
        more = f", keypoint_pairs={self.keypoint_pairs}" if self.keypoint_pairs else ""
        more += "" if self.num_keypoints is None else f", num_keypoints={self.num_keypoints}"
        return f"HorizontalFlip(p={self.p}{more})"


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


def _as_pair(pair: object) -> tuple[int, int]:
    if not isinstance(pair, Sequence) or len(pair) != 2 or not all(_is_index(number) for number in pair):
        raise ArgumentError(f"keypoint_pairs must be pairs of two numbers of at least 0, got {pair!r:.80}")
    return pair[0], pair[1]


def _is_index(number: object) -> bool:
    return isinstance(number, int | np.integer) and bool(0 <= number < 1 << 16)
