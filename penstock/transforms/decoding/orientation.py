"""Exif orientation: the relation of the rows of a file to the image that a viewer shows (Exif 2.32, tag 0x0112).

Arithmetic on arrays and rectangles; :func:`penstock.transforms.decoding.decode.read_orientations` reads the tag.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["FIRST_TRANSPOSED", "Region", "orient_pixels", "raw_region", "raw_regions"]

Region = tuple[int, int, int, int]
"""x0, y0, x1, y1 in pixels; x1 and y1 are outside."""

_MIRRORED_X: Final = frozenset({2, 3, 7, 8})
_MIRRORED_Y: Final = frozenset({3, 4, 6, 7})
FIRST_TRANSPOSED: Final = 5
"""This orientation and those above it exchange rows and columns."""


def orient_pixels(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """The oriented image from raw rows (HW or HWC); orientation 1 to 8. C-contiguous; the same array for 1."""
    if orientation in _MIRRORED_X:
        pixels = pixels[:, ::-1]
    if orientation in _MIRRORED_Y:
        pixels = pixels[::-1]
    if orientation >= FIRST_TRANSPOSED:
        pixels = pixels.swapaxes(0, 1)
    return np.ascontiguousarray(pixels)


def raw_region(region: Region, orientation: int, width: int, height: int) -> Region:
    """A region of the oriented image as a region of the raw rows, whose size is ``width`` x ``height``."""
    regions = raw_regions(np.array([region]), np.array([orientation]), np.array([[width, height]]))
    x0, y0, x1, y1 = regions[0].tolist()
    return x0, y0, x1, y1


def raw_regions(
    regions: NDArray[np.integer[Any]], orientations: NDArray[np.integer[Any]], sizes: NDArray[np.integer[Any]]
) -> NDArray[np.integer[Any]]:
    """Regions of oriented images, shape (n, 4), as regions of their raw rows, whose ``sizes`` have shape (n, 2)."""
    raw = np.where(orientations[:, None] >= FIRST_TRANSPOSED, regions[:, [1, 0, 3, 2]], regions)
    for axis, mirrored in enumerate((_MIRRORED_X, _MIRRORED_Y)):
        flipped = np.isin(orientations, [*mirrored])
        ends = sizes[:, axis, None] - raw[:, [axis + 2, axis]]
        raw[:, axis::2] = np.where(flipped[:, None], ends, raw[:, axis::2])
    return raw
