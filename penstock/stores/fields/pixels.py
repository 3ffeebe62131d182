"""Pixels as containers of other programs hold them, made read-only HWC arrays in RGB.

Which order the channels have, and where the shape was lost, only people know: the options ``channels``, ``axes`` and
``shape`` say it, and nothing is guessed. Stores call this for each record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from penstock.errors import ArgumentError, check_choice
from penstock.pixel_rows import to_rgb
from penstock.sample import Array, ArrayKind

__all__ = ["CHANNELS", "CHANNEL_COUNTS", "PIXEL_DTYPES", "PixelLayout", "check_shape"]

CHANNELS: Final = ("RGB", "BGR")
AXES: Final = ("HWC", "CHW")
PIXEL_DTYPES: Final = frozenset({"uint8", "uint16", "float32"})

CHANNEL_COUNTS: Final = (1, 3, 4)
_REVERSED: Final = [2, 1, 0, 3]
_SMALL: Final = 1000  # values


class PixelLayout:
    """How the pixels of a container are stored.

    ``channels``: {"RGB", "BGR"}: the order of three or four channels; the fourth one stays where it is. ``axes``:
    {"HWC", "CHW"}: the order of the axes of an array. ``shape``: height, width and channels, where they are the same
    for all records. Raises ArgumentError if one of them is none of these.
    """

    def __init__(self, channels: str | None = None, axes: str = "HWC", shape: Sequence[int] | None = None) -> None:
        check_choice("channels", channels, CHANNELS, optional=True)
        check_choice("axes", axes, AXES)
        self.channels, self.axes = channels, axes
        self.shape = None if shape is None else check_shape(shape)

    def describe(self) -> str:
        """The order, for a description."""
        return f"{self.axes}{f' {self.channels}' if self.channels else ''}"

    def make_kind(self, samples: Sequence[Array]) -> str:
        """Return the kind of a field with such pixels.

        The channels vary where gray and colour pictures are side by side.

        Raises ArgumentError if the order of the channels is not stated, or they are no pixels in this order of axes.
        Raises ValueError if they are of several dtypes.
        """
        kinds = sorted({self._make_kind(sample) for sample in samples})
        dtypes = {kind.partition("[")[0] for kind in kinds}
        if len(dtypes) != 1:
            raise ValueError(f"it must have pixels of one dtype, got {', '.join(kinds)}")
        return kinds[0] if len(kinds) == 1 else f"{dtypes.pop()}[*,*,*]"

    def _make_kind(self, sample: Array) -> str:
        count = 1 if sample.ndim == 2 else sample.shape[0 if self.axes == "CHW" else 2]
        if count not in CHANNEL_COUNTS:
            raise ArgumentError(
                f"axes must be that of the stored arrays: an array of shape {sample.shape} read as {self.axes} has "
                f'{count} channels, and pixels have 1, 3 or 4; give axes="{"HWC" if self.axes == "CHW" else "CHW"}" '
                "if they are stored so"
            )
        if count > 1 and self.channels is None:
            raise ArgumentError(
                f'channels must say in which order the {count} channels of the stored pixels are, "RGB" or "BGR" (as '
                "OpenCV's imread gives them); the container does not say it"
            )
        if self.shape is not None and self.shape[2] != count:
            raise ArgumentError(
                f"shape must be that of the stored arrays, got {self.shape}; they have shape {sample.shape}"
            )
        height, width = ("*", "*") if self.shape is None else self.shape[:2]
        return f"pixels:{sample.dtype.newbyteorder('=')}[{height},{width},{count}]"

    def read(self, stored: Array, kind: ArrayKind) -> Array:
        """The pixels of one record of a field; gray ones in three channels, where all of the field have three.

        Raises
        ------
        ValueError
            If they are not of the shape that was stated, or not of the kind of the field.
        """
        pixels = self.convert(stored)
        if pixels.shape[2] == 1 and kind.axes[2] == (3,):
            pixels = to_rgb(pixels)
            pixels.flags.writeable = False
        if pixels.dtype != kind.dtype or pixels.shape[2] not in (kind.axes[2] or CHANNEL_COUNTS):
            raise ValueError(f"its pixels are {pixels.dtype} of shape {pixels.shape}; the store's are {kind}")
        return pixels

    def convert(self, stored: Array) -> Array:
        """The pixels of one record: read-only, HWC, contiguous, RGB; a view where they are stored so.

        Raises
        ------
        ValueError
            If they are not of the shape that was stated.
        """
        pixels: Any = stored[:, :, None] if stored.ndim == 2 else stored
        if self.axes == "CHW" and stored.ndim == 3:
            pixels = pixels.transpose(1, 2, 0)
        if self.shape is not None and pixels.shape != self.shape:
            raise ValueError(f"it has shape {pixels.shape}; shape says {self.shape}")
        if not pixels.dtype.isnative:
            pixels = pixels.astype(pixels.dtype.newbyteorder("="))
        count = pixels.shape[2]
        is_reversed = self.channels == "BGR" and count > 1
        if count > 1 and pixels.size > _SMALL and (is_reversed or not pixels.flags.c_contiguous):
            pixels = _copy_planes(pixels, _REVERSED[:count] if is_reversed else range(count))
        elif is_reversed:
            pixels = pixels[:, :, ::-1].copy() if count == 3 else pixels[:, :, _REVERSED[:count]].copy()
        elif not pixels.flags.c_contiguous:
            pixels = pixels.copy()
        pixels.flags.writeable = False
        return pixels  # type: ignore[no-any-return]  # an array


def _copy_planes(pixels: Array, order: Sequence[int]) -> Array:
    """A contiguous copy with the channels in another order; from some size on faster than NumPy's own copy."""
    copied = np.empty(pixels.shape, pixels.dtype)
    for to, origin in enumerate(order):
        copied[:, :, to] = pixels[:, :, origin]
    return copied


def check_shape(shape: object) -> tuple[int, int, int]:
    """Return height, width and channels of pixels; two lengths mean one channel.

    Raises ArgumentError if they are not two or three positive lengths.
    """
    lengths = tuple(shape) if isinstance(shape, list | tuple) else ()
    if len(lengths) not in {2, 3} or not all(isinstance(each, int | np.integer) and each > 0 for each in lengths):
        raise ArgumentError(
            f"shape must be the height, width and channels of the pixels, such as (12, 12, 3), got {shape!r}"
        )
    height, width, count = (*map(int, lengths), 1)[:3]
    return height, width, count
