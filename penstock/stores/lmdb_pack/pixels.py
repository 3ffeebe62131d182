"""The bytes of an image that is stored as its pixels: its values, and before them the lengths that vary.

::

    pixels:uint8[12,12,3]    values, row by row, little-endian                       432 bytes
    pixels:uint16[*,*,1]     height u32, width u32, values                           8 + 2 * height * width bytes
    pixels:uint8[*,*,*]      height u32, width u32, channels u32, values             12 + height * width * channels

:mod:`.lmdb_pack.format` calls this for each record. Shapes are checked against the kind of the field, when they are
written and when they are read.
"""

from __future__ import annotations

import math
import struct
from typing import Final

import numpy as np

from penstock.sample import Array, ArrayKind
from penstock.stores.fields.small_fields import check_pixels

__all__ = ["PixelReader", "copy_aligned", "pack_pixels"]

_SIZE: Final = struct.Struct("<II")
_SHAPE: Final = struct.Struct("<III")
"""The lengths before pixels of several sizes; with the channels where these vary."""


def pack_pixels(name: str, kind: ArrayKind, value: object) -> bytes | memoryview:
    """Return the bytes of an image as they are stored; raises as :func:`.check_pixels`."""
    pixels = check_pixels(name, kind, value)
    if kind.shape is not None:
        return pixels.data.cast("B")
    lengths = _SIZE.pack(*pixels.shape[:2]) if kind.axes[2] else _SHAPE.pack(*pixels.shape)
    return lengths + pixels.tobytes()


class PixelReader:
    """Makes the arrays of one field of pixels from stored bytes."""

    __slots__ = ("_channels", "_dtype", "_kind", "_lengths", "_nbytes", "_shape", "name")

    def __init__(self, name: str, kind: ArrayKind) -> None:
        self.name, self._kind = name, kind
        self._dtype = kind.dtype.newbyteorder("<")
        self._shape = kind.shape
        self._nbytes = 0 if kind.shape is None else math.prod(kind.shape) * kind.dtype.itemsize
        self._channels = kind.axes[2] or ()
        self._lengths = _SIZE if self._channels else _SHAPE

    def read(self, stored: memoryview) -> Array:
        """The image, (height, width, channels): a read-only view of its bytes, or a copy where they are not aligned.

        Raises
        ------
        ValueError
            If the bytes are not those of an image of this kind.
        """
        shape, begin = self._shape, 0
        if shape is None:
            if len(stored) < self._lengths.size:
                raise ValueError(f"the {len(stored)} bytes of its field {self.name!r} are shorter than a size")
            shape, begin = (*self._lengths.unpack_from(stored), *self._channels), self._lengths.size
            if 0 in shape or not self._kind.allows(shape):
                raise ValueError(f"its field {self.name!r} has shape {shape}; the schema says {self._kind}")
        if len(stored) - begin != math.prod(shape) * self._dtype.itemsize:
            raise ValueError(
                f"the {len(stored) - begin} bytes of its field {self.name!r} are not those of shape {shape}"
            )
        pixels: Array = np.ndarray(shape, self._dtype, stored, begin)
        return pixels if pixels.flags.aligned else copy_aligned(pixels)


def copy_aligned(array: Array) -> Array:
    """A read-only copy of an array that is not aligned; libraries assume that arrays are."""
    copied = array.copy()
    copied.flags.writeable = False
    return copied
