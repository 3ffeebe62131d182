"""Formats of encoded images by their first bytes, for containers that do not say what they hold.

Called by stores that must know whether bytes are an image, and by writers that need an ending for them. Which formats
can be decoded is known by :mod:`penstock.transforms.decoding.fallback`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from penstock import _native
from penstock.errors import ArgumentError
from penstock.paths import COEFFICIENTS
from penstock.sample import Blob

__all__ = ["are_images", "find_image_suffix", "looks_like_image", "make_file", "read_jpeg_nbytes", "refuse_array"]

_HEAD_NBYTES: Final = 16

_SIGNATURES: Final = (
    (b"\xff\xd8\xff", "jpg"),
    (COEFFICIENTS, "jpg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"BM", "bmp"),
    (b"II*\0", "tif"),
    (b"MM\0*", "tif"),
    (b"II+\0", "tif"),
    (b"MM\0+", "tif"),
    (b"\0\0\0\x0cJXL ", "jxl"),
    (b"\xff\x0a", "jxl"),
    (b"\0\0\0\x0cjP  ", "jp2"),
    (b"\xffO\xffQ", "j2k"),
    *((b"P%d" % number, suffix) for number, suffix in enumerate(("pbm", "pgm", "ppm") * 2, 1)),
)
_BRANDS: Final = {
    **{b"ftyp" + brand: "avif" for brand in (b"avif", b"avis")},
    **{b"ftyp" + brand: "heic" for brand in (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs")},
    **{b"ftyp" + brand: "heif" for brand in (b"mif1", b"msf1")},
}


def find_image_suffix(content: bytes | memoryview) -> str:
    r"""Return the usual ending of an image file with these first bytes, without a dot.

    It is empty if they begin no known image.

    Examples
    --------
    >>> find_image_suffix(b"\xff\xd8\xff\xe0"), find_image_suffix(b"RIFF....WEBPVP8 "), find_image_suffix(b"text")
    ('jpg', 'webp', '')
    """
    head = bytes(content[:_HEAD_NBYTES])
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "webp"
    if head[4:12] in _BRANDS:
        return _BRANDS[head[4:12]]
    for signature, suffix in _SIGNATURES:
        if head.startswith(signature) and (signature[:1] != b"P" or head[2:3].isspace()):
            return suffix
    return ""


def looks_like_image(content: bytes | memoryview) -> bool:
    """Return whether some bytes begin as an encoded image does."""
    return bool(find_image_suffix(content))


def are_images(contents: Iterable[bytes | memoryview]) -> bool:
    """Return whether some values of a field are images: most of those that are not empty.

    A damaged one changes nothing.
    """
    found = [looks_like_image(content) for content in contents if len(content)]
    return 2 * sum(found) > len(found)


def make_file(content: Blob) -> Blob:
    """The file of an encoded image: the JPEG itself, byte for byte, where its coefficients are stored.

    Raises ValueError if they are damaged.
    """
    if content[0:1] != COEFFICIENTS[:1] or content[:4] != COEFFICIENTS:
        return content
    try:
        return _native.jpeg_from_coefficients(content)
    except (_native.CorruptError, _native.TooLargeError, _native.UnsupportedError) as error:
        raise ValueError(str(error)) from error


def read_jpeg_nbytes(content: bytes) -> int:
    """The bytes of the JPEG that :func:`make_file` makes of a record of coefficients, by the record's head."""
    return int.from_bytes(content[24:32], "little")


def refuse_array(name: str, value: object) -> None:
    """Raise :class:`ArgumentError` if a value of field ``name``, which holds encoded bytes, is an array."""
    if isinstance(value, np.ndarray):
        raise ArgumentError(
            f"field {name!r} must hold encoded bytes, and a record has an array of shape {value.shape}; encode it, or "
            "where an FFCV file has both, open it with raw='ppm'"
        )
