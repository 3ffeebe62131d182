"""Ops that follow albumentations' rules where they differ from those of :mod:`penstock.transforms`.

======================  =========================================================================
crops                   a smaller image is an error; boxes are moved, and clipped by what follows
:class:`FitSides`       sides are rounded, where ``Resize`` rounds down
:class:`PadToSize`      only as much as an image lacks
:class:`ScaleValues`    values are truncated after a product and a sum
:class:`CheckBoxes`,    what ``BboxParams`` says, once at the beginning and after transforms
:class:`FilterBoxes`
======================  =========================================================================

Made by :mod:`penstock.datasets.albumentations.recognise`; nothing here imports albumentations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from penstock import transforms as T
from penstock.errors import ArgumentError
from penstock.sample import Array, Index, SampleKeys
from penstock.transforms.base import ImageSpec, Params, Sizes, require_hwc, uniforms
from penstock.transforms.checks import as_byte_colour, as_probability, as_range
from penstock.transforms.ops.resize import check_filter
from penstock.transforms.ops.sanitize import BoxOp
from penstock.transforms.ops.zoom_out import FrameOp
from penstock.transforms.pixel_arithmetic import IDENTITY, PixelOp, look_up
from penstock.transforms.targets.box_geometry import box_areas, clip_boxes

__all__ = [
    "BoxRules",
    "CheckBoxes",
    "FilterBoxes",
    "FitSides",
    "InnerCrop",
    "PadToSize",
    "PlacedCrop",
    "PlacedResizedCrop",
    "ScaleValues",
]

_EPSILON: Final = 1e-7
"""albumentations' tolerance of areas and sides, in pixels."""

_NEAR: Final = 1e-8
"""How far a box may leave the image, as a share of its sides: that of ``np.isclose``; at 1, 1e-5 more."""


