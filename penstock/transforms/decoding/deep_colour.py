"""Colour images of more than 8 bits a sample: 16-bit PNGs by Pillow without loss, and which others Pillow reduces.

Pillow has no mode for colours of 16 bits, and keeps the upper byte of each sample. The decoder of PNG rows can be asked
for either byte, though::

    file ──"RGB;16B"──> upper bytes ──┐
         ──"RGB;16L"──> lower bytes ──┴──> uint16

Called by :mod:`penstock.transforms.decoding.fallback`, which has checked the limits.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from penstock.transforms.decoding.image_formats import find_parser

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

__all__ = ["is_deep_png", "loses_bits", "read_deep_png"]

_BYTES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "RGB;16B": ("RGB", ("RGB;16B", "RGB;16L")),
    "RGBA;16B": ("RGBA", ("RGBA;16B", "RGBA;16L")),
    "LA;16B": ("RGBA", ("RGBA",)),
}
"""By the layout of rows: the mode of Pillow, and the layouts that give the upper and the lower bytes.

Two samples of 16 bits have the four bytes of one RGBA pixel.
"""


def is_deep_png(image: ImageFile) -> bool:
    """Whether an opened image is a PNG of several channels of 16 bits."""
    return image.format == "PNG" and len(image.tile) == 1 and image.tile[0].args in _BYTES


def read_deep_png(image: ImageFile, encoded: bytes) -> NDArray[np.uint16]:
    """The samples of a PNG for which :func:`is_deep_png` holds, (H, W, channels); an alpha of one colour is added."""
    mode, layouts = _BYTES[str(image.tile[0].args)]
    parts = [_read_rows(encoded, mode, layout) for layout in layouts]
    if len(parts) == 2:
        pixels = parts[0].astype(np.uint16) << np.uint16(8) | parts[1]
    else:
        pixels = parts[0].view(">u2").astype(np.uint16)
    key = image.info.get("transparency")
    if isinstance(key, tuple) and mode == "RGB":
        alpha = np.where((pixels == np.array(key)).all(axis=2), 0, 0xFFFF).astype(np.uint16)
        return np.dstack([pixels, alpha])
    return pixels


def loses_bits(image: ImageFile) -> bool:
    """Whether Pillow reduces the samples of an opened image to 8 bits, or gives unsigned ones a sign."""
    if image.format == "TIFF":
        bits: tuple[int, ...] = image.tag_v2.get(258, (8,))  # type: ignore[attr-defined]  # of TIFF; BitsPerSample
        if len(image.getbands()) == 1:
            is_unsigned = max(image.tag_v2.get(339, (1,))) == 1  # type: ignore[attr-defined]  # SampleFormat
            return image.mode == "I" and max(bits) == 32 and is_unsigned
        return max(bits) > 8
    if len(image.getbands()) == 1:
        return False
    if image.format == "PNG":
        return is_deep_png(image)  # of another frame than the first
    if image.format == "PPM":
        args = image.tile[0].args
        return isinstance(args, tuple) and int(args[-1]) > 255
    return False


def _read_rows(encoded: bytes, mode: str, layout: str) -> NDArray[np.uint8]:
    with find_parser("PNG")(io.BytesIO(encoded), "") as image:
        image._mode = mode  # noqa: SLF001  # a picture is allocated in this mode when it is loaded
        image.tile = [image.tile[0]._replace(args=layout)]
        image.info.pop("transparency", None)
        image.load()
        return np.asarray(image)
