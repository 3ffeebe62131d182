"""Formats of images by their first bytes, and the class of Pillow that reads each.

The list is fixed: no Ghostscript, no FLI, and none that is chosen by the name of a file. Called by
:mod:`penstock.transforms.decoding.fallback`; nothing here reads more of a file than its first bytes.

The warnings of Pillow are ignored in one thread; other threads and the user's filters are not affected. Pillow warns
while it parses malformed files (TIFF tags, APNG, MPO): once per file, and under ``-W error`` it raises instead of
decoding. ``warnings.catch_warnings`` replaces a list that all threads share, so that two threads can leave it replaced
for ever. Here one filter is inserted at the front of the list instead; it matches only inside :func:`quiet`.
"""

from __future__ import annotations

import importlib
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from penstock.errors import DecodeError, OptionalPackageError, UnsupportedImageError
from penstock.paths import COEFFICIENTS
from penstock.registry import require

__all__ = ["HELD_NBYTES", "PICTURE_NBYTES", "find_parser", "quiet", "sniff"]

_PARSERS: Final = {
    "JPEG": ("PIL.JpegImagePlugin", "JpegImageFile"),
    "PNG": ("PIL.PngImagePlugin", "PngImageFile"),
    "GIF": ("PIL.GifImagePlugin", "GifImageFile"),
    "WebP": ("PIL.WebPImagePlugin", "WebPImageFile"),
    "BMP": ("PIL.BmpImagePlugin", "BmpImageFile"),
    "TIFF": ("PIL.TiffImagePlugin", "TiffImageFile"),
    "PPM": ("PIL.PpmImagePlugin", "PpmImageFile"),
    "AVIF": ("PIL.AvifImagePlugin", "AvifImageFile"),
    "HEIC": ("pillow_heif", "HeifImageFile"),
    "JPEG XL": ("pillow_jxl.JpegXLImagePlugin", "JXLImageFile"),
}
HELD_NBYTES: Final[Mapping[str, int]] = {"WebP": 16, "GIF": 4, "PNG": 4, "AVIF": 12, "HEIC": 16, "JPEG XL": 16}
"""Bytes per pixel that a decoder holds beside Pillow's picture: canvases, frames before, planes."""

PICTURE_NBYTES: Final[Mapping[str, int]] = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2}
"""Bytes per pixel of Pillow's pictures of these modes; of all others 4."""

_EXTRAS: Final = {"HEIC": "heif", "JPEG XL": "jxl"}
"""Formats that Pillow reads by a package of its own, and the extra that installs it."""

_MAGIC: Final = {
    b"\xff\xd8\xff": "JPEG",
    COEFFICIENTS: "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"GIF87a": "GIF",
    b"GIF89a": "GIF",
    b"BM": "BMP",
    b"II*\x00": "TIFF",
    b"MM\x00*": "TIFF",
    b"II+\x00": "TIFF",
    b"MM\x00+": "TIFF",
    b"\x00\x00\x00\x0cJXL ": "JPEG XL",
    b"\xff\x0a": "JPEG XL",
    **{b"P%d%c" % (kind, space): "PPM" for kind in range(1, 7) for space in b" \t\n\x0b\x0c\r"},
}
_NOT_READ: Final = {
    b"\x00\x00\x00\x0cjP  ": "JPEG 2000",
    b"\xff\x4f\xff\x51": "JPEG 2000",
    b"8BPS": "Photoshop",
    b"%PDF": "PDF",
    b"\x00\x00\x01\x00": "icon",
    b"v/1\x01": "OpenEXR",
    b"#?RADIANCE": "Radiance HDR",
    b"qoif": "QOI",
    b"DDS ": "DDS",
}
_AVIF_BRANDS: Final = (b"avif", b"avis")
_HEIC_BRANDS: Final = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs")
_IMAGE_BRANDS: Final = (b"mif1", b"msf1")  # of any codec; the following brands tell which


def sniff(head: bytes) -> str:
    """The format by the first bytes of a file, one of :data:`_PARSERS`; its name is not used.

    Raises UnsupportedImageError if it is an image format that is not supported. Raises DecodeError if it is no known
    format.
    """
    for magic, name in _MAGIC.items():
        if head.startswith(magic):
            return name
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "WebP"
    other = next((name for magic, name in _NOT_READ.items() if head.startswith(magic)), None)
    if head[4:8] == b"ftyp":
        brand = head[8:12]
        if brand in _AVIF_BRANDS or (brand in _IMAGE_BRANDS and any(each in head[16:32] for each in _AVIF_BRANDS)):
            return "AVIF"
        if brand in {*_HEIC_BRANDS, *_IMAGE_BRANDS}:
            return "HEIC"
        other = "Canon raw" if brand == b"crx " else "of a video, or of another kind of HEIF,"
    if other is not None:
        raise UnsupportedImageError(
            f"the format {other} is not supported; convert the image to one of {', '.join(_PARSERS)}", offset=0
        )
    if not head:
        raise DecodeError("an image must have at least one byte, got none", offset=0)
    raise DecodeError(
        f"not an image: the first bytes are {head[:16]!r}; the format must be one of {', '.join(_PARSERS)}", offset=0
    )


def find_parser(name: str) -> Any:
    """Pillow's class that reads a format, or that of a package for Pillow.

    Raises
    ------
    UnsupportedImageError
        If the installed Pillow does not read it, or the package is missing; the message names the extra.
    """
    module, attribute = _PARSERS[name]
    if name in _EXTRAS:
        try:
            require(module.partition(".")[0], extra=_EXTRAS[name], purpose=f"to decode {name}")
        except OptionalPackageError as error:
            raise UnsupportedImageError(error.message) from error
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise UnsupportedImageError(f"the installed Pillow does not read {name}; install a newer Pillow") from error


_here = threading.local()
_lock = threading.Lock()


def _renew_lock() -> None:
    global _lock  # noqa: PLW0603  # a forked child may inherit it locked by a thread that the child does not have
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


class _OnlyHere:
    """Takes the place of the compiled message pattern in a warnings filter."""

    def match(self, _text: str) -> bool:
        return getattr(_here, "depth", 0) > 0


_FILTER: Any = ("ignore", _OnlyHere(), Warning, None, 0)


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore every warning that this thread raises while the body runs; re-entrant and thread-safe."""
    filters: list[Any] = warnings.filters  # type: ignore[assignment]  # typeshed calls the list a Sequence
    if not filters or filters[0] is not _FILTER:
        with _lock:  # another filter was inserted, or an older list was restored
            if _FILTER in filters:
                filters.remove(_FILTER)
            filters.insert(0, _FILTER)
    _here.depth = getattr(_here, "depth", 0) + 1
    try:
        yield
    finally:
        _here.depth -= 1
