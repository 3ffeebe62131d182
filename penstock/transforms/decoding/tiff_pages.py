"""TIFFs that Pillow does not read, or not without loss, by ``tifffile``: 16 and 32 bits of several channels, floats.

``tifffile`` reads the tags and puts strips and tiles together. What may be allocated is checked before: the size of the
page, of a tile, and what a compressed tile becomes. Called by :mod:`penstock.transforms.decoding.fallback`.
"""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from penstock.errors import (
    ArgumentError,
    DecodeError,
    ImageTooLargeError,
    OptionalPackageError,
    PenstockError,
    UnsupportedImageError,
)
from penstock.orientation import orient_pixels
from penstock.registry import require
from penstock.sample import Array
from penstock.wording import counted

__all__ = ["check_nbytes", "check_pixels", "read_page", "read_page_size", "require_tifffile"]

_STORED, _LZW, _PACKBITS = 1, 5, 32773
_DEFLATE: Final = frozenset({8, 32946})
_COMPRESSIONS: Final = frozenset({_STORED, _LZW, _PACKBITS, *_DEFLATE})
_GRAY, _RGB = (0, 1), 2
_MOST_PIXEL_NBYTES: Final = 8
"""Bytes that a pixel may have, on average over the cap of pixels: four channels of 16 bits."""
_ORIENTATION: Final = 274
_FLOAT_PREDICTOR: Final = 3


def require_tifffile() -> Any:
    """Return the module ``tifffile``; UnsupportedImageError, which names the extra, if it is not installed."""
    return _require("tifffile", "to decode this TIFF")


def read_page_size(encoded: bytes, frame: int, max_pixels: int) -> tuple[int, int]:
    """Width and height of a page, as :func:`read_page` gives it."""
    with _open_page(encoded, frame, max_pixels) as page:
        size = page.imagewidth, page.imagelength
        return size[::-1] if _find_orientation(page) >= 5 else size


def read_page(encoded: bytes, frame: int, max_pixels: int, max_nbytes: int) -> Array:
    """The samples of a page as stored, (H, W) or (H, W, channels), turned by its orientation as Pillow does.

    Raises
    ------
    ArgumentError
        If there is no such page.
    DecodeError
        If it is truncated or damaged.
    UnsupportedImageError
        If its compression or its colours are not supported, or tifffile is not installed.
    ImageTooLargeError
        If the page or a tile is above a limit.
    """
    with _open_page(encoded, frame, max_pixels) as page:
        check_nbytes(2 * math.prod(page.shape) * page.dtype.itemsize, max_nbytes)  # the page, and turned or converted
        _check_segments(page, encoded)
        pixels: Array = page.asarray()
        if page.axes == "SYX":
            pixels = np.moveaxis(pixels, 0, 2)
        if pixels.ndim not in {2, 3} or pixels.shape[:2] != (page.imagelength, page.imagewidth):
            raise DecodeError(  # a fault of the file, found here
                f"damaged TIFF: its samples must have the shape ({page.imagelength}, {page.imagewidth}, channels), got "
                f"{pixels.shape}"
            )
        if pixels.ndim == 3 and pixels.shape[2] == 1:
            pixels = pixels[:, :, 0]
        oriented: Array = orient_pixels(pixels, _find_orientation(page))
        return oriented


@contextmanager
def _open_page(encoded: bytes, frame: int, max_pixels: int) -> Iterator[Any]:
    tifffile = require_tifffile()
    try:
        with tifffile.TiffFile(io.BytesIO(encoded)) as file:
            page = _find_page(file, frame)
            _check_page(page, max_pixels)
            yield page
    except (PenstockError, MemoryError):
        raise
    except Exception as error:  # its parser raises exceptions of any type on hostile bytes
        raise DecodeError(f"this TIFF image cannot be decoded: {str(error) or type(error).__name__}") from error


def check_pixels(size: tuple[int, int], max_pixels: int) -> None:
    """Refuse a picture that declares more pixels than the caller allows."""
    width, height = size
    if width * height > max_pixels:
        raise ImageTooLargeError(
            f"the header declares {width} x {height} = {width * height} pixels, above the cap of {max_pixels}; "
            "raise max_pixels if the image is meant to be that large"
        )


