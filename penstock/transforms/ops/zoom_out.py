"""The opposite of a crop: the image in a larger one of one colour, at a random place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.sample import Array, SampleKeys
from penstock.transforms.base import ImageSpec, Op, Params, Sizes, require_hwc, uniforms
from penstock.transforms.checks import as_colour, as_integer, as_probability, as_range, colour_as_dtype
from penstock.transforms.ops.pad import put_in_frame
from penstock.transforms.targets.box_geometry import shift_boxes, shift_points

__all__ = ["FrameOp", "RandomZoomOut"]


class FrameOp(Op):
    """Base class of ops that put the image into a larger one; params: left, top, width, height of the result."""

    fill: Sequence[float]
    mask_fill: int = 0

    def size(self, params: Params, sizes: Sizes) -> Sizes:  # noqa: ARG002  # whatever it was
        """Return the size of the frame."""
        return params[:, 2:4]

    def image(self, image: Array, params: Params) -> Array:
        """Return a new array, or the image itself."""
        left, top, width, height = params.tolist()
        if image.shape[:2] == (height, width):
            return image
        return put_in_frame(image, left, top, width, height, colour_as_dtype(self.fill, image.shape, image.dtype, self))

    def mask(self, mask: Array, params: Params) -> Array:
        """Return a new array, framed with ``mask_fill``, or the mask itself."""
        left, top, width, height = params.tolist()
        if mask.shape[:2] == (height, width):
            return mask
        return put_in_frame(mask, left, top, width, height, np.array(self.mask_fill, mask.dtype))

    def boxes(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:  # noqa: ARG002
        """Shift."""
        return shift_boxes(boxes, params)

    def keypoints(self, points: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:  # noqa: ARG002
        """Shift."""
        return shift_points(points, params)


class RandomZoomOut(FrameOp):
    """Frame the image in a larger one with probability ``p``: ``torchvision.transforms.v2.RandomZoomOut``.

    Parameters
    ----------
    fill : float or (float, float, float)
        Colour of the frame, on the scale of the image; integers in [0, 255] for uint8.
    side_range : (float, float)
        Range of the factor of width and height, 1 to 64.
    p : float
        0 to 1.
    mask_fill : int
        Value of the frame in masks, in [0, 255].

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    Draws four numbers: whether, the factor, left and top. Params of a sample: left, top, width, height of the result.
    Boxes and keypoints are shifted.
    """

    random: ClassVar[bool] = True

    def __init__(
        self,
        fill: float | Sequence[float] = 0,
        side_range: tuple[float, float] = (1.0, 4.0),
        p: float = 0.5,
        mask_fill: int = 0,
    ) -> None:
        self.fill = as_colour(fill)
        self.side_range = as_range(side_range, "side_range", 1, 64)
        self.p = as_probability(p)
        self.mask_fill = as_integer(mask_fill, "mask_fill", 0, 255)

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:
        """Return the position of each image in its frame, and the size of the frame: (n, 4)."""
        numbers = uniforms(keys, stream, 4)
        least, most = self.side_range
        factors = np.where(numbers[:, 0] < self.p, least + numbers[:, 1] * (most - least), 1.0)
        frames = np.floor(sizes * factors[:, None]).astype(np.int32)
        corners = np.floor((frames - sizes) * numbers[:, 2:]).astype(np.int32)
        return np.concatenate([corners, frames], axis=1)

    def spec(self, spec: ImageSpec) -> ImageSpec:
        """Return a spec without a size."""
        return replace(require_hwc(spec, self), width=None, height=None)
