"""Normalisation: channel by channel, subtract the mean and divide by the standard deviation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.transforms.base import Fusion, ImageSpec, Op, Params, movable
from penstock.transforms.pixels import is_colour, write_row

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "Normalize"]

IMAGENET_MEAN: Final = (0.485, 0.456, 0.406)
"""Mean of ImageNet's R, G, B on the scale 0 to 1, as torchvision's models take it."""

IMAGENET_STD: Final = (0.229, 0.224, 0.225)
"""Standard deviation of ImageNet's R, G, B on the scale 0 to 1."""


class Normalize(Op):
    """``(value - mean) / std``, to float32, with uint8 values taken as 0 to 1.

    Parameters
    ----------
    mean, std : sequence of three float
        Per channel, on the scale 0 to 1.

    Notes
    -----
    On uint8: ``value * scale + offset`` in float32, rounded twice, with ``scale = 1 / (255 * std)`` and
    ``offset = -mean / std`` computed in float64 and rounded to float32: within 2e-6 of torchvision's ToTensor and
    Normalize. The native core does the same operations, bit for bit. On float images: ``(value - mean) / std``.
    It stands before :class:`~penstock.transforms.ToLayout`, where torchvision has it after ToTensor.
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean, self.std = tuple(float(v) for v in mean), tuple(float(v) for v in std)
        if len(self.mean) != 3 or len(self.std) != 3 or not all(v > 0 for v in self.std):
            raise ArgumentError(f"mean={mean!r} and std={std!r} are three numbers each, std positive")

    @property
    def scale(self) -> NDArray[np.float32]:
        """What a uint8 value is multiplied by."""
        return np.asarray(1.0 / (255.0 * np.array(self.std)), np.float32)

    @property
    def offset(self) -> NDArray[np.float32]:
        """What is then added."""
        return np.asarray(-np.array(self.mean) / np.array(self.std), np.float32)

    def spec(self, spec: ImageSpec) -> ImageSpec:
        """float32."""
        return replace(movable(spec, self), dtype="float32")

    def image(self, image: NDArray[Any], params: Params) -> NDArray[np.float32]:  # noqa: ARG002  # nothing to draw
        """A new float32 array."""
        if image.dtype == np.uint8:
            scaled: NDArray[np.float32] = image.astype(np.float32) * self.scale + self.offset
            return scaled
        mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
        normalized: NDArray[np.float32] = (image.astype(np.float32) - mean) / std
        return normalized

    def native(self, image: NDArray[Any], params: Params) -> NDArray[np.float32]:
        """The same; uint8 by the native core."""
        if not is_colour(image):
            return self.image(image, params)
        out = np.empty((1, *image.shape), np.float32)
        write_row(image, out, "HWC", self.scale.tolist(), self.offset.tolist())
        normalized: NDArray[np.float32] = out[0]
        return normalized

    def fuse(self, fusion: Fusion) -> bool:
        """Once, on uint8."""
        if fusion.scale is not None:
            return False
        fusion.scale, fusion.offset = tuple(self.scale.tolist()), tuple(self.offset.tolist())
        fusion.dtype = "float32"
        return True
