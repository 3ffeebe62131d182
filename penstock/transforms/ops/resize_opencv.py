"""OpenCV's resize in NumPy: the specification of the filters named after it.

Coordinates and weights are those of ``cv2.resize``; sums are exact, where OpenCV truncates. Nothing here is fast.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["CV2_FILTERS", "resize_opencv"]

CV2_FILTERS: Final = ("cv2-linear", "cv2-area", "cv2-nearest")
"""``INTER_LINEAR``, ``INTER_AREA`` and ``INTER_NEAREST`` of ``cv2.resize``."""

_SLIVER: Final = 1e-3
"""OpenCV leaves out what is covered of a pixel if it is less."""


def resize_opencv(image: NDArray[np.uint8], width: int, height: int, filter: str) -> NDArray[np.uint8]:  # noqa: A002
    """Resize an HWC or HW array; values differ from those of ``cv2.resize`` by at most one.

    Parameters
    ----------
    image : ndarray, uint8, (H, W) or (H, W, C)
        The image.
    width, height : int
        Size of the result.
    filter : {"cv2-linear", "cv2-area", "cv2-nearest"}
        The filter. "cv2-area" is another one where an axis grows, as in OpenCV.

    Returns
    -------
    ndarray, uint8
        A new array.
    """
    if filter == "cv2-area" and (width > image.shape[1] or height > image.shape[0]):
        filter = "area-linear"  # noqa: A001  # OpenCV's rule
    down, across = _weights(image.shape[0], height, filter), _weights(image.shape[1], width, filter)
    sums = np.einsum("yh,hw...->yw...", down, image, optimize=True)
    sums = np.einsum("xw,yw...->yx...", across, sums, optimize=True)
    rounded: NDArray[np.uint8] = np.floor(sums + 0.5).clip(0, 255).astype(np.uint8)
    return rounded


def _weights(source: int, target: int, filter: str) -> NDArray[np.float64]:  # noqa: A002
    """Return the weight of each source pixel for each target pixel, (target, source)."""
    inverse = target / source
    scale = 1 / inverse
    weights = np.zeros((target, source))
    outputs = np.arange(target)
    if filter == "cv2-area":
        low = outputs[:, None] * scale
        high = np.minimum(low + scale, source)
        taps = np.arange(source)
        covered = np.minimum(high, taps + 1) - np.maximum(low, taps)
        weights[:] = np.where(covered > _SLIVER, covered, 0)
        weights /= weights.sum(axis=1, keepdims=True)
        return weights
    if filter == "cv2-linear":
        at = ((outputs + 0.5) * scale - 0.5).astype(np.float32)
        first = np.floor(at)
        share = at - first
    else:
        first = np.floor(outputs * scale)
        share = (outputs + 1 - (first + 1) * inverse).astype(np.float32)
        share = np.where((share > 0) & (filter == "area-linear"), share - np.floor(share), 0)
    share = np.where((first < 0) | (first >= source - 1), 0, np.rint(share * 2048) / 2048)
    taps = first.clip(0, source - 1).astype(np.intp)
    weights[outputs, taps] = 1 - share
    weights[outputs, np.minimum(taps + 1, source - 1)] += share
    return weights
