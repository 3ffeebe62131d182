"""Ops on boxes alone: clip them to the image, and remove objects whose box is too small or hidden."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.sample import Index
from penstock.transforms.base import Fusion, ImageLike, Op, Params
from penstock.transforms.checks import as_range
from penstock.transforms.program.geometry import Geometry
from penstock.transforms.targets.box_geometry import box_areas, clip_boxes

__all__ = ["BoxOp", "ClampBoundingBoxes", "SanitizeBoundingBoxes"]


class BoxOp(Op):
    """Base class of ops that leave pixels unchanged."""

    leaves_pixels: ClassVar[bool] = True

    def image(self, image: ImageLike, params: Params) -> ImageLike:  # noqa: ARG002  # nothing drawn
        """Return the image itself."""
        return image

    def fuse(self, fusion: Fusion) -> bool:  # noqa: ARG002  # pixels are unchanged
        """Fuse always."""
        return True

    def compose(self, geometry: Geometry, params: Params) -> None:
        """Move nothing; defined so that the op is applied to boxes."""


class ClampBoundingBoxes(BoxOp):
    """Clip boxes to the image: ``torchvision.transforms.v2.ClampBoundingBoxes``.

    A box outside the image has no area afterwards. Crops, and the ops that rotate, clip boxes themselves.
    """

    def boxes(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:  # noqa: ARG002
        """Clip."""
        return clip_boxes(boxes, size)

    def place(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:  # noqa: ARG002
        """Return the boxes themselves."""
        return boxes


class SanitizeBoundingBoxes(BoxOp):
    """Remove objects whose box is too small, not inside the image, or hidden for the most part.

    ``torchvision.transforms.v2.SanitizeBoundingBoxes``, with a limit on what ops have cut away. An object goes with all
    its values.

    Parameters
    ----------
    min_size : float
        Least width and height of a box in pixels, 1 or more.
    min_area : float
        Least area in pixels, 1 or more.
    labels : sequence of str or int, optional
        The fields with a value for each object, beside the boxes: names in the mapping that has them, or positions in
        the tuple. Default: all fields there that are arrays whose length may vary, or lists; each must then have as
        many values as there are boxes. ``()``: boxes alone.
    min_visible : float
        Least visible share of a box, 0 to 1: the area of the clipped box / the area of the moved box before it was
        clipped, multiplied over the ops before this one.

    Raises
    ------
    ArgumentError
        If an argument is out of range; later, if a sample has no field of boxes or several, or a field has another
        number of values than there are boxes.

    Notes
    -----
    Removed are boxes with ``x1 - x0 < min_size``, ``y1 - y0 < min_size``, an area below ``min_area``, a corner outside
    the image (see :class:`ClampBoundingBoxes`), or a coordinate that is no number. Keypoints are those of the objects
    as (n, K, 2 or 3) or (n * K, 2 or 3).
    """

    removes_objects: ClassVar[bool] = True

    def __init__(
        self,
        min_size: float = 1.0,
        min_area: float = 1.0,
        labels: Iterable[Index] | None = None,
        min_visible: float = 0.0,
    ) -> None:
        self.min_size = as_range(min_size, "min_size", 1)[0]
        self.min_area = as_range(min_area, "min_area", 1)[0]
        self.min_visible = as_range(min_visible, "min_visible", 0, 1)[0]
        named = (labels,) if isinstance(labels, str | int) else labels
        self.labels = None if named is None else tuple(named)
        if not all(isinstance(name, str | int) for name in self.labels or ()):
            raise ArgumentError(f"labels must be names or positions of fields, got {labels!r:.200}")

    def keep(
        self, boxes: NDArray[np.float32], visible: NDArray[np.float64], size: tuple[int, int]
    ) -> NDArray[np.bool_]:
        """Return which objects stay: those inside the image that are large and visible enough."""
        sides = boxes[:, 2:] - boxes[:, :2]
        inside = np.all((boxes >= 0) & (boxes <= np.tile(np.asarray(size, np.int64), 2)), axis=1)
        large = np.all(sides >= self.min_size, axis=1) & (box_areas(boxes) >= self.min_area)
        kept: NDArray[np.bool_] = inside & large & (visible >= self.min_visible)
        return kept

    def __repr__(self) -> str:
        return (
            f"SanitizeBoundingBoxes(min_size={self.min_size}, min_area={self.min_area}, labels={self.labels}, "
            f"min_visible={self.min_visible})"
        )
