"""Exif orientation: the relation of the rows of a file to the image that a viewer shows (Exif 2.32, tag 0x0112).

Arithmetic on arrays and rectangles; :mod:`penstock.transforms.fallback` reads the tag.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Region", "orient_pixels", "raw_region"]

Region = tuple[int, int, int, int]
"""x0, y0, x1, y1 in pixels; x1 and y1 are outside."""

_MIRRORED_X: Final = frozenset({2, 3, 7, 8})
_MIRRORED_Y: Final = frozenset({3, 4, 6, 7})
_FIRST_TRANSPOSED: Final = 5


def orient_pixels(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """The oriented image from raw rows (HW or HWC); orientation 1 to 8. C-contiguous; the same array for 1."""
    if orientation in _MIRRORED_X:
        pixels = pixels[:, ::-1]
    if orientation in _MIRRORED_Y:
        pixels = pixels[::-1]
    if orientation >= _FIRST_TRANSPOSED:
        pixels = pixels.swapaxes(0, 1)
    return np.ascontiguousarray(pixels)


def raw_region(region: Region, orientation: int, width: int, height: int) -> Region:
    """A region of the oriented image as a region of the raw rows, whose size is ``width`` x ``height``."""
    x0, y0, x1, y1 = region
    if orientation >= _FIRST_TRANSPOSED:
        x0, y0, x1, y1 = y0, x0, y1, x1
    if orientation in _MIRRORED_X:
        x0, x1 = width - x1, width - x0
    if orientation in _MIRRORED_Y:
        y0, y1 = height - y1, height - y0
    return x0, y0, x1, y1