class PlacedCrop(T.RandomCrop):
    """``A.RandomCrop`` without padding: boxes are moved, not clipped."""

    def boxes(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:
        """Shift the boxes."""
        return self.place(boxes, params, size)


class InnerCrop(T.CenterCrop):
    """``A.CenterCrop`` without padding: rounds down, refuses a smaller image, and does not clip boxes."""

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:  # noqa: ARG002  # nothing random
        """Return the window of each image."""
        wanted = np.array(self.size_[::-1], np.int32)
        lacking = (sizes < wanted).any(axis=1)
        if lacking.any():
            position = int(lacking.argmax())
            raise ArgumentError(
                f"{self!r} needs an image at least as large, got {sizes[position][0]} x {sizes[position][1]}",
                position=position,
            )
        return np.concatenate([(sizes - wanted) // 2, np.broadcast_to(wanted, sizes.shape)], axis=1)

    def boxes(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:
        """Shift the boxes."""
        return self.place(boxes, params, size)


class PlacedResizedCrop(T.RandomResizedCrop):
    """``A.RandomResizedCrop``: boxes are moved, not clipped."""

    def boxes(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:
        """Shift, then scale."""
        return self.place(boxes, params, size)


class FitSides(T.Resize):
    """``A.LongestMaxSize`` and ``A.SmallestMaxSize``.

    ``sides``: heights and widths to choose from. ``largest``: whether both sides are at most so large; else they are at
    least. ``filter``: resampling filter, as in :class:`~penstock.transforms.Resize`. Raises ArgumentError if an
    argument is out of range.
    """

    random: ClassVar[bool] = True

    def __init__(self, sides: Sequence[tuple[int, int]], largest: bool, filter: str) -> None:  # noqa: A002
        self.sides, self.largest, self.filter = tuple(sides), largest, check_filter(filter)
        self.size_ = self.max_size = None

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:
        """Return the width and height of each result."""
        places = (uniforms(keys, stream, 1)[:, 0] * len(self.sides)).astype(np.intp)
        ratios = np.array(self.sides)[places][:, ::-1] / sizes
        factors = ratios.min(axis=1) if self.largest else ratios.max(axis=1)
        results: Params = np.maximum(np.rint(sizes * factors[:, None]), 1).astype(np.int32)
        return results

    def __repr__(self) -> str:
        return f"FitSides({self.sides}, largest={self.largest}, filter={self.filter!r})"


class PadToSize(FrameOp):
    """``A.PadIfNeeded`` in the middle, with a colour.

    ``size``: least height and width. ``fill``: the colour. Raises ArgumentError if an argument is out of range.
    """

    def __init__(self, size: tuple[int, int], fill: Any) -> None:
        self.size_, self.fill = size, as_byte_colour(fill)

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:  # noqa: ARG002  # nothing random
        """Left, top, width and height of each result, (n, 4)."""
        wanted = np.maximum(sizes, np.array(self.size_[::-1], np.int32))
        return np.concatenate([(wanted - sizes) // 2, wanted], axis=1).astype(np.int32)

    def spec(self, spec: ImageSpec) -> ImageSpec:
        """Return a spec of fixed size, if that before it is."""
        sides = [
            None if side is None else max(side, least)
            for side, least in zip((spec.height, spec.width), self.size_, strict=True)
        ]
        return replace(require_hwc(spec, self), height=sides[0], width=sides[1])


class ScaleValues(PixelOp):
    """``A.RandomBrightnessContrast``: ``value * contrast + brightness * 255`` with probability ``p``.

    Parameters
    ----------
    brightness, contrast : (float, float)
        Ranges of what is added, and of the factor less 1.
    p : float
        Probability, in [0, 1].

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    Computed in float32, truncated, and clipped. Params of a sample: whether it is changed, factor, and what is added.
    """

    random: ClassVar[bool] = True

    def __init__(self, brightness: Sequence[float], contrast: Sequence[float], p: float) -> None:
        self.brightness, self.contrast = as_range(brightness, "brightness"), as_range(contrast, "contrast")
        self.p = as_probability(p)

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:  # noqa: ARG002  # any size
        """Return whether each image is changed, and how, (n, 3)."""
        numbers = uniforms(keys, stream, 3)
        params = np.empty((len(numbers), 3))
        params[:, 0] = numbers[:, 0] < self.p
        for column, (least, most) in ((1, self.contrast), (2, self.brightness)):
            params[:, column] = least + numbers[:, column] * (most - least)
        params[:, 1] += 1
        params[:, 2] *= 255
        return params

    def image(self, image: Array, params: Params) -> Array:
        """Return a new array, or the image itself."""
        if not params[0]:
            return image
        values = IDENTITY.astype(np.float32) * np.float32(params[1]) + np.float32(params[2])
        return look_up(image, values.clip(0, 255).astype(np.uint8))


@dataclass(frozen=True, slots=True)
class BoxRules:
    """The numbers of ``A.BboxParams``, by its names."""

    min_area: float
    min_visibility: float
    min_width: float
    min_height: float
    max_accept_ratio: float | None
    clip: bool
    filter_invalid_bboxes: bool


class CheckBoxes(BoxOp):
    """Refuses a box that is not inside its image, or empty, as a Compose does at its beginning."""

    def boxes(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:  # noqa: ARG002
        """Return the boxes themselves."""
        shares = boxes / np.array([*size, *size], np.float32)
        inside = ((shares >= -_NEAR) & (shares <= 1 + 1e-5 + _NEAR)).all(axis=1)
        wrong = ~inside | (boxes[:, 2] <= boxes[:, 0]) | (boxes[:, 3] <= boxes[:, 1])
        if wrong.any():
            raise ArgumentError(
                f"each box must lie inside its image of {size[0]} x {size[1]} pixels, with x0 < x1 and y0 < y1, got "
                f"{boxes[wrong.argmax()].tolist()}; give A.BboxParams(..., clip=True, filter_invalid_bboxes=True)"
            )
        return boxes


class FilterBoxes(BoxOp):
    """Removes boxes as ``filter_bboxes`` of albumentations does, before they are clipped.

    A box of which nothing is left is removed at once; albumentations removes it after the next transform or at the end.

    ``rules``: the limits. ``labels``: the fields with a row for each box.
    """

    removes_objects: ClassVar[bool] = True

    def __init__(self, rules: BoxRules, labels: tuple[Index, ...]) -> None:
        self.rules, self.labels = rules, labels

    def keep(
        self,
        boxes: NDArray[np.float32],
        visible: NDArray[np.float64],  # noqa: ARG002  # counted anew after every transform
        size: tuple[int, int],
    ) -> NDArray[np.bool_]:
        """Return which objects stay."""
        rules = self.rules
        clipped = clip_boxes(boxes, size)
        sides = (clipped[:, 2:] - clipped[:, :2]).astype(np.float64)
        whole, seen = box_areas(boxes), box_areas(clipped)
        kept: NDArray[np.bool_] = (seen >= _EPSILON) & (seen >= rules.min_area - _EPSILON)
        kept &= seen / (whole + _EPSILON) >= rules.min_visibility
        kept &= (sides >= np.array([rules.min_width, rules.min_height]) - _EPSILON).all(axis=1)
        if rules.max_accept_ratio is not None:
            ratios = np.maximum(sides / (sides[:, ::-1] + _EPSILON), 0).max(axis=1)
            kept &= ratios <= rules.max_accept_ratio
        return kept
