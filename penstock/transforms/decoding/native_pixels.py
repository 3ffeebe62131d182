"""Files to pixels by the native decoders: by Pillow where they refuse, and as far as they go where JPEGs are broken.

Called by :mod:`penstock.transforms.decoding.decode` and the fused fill.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock import _native
from penstock.errors import BrokenImageError, DecodeError, ImageTooLargeError, UnsupportedImageError
from penstock.orientation import Region
from penstock.paths import COEFFICIENTS
from penstock.repairs import get_policy, note_repair
from penstock.sample import Array
from penstock.transforms.decoding import fallback, jpeg_markers
from penstock.transforms.decoding.color_profiles import may_have_profile
from penstock.transforms.decoding.fallback import MAX_NBYTES
from penstock.transforms.decoding.modes import DecodedForm, from_rgb, from_stored, to_sixteen

__all__ = [
    "NATIVE_MODES",
    "decode_natively",
    "decode_values",
    "decode_with_pillow",
    "in_mode",
    "list_processor_features",
    "refuse_broken",
    "repair_or_raise",
]

NATIVE_MODES: Final = frozenset({"RGB", "BGR", "L", "RGBA"})
"""Modes of the native decoders."""

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_PNG_DEPTH: Final = 24
"""Where the depth of a PNG's samples is, before its type of colours."""

_PNG_MODES: Final[Mapping[bytes, str]] = {b"\x00": "L", b"\x02": "RGB", b"\x03": "RGB", b"\x06": "RGBA"}
"""By type of colours, the mode that changes nothing in a PNG of at most 8 bits without transparent colours."""

_DEEP: Final = "samples"
"""Instead of a native mode: samples of 16 bits."""

_JPEG: Final = b"\xff\xd8"
_JPEGS: Final = (_JPEG, COEFFICIENTS)
_RGB: Final = DecodedForm()
_NOT_BROKEN: Final = (UnsupportedImageError, ImageTooLargeError)
"""Refusals of images that may be whole."""


def decode_natively(
    encoded: bytes, region: Region | None, max_pixels: int, scale: int, max_nbytes: int, form: DecodedForm
) -> Array | None:
    """Decode a JPEG in any mode, a PNG or WebP where it becomes a native one; what is refused, by Pillow.

    None for other files.
    """
    is_jpeg = encoded.startswith(_JPEGS)
    mode = form.mode if form.mode in NATIVE_MODES else "RGB" if is_jpeg else _find_mode(encoded, form.mode)
    if mode is None or not _is_read_natively(encoded, scale, form):
        return None
    if region is not None and encoded.startswith(_JPEG) and jpeg_markers.is_cut(encoded):
        return fallback.read_pixels(encoded, max_pixels, region, scale, max_nbytes, form)
    try:
        if mode == _DEEP:
            return _read_samples(encoded, region, max_pixels, max_nbytes, form.mode)
        pixels: NDArray[np.uint8] = _native.decode(encoded, region, max_pixels, scale, max_nbytes=max_nbytes, mode=mode)
    except _native.TooLargeError as error:
        raise ImageTooLargeError(str(error)) from error
    except (_native.UnsupportedError, _native.CorruptError) as refusal:
        asked = _RGB if is_jpeg else form
        found = decode_with_pillow(encoded, str(refusal), max_pixels, region, scale, max_nbytes, asked)
        if not is_jpeg:
            return found
        mode, pixels = "RGB", found
    if is_jpeg and mode != form.mode:
        return in_mode(pixels, encoded, form.mode)
    return to_sixteen(pixels) if form.mode == "I;16" else pixels


def list_processor_features() -> list[str]:
    """Features of the processor that the native core uses; empty where its kernels are portable code."""
    return _native.features()


