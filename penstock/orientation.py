"""Exif orientation: the relation of the rows of a file to the image that a viewer shows (Exif 2.32, tag 0x0112).

Arithmetic on arrays, rectangles and points. Decoders read the tag of many images by
:func:`penstock.transforms.decoding.decode.read_orientations`; :func:`read_tag` is that of Pillow's pictures.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.sample import Array

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    "FIRST_TRANSPOSED",
    "MIRRORED",
    "TURNED_BY_DECODING",
    "PictureHeader",
    "Region",
    "get_upright_size",
    "orient_boxes",
    "orient_file",
    "orient_pixels",
    "orient_points",
    "raw_region",
    "raw_regions",
    "read_tag",
]

Number = TypeVar("Number", int, float)
Region = tuple[int, int, int, int]
"""x0, y0, x1, y1 in pixels; x1 and y1 are outside."""

MIRRORED: Final = frozenset({2, 4, 5, 7})
"""These orientations change the sense of an angle."""
_MIRRORED_X: Final = frozenset({2, 3, 7, 8})
_MIRRORED_Y: Final = frozenset({3, 4, 6, 7})
FIRST_TRANSPOSED: Final = 5
"""This orientation and those above it exchange rows and columns."""
TURNED_BY_DECODING: Final = frozenset({"TIFF", "JXL"})
"""Pillow's names of formats that are decoded upright in any case."""
_INVERSE: Final = {6: 8, 8: 6}
"""The orientation that undoes another; the others undo themselves."""


class PictureHeader(NamedTuple):
    """What the header of a picture says: its size as its rows are stored, and how it is turned to be upright."""

    width: int
    height: int
    orientation: int = 1

    @classmethod
    def of(cls, image: Image) -> PictureHeader:
        """Read the size and the orientation of an open picture."""
        orientation = 1 if image.format == "JXL" else read_tag(image)
        is_upright = image.format in TURNED_BY_DECODING  # its size, already
        return cls(*(get_upright_size(image.size, orientation) if is_upright else image.size), orientation)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height as its rows are stored."""
        return self.width, self.height

    @property
    def upright_size(self) -> tuple[int, int]:
        """Width and height of the upright picture."""
        return get_upright_size(self.size, self.orientation)

    def choose(self, size: Sequence[float] | None, upright: bool | None) -> tuple[tuple[int, int], int]:
        """Size and orientation of the picture that an annotation is of: that whose ``size`` it has.

        The upright picture where it has none (None, or 0), or both have it. ``upright``: which one it is, if that is
        said. Raises ValueError if it is of neither.
        """
        pictures = ((self.upright_size, 1), True), ((self.size, self.orientation), False)
        allowed = [each for each, of in pictures if upright in {None, of}]
        if size is None or not all(size):
            return allowed[0]
        for each in allowed:
            if each[0] == tuple(size):
                return each
        has = " or ".join(dict.fromkeys(f"{width} x {height}" for (width, height), _ in allowed))
        turned = f", as its Exif orientation is {self.orientation}" if self.upright_size != self.size else ""
        raise ValueError(f"the annotation is of an image of {size[0]:g} x {size[1]:g}, the image has {has}{turned}")


def read_tag(image: Image) -> int:
    """Return the orientation in the Exif or XMP of a picture of Pillow, 1 to 8.

    It is 1 if there is none, or it is damaged.
    """
    try:
        orientation = image.getexif().get(0x0112, 1)
    except Exception:  # noqa: BLE001  # any error of Pillow's Exif parser on hostile tags; pixels do not depend on it
        return 1
    return orientation if isinstance(orientation, int) and 1 <= orientation <= 8 else 1


def get_upright_size(size: tuple[Number, Number], orientation: int) -> tuple[Number, Number]:
    """Width and height of the upright picture, by those of the picture as it is stored; its own inverse."""
    return (size[1], size[0]) if orientation >= FIRST_TRANSPOSED else size


def orient_pixels(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Return the oriented image from raw rows (HW or HWC); orientation 1 to 8. C-contiguous; the same array for 1."""
    if orientation in _MIRRORED_X:
        pixels = pixels[:, ::-1]
    if orientation in _MIRRORED_Y:
        pixels = pixels[::-1]
    if orientation >= FIRST_TRANSPOSED:
        pixels = pixels.swapaxes(0, 1)
    # a copy in any case: of one row or column, NumPy takes a negative stride for contiguous, and torch refuses it
    return np.ascontiguousarray(pixels) if orientation == 1 else pixels.copy()


def raw_region(region: Region, orientation: int, width: int, height: int) -> Region:
    """Return a region of the oriented image as a region of the raw rows, whose size is ``width`` x ``height``."""
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


def orient_boxes(boxes: Array, orientation: int, size: tuple[int, int]) -> Array:
    """Boxes of a picture as it is stored, (n, 4), as those of the upright picture; ``size``: as it is stored.

    Of the same dtype. Rectangles whose sides are no numbers become others of the kind.
    """
    inverse = np.full(len(boxes), _INVERSE.get(orientation, orientation))
    return raw_regions(boxes, inverse, np.tile(get_upright_size(size, orientation), (len(boxes), 1)))


def orient_points(points: Array, orientation: int, size: tuple[int, int]) -> Array:
    """Points of a picture as it is stored, (..., 2 or more), as those of the upright picture; as for boxes.

    Further columns stay, and so does a point at (0, 0) whose further columns are 0: as in COCO, it is not annotated.
    """
    rows = points.reshape(-1, points.shape[-1]).copy()
    is_there = (rows != 0).any(axis=1) if rows.shape[1] > 2 else np.ones(len(rows), np.bool_)
    rows[is_there, :2] = orient_boxes(rows[is_there][:, [0, 1, 0, 1]], orientation, size)[:, :2]
    return rows.reshape(points.shape)


def orient_file(content: bytes, orientation: int) -> bytes:
    """A mask file of a picture as it is stored, as a PNG of the upright picture: the same values, in the same mode.

    Raises what Pillow raises, if it is no image.
    """
    from PIL import Image

    turns = Image.Transpose
    turn = {
        2: turns.FLIP_LEFT_RIGHT, 3: turns.ROTATE_180, 4: turns.FLIP_TOP_BOTTOM, 5: turns.TRANSPOSE,
        6: turns.ROTATE_270, 7: turns.TRANSVERSE, 8: turns.ROTATE_90,
    }[orientation]  # fmt: skip
    file = io.BytesIO()
    with Image.open(io.BytesIO(content)) as opened:
        opened.transpose(turn).save(file, "PNG")
    return file.getvalue()
