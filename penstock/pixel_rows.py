"""Images at known places of one buffer, pixels or encoded: a batch without an object for each image.

::

    buffer  ... │ image │ ... │ image │ ...         a memory map, or an array
                offsets[1]    offsets[0]

A store returns them (:meth:`penstock.Store.pixels`, :meth:`penstock.Store.blobs`); the native core takes the buffer and
the places. They are also sequences of arrays, or of views, for code that works image by image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from penstock.sample import Array, DType

__all__ = ["EncodedRows", "PixelRows", "to_rgb"]


def to_rgb(pixels: Array) -> Array:
    """Convert pixels (height, width, channels) to three channels: those of gray are equal, alpha is left out."""
    if pixels.shape[2] == 3:
        return pixels
    return np.ascontiguousarray(pixels[:, :, :3]) if pixels.shape[2] > 3 else np.repeat(pixels[:, :, :1], 3, axis=2)


@dataclass(frozen=True, slots=True)
class PixelRows(Sequence[Array]):
    """Images of one shape and dtype in one buffer."""

    buffer: memoryview  # one dimension of bytes, read-only; it stays valid as long as it is referenced
    offsets: NDArray[np.int64]  # (n,): the offset of each image, in bytes. All images lie inside the buffer
    shape: tuple[int, ...]  # height, width and channels of each image
    dtype: DType  # of the values, in native byte order

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, index: int) -> Array: ...
    @overload
    def __getitem__(self, index: slice) -> PixelRows: ...
    def __getitem__(self, index: int | slice) -> Array | PixelRows:
        """Return one image, read-only, a view where it is aligned; or some of the images."""
        if isinstance(index, slice):
            return PixelRows(self.buffer, self.offsets[index], self.shape, self.dtype)
        image: Array = np.ndarray(self.shape, self.dtype, self.buffer, int(self.offsets[index]))
        if not image.flags.aligned:  # libraries assume that arrays are
            image = image.copy()
            image.flags.writeable = False
        return image

    def take(self, places: NDArray[np.int64]) -> PixelRows:
        """Return the images at some positions."""
        return PixelRows(self.buffer, self.offsets[places], self.shape, self.dtype)


@dataclass(frozen=True, slots=True)
class EncodedRows(Sequence[memoryview]):
    """Encoded images in one buffer."""

    buffer: memoryview  # one dimension of bytes, read-only; it stays valid as long as it is referenced
    places: NDArray[np.int64]
    """(n, 2): begin and end of each image, in bytes, C-contiguous. All images lie inside the buffer."""
    sizes: NDArray[np.int32]  # (n, 2): width and height of each; (0, 0) where the native decoders do not read it

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, index: int) -> memoryview: ...
    @overload
    def __getitem__(self, index: slice) -> EncodedRows: ...
    def __getitem__(self, index: int | slice) -> memoryview | EncodedRows:
        """Return a view of one image, or some of the images."""
        if isinstance(index, slice):
            return EncodedRows(self.buffer, np.ascontiguousarray(self.places[index]), self.sizes[index])
        begin, end = self.places[index].tolist()
        return self.buffer[begin:end]

    def __iter__(self) -> Iterator[memoryview]:
        for begin, end in self.places.tolist():
            yield self.buffer[begin:end]

    def take(self, positions: NDArray[np.int64]) -> EncodedRows:
        """Return the images at some positions."""
        return EncodedRows(self.buffer, self.places[positions], self.sizes[positions])
