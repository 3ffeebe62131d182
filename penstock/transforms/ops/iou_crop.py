"""The crop of single-shot detectors: a random window that holds enough of an object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.sample import SampleKeys
from penstock.transforms.base import ImageSpec, Params, Sizes, require_hwc, uniforms
from penstock.transforms.checks import as_integer, as_numbers, as_range
from penstock.transforms.ops.crop import CropOp
from penstock.transforms.program.geometry import Geometry
from penstock.transforms.targets.box_geometry import overlaps

__all__ = ["RandomIoUCrop"]

_ROUNDS: Final = (1, 8, 64)
"""Rounds after which more numbers are drawn; after the last, the image is left as it is."""


class RandomIoUCrop(CropOp):
    """A window that overlaps an object: ``torchvision.transforms.v2.RandomIoUCrop``.

    Parameters
    ----------
    min_scale, max_scale : float
        Range of the window's width and of its height, as a share of the image's, 0 to 1.
    min_aspect_ratio, max_aspect_ratio : float
        Range of width / height of the window in pixels.
    sampler_options : sequence of float, optional
        Overlaps (intersection over union) of which a round chooses one; the window has at least this overlap with one
        of the boxes whose centre is in it. 1 or more leaves the image as it is. Default: 0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.
    trials : int
        Windows that a round tries.

    Raises
    ------
    ArgumentError
        If an argument is out of range; later, if a sample has no field of boxes.

    Notes
    -----
    A box whose centre is not inside the window becomes (0, 0, 0, 0): remove it by
    :class:`~penstock.transforms.SanitizeBoundingBoxes`, at once or later. An image without boxes is left as it is, and
    so is one for which 64 rounds find no window, where torchvision's op does not return. Params of a sample: left, top,
    width and height of the window, and whether it was cropped. A round draws 1 + 4 * ``trials`` numbers.

    W. Liu et al., "SSD: Single Shot MultiBox Detector", ECCV 2016, section 2.2.
    """

    random: ClassVar[bool] = True
    reads_boxes: ClassVar[bool] = True
    may_pad: ClassVar[bool] = False

    def __init__(
        self,
        min_scale: float = 0.3,
        max_scale: float = 1.0,
        min_aspect_ratio: float = 0.5,
        max_aspect_ratio: float = 2.0,
        sampler_options: Sequence[float] | None = None,
        trials: int = 40,
    ) -> None:
        self.scale = as_range((min_scale, max_scale), "min_scale and max_scale", 0, 1)
        self.ratio = as_range((min_aspect_ratio, max_aspect_ratio), "min_aspect_ratio and max_aspect_ratio", 0)
        default = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
        self.options = default if sampler_options is None else as_numbers(sampler_options, "sampler_options")
        if not self.options or not all(option >= 0 for option in self.options):
            raise ArgumentError(f"sampler_options must have numbers of at least 0, got {sampler_options!r}")
        self.trials = as_integer(trials, "trials", 1, 10_000)

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:  # noqa: ARG002  # the interface
        """Return the whole of each image, as for images without boxes."""
        params = np.zeros((len(sizes), 5), np.int32)
        params[:, 2:4] = sizes
        return params

    def draw_by_boxes(
        self, keys: SampleKeys, sizes: Sizes, stream: int, boxes: Sequence[NDArray[np.float32]]
    ) -> Params:
        """Return the window of each image."""
        params = self.draw(keys, sizes, stream)
        per_round = 1 + 4 * self.trials
        for i, own in enumerate(boxes):
            begun = 0
            for rounds in _ROUNDS if len(own) else ():
                numbers = uniforms(keys[i : i + 1], stream, rounds * per_round).reshape(rounds, per_round)
                found = self._choose(numbers[begun:], own, params[i, 2:4])
                if found is not None:
                    params[i] = found
                    break
                begun = rounds
        return params

    def spec(self, spec: ImageSpec) -> ImageSpec:
        """Return a spec without a size."""
        return replace(require_hwc(spec, self), height=None, width=None)

    def boxes(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:
        """Shift and clip to the window; a box whose centre is outside it becomes (0, 0, 0, 0)."""
        if not params[4]:
            return boxes
        moved = super().boxes(boxes, params, size)
        moved[~_centres_inside(boxes, np.array([_corners(params[:4])]))[0]] = 0
        return moved

    def compose(self, geometry: Geometry, params: Params) -> None:
        """Crop."""
        geometry.crop(params[:, :4])

    def _choose(
        self, numbers: NDArray[np.float64], boxes: NDArray[np.float32], size: NDArray[np.int32]
    ) -> tuple[int, ...] | None:
        """Params by the first round that ends; None if none of those in ``numbers`` does."""
        width, height = size.tolist()
        for row in numbers:
            least = self.options[int(row[0] * len(self.options))]
            if least >= 1:
                return 0, 0, width, height, 0
            windows = self._windows(row[1:].reshape(-1, 4), size)
            inside = _centres_inside(boxes, windows)
            shares = np.where(inside, overlaps(boxes, windows), -1).max(axis=1)
            fits = np.flatnonzero(shares >= least)
            if len(fits):
                left, top, right, bottom = (int(side) for side in windows[fits[0]])
                return left, top, right - left, bottom - top, 1
        return None

    def _windows(self, numbers: NDArray[np.float64], size: NDArray[np.int32]) -> NDArray[np.float64]:
        """The windows of a round that have an allowed shape, (m, 4): left, top, right, bottom."""
        least, most = self.scale
        extent = np.floor(size * (least + (most - least) * numbers[:, :2]))
        corner = np.floor((size - extent) * numbers[:, 2:])
        shape = np.divide(extent[:, 0], extent[:, 1], out=np.full(len(extent), np.nan), where=extent[:, 1] > 0)
        allowed = (shape >= self.ratio[0]) & (shape <= self.ratio[1]) & (extent[:, 0] > 0)
        windows: NDArray[np.float64] = np.concatenate([corner, corner + extent], axis=1)[allowed]
        return windows

    def __repr__(self) -> str:
        return (
            f"RandomIoUCrop({self.scale[0]}, {self.scale[1]}, {self.ratio[0]}, {self.ratio[1]}, "
            f"sampler_options={self.options}, trials={self.trials})"
        )


def _corners(window: Params) -> tuple[float, float, float, float]:
    left, top, width, height = window.tolist()
    return left, top, left + width, top + height


def _centres_inside(boxes: NDArray[np.float32], windows: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether the centre of each of (n, 4) boxes is inside each of (m, 4) windows, and not on its border: (m, n)."""
    centres = (boxes[:, :2].astype(np.float64) + boxes[:, 2:]) / 2
    inside: NDArray[np.bool_] = np.all(
        (windows[:, None, :2] < centres[None]) & (centres[None] < windows[:, None, 2:]), axis=2
    )
    return inside
