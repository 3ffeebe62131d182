"""Ops on the values of uint8 pixels: base classes, and arithmetic: luma, look-up tables, blends, as Pillow's.

Functions take uint8 arrays, (H, W, 3) or (H, W), and return new arrays. Ops check the arguments. :func:`adjust` applies
several changes of value by one call of the native core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from penstock import _native
from penstock.bfloat16 import as_words
from penstock.sample import Array, SampleKeys
from penstock.transforms.base import ImageLike, ImageSpec, Op, Params, Sizes, uniforms
from penstock.transforms.checks import as_probability, require_pixel_spec, require_pixels

__all__ = [
    "IDENTITY",
    "MAXIMA",
    "PixelOp",
    "Pixels",
    "ProbabilisticOp",
    "Steps",
    "adjust",
    "blend",
    "blend_table",
    "is_colour",
    "look_up",
    "look_up_channels",
    "luma",
    "paint",
    "repeat_channels",
    "write_row",
]

Pixels = NDArray[np.uint8]

Steps = Sequence[tuple[str, float]]
"""Changes of value by the names in the native core, each with its factor, or 0."""

IDENTITY: Final = np.arange(256, dtype=np.uint8)
IDENTITY.setflags(write=False)
"""The look-up table of the identity."""

MAXIMA: Final[Mapping[str, float]] = {"uint8": 255.0, "uint16": 65535.0}
"""By dtype of integers: the value that counts as 1."""

_ROWS: Final = 32
"""Rows that are float at the same time: they stay in the cache, and are not allocated anew."""


def adjust(image: Pixels, steps: Steps) -> Pixels:
    """Apply ``steps`` in order by the native core; equals the NumPy functions of these names, bit for bit."""
    return _native.adjust(np.ascontiguousarray(image), steps) if steps else image


def is_colour(image: ImageLike) -> TypeGuard[Pixels]:
    """Return whether ``image`` is a uint8 array of shape (H, W, 3), and not empty."""
    known = isinstance(image, np.ndarray) and image.dtype == np.uint8
    return known and image.ndim == 3 and image.shape[2] == 3 and image.size > 0


def write_row(
    image: Pixels,
    out: Array,
    layout: str,
    scale: Sequence[float] | None = None,
    offset: Sequence[float] | None = None,
) -> None:
    """Write an image for which :func:`is_colour` holds to ``out[0]``; as floats, ``value * scale + offset``."""
    height, width = image.shape[:2]
    identity = np.array([0, 0, width, height, width, height, 0, 0, 0], np.int32)
    _native.fill_pixels(
        np.ascontiguousarray(image), identity, as_words(out), 0, layout=layout, filter="box", scale=scale, offset=offset
    )


def paint(area: Array, fill: Array) -> None:
    """Overwrite ``area``, HWC or HW, by one colour, (3,) or ().

    Fills one row first, because NumPy copies rows many times faster than triples.
    """
    row = np.empty(area.shape[1:], area.dtype)
    row[:] = fill
    area[:] = row


def luma(image: Pixels) -> Pixels:
    """Return luma, HW, by ITU-R BT.601 in 16 fractional bits, rounded, as ``PIL.Image.convert("L")``."""
    if image.ndim == 2:
        return image
    total = image[:, :, 0].astype(np.uint32)
    total *= np.uint32(19595)
    total += image[:, :, 1] * np.uint32(38470)
    total += image[:, :, 2] * np.uint32(7471)
    total += np.uint32(0x8000)
    total >>= np.uint32(16)
    return total.astype(np.uint8)


def repeat_channels(plane: Pixels) -> Pixels:
    """Repeat an HW image in three channels."""
    return np.stack([plane] * 3, axis=2)


def look_up(image: Pixels, table: Pixels) -> Pixels:
    """Replace each value by ``table[value]``; the table has 256 entries."""
    return table.take(image)


def look_up_channels(image: Pixels, tables: Pixels) -> Pixels:
    """Replace the values of each channel by its table, (channels, 256)."""
    if image.ndim == 2:
        return look_up(image, tables[0])
    out = np.empty(image.shape, np.uint8)
    for channel in range(image.shape[2]):
        out[:, :, channel] = tables[channel].take(image[:, :, channel])
    return out


def blend(first: Pixels, second: Pixels, factor: float) -> Pixels:
    """Blend ``first + factor * (second - first)`` in float32, clipped to [0, 255], truncated, as ``PIL.Image.blend``.

    Both of one shape. A factor outside 0..1 extrapolates.
    """
    if factor == 1:
        return second.copy()
    out = np.empty(second.shape, np.uint8)
    for top in range(0, len(second), _ROWS):
        start = first[top : top + _ROWS].astype(np.float32)
        mixed = second[top : top + _ROWS].astype(np.float32)
        mixed -= start
        mixed *= np.float32(factor)
        mixed += start
        out[top : top + _ROWS] = np.clip(mixed, 0, 255, out=mixed)
    return out


def blend_table(first: int, factor: float) -> Pixels:
    """The look-up table of :func:`blend` with one value for ``first``."""
    return blend(np.full((1, 256), first, np.uint8), IDENTITY[None], factor).reshape(256)


class PixelOp(Op):
    """Base class of ops that change the values of uint8 pixels, and keep their shape."""

    def spec(self, spec: ImageSpec) -> ImageSpec | None:
        """Return the spec, unchanged."""
        return require_pixel_spec(spec, self)


class ProbabilisticOp(PixelOp):
    """Applies :meth:`change` with probability ``p``; params: whether each sample is changed. Draws one number."""

    random: ClassVar[bool] = True

    def __init__(self, p: float = 0.5) -> None:
        self.p = as_probability(p)

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:  # noqa: ARG002  # any size
        """Return whether each image is changed, because its number is below ``p``."""
        return uniforms(keys, stream, 1)[:, 0] < self.p

    def image(self, image: Array, params: Params) -> Array:
        """Return a changed image, or the image itself."""
        pixels = self.require(image)
        return self.change(pixels) if params else pixels

    def native(self, image: Array, params: Params) -> Array:
        """Apply; by the native core, where it has a kernel."""
        pixels = self.require(image)
        return self.change_native(pixels) if params else pixels

    def require(self, image: Array) -> Pixels:
        """``image``, if it has the dtype and shape that are needed."""
        return require_pixels(image, self)

    def change(self, image: Pixels) -> Pixels:
        """Return a changed image, as a new array."""
        raise NotImplementedError(f"{type(self).__name__} must define change")

    def change_native(self, image: Pixels) -> Pixels:
        """Change the pixels like :meth:`change`, by the native core; default: :meth:`change`."""
        return self.change(image)
