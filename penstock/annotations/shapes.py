"""Boxes and run-length encodings of the shapes that people draw: polygons, circles, masks of a part of an image."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from penstock.run_lengths import Runs, format_counts
from penstock.sample import Array

__all__ = ["Box", "bound_ellipse", "bound_points", "encode_crop", "rotate_box"]

Box = tuple[float, float, float, float]


def bound_points(points: Sequence[Sequence[float]]) -> Box:
    """Return the smallest box that holds all points; ``points`` is not empty."""
    xs, ys = zip(*points, strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def bound_ellipse(x: float, y: float, radius_x: float, radius_y: float, degrees: float = 0.0) -> Box:
    """Return the smallest box that holds an ellipse around (x, y), turned about it."""
    turn = math.radians(degrees)
    half_width = math.hypot(radius_x * math.cos(turn), radius_y * math.sin(turn))
    half_height = math.hypot(radius_x * math.sin(turn), radius_y * math.cos(turn))
    return x - half_width, y - half_height, x + half_width, y + half_height


def rotate_box(box: Sequence[float], degrees: float) -> list[tuple[float, float]]:
    """Return the corners of a box, from its top left one clockwise, after a turn about its centre."""
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
    padded = np.zeros((crop.shape[1], crop.shape[0] + 2), np.bool_)
    padded[:, 1:-1] = crop.T
    columns, rows = np.nonzero(np.diff(padded, axis=1))
    changes = (columns + left) * height + (rows + top)
    runs = Runs.of_changes(np.zeros(len(changes), np.int64), changes, np.array([width * height], np.int64))
    return {"size": [height, width], "counts": format_counts(runs)[0]}
