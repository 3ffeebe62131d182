"""Pictures as a browser shows them: decoded, turned by their Exif orientation, in a window of values, scaled, encoded.

::

    JPEG, PNG, WebP ──pipeline: decode what is covered, reduced; crop; resize──┐
    other files ──decode──┐                                                    │
    pixels of a store ────┴──slices──> window ──> uint8 ──resize───────────────┴──> WebP, PNG

The pipeline is that of loaders: a JPEG is decoded at 1/2, 1/4 or 1/8 where that is enough. A picture of more than 8
bits is shown from its smallest to its largest value, unless a window is given. Alpha is kept.
"""

from __future__ import annotations

import contextlib
import io
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, DecodeError, UnsupportedImageError
from penstock.orientation import FIRST_TRANSPOSED, Region
from penstock.sample import Array, Blob, SampleKeys
from penstock.transforms.base import Params, Sizes
from penstock.transforms.decoding.decode import MAX_PIXELS, Decode, decode, read_orientations, sizes
from penstock.transforms.decoding.image_formats import sniff
from penstock.transforms.ops.crop import CropOp
from penstock.transforms.ops.resize import Resize
from penstock.transforms.pipeline import Pipeline

__all__ = ["PictureForm", "check_picture", "find_size", "make_picture"]

_MOST_AT_ONCE: Final = 1 << 24
"""Pictures of more pixels are decoded one after another."""
_SAMPLES: Final = 1.5
"""Decoded pixels for each pixel of a thumbnail, across and down, at least."""
_SMALL: Final = 128
"""Pictures of at most this side are sent without loss: a page shows their pixels as squares."""
_large = threading.Lock()


@dataclass(frozen=True, slots=True)
class PictureForm:
    """How a picture is shown: its longer side has at most ``side`` pixels, and it is never enlarged.

    ``region`` is x0, y0, x1, y1 in pixels of the picture as it is turned; ``low`` and ``high`` become black and white;
    ``channel`` is the only one that is shown, as gray; with ``is_exact`` it is encoded without loss, as PNG.
    """

    side: int = 256
    region: Region | None = None
    low: float | None = None
    high: float | None = None
    channel: int | None = None
    is_exact: bool = False


class _Cut(CropOp):
    """One window of a picture, ``region``."""

    may_pad = False

    def __init__(self, region: Region) -> None:
        x0, y0, x1, y1 = self._region = region
        super().__init__((y1 - y0, x1 - x0))

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:  # noqa: ARG002  # nothing random
        """Return the window of each image."""
        x0, y0, x1, y1 = self._region
        return np.array([(x0, y0, x1 - x0, y1 - y0)] * len(sizes), np.int32).reshape(-1, 4)


def find_size(image: Blob) -> tuple[int, int]:
    """Width and height of a picture as it is shown; DecodeError if its header cannot be read."""
    if isinstance(image, np.ndarray):
        return image.shape[1], image.shape[0]
    width, height = sizes([image])[0].tolist()
    is_turned = read_orientations([image], MAX_PIXELS)[0] >= FIRST_TRANSPOSED
    return (height, width) if is_turned else (width, height)