def check_nbytes(nbytes: int, max_nbytes: int) -> None:
    """Refuse a picture for which decoding takes more bytes than the caller allows."""
    if nbytes > max_nbytes:
        raise ImageTooLargeError(
            f"its pixels and what the decoder holds of the picture take {nbytes} bytes, above the cap of {max_nbytes}; "
            "raise max_nbytes if the image is meant to be that large"
        )


def _require(package: str, purpose: str) -> Any:
    try:
        return require(package, extra="tiff", purpose=purpose)
    except OptionalPackageError as error:
        raise UnsupportedImageError(error.message) from error


def _find_page(file: Any, frame: int) -> Any:
    count = len(file.pages) if frame else 1
    if frame >= count:
        raise ArgumentError(
            f"frame must be in [0, {count - 1}], since this TIFF has {counted(count, 'page')}, got {frame}"
        )
    return file.pages[frame]


def _check_page(page: Any, max_pixels: int) -> None:
    width, height, samples = page.imagewidth, page.imagelength, page.samplesperpixel
    is_known = page.dtype is not None and page.dtype.kind in "uif" and page.axes in {"YX", "YXS", "SYX"}
    if not is_known or page.imagedepth != 1:
        raise UnsupportedImageError(
            f"a TIFF of {page.bitspersample} bits, axes {page.axes} and depth {page.imagedepth} is not supported"
        )
    if not width * height * samples:
        raise DecodeError(f"damaged TIFF: the header declares {width} x {height} pixels of {samples} channels")
    if page.photometric not in {*_GRAY, _RGB}:
        raise UnsupportedImageError(f"a TIFF of several channels must be gray or RGB, got {page.photometric!r}")
    if page.compression not in _COMPRESSIONS:
        raise UnsupportedImageError(f"the compression of this TIFF is not supported: {page.compression!r}")
    if page.compression == _LZW or page.predictor == _FLOAT_PREDICTOR:
        _require("imagecodecs", "to decompress this TIFF (LZW, or predicted floats)")
    check_pixels((width, height), max_pixels)
    most = max_pixels * _MOST_PIXEL_NBYTES
    nbytes = max(width * height * samples, math.prod(page.chunks)) * page.dtype.itemsize
    if nbytes > most:
        raise ImageTooLargeError(
            f"the header declares {counted(samples, 'channel')} of {page.dtype}, or tiles, of {nbytes} bytes, above "
            f"the cap of {most}; raise max_pixels if the image is meant to be that large"
        )


def _check_segments(page: Any, encoded: bytes) -> None:
    """Refuse strips and tiles that are missing, or become more than their size."""
    limit = math.prod(page.chunks) * page.dtype.itemsize
    check: Callable[[bytes], bool] | None = None
    if page.compression in _DEFLATE:
        check = lambda data: len(zlib.decompressobj().decompress(data, limit + 1)) <= limit  # noqa: E731  # or None
    for offset, nbytes in zip(page.dataoffsets, page.databytecounts, strict=True):
        if nbytes == 0 or offset + nbytes > len(encoded):
            raise DecodeError(
                f"truncated TIFF: a strip or tile ends at byte {offset + nbytes} of {len(encoded)}", offset=len(encoded)
            )
        if check is not None and not check(encoded[offset : offset + nbytes]):
            raise DecodeError(f"damaged TIFF: a strip or tile becomes more than its {limit} bytes", offset=offset)
    if len(page.dataoffsets) != math.prod(page.chunked):
        raise DecodeError(
            f"truncated TIFF: the number of its strips or tiles must be {math.prod(page.chunked)}, got "
            f"{len(page.dataoffsets)}"
        )


def _find_orientation(page: Any) -> int:
    tag = page.tags.get(_ORIENTATION)
    value = 1 if tag is None else tag.value
    return int(value) if isinstance(value, int) and 1 <= value <= 8 else 1
