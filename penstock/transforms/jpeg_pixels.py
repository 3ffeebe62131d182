"""JPEGs to RGB pixels: by the native decoder, by Pillow where it refuses, and as far as they go where they are broken.

Called by :mod:`penstock.transforms.decode` and the fused fill.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock import _native
from penstock.errors import BrokenImageError, DecodeError, ImageTooLargeError, UnsupportedImageError
from penstock.repairs import get_policy, note_repair
from penstock.transforms import fallback, jpeg_markers
from penstock.transforms.fallback import MAX_NBYTES
from penstock.transforms.orientation import Region

__all__ = ["decode_jpeg", "decode_with_pillow", "refuse_broken", "repair_or_raise"]

_NOT_BROKEN: Final = (UnsupportedImageError, ImageTooLargeError)
"""Refusals of images that may be whole."""


def decode_jpeg(
    encoded: bytes, region: Region | None, max_pixels: int, scale: int, max_nbytes: int
) -> NDArray[np.uint8]:
    """Decode a JPEG; what the native decoder refuses, by Pillow."""
    if region is not None and jpeg_markers.is_cut(encoded):
        return decode_with_pillow(encoded, "the end marker is missing", max_pixels, region, scale, max_nbytes)
    try:
        pixels: NDArray[np.uint8] = _native.decode(encoded, region, max_pixels, scale, max_nbytes=max_nbytes)
    except _native.TooLargeError as error:
        raise ImageTooLargeError(str(error)) from error
    except (_native.UnsupportedError, _native.CorruptError) as refusal:
        return decode_with_pillow(encoded, str(refusal), max_pixels, region, scale, max_nbytes)
    return pixels


def repair_or_raise(
    encoded: bytes,
    error: DecodeError,
    on_truncated: str | None,
    max_pixels: int,
    region: Region | None,
    scale: int,
    max_nbytes: int,
) -> NDArray[np.uint8]:
    """Decode an image that cannot be decoded, if that is asked for; else raise the error."""
    if (on_truncated or get_policy()) != "repair" or isinstance(error, _NOT_BROKEN):
        raise refuse_broken(error, on_truncated)
    whole = jpeg_markers.add_huffman_tables(encoded) or encoded
    try:
        pixels: NDArray[np.uint8] = _native.decode_damaged(whole, region, max_pixels, scale, max_nbytes=max_nbytes)
    except _native.TooLargeError as too_large:
        raise ImageTooLargeError(str(too_large)) from error
    except (_native.UnsupportedError, _native.CorruptError) as refusal:
        error.add_note(f"not repaired: {refusal}")
        raise error from refusal
    note_repair(encoded, error.message)
    return pixels


def refuse_broken(error: DecodeError, on_truncated: str | None) -> DecodeError:
    """The error to raise: where broken images are left out, a :class:`BrokenImageError` caused by ``error``."""
    if (on_truncated or get_policy()) != "skip" or isinstance(error, (BrokenImageError, *_NOT_BROKEN)):
        return error
    broken = BrokenImageError(error.message, **error.where)
    broken.__cause__ = error
    return broken


def decode_with_pillow(
    encoded: bytes,
    refusal: str,
    max_pixels: int,
    region: Region | None = None,
    scale: int = 1,
    max_nbytes: int = MAX_NBYTES,
) -> NDArray[np.uint8]:
    """Decode by Pillow what the native decoder refused; if Pillow refuses it too, its error also has our reason.

    A frame of a motion JPEG, which has no Huffman tables, gets the standard ones and is decoded natively.
    """
    is_cut = region is not None and jpeg_markers.is_cut(
        encoded
    )  # refused, also where the part that is asked for is whole
    completed = None if is_cut else jpeg_markers.add_huffman_tables(encoded)
    if completed is not None:
        try:
            return _native.decode(completed, region, max_pixels, scale, max_nbytes=max_nbytes)
        except (_native.UnsupportedError, _native.CorruptError, _native.TooLargeError):
            pass  # Pillow has the last word, and libjpeg adds the same tables
    try:
        return fallback.read_pixels(encoded, max_pixels, region, scale, max_nbytes)
    except DecodeError as error:
        error.add_note(f"the native decoder: {refusal}")
        raise
