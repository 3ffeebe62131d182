"""Modes of decoding: which channels, in which order and with how many bits, the pixels of an image have.

::

    file ──native decoder, Pillow──> RGB pixels ──from_rgb──> pixels in the mode          JPEG
         ──native decoder──> samples of 16 bits ──from_stored──> pixels in the mode       PNG
         ──Pillow──> picture ──from_picture──> pixels in the mode                         what is not read natively

Called by :mod:`penstock.transforms.decoding.decode` and :mod:`penstock.transforms.decoding.fallback`. Nothing here
reads files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, UnsupportedImageError, check_choice
from penstock.sample import Array

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    "KEEPING_DEPTH",
    "MODES",
    "DecodedForm",
    "count_channels",
    "from_picture",
    "from_rgb",
    "from_stored",
    "to_sixteen",
]

MODES: Final = ("RGB", "BGR", "L", "RGBA", "I;16", "unchanged")
"""Names of the modes: Pillow's, OpenCV's order "BGR", and the array as stored."""

KEEPING_DEPTH: Final = frozenset({"I;16", "unchanged"})
"""Modes in which samples of 16 bits stay so."""

_CHANNELS: Final[Mapping[str, int | None]] = {"RGB": 3, "BGR": 3, "L": 1, "RGBA": 4, "I;16": 1, "unchanged": None}
_FULL: Final = 257
"""65535 / 255: the factor by which 8 bits become 16."""

_AS_STORED: Final[Mapping[str, str]] = {
    "1": "L",
    "L": "L",
    "LA": "LA",
    "RGB": "RGB",
    "RGBX": "RGB",
    "RGBA": "RGBA",
    "RGBa": "RGBA",
    "PA": "RGBA",
}
"""Modes of Pillow that keep their channels; palettes are looked up, and other colour spaces become RGB."""


@dataclass(frozen=True, slots=True)
class DecodedForm:
    """What is asked for of the pixels of a file.

    Raises
    ------
    ArgumentError
        If a value is not allowed.
    """

    mode: str = "RGB"  # one of :data:`MODES`
    frame: int = 0  # of an animated image, or a file of several pages
    to_srgb: bool = False  # whether colours are converted to sRGB by the profile of the file

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, MODES)
        frame: object = self.frame
        if not isinstance(frame, int | np.integer) or frame < 0:
            raise ArgumentError(f"frame must be an integer of at least 0, got {frame!r:.80}")
        if self.to_srgb and self.mode in KEEPING_DEPTH:
            raise ArgumentError(
                f"to_srgb=True needs mode RGB, BGR, RGBA or L, got {self.mode!r}, which keeps the values of the file"
            )

    @property
    def is_plain(self) -> bool:
        """Whether this is the RGB image that a file begins with, without conversion of colours."""
        return self.mode == "RGB" and self.frame == 0 and not self.to_srgb


def count_channels(mode: str) -> int | None:
    """Return the number of channels of images in a mode; None where it depends on the file."""
    return _CHANNELS[mode]


def from_rgb(pixels: NDArray[np.uint8], mode: str, *, is_gray: bool) -> Array:
    """Convert RGB pixels to a mode; ``is_gray``: whether the file has one channel, which "unchanged" returns."""
    if mode in {"BGR", "RGBA"}:
        order = (2, 1, 0) if mode == "BGR" else (0, 1, 2)
        arranged = np.empty((*pixels.shape[:2], 3 if mode == "BGR" else 4), np.uint8)
        for place, channel in enumerate(order):  # plane by plane: six times as fast as `pixels[:, :, ::-1]`
            arranged[:, :, place] = pixels[:, :, channel]
        arranged[:, :, 3:] = 255
        return arranged
    if mode in {"L", "I;16"}:
        from PIL import Image

        gray = np.array(Image.fromarray(pixels).convert("L"))  # four times as fast as `pixels.luma`, which it equals
        return gray if mode == "L" else to_sixteen(gray)
    return np.ascontiguousarray(pixels[:, :, 0]) if mode == "unchanged" and is_gray else pixels


def to_sixteen(gray: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Widen gray values of 8 bits to 16: 65535 is white."""
    return gray.astype(np.uint16) * np.uint16(_FULL)


def from_picture(image: Image, mode: str) -> Array:
    """Return the pixels of a loaded picture of Pillow in a mode; the array may be read-only.

    Raises UnsupportedImageError if the picture has no form in this mode.
    """
    if mode == "BGR":
        return _to_rgb(image)[:, :, ::-1]
    return _CONVERSIONS[mode](image)


