"""RandomHSV: hue, saturation and value of an image, changed at once.

::

    value      largest channel * value, at most 255
    chroma     value * saturation, at most the value
    channel    value - chroma + chroma * its share at the hue: that of red is |hue - 3| - 1 within [0, 1], of 6 sixths

:func:`shift_hsv` is the specification, in float32; the native core equals it in every bit.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock import _native
from penstock.errors import ArgumentError
from penstock.sample import Array, SampleKeys
from penstock.transforms.base import Params, Sizes, uniforms
from penstock.transforms.checks import is_number, require_pixels
from penstock.transforms.pixel_arithmetic import PixelOp, Pixels

__all__ = ["RandomHSV", "shift_hsv"]

Floats = NDArray[np.float32]


class RandomHSV(PixelOp):
    """Add a random number to the hue, and multiply saturation and value by random factors: YOLO's colour jitter.

    Parameters
    ----------
    hue : float
        Largest change in turns of the colour circle, to either side, in [0, 0.5].
    saturation, value : float
        Largest change of the factors: ``x`` is the range ``1 - x`` to ``1 + x``; in [0, 1].

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    Draws three numbers. Params of a sample: turns, factor of saturation, factor of value. Works on uint8; of gray
    images (HW) only the value changes.

    The gains of ultralytics' ``RandomHSV`` have the same meaning. That one rounds hue, saturation and value to
    OpenCV's 8 bits before and after; here only the result is rounded. Values of photographs then differ by about one
    level, those of saturated colours by up to ten: a step of OpenCV's hue is two degrees.

    A. R. Smith, "Color Gamut Transform Pairs", 1978 (the hexagonal HSV model).
    """

    random: ClassVar[bool] = True

    def __init__(self, hue: float = 0.015, saturation: float = 0.7, value: float = 0.4) -> None:
        self.hue = _as_gain(hue, "hue", 0.5)
        self.saturation = _as_gain(saturation, "saturation", 1)
        self.value = _as_gain(value, "value", 1)

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:  # noqa: ARG002  # any size
        """Turns and factors of each image, (n, 3)."""
        gains = np.array([self.hue, self.saturation, self.value])
        drawn: Params = (0.0, 1.0, 1.0) + (2 * uniforms(keys, stream, 3) - 1) * gains
        return drawn

    def image(self, image: Array, params: Params) -> Pixels:
        """Change the colours; returns a new array."""
        return shift_hsv(require_pixels(image, self), *params.tolist())

    def native(self, image: Array, params: Params) -> Pixels:
        """Apply by one native call."""
        return _native.shift_hsv(np.ascontiguousarray(require_pixels(image, self)), *params.tolist())


def shift_hsv(image: Pixels, turns: float, saturation: float, value: float) -> Pixels:
    """Add ``turns`` to the hue, and multiply saturation and value by factors."""
    scaled = _scale(np.maximum.reduce(image, axis=2) if image.ndim == 3 else image, value)
    if image.ndim == 2:
        return _round(scaled)
    r, g, b = (image[:, :, channel].astype(np.float32) for channel in range(3))
    most, least = np.maximum(r, np.maximum(g, b)), np.minimum(r, np.minimum(g, b))
    chroma = most - least
    sixths = 6 * (turns % 1.0)
    starts = np.float32(sixths + 6 if sixths < 1 else sixths) + np.array([0, 2, 4], np.float32)
    is_largest = [most == r, most == g]
    away = np.select(is_largest, [g - b, b - r], r - g) / np.maximum(chroma, np.float32(1))
    hue = away + np.select(is_largest, [starts[0], starts[1]], starts[2])
    hue = np.where(hue >= 6, hue - np.float32(6), hue)
    shares = [np.abs(hue - 3) - 1, 2 - np.abs(hue - 2), 2 - np.abs(hue - 4)]
    moved = scaled * np.minimum(chroma / np.maximum(most, np.float32(1)) * np.float32(saturation), np.float32(1))
    return np.stack([_round((scaled - moved) + moved * np.clip(share, 0, 1)) for share in shares], axis=2)


def _scale(largest: Pixels, factor: float) -> Floats:
    scaled: Floats = np.minimum(largest.astype(np.float32) * np.float32(factor), np.float32(255))
    return scaled


def _round(levels: Floats) -> Pixels:
    return (levels + np.float32(0.5)).astype(np.uint8)


def _as_gain(gain: float, what: str, most: float) -> float:
    if not is_number(gain) or not 0 <= gain <= most:
        raise ArgumentError(f"{what} must be a number in [0, {most}], got {gain!r}")
    return float(gain)
