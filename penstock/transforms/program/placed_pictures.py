"""Pictures that are resized and written to a part of a larger one; encoded ones are decoded as far as they are seen.

Called by datasets that mix pictures. :func:`paste` gives the pixels of a resize of whole pictures, but for one level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock import _native, trace
from penstock.errors import ArgumentError
from penstock.paths import COEFFICIENTS
from penstock.sample import Array
from penstock.transforms.base import ImageLike
from penstock.transforms.decoding import jpeg_markers
from penstock.transforms.decoding.decode import Decode, as_bytes, sizes
from penstock.transforms.inputs import is_pil
from penstock.transforms.ops.resize import Resize, resize_native
from penstock.transforms.pixel_arithmetic import Pixels
from penstock.transforms.program.row_filling import raise_refused

__all__ = [
    "Area",
    "Paste",
    "Picture",
    "as_mask_array",
    "decode_pictures",
    "open_picture",
    "paste",
    "paste_mask",
]

Area = tuple[int, int, int, int]
"""x0, y0, x1, y1 in pixels; x1 and y1 are outside."""

_JPEG: Final = b"\xff\xd8"


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture: HWC uint8 pixels, or the bytes of a JPEG file; and its width and height."""

    image: Pixels | bytes
    size: tuple[int, int]


def open_picture(image: ImageLike, decode: Decode) -> Picture:
    """Return a picture of encoded bytes, a PIL image or HWC uint8 pixels; a JPEG is not decoded before it is pasted.

    Raises ArgumentError if the pixels are not uint8 of shape (H, W, 3). Raises DecodeError if it cannot be decoded.
    """
    if is_pil(image):
        image = np.asarray(image.convert("RGB"))
    if not isinstance(image, np.ndarray) or image.ndim == 1:
        encoded = as_bytes(image)
        is_whole = encoded.startswith(COEFFICIENTS) or (encoded.startswith(_JPEG) and not jpeg_markers.is_cut(encoded))
        if is_whole and not decode.orient:
            width, height = sizes([encoded], decode.max_pixels)[0].tolist()
            return Picture(encoded, (width, height))
        with trace.stage("decode"):
            image = decode.image(encoded, np.empty(0))
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
        raise ArgumentError(
            f"an image to mix must have uint8 pixels of shape (H, W, 3), got {image.dtype} of shape {image.shape}; put "
            "Normalize and ToLayout into the transform of the mixture"
        )
    return Picture(image, (image.shape[1], image.shape[0]))


def decode_pictures(images: Sequence[ImageLike], decode: Decode, mixture: object) -> list[Pixels]:
    """Return the pixels of whole images, which must be of one size, for ``mixture``.

    Raises ArgumentError if their sizes differ.
    """
    found: list[Pixels] = []
    for picture in [open_picture(image, decode).image for image in images]:
        if isinstance(picture, bytes):
            with trace.stage("decode"):
                found.append(decode.image(picture, np.empty(0)))
        else:
            found.append(picture)
    shapes = {image.shape[:2] for image in found}
    if len(shapes) > 1:
        raise ArgumentError(
            f"{type(mixture).__name__} needs images of one size, got heights and widths {sorted(shapes)}; put a Mosaic "
            "before it, or a Letterbox into the transform of the inner dataset"
        )
    return found


@dataclass(frozen=True, slots=True)
class Paste:
    """What is written to a canvas: a picture that is resized to ``size`` (width, height), put at (left, top), and cut.

    ``area`` is what is written, in pixels of the canvas; it must lie in both.
    """

    picture: Picture
    size: tuple[int, int]
    left: int
    top: int
    area: Area


def paste(pastes: Sequence[Paste], canvas: Pixels, decode: Decode, filter: str) -> None:  # noqa: A002
    """Write pictures to a canvas. Nothing is decoded where an area is empty; pictures that overlap are written in turn.

    Parameters
    ----------
    pastes : sequence of Paste
        The pictures.
    canvas : ndarray, uint8, HWC, C-contiguous
        What is written to.
    decode : Decode
        How encoded pictures are decoded.
    filter : str
        How they are resized.
    """
    visible = [paste for paste in pastes if paste.area[0] < paste.area[2] and paste.area[1] < paste.area[3]]
    while visible:
        count = next((i for i, paste in enumerate(visible) if not isinstance(paste.picture.image, bytes)), len(visible))
        refused = _paste_encoded(visible[:count], canvas, decode, filter) if count else None
        if refused is not None:
            count, message = refused
            encoded = visible[count].picture.image
            assert isinstance(encoded, bytes)
            with trace.stage("decode"):
                _paste_pixels(visible[count], decode.image_refused(encoded, message), canvas, filter)
            count += 1
        elif count < len(visible):
            pixels = visible[count].picture.image
            assert isinstance(pixels, np.ndarray)
            _paste_pixels(visible[count], pixels, canvas, filter)
            count += 1
        visible = visible[count:]


def _paste_pixels(paste: Paste, image: Pixels, canvas: Pixels, filter: str) -> None:  # noqa: A002
    x0, y0, x1, y1 = paste.area
    if (image.shape[1], image.shape[0]) != paste.size:
        with trace.stage("augment"):
            image = resize_native(image, *paste.size, filter)
    left, top = paste.left, paste.top
    canvas[y0:y1, x0:x1] = image[y0 - top : y1 - top, x0 - left : x1 - left]


def _paste_encoded(
    pastes: Sequence[Paste],
    canvas: Pixels,
    decode: Decode,
    filter: str,  # noqa: A002
) -> tuple[int, str] | None:
    """Write JPEGs; the position of the first one that the decoder refuses, and why. Others after it may be written."""
    corners = [(paste.area[0] - paste.left, paste.area[1] - paste.top) for paste in pastes]
    places = zip(pastes, corners, strict=True)
    geometry = [(0, 0, *paste.picture.size, *paste.size, *corner, 0) for paste, corner in places]
    refused, decode_ns, resize_ns = _native.fill_parts(
        [paste.picture.image for paste in pastes],  # type: ignore[misc]  # the caller's: they are bytes
        np.array(geometry, np.int32),
        canvas,
        np.array([paste.area for paste in pastes], np.int32),
        filter=filter,
        max_pixels=decode.max_pixels,
        max_nbytes=decode.max_nbytes,
        quality=decode.quality if decode.scale == "auto" else None,
        late_color=decode.late_color,
    )
    trace.add("decode", decode_ns, len(pastes))
    trace.add("augment", resize_ns, len(pastes))
    if not refused:
        return None
    position, kind, message = refused[0]
    raise_refused(kind, message)
    return position, message


def as_mask_array(mask: ImageLike, size: tuple[int, int], decode: Decode) -> Array:
    """Return a mask, encoded or HW, as an array of its picture's ``size``.

    Raises ArgumentError if it has another size.
    """
    decoded = decode.mask(mask, np.empty(0))
    if decoded.shape != size[::-1]:
        raise ArgumentError(
            f"a mask must have the size of its image, shape {size[::-1]}, got an array of shape {decoded.shape}"
        )
    return decoded


def paste_mask(mask: Array, canvas: Array, size: tuple[int, int], left: int, top: int, area: Area) -> None:
    """Do what :func:`paste` does for a mask: it is resized by the nearest pixel."""
    x0, y0, x1, y1 = area
    if x0 >= x1 or y0 >= y1:
        return
    resized: NDArray[np.generic] = mask
    if mask.shape != size[::-1]:
        resized = Resize(size[::-1]).mask(mask, np.array(size))
    canvas[y0:y1, x0:x1] = resized[y0 - top : y1 - top, x0 - left : x1 - left]