def make_picture(image: Blob, form: PictureForm) -> bytes:
    """Return a file, or pixels (height, width, channels), encoded for a browser.

    Damage is repaired as far as it can be.

    ArgumentError if the region has no pixel of it, or there is no such channel; DecodeError if it cannot be decoded.
    """
    size = find_size(image)
    x0, y0, x1, y1 = form.region or (0, 0, *size)
    region = x0, y0, x1, y1 = max(x0, 0), max(y0, 0), min(x1, size[0]), min(y1, size[1])
    if x0 >= x1 or y0 >= y1:
        raise ArgumentError(f"region must lie in a picture of {size[0]} x {size[1]}, got {form.region}")
    ratio = min(1.0, form.side / max(x1 - x0, y1 - y0))
    target = max(1, round((x1 - x0) * ratio)), max(1, round((y1 - y0) * ratio))
    mode = _find_mode(image)
    with _one_at_a_time(*size):
        values = whole = _decode_whole(image) if mode is None else _reduce(image, mode, region, target, "repair")
        if mode is None:
            step = max(1, int(min(1 / ratio, 1e6) // 2))
            values = whole[y0:y1:step, x0:x1:step]
        return _encode(_to_shown(values, form, *_find_range(whole, form)), target, form, is_small=max(size) <= _SMALL)


def check_picture(image: Blob) -> tuple[str, tuple[float, float] | None]:
    """Why a picture is damaged, empty if it is whole; and the values that are black and white, if it has many bits."""
    try:
        size, mode = find_size(image), _find_mode(image)
        with _one_at_a_time(*size):
            if mode is not None:
                _reduce(image, mode, (0, 0, *size), (min(size[0], 16), min(size[1], 16)), "raise")
                return "", None
            values = _decode_whole(image)
    except DecodeError as error:
        return str(error), None
    return "", _find_range(values, PictureForm()) if values.dtype.itemsize > 1 else None


def _one_at_a_time(width: int, height: int) -> AbstractContextManager[object]:
    """A lock for pictures that take much memory."""
    return _large if width * height > _MOST_AT_ONCE else contextlib.nullcontext()


def _reduce(image: Blob, mode: str, region: Region, target: tuple[int, int], on_truncated: str) -> Array:
    """Return a part of a picture in the size ``target``; the whole is never in memory, where that can be."""
    decoding = Decode(orient=True, mode=mode, scale="auto", quality=_SAMPLES, on_truncated=on_truncated)
    reduced: Array = Pipeline([decoding, _Cut(region), Resize(target[::-1])])(image)
    return reduced


def _decode_whole(image: Blob) -> Array:
    """Return all values of a picture, of any depth."""
    if isinstance(image, np.ndarray):
        return image
    try:
        return decode(image, orient=True, mode="unchanged")
    except UnsupportedImageError:
        return decode(image, orient=True)


def _find_mode(image: Blob) -> str | None:
    """The mode in which a file is decoded by parts, with its alpha; None: whole, as it may have more than 8 bits."""
    head = b"" if isinstance(image, np.ndarray) else bytes(image[:4096])
    name = sniff(head[:64]) if head else "pixels"
    has_alpha = False
    if name == "PNG" and len(head) > 26 and head[24] != 16:
        has_alpha = head[25] in {4, 6} or b"tRNS" in head
    elif name == "WebP":
        has_alpha = head[12:16] in {b"VP8X", b"VP8L"} and bool(head[20 if head[15:16] == b"X" else 24] & 16)
    elif name != "JPEG":
        return None
    return "RGBA" if has_alpha else "RGB"


def _find_range(values: Array, form: PictureForm) -> tuple[float, float]:
    """Return the values that become black and white."""
    low, high = 0.0, 255.0
    if values.dtype == np.bool_:
        high = 1.0
    elif values.dtype != np.uint8 and (form.low is None or form.high is None):
        step = max(1, int((values.shape[0] * values.shape[1] / _MOST_AT_ONCE) ** 0.5))
        part = values[::step, ::step, : 3 if form.channel is None else None] if values.ndim == 3 else values
        known = part[np.isfinite(part)] if values.dtype.kind == "f" else part
        low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
        if values.dtype.kind == "f" and low >= -1e-3 and high <= 1.001:
            low, high = 0.0, 1.0
    return low if form.low is None else form.low, high if form.high is None else form.high


def _to_shown(values: Array, form: PictureForm, low: float, high: float) -> NDArray[np.uint8]:
    """Convert to uint8, (H, W, 3), or (H, W, 4) with alpha."""
    values = values[:, :, None] if values.ndim == 2 else values
    channels = values.shape[2]
    if form.channel is not None:
        if form.channel >= channels:
            raise ArgumentError(f"channel must be in [0, {channels}), got {form.channel}")
        values, channels = values[:, :, form.channel : form.channel + 1], 1
    colors = values[:, :, : 1 if channels <= 2 else 3]
    if values.dtype != np.uint8 or (low, high) != (0.0, 255.0):
        with np.errstate(invalid="ignore", over="ignore"):
            scaled = (colors.astype(np.float32) - np.float32(low)) * np.float32(255 / max(high - low, 1e-12))
            colors = (np.clip(np.nan_to_num(scaled), 0, 255) + 0.5).astype(np.uint8)
    shown = np.repeat(colors, 3, axis=2) if colors.shape[2] == 1 else colors
    if channels in {2, 4} and values.dtype.kind == "u":
        alpha = values[:, :, -1:] if values.dtype == np.uint8 else (values[:, :, -1:] >> 8).astype(np.uint8)
        shown = np.concatenate([shown, alpha], axis=2)
    return np.ascontiguousarray(shown)


def _encode(pixels: NDArray[np.uint8], target: tuple[int, int], form: PictureForm, *, is_small: bool) -> bytes:
    from PIL import Image

    picture, file = Image.fromarray(pixels), io.BytesIO()
    if picture.size != target:
        picture = picture.resize(target, Image.Resampling.BILINEAR, reducing_gap=2.0)
    if form.is_exact:
        picture.save(file, "PNG", compress_level=1)
    else:
        picture.save(file, "WEBP", quality=78, method=0, lossless=is_small)
    return file.getvalue()
