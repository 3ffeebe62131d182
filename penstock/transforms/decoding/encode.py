"""Encoding of pixels: ``penstock.encode``, by Pillow. Also what packing with ``resize`` writes."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Final

import numpy as np

from penstock.errors import ArgumentError, check_choice
from penstock.sample import Array, Value

__all__ = ["ENCODED_FORMATS", "QUALITY", "check_encoding", "encode"]

ENCODED_FORMATS: Final = ("jpeg", "png", "webp")
"""Formats that :func:`encode` writes."""

QUALITY: Final = 95
"""The default quality of lossy formats."""

_SUBSAMPLINGS: Final = ("4:4:4", "4:2:2", "4:2:0")
_CHANNELS: Final[Mapping[str, tuple[int, ...]]] = {"jpeg": (1, 3), "png": (1, 2, 3, 4), "webp": (1, 3, 4)}
_LONGEST: Final[Mapping[str, int]] = {"jpeg": 65535, "png": (1 << 31) - 1, "webp": 16383}
"""By format, the longest side that it can hold."""


def encode(
    array: Array,
    format: str = "jpeg",  # noqa: A002  # Pillow's word
    quality: int | None = None,
    *,
    lossless: bool = False,
    subsampling: str = "4:2:0",
    icc_profile: bytes | None = None,
) -> bytes:
    """Encode pixels as a file.

    Parameters
    ----------
    array : ndarray, shape (H, W), (H, W, 1), (H, W, 2), (H, W, 3) or (H, W, 4)
        Gray, gray with alpha, RGB or RGBA; uint8, and for "png" also uint16 of one channel.
    format : {"jpeg", "png", "webp"}
        "jpeg" holds 1 or 3 channels, "webp" 1 (written as 3), 3 or 4, "png" all of them, without loss.
    quality : int, optional
        Of "jpeg" and lossy "webp": 1 to 100, by default 95.
    lossless : bool
        For "webp": no loss, also of colours that are transparent.
    subsampling : {"4:4:4", "4:2:2", "4:2:0"}
        Of the colours of a "jpeg". "4:2:0", Pillow's default, keeps a quarter of the colour samples.
    icc_profile : bytes, optional
        A profile to write into the file. Pixels are not converted.

    Returns
    -------
    bytes
        The file. The same pixels give the same bytes with one version of Pillow.

    Raises
    ------
    ArgumentError
        If the format cannot hold the array, or an argument is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> import penstock as ps
    >>> ps.decode(ps.encode(np.zeros((40, 60, 3), np.uint8), "png")).shape
    (40, 60, 3)
    """
    check_encoding(format, quality, lossless=lossless, subsampling=subsampling)
    from PIL import Image

    pixels = _as_encodable(array, format)
    if format == "webp" and pixels.ndim == 2:
        pixels = np.stack([pixels] * 3, axis=2)
    options: dict[str, Value] = {"icc_profile": icc_profile}
    if format == "jpeg":
        options |= {"quality": quality or QUALITY, "subsampling": subsampling}
    elif format == "png":
        options |= {"compress_level": 6}
    elif lossless:
        options |= {"lossless": True, "exact": True}
    else:
        options |= {"quality": quality or QUALITY}
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format.upper(), **options)
    return file.getvalue()


def check_encoding(
    format: str,  # noqa: A002  # as `encode`
    quality: int | None,
    *,
    lossless: bool = False,
    subsampling: str = "4:2:0",
) -> None:
    """Raise ArgumentError unless these are options of a format that can be written."""
    check_choice("format", format, ENCODED_FORMATS)
    given: object = quality
    if given is not None and (not isinstance(given, int | np.integer) or not 1 <= given <= 100):
        raise ArgumentError(f"quality must be an integer in [1, 100], got {given!r:.80}")
    if given is not None and (format == "png" or lossless):
        raise ArgumentError(f"quality must be left out where nothing is lost, got {given!r} for {format!r}")
    if lossless and format != "webp":
        raise ArgumentError(f"lossless must be given for 'webp' only, got it for {format!r}; 'png' is always lossless")
    check_choice("subsampling", subsampling, _SUBSAMPLINGS)


def _as_encodable(array: Array, format: str) -> Array:  # noqa: A002  # as `encode`
    """Return the pixels as Pillow takes them; refuses what the format cannot hold."""
    pixels = np.asarray(array)
    channels = 1 if pixels.ndim == 2 else pixels.shape[2] if pixels.ndim == 3 else 0
    if channels not in {1, 2, 3, 4} or 0 in pixels.shape:
        raise ArgumentError(
            f"array must have the shape (H, W) or (H, W, 1 to 4), and no empty axis, got {pixels.shape}; images are HWC"
        )
    if max(pixels.shape[:2]) > _LONGEST[format]:
        raise ArgumentError(
            f"a side of a {format!r} must be at most {_LONGEST[format]} pixels, got the shape {pixels.shape}"
        )
    allowed = _CHANNELS[format] if pixels.dtype == np.uint8 else (1,) if format == "png" else ()
    if pixels.dtype not in {np.dtype(np.uint8), np.dtype(np.uint16)} or channels not in allowed:
        holds = f"uint8 of {', '.join(map(str, _CHANNELS[format]))} channels{', uint16 of 1' * (format == 'png')}"
        raise ArgumentError(
            f"{format!r} holds {holds}, got {pixels.dtype} of shape {pixels.shape}; drop alpha by array[:, :, :3], or "
            "convert the values"
        )
    return np.ascontiguousarray(pixels[:, :, 0] if pixels.ndim == 3 and channels == 1 else pixels)
