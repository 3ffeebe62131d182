"""``transcode="baseline"``: rewrites JPEGs of several scans before they are stored.

Decoding can begin inside a JPEG of one scan. In a JPEG of several scans (every progressive one, some baseline ones) it
cannot, since each scan covers the whole image. The native core rewrites such a JPEG as a baseline JPEG of one scan,
without loss: with the same coefficients, and so the same pixels, and the same metadata. Other images, and JPEGs that
cannot be rewritten without loss, stay as they are. The result depends on the bytes alone: ``verify`` compares with it.
"""

from __future__ import annotations

from typing import Final

from penstock import _native
from penstock.pack.pipeline.image_check import MAX_PIXELS

__all__ = ["TRANSCODES", "to_baseline"]

TRANSCODES: Final = ("none", "baseline")


def to_baseline(image: bytes) -> bytes | None:
    """The same image as a baseline JPEG of one scan; None if its bytes must stay as they are.

    Parameters
    ----------
    image : bytes
        A file of any format.
    """
    if not image.startswith(b"\xff\xd8"):
        return None
    try:
        return _native.transcode_baseline(image, MAX_PIXELS)
    except (_native.UnsupportedError, _native.CorruptError, _native.TooLargeError):
        return None  # it stays as it is, and decoding handles it
