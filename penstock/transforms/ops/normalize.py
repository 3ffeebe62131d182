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
from penstock.transforms.pixel_arithmetic import MAXIMA, is_colour, write_row

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "Normalize"]

IMAGENET_MEAN: Final = (0.485, 0.456, 0.406)
"""Mean of ImageNet's R, G, B on the scale 0 to 1, as torchvision's models take it."""

IMAGENET_STD: Final = (0.229, 0.224, 0.225)
"""Standard deviation of ImageNet's R, G, B on the scale 0 to 1."""


class Normalize(Op):
    """``(value - mean) / std``, to float32, with integers taken as 0 to 1.

    Parameters
    ----------
    mean, std : float, or sequence of one, three or four floats
        On the scale 0 to 1; std is positive. Three numbers for R, G, B, four for images of four channels, or one for
        all channels, whatever their number. ``Normalize(127.5 / 255, 128 / 255)`` gives ``(x - 127.5) / 128`` of uint8
        values x.

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    On uint8: ``value * scale + offset`` in float32, rounded twice, with ``scale = 1 / (255 * std)`` and
    ``offset = -mean / std`` computed in float64 and rounded to float32: within 2e-6 of torchvision's ToTensor and
    Normalize. On uint16, 65535 takes the place of 255. The native core does the same operations, bit for bit. On float
    images: ``(value - mean) / std``, without any other factor.
    Put it before :class:`~penstock.transforms.ToLayout`; in torchvision it follows ToTensor.
    """

    def __init__(self, mean: float | Sequence[float], std: float | Sequence[float]) -> None:
        self.mean, self.std = _numbers(mean), _numbers(std)
        if len(self.mean) not in {1, 3, 4} or len(self.std) != len(self.mean) or not all(v > 0 for v in self.std):
            raise ArgumentError(
                "mean and std must be one number or three each, or four for images of four channels, std positive, "
                f"got {mean!r} and {std!r}"
            )

    @property
    def scale(self) -> NDArray[np.float32]:
        """The factor for a uint8 value."""
        return self._get_scale("uint8")

    @property
    def offset(self) -> NDArray[np.float32]:
        """The number that is then added."""
        return np.asarray(-np.array(self.mean) / np.array(self.std), np.float32)

    def spec(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec as float32."""
        if spec.channels is not None:
            self._check(spec.channels, "")
        return replace(require_hwc(spec, self), dtype="float32")

    def image(self, image: Array, params: Params) -> NDArray[np.float32]:  # noqa: ARG002  # nothing to draw
        """Normalise the image; returns a new float32 array."""
        channels = image.shape[2] if image.ndim == 3 else 1
        self._check(channels, f", shape {image.shape}")
        if image.dtype.name in MAXIMA:
            scaled: NDArray[np.float32] = image.astype(np.float32) * self._get_scale(image.dtype.name) + self.offset
            return scaled
        mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
        normalized: NDArray[np.float32] = (image.astype(np.float32) - mean) / std
        return normalized

    def native(self, image: Array, params: Params) -> NDArray[np.float32]:
        """Apply; to uint8 by the native core."""
        if not is_colour(image) or len(self.mean) not in {1, 3}:
            return self.image(image, params)
        out = np.empty((1, *image.shape), np.float32)
        write_row(image, out, "HWC", *self._of_channels("uint8", 3))
        normalized: NDArray[np.float32] = out[0]
        return normalized

    def fuse(self, fusion: Fusion) -> bool:
        """Fuse, once."""
        if fusion.scale is not None or fusion.mean is not None or len(self.mean) not in {1, fusion.channels}:
            return False
        if fusion.source in MAXIMA:
            fusion.scale, fusion.offset = self._of_channels(fusion.source, fusion.channels)
        else:
            fusion.mean, fusion.std = _repeat(self.mean, fusion.channels), _repeat(self.std, fusion.channels)
        fusion.dtype = "float32"
        return True

    def _get_scale(self, dtype: str) -> NDArray[np.float32]:
        """Return the factor for a value of integers of a dtype."""
        return np.asarray(1.0 / (MAXIMA[dtype] * np.array(self.std)), np.float32)

    def _of_channels(self, dtype: str, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Scale and offset for each channel."""
        return _repeat(self._get_scale(dtype), channels), _repeat(self.offset, channels)

    def _check(self, channels: int, shape: str) -> None:
        if len(self.mean) not in {1, channels}:
            raise ArgumentError(
                f"{self!r} needs images of {len(self.mean)} channels, got {channels} channel{'s' * (channels != 1)}"
                f"{shape}; give one number, which holds for every channel"
            )


def _repeat(values: Sequence[float] | NDArray[np.float32], channels: int) -> tuple[float, ...]:
    """Return one number for each channel."""
    repeated: list[float] = np.broadcast_to(np.asarray(values), channels).tolist()
    return tuple(repeated)


def _numbers(values: Tree) -> tuple[float, ...]:
    """Return one number or several as a tuple; empty for what is neither."""
    listed = (values,) if is_number(values) else values
    try:
        return tuple(float(value) for value in listed)
    except (TypeError, ValueError):
        return ()
