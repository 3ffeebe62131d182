"""Boxes and run-length encodings of the shapes that people draw: polygons, circles, masks of a part of an image."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from penstock.sample import Array

__all__ = ["bound_ellipse", "bound_points", "encode_crop", "rotate_box"]

Box = tuple[float, float, float, float]


def bound_points(points: Sequence[Sequence[float]]) -> Box:
    """The smallest box that holds all points; ``points`` is not empty."""
    xs, ys = zip(*points, strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def bound_ellipse(x: float, y: float, radius_x: float, radius_y: float, degrees: float = 0.0) -> Box:
    """The smallest box that holds an ellipse around (x, y), turned about it."""
    turn = math.radians(degrees)
    half_width = math.hypot(radius_x * math.cos(turn), radius_y * math.sin(turn))
    half_height = math.hypot(radius_x * math.sin(turn), radius_y * math.cos(turn))
    return x - half_width, y - half_height, x + half_width, y + half_height


def rotate_box(box: Sequence[float], degrees: float) -> list[tuple[float, float]]:
    """The corners of a box, from its top left one clockwise, after a turn about its centre."""
    x0, y0, x1, y1 = box
    x, y, turn = (x0 + x1) / 2, (y0 + y1) / 2, math.radians(degrees)
    cosine, sine = math.cos(turn), math.sin(turn)
    return [
        (x + (px - x) * cosine - (py - y) * sine, y + (px - x) * sine + (py - y) * cosine)
        for px, py in ((x0, y0), (x1, y0), (x1, y1), (x0, y1))
    ]


def encode_crop(crop: Array, left: int, top: int, width: int, height: int) -> dict[str, object]:
    """COCO's run-length encoding of a mask that is given for a part of an image.

    Parameters
    ----------
    crop : ndarray, bool, (h, w)
        The mask; True belongs to the object. It lies inside the image.
    left, top : int
        Its place in the image, pixels.
    width, height : int
        Size of the image, pixels.

    Returns
    -------
    dict
        ``size`` (height, width) and ``counts``, the compressed text.
    """
    padded = np.zeros((crop.shape[1], crop.shape[0] + 2), np.int8)
    padded[:, 1:-1] = crop.T
    steps = np.diff(padded, axis=1)
    offsets = (np.arange(crop.shape[1], dtype=np.int64) + left)[:, None] * height + top
    rows = np.arange(crop.shape[0] + 1, dtype=np.int64)
    positions = offsets + rows
    starts, ends = positions[steps == 1], positions[steps == -1]
    if len(starts):  # runs that go on at the top of the next column are one
        joined = starts[1:] == ends[:-1]
        starts, ends = starts[np.append(True, ~joined)], ends[np.append(~joined, True)]
    edges = np.empty(2 * len(starts), np.int64)
    edges[0::2], edges[1::2] = starts, ends
    counts = np.diff(edges, prepend=0, append=width * height)
    if len(counts) > 1 and counts[-1] == 0:
        counts = counts[:-1]
    return {"size": [height, width], "counts": _compress(counts.tolist())}


def _compress(counts: list[int]) -> str:
    """Counts as COCO writes them: from the fourth on the difference to the last but one, in groups of five bits."""
    text = bytearray()
    for position, count in enumerate(counts):
        left = count - counts[position - 2] if position > 2 else count
        is_done = False
        while not is_done:
            group = left & 0x1F
            left >>= 5
            is_done = left == (-1 if group & 0x10 else 0)
            text.append(group + (48 if is_done else 48 + 0x20))
    return text.decode("ascii")
