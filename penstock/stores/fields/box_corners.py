"""Boxes as containers hold them, made corners in absolute pixels; the size of an encoded image, by its header.

::

    xywh, cxcywh, yxyx or xyxy; fractions of an image or pixels ──> xyxy, pixels, float32 (n, 4)

Stores call this for each record with boxes. How boxes are stored is known by the store, or stated by a person.
Which picture fractions are of, where an Exif orientation turns it, is found as for annotations (``PictureHeader``).
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from penstock import _native
from penstock.errors import ArgumentError
from penstock.orientation import PictureHeader, orient_boxes
from penstock.sample import Array, Field
from penstock.stores.fields.image_signatures import looks_like_image

__all__ = ["FractionBoxes", "read_header", "to_corners"]

_FORMS: Final = ("xyxy", "yxyx", "xywh", "cxcywh")


def to_corners(boxes: Array, form: str = "xyxy", size: Sequence[float] | None = None) -> Array:
    """Return boxes xyxy in pixels: float32, contiguous; a view where they are stored so.

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


class FractionBoxes:
    """Boxes that are fractions of their images, which become boxes of upright pictures in pixels.

    Parameters
    ----------
    upright : bool, optional
        Whether all of them are of upright pictures (True) or of those that are stored (False). By default each is of
        the picture whose size its record has, and of the upright one where it has none.
    images : iterable of bytes or memoryview
        Some of the images: the field says that boxes are of upright pictures if one of these is stored turned.

    Raises
    ------
    ArgumentError
        If ``upright`` is none of True, False and None.
    """

    def __init__(self, upright: bool | None, images: Iterable[bytes | memoryview]) -> None:
        if upright is not None and type(upright) is not bool:
            raise ArgumentError(f"upright must be True, False or None, got {upright!r:.80}")
        self._upright = upright
        self._is_said = upright is not None or any(map(_is_turned, images))

    @property
    def field(self) -> Field:
        """The field of the boxes."""
        return Field("boxes", upright=True if self._is_said else None)

    def place(
        self, boxes: Array, form: str, image: bytes | memoryview | None, size: Sequence[float] | None = None
    ) -> Array:
        """Return boxes xyxy in pixels; see :func:`to_corners`. ``size``: width and height that the record has.

        Raises ValueError if there is neither size nor image, or the size is of neither picture. Raises ArgumentError if
        the image is stored turned, and the field does not say that boxes are of upright pictures.
        """
        if not len(boxes):
            return to_corners(boxes, form)
        header = PictureHeader(0, 0)
        if image is not None and (size is None or looks_like_image(image)):
            try:
                header = read_header(image)
            except ValueError:
                if size is None:
                    raise
        if header.orientation == 1:
            return to_corners(boxes, form, size or header.size)
        if not self._is_said:
            raise ArgumentError(
                f"its Exif orientation is {header.orientation}, and no other image that was looked at is turned: give "
                "upright=True if boxes are of upright pictures, as most programs show them, or upright=False if they "
                "are of those that are stored"
            )
        chosen, orientation = header.choose(size if self._upright is None else None, self._upright)
        return np.ascontiguousarray(orient_boxes(to_corners(boxes, form, chosen), orientation, chosen), np.float32)


def read_header(content: bytes | memoryview) -> PictureHeader:
    """Return size and orientation of an encoded image; its pixels are not decoded.

    Raises ValueError if the header is not that of an image.
    """
    width, height = _native.sizes([content])[0].tolist()
    orientation = int(_native.orientations([content])[0])
    if width and height and orientation:
        return PictureHeader(width, height, orientation)
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as image:
            return PictureHeader.of(image)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"the size of its image cannot be read, which the boxes need: {error}") from error


def _is_turned(content: bytes | memoryview) -> bool:
    try:
        return read_header(content).orientation != 1
    except ValueError:
        return False  # raised again when the record is read