def from_stored(pixels: Array, mode: str) -> Array:
    """Samples that no picture of Pillow holds, (H, W) or (H, W, channels), in a mode.

    Raises
    ------
    UnsupportedImageError
        If they are neither uint8 nor uint16, or more than four channels, except with "unchanged".
    """
    if mode == "unchanged":
        return pixels
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    if pixels.dtype not in {np.dtype(np.uint8), np.dtype(np.uint16)} or channels > 4:
        raise UnsupportedImageError(
            f"an image of {channels} channels of {pixels.dtype} has no form in mode {mode!r}; decode it with "
            "mode='unchanged'"
        )
    is_deep = pixels.dtype == np.uint16
    if mode == "I;16" and is_deep:
        return pixels if channels == 1 else pixels[:, :, 0] if channels == 2 else _deep_luma(pixels)
    reduced = (pixels >> 8).astype(np.uint8) if is_deep else pixels
    planes = reduced[:, :, None] if channels == 1 else reduced
    colours = planes[:, :, :3] if channels >= 3 else np.repeat(planes[:, :, :1], 3, axis=2)
    converted = from_rgb(np.ascontiguousarray(colours), mode, is_gray=False)
    if mode == "RGBA" and channels in {2, 4}:
        converted[:, :, 3] = planes[:, :, -1]
    return converted


def _deep_luma(pixels: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Compute :func:`penstock.transforms.pixel_arithmetic.luma` of 16 bits."""
    total = np.full(pixels.shape[:2], 0x8000, np.uint32)  # the weights' sum is 1 << 16: no total exceeds 32 bits
    for place, weight in enumerate((19595, 38470, 7471)):
        total += pixels[:, :, place] * np.uint32(weight)
    return (total >> np.uint32(16)).astype(np.uint16)


def _find_sixteen(image: Image) -> NDArray[np.uint16] | None:
    """Return the values of a gray picture of 16 bits; None for other pictures."""
    if image.mode.startswith("I;16"):
        return np.asarray(image).astype(np.uint16)
    if image.mode == "I" and getattr(image, "format", None) == "PPM":  # brought to 16 bits, whatever its largest value
        return np.asarray(image).astype(np.uint16)
    return None


def _to_rgb(image: Image) -> NDArray[np.uint8]:
    deep = _find_sixteen(image)
    if deep is not None:
        return np.repeat((deep >> 8).astype(np.uint8)[:, :, None], 3, axis=2)
    return _convert(image, "RGB")


def _to_luma(image: Image) -> NDArray[np.uint8]:
    deep = _find_sixteen(image)
    return _convert(image, "L") if deep is None else (deep >> 8).astype(np.uint8)


def _to_rgba(image: Image) -> NDArray[np.uint8]:
    deep = _find_sixteen(image)
    if deep is None:
        return _convert(image, "RGBA", keeps_alpha=True)
    alpha = _find_alpha(image, deep)
    alpha = np.full(deep.shape, 255, np.uint8) if alpha is None else (alpha >> 8).astype(np.uint8)
    return np.dstack([_to_rgb(image), alpha])


def _to_sixteen(image: Image) -> NDArray[np.uint16]:
    deep = _find_sixteen(image)
    if deep is not None:
        return deep
    if image.mode in {"I", "F"}:
        raise UnsupportedImageError(
            f"a {image.format} image of 32 bits has no form in mode 'I;16'; decode it with mode='unchanged'"
        )
    return to_sixteen(_to_luma(image))


def _to_stored(image: Image) -> Array:
    deep = _find_sixteen(image)
    if deep is not None:
        alpha = _find_alpha(image, deep)
        return deep if alpha is None else np.dstack([deep, alpha])
    if image.mode in {"I", "F"}:
        return np.asarray(image)
    has_colour_key = "transparency" in image.info
    if image.mode == "P":
        return _convert(image, "RGBA" if has_colour_key or "A" in _palette_mode(image) else "RGB", keeps_alpha=True)
    target = _AS_STORED.get(image.mode, "RGB")
    if has_colour_key and target in {"L", "RGB"}:
        target += "A"
    return _convert(image, target, keeps_alpha=True)


def _palette_mode(image: Image) -> str:
    return "" if image.palette is None else image.palette.mode


def _find_alpha(image: Image, deep: NDArray[np.uint16]) -> NDArray[np.uint16] | None:
    """Return the alpha of a gray picture of 16 bits, of which one value is transparent; None if none is."""
    key = image.info.get("transparency")
    return np.where(deep == key, 0, 0xFFFF).astype(np.uint16) if isinstance(key, int) else None


_CONVERSIONS: Final[Mapping[str, Callable[[Image], Array]]] = {
    "RGB": _to_rgb,
    "L": _to_luma,
    "RGBA": _to_rgba,
    "I;16": _to_sixteen,
    "unchanged": _to_stored,
}


def _convert(image: Image, mode: str, *, keeps_alpha: bool = False) -> NDArray[np.uint8]:
    if not keeps_alpha:
        image.info.pop("transparency", None)  # irrelevant here, and convert() would warn about it
    try:
        return np.asarray(image if image.mode == mode and "transparency" not in image.info else image.convert(mode))
    except ValueError as error:
        raise UnsupportedImageError(
            f"a {image.format} image of mode {image.mode} cannot be converted to {mode}"
        ) from error
