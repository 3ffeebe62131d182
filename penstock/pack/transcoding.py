"""``transcode="baseline"``: what becomes of an image's bytes before they are stored.

A crop can begin in the middle of a JPEG of one scan but not of one of several (every progressive one, and some baseline
ones), whose every scan covers all of it. The native core rewrites these as baseline in one scan without loss: the same
coefficients, so the same pixels, and the same metadata. What has one scan, is no JPEG, or holds something that cannot
be kept so, stays as it is. The result depends on the bytes alone, which is how ``verify`` compares a pack with its
source.
"""

from __future__ import annotations

from typing import Final

from penstock import _native
from penstock.pack.check import MAX_PIXELS

__all__ = ["TRANSCODES", "to_baseline"]

TRANSCODES: Final = ("none", "baseline")


def to_baseline(image: bytes) -> bytes | None:
    """The same picture as a baseline JPEG of one scan; None where the bytes are to stay as they are.

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
        return None  # what decoding makes of it is not for packing to change
