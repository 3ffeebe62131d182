"""Boxes as containers hold them, made corners in absolute pixels; the size of an encoded image, by its header.

::

    xywh, cxcywh, yxyx or xyxy; fractions of an image or pixels ──> xyxy, pixels, float32 (n, 4)

Stores call this for each record with boxes. How boxes are stored is known by the store, or stated by a person.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Final

import numpy as np

from penstock import _native
from penstock.sample import Array

__all__ = ["find_image_size", "to_corners"]

_FORMS: Final = ("xyxy", "yxyx", "xywh", "cxcywh")


def to_corners(boxes: Array, form: str = "xyxy", size: Sequence[float] | None = None) -> Array:
    """Boxes xyxy in pixels: float32, contiguous; a view where they are stored so.

    ``boxes``: (n, 4): the boxes; the calculation has their dtype. ``form``: {"xyxy", "yxyx", "xywh", "cxcywh"}:
    corners, x or y first; the first corner and the size; the centre and the size. ``size``: width and height of the
    image, of which the boxes are fractions; None: they are pixels.
    """
    assert form in _FORMS, f"one of {_FORMS}"
    with np.errstate(over="ignore", invalid="ignore"):  # numbers of damaged records
        if form == "yxyx":
            boxes = boxes[:, [1, 0, 3, 2]]
        elif form != "xyxy":
            sides = boxes[:, 2:]
            first = boxes[:, :2] - sides / 2 if form == "cxcywh" else boxes[:, :2]
            boxes = np.concatenate([first, first + sides], axis=1)
        if size is not None:
            boxes = boxes * np.array([*size, *size], boxes.dtype)
        return np.ascontiguousarray(boxes, np.float32)


def find_image_size(content: bytes | memoryview) -> tuple[int, int]:
    """Width and height of an encoded image; its pixels are not decoded.

    Raises ValueError if the header is not that of an image.
    """
    width, height = _native.sizes([content])[0].tolist()
    if width and height:
        return width, height
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as image:
            return image.size
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"the size of its image cannot be read, which the boxes need: {error}") from error
