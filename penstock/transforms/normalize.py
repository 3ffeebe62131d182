"""Normalization: subtract the mean of each channel and divide by its standard deviation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.sample import Array, Tree
from penstock.transforms.base import Fusion, ImageSpec, Op, Params, require_hwc
from penstock.transforms.checks import is_number
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
    mean, std : float, or sequence of one or three floats
        On the scale 0 to 1; std is positive. Three numbers for R, G, B, or one for all channels.

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    On uint8: ``value * scale + offset`` in float32, rounded twice, with ``scale = 1 / (255 * std)`` and
    ``offset = -mean / std`` computed in float64 and rounded to float32: within 2e-6 of torchvision's ToTensor and
    Normalize. The native core does the same operations, bit for bit. On float images: ``(value - mean) / std``.
    Put it before :class:`~penstock.transforms.ToLayout`; in torchvision it follows ToTensor.
    """

    def __init__(self, mean: float | Sequence[float], std: float | Sequence[float]) -> None:
        self.mean, self.std = _numbers(mean), _numbers(std)
        if len(self.mean) not in {1, 3} or len(self.std) != len(self.mean) or not all(v > 0 for v in self.std):
            raise ArgumentError(
                f"mean and std must be one number or three each, std positive, got {mean!r} and {std!r}"
            )

    @property
    def scale(self) -> NDArray[np.float32]:
        """The factor for a uint8 value."""
        return np.asarray(1.0 / (255.0 * np.array(self.std)), np.float32)

    @property
    def offset(self) -> NDArray[np.float32]:
        """The number that is then added."""
        return np.asarray(-np.array(self.mean) / np.array(self.std), np.float32)

    def spec(self, spec: ImageSpec) -> ImageSpec:
        """A float32 spec."""
        return replace(require_hwc(spec, self), dtype="float32")

    def image(self, image: Array, params: Params) -> NDArray[np.float32]:  # noqa: ARG002  # nothing to draw
        """A new float32 array."""
        channels = image.shape[2] if image.ndim == 3 else 1
        if len(self.mean) not in {1, channels}:
            raise ArgumentError(
                f"{self!r} needs images of 3 channels, got {channels} channel{'s' * (channels != 1)}, shape "
                f"{image.shape}; give one number, which holds for every channel"
            )
        if image.dtype == np.uint8:
            scaled: NDArray[np.float32] = image.astype(np.float32) * self.scale + self.offset
            return scaled
        mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
        normalized: NDArray[np.float32] = (image.astype(np.float32) - mean) / std
        return normalized

    def native(self, image: Array, params: Params) -> NDArray[np.float32]:
        """Apply; to uint8 by the native core."""
        if not is_colour(image):
            return self.image(image, params)
        out = np.empty((1, *image.shape), np.float32)
        write_row(image, out, "HWC", *self._of_colours())
        normalized: NDArray[np.float32] = out[0]
        return normalized

    def fuse(self, fusion: Fusion) -> bool:
        """Fuse, once, on uint8."""
        if fusion.scale is not None:
            return False
        fusion.scale, fusion.offset = self._of_colours()
        fusion.dtype = "float32"
        return True

    def _of_colours(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Scale and offset for each of R, G, B."""
        scale, offset = (np.broadcast_to(values, 3).tolist() for values in (self.scale, self.offset))
        return tuple(scale), tuple(offset)


def _numbers(values: Tree) -> tuple[float, ...]:
    """One number or several as a tuple; empty for what is neither."""
    listed = (values,) if is_number(values) else values
    try:
        return tuple(float(value) for value in listed)
    except (TypeError, ValueError):
        return ()