def _read_samples(encoded: bytes, region: Region | None, max_pixels: int, max_nbytes: int, mode: str) -> Array:
    """The samples of a PNG of 16 bits in a mode that keeps them."""
    samples: NDArray[np.uint16] = _native.decode_samples(encoded, region, max_pixels, max_nbytes=max_nbytes)
    pixels = from_stored(samples[:, :, 0] if samples.shape[2] == 1 else samples, mode)
    return np.ascontiguousarray(pixels)


def _find_mode(encoded: bytes, mode: str) -> str | None:
    """Return the native mode whose pixels are those of a PNG or WebP in a mode that keeps its depth.

    It is None if none is.
    """
    if not encoded.startswith(_PNG):
        return "L" if mode == "I;16" else None
    if encoded[_PNG_DEPTH : _PNG_DEPTH + 1] == b"\x10":
        return _DEEP
    if mode == "I;16":
        return "L"
    has_colour_key = b"tRNS" in encoded  # or bytes in the data that look so, of a file that Pillow then reads
    return None if has_colour_key else _PNG_MODES.get(encoded[_PNG_DEPTH + 1 : _PNG_DEPTH + 2])


def _is_read_natively(encoded: bytes, scale: int, form: DecodedForm) -> bool:
    """Whether a native decoder is asked first."""
    if encoded.startswith(_JPEGS):
        if form.frame or (form.to_srgb and may_have_profile(encoded)):
            return False
        return scale == 1 or bool(_native.sizes([encoded]).min() >= scale)
    is_known = encoded.startswith(_PNG) or encoded[8:12] == b"WEBP"
    return is_known and scale == 1 and not form.frame and not form.to_srgb


def in_mode(pixels: NDArray[np.uint8], jpeg: bytes, mode: str) -> Array:
    """Return the RGB pixels of a JPEG in a mode."""
    if mode == "RGB":
        return pixels
    is_gray = False
    if mode == "unchanged" and jpeg.startswith(COEFFICIENTS):
        is_gray = _native.inspect(jpeg)["components"] == 1
    elif mode == "unchanged":
        frame = jpeg_markers.frame(jpeg)
        is_gray = frame is not None and frame[2] == 1
    return from_rgb(pixels, mode, is_gray=is_gray)


def decode_values(encoded: bytes, max_pixels: int, max_nbytes: int) -> NDArray[np.generic]:
    """Return the values of an image of one channel (a mask), by the native decoder where it reads them."""
    if encoded.startswith(_PNG):
        try:
            values: NDArray[np.generic] = _native.decode_values(encoded, max_pixels, max_nbytes=max_nbytes)
        except _native.TooLargeError as error:
            raise ImageTooLargeError(str(error)) from error
        except (_native.UnsupportedError, _native.CorruptError):
            pass  # Pillow decides, and its error says more
        else:
            return values
    return fallback.channel_pixels(encoded, max_pixels, max_nbytes)


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
    note_repair(error.message)
    return pixels


def refuse_broken(error: DecodeError, on_truncated: str | None) -> DecodeError:
    """Return the error to raise: where broken images are left out, a :class:`BrokenImageError` caused by ``error``."""
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
    form: DecodedForm = _RGB,
) -> Array:
    """Decode by Pillow what the native decoder refused; if Pillow refuses it too, its error also has our reason.

    A frame of a motion JPEG, which has no Huffman tables, gets the standard ones and is decoded natively.
    """
    # Cut files are refused, also where the part that is asked for is whole.
    is_cut = region is not None and encoded.startswith(_JPEG) and jpeg_markers.is_cut(encoded)
    completed = None if is_cut else jpeg_markers.add_huffman_tables(encoded)
    if completed is not None:
        try:
            return _native.decode(completed, region, max_pixels, scale, max_nbytes=max_nbytes)
        except (_native.UnsupportedError, _native.CorruptError, _native.TooLargeError):
            pass  # Pillow has the last word, and libjpeg adds the same tables
    try:
        return fallback.read_pixels(encoded, max_pixels, region, scale, max_nbytes, form)
    except DecodeError as error:
        error.add_note(f"the native decoder: {refusal}")
        raise
