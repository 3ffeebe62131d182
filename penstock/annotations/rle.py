"""Masks of single objects in COCO's run-length encoding: ``{"size": [height, width], "counts": ...}``.

The pixels are those of pycocotools' ``mask``. ``counts`` is a text, its bytes, or a list of the lengths of runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from penstock.errors import AnnotationError, ArgumentError
from penstock.orientation import orient_pixels
from penstock.run_lengths import Runs, format_counts, parse_counts
from penstock.sample import Array, Value

__all__ = ["area", "box", "decode", "encode", "orient"]

_MAX_PIXELS: Final = 1 << 28


def decode(instance: Mapping[str, Value]) -> Array:
    """Return the mask of an instance.

    Parameters
    ----------
    instance : mapping
        ``size``: height and width; ``counts``: a text, bytes, or a list of int.

    Returns
    -------
    ndarray, uint8, (height, width)
        1 where the object is, else 0; in column-major order, owned by the caller.

    Raises
    ------
    AnnotationError
        If it is no run-length encoding, or has more than 2**28 pixels.
    """
    runs, height, width = _parse(instance)
    edges = np.zeros(height * width + 1, np.int8)
    edges[runs.starts] = 1
    edges[runs.ends] = -1
    mask = np.cumsum(edges[:-1], dtype=np.int8).view(np.uint8)
    return mask.reshape(width, height).T


def encode(mask: Array) -> dict[str, Value]:
    """The run-length encoding of a mask.

    Parameters
    ----------
    mask : ndarray, (height, width)
        Booleans or numbers; all but 0 is the object.

    Returns
    -------
    dict
        ``size``: list of height and width; ``counts``: str.

    Raises
    ------
    ArgumentError
        If it has not two dimensions.
    """
    if mask.ndim != 2:
        raise ArgumentError(f"a mask must have the shape (height, width), got {mask.shape}")
    pixels = (mask != 0).ravel(order="F")
    changes = np.flatnonzero(np.diff(pixels, prepend=False))
    runs = Runs.of_changes(np.zeros(len(changes), np.int64), changes, np.array([pixels.size], np.int64))
    return {"size": list(mask.shape), "counts": format_counts(runs)[0]}


def orient(instance: Mapping[str, Value], orientation: int) -> dict[str, Value]:
    """Return an instance of a picture as it is stored, as that of the upright one; raises as :func:`decode`."""
    return encode(orient_pixels(decode(instance), orientation))


def area(instance: Mapping[str, Value]) -> int:
    """Return the number of pixels of the object; raises AnnotationError as :func:`decode`."""
    return int(_parse(instance)[0].area()[0])


def box(instance: Mapping[str, Value]) -> tuple[int, int, int, int]:
    """Return x0, y0, x1, y1 around the object's pixels, 0 without any; raises AnnotationError as :func:`decode`."""
    runs, height, _ = _parse(instance)
    if not len(runs.starts):
        return 0, 0, 0, 0
    first, last = runs.starts // height, (runs.ends - 1) // height
    if (first != last).any():  # a run that goes on in the next column has the last row, and the first one
        top, bottom = 0, height
    else:
        top, bottom = int((runs.starts % height).min()), int(((runs.ends - 1) % height).max()) + 1
    return int(first.min()), top, int(last.max()) + 1, bottom


def _parse(instance: Mapping[str, Value]) -> tuple[Runs, int, int]:
    size = instance.get("size")
    if not isinstance(size, list | tuple) or len(size) != 2 or not set(map(type, size)) <= {int} or min(size) < 0:
        raise AnnotationError(f"an instance must have a size of height and width, got {instance!r:.200}")
    height, width = size
    if height * width > _MAX_PIXELS:
        raise AnnotationError(f"a mask must have at most {_MAX_PIXELS} pixels, got a size of {size!r:.100}")
    runs, wrong = parse_counts([instance.get("counts")], np.array([height * width], np.int64))
    if wrong:
        raise AnnotationError(f"the counts of an instance {wrong[0]}, got {instance!r:.200}")
    return runs, height, width
