"""Pictures as a browser shows them: decoded, turned by their Exif orientation, in a window of values, scaled, encoded.

::

    JPEG, PNG, WebP, ... ──decode: reduced, covered rows──┐
    pixels of a store (uint8, uint16, float32) ──slices───┴─> values ──window──> uint8 ──resize, turn──> WebP, PNG

A JPEG is decoded at 1/2, 1/4 or 1/8 where that is enough. A picture of more than 8 bits is shown from its smallest to
its largest value, unless a window is given. Alpha is kept.
"""

from __future__ import annotations

import io
import threading
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, DecodeError, UnsupportedImageError
from penstock.sample import Array, Blob
from penstock.transforms.decoding.decode import MAX_PIXELS, decode, read_orientations, sizes
from penstock.transforms.decoding.image_formats import sniff
from penstock.transforms.decoding.orientation import FIRST_TRANSPOSED, Region, orient_pixels, raw_region

__all__ = ["PictureForm", "ShownPicture", "find_problem", "find_size", "make_picture"]

_MOST_AT_ONCE: Final = 1 << 24
"""Pictures of more pixels are decoded one after another."""
_large = threading.Lock()


@dataclass(frozen=True, slots=True)
class PictureForm:
    """How a picture is shown.

    Parameters
    ----------
    side : int
        Length of the longer side in pixels; it is never enlarged.
    region : tuple of four int, optional
        x0, y0, x1, y1 in pixels of the picture as it is turned; what lies outside is cut.
    low, high : float, optional
        The values that become black and white.
    channel : int, optional
        The only channel that is shown, as gray.
    is_exact : bool
        Whether it is encoded without loss, as PNG.
    """

    side: int = 256
    region: Region | None = None
    low: float | None = None
    high: float | None = None
    channel: int | None = None
    is_exact: bool = False


@dataclass(frozen=True, slots=True)
class ShownPicture:
    """An encoded picture.

    Parameters
    ----------
    content : bytes
        WebP or PNG.
    media_type : str
        Its type.
    note : str
        What was repaired; empty: nothing.
    """

    content: bytes
    media_type: str
    note: str = ""


def find_size(image: Blob) -> tuple[int, int]:
    """Width and height of a picture as it is shown.

    Raises
    ------
    DecodeError
        If its header cannot be read.
    """
    if isinstance(image, np.ndarray):
        return image.shape[1], image.shape[0]
    (width, height), orientation = _read_header(image)
    return (height, width) if orientation >= FIRST_TRANSPOSED else (width, height)


def make_picture(image: Blob, form: PictureForm) -> ShownPicture:
    """A picture, or a part of it, encoded for a browser.

    Parameters
    ----------
    image : bytes-like or ndarray
        A file, or its pixels: (height, width, channels), uint8, uint16 or float32.

    Raises
    ------
    ArgumentError
        If the region has no pixel of the picture, or there is no such channel.
    DecodeError
        If it cannot be decoded.
    """
    size, orientation = ((image.shape[1], image.shape[0]), 1) if isinstance(image, np.ndarray) else _read_header(image)
    shown = size[::-1] if orientation >= FIRST_TRANSPOSED else size
    region = _cut(form.region, shown)
    if orientation != 1:
        region = raw_region(region, orientation, *size)
    width, height = region[2] - region[0], region[3] - region[1]
    ratio = min(1.0, form.side / max(width, height))
    target = max(1, round(width * ratio)), max(1, round(height * ratio))
    note = ""
    if isinstance(image, np.ndarray):
        stride = max(1, int(min(1 / ratio, 1e6) // 2))
        x0, y0, x1, y1 = region
        low, high = _find_range(image, form)
        pixels, at, scale = image[y0:y1:stride, x0:x1:stride], (x0, y0), stride
        pixels = _to_shown(pixels, form, low, high)
    else:
        scale = next((each for each in (8, 4, 2) if ratio * each <= 1), 1) if sniff(bytes(image[:32])) == "JPEG" else 1
        if size[0] * size[1] > _MOST_AT_ONCE:
            with _large:
                values, at, note = _decode(image, region, scale)
        else:
            values, at, note = _decode(image, region, scale)
        low, high = _find_range(values, form)
        pixels = _to_shown(values, form, low, high)
    pixels = _resize(pixels, target, tuple((edge - at[i % 2]) / scale for i, edge in enumerate(region)))
    return _encode(orient_pixels(pixels, orientation), form, note)


def find_problem(encoded: bytes) -> str:
    """Why a file cannot be decoded, or is damaged; empty if it is whole."""
    try:
        width, height = find_size(encoded)
        scale = 8 if sniff(encoded[:64]) == "JPEG" else 1
        if width * height > _MOST_AT_ONCE:
            with _large:
                decode(encoded, scale=scale)
        else:
            decode(encoded, scale=scale)
    except DecodeError as error:
        return str(error)
    return ""


def _read_header(image: Blob) -> tuple[tuple[int, int], int]:
    """Width and height of the rows of a file, and its orientation."""
    width, height = sizes([image])[0].tolist()
    return (width, height), int(read_orientations([image], MAX_PIXELS)[0])


def _cut(region: Region | None, size: tuple[int, int]) -> Region:
    if region is None:
        return 0, 0, *size
    x0, y0, x1, y1 = max(region[0], 0), max(region[1], 0), min(region[2], size[0]), min(region[3], size[1])
    if x0 >= x1 or y0 >= y1:
        raise ArgumentError(f"region must lie in a picture of {size[0]} x {size[1]}, got {region}")
    return x0, y0, x1, y1


def _decode(image: Blob, region: Region, scale: int) -> tuple[Array, tuple[int, int], str]:
    """Values of the covered pixels, not turned, the pixel of the file they begin at, and what was repaired."""
    mode = _find_mode(image)
    if mode == "unchanged":  # the window is that of the whole picture
        try:
            return decode(image, mode=mode), (0, 0), ""
        except UnsupportedImageError:
            mode = "RGB"
    at = region[0] // scale * scale, region[1] // scale * scale
    try:
        return decode(image, region, scale, mode=mode), at, ""
    except UnsupportedImageError:
        raise
    except DecodeError as error:
        return decode(image, region, scale, mode=mode, on_truncated="repair"), at, str(error)


def _find_mode(image: Blob) -> str:
    """The mode of decoding that keeps the depth and the alpha of a file."""
    head = bytes(image[:64])
    name = sniff(head)
    if name == "JPEG":
        return "RGB"
    if name == "PNG" and len(head) > 26:
        if head[24] == 16:
            return "unchanged"
        return "RGBA" if head[25] in {4, 6} or b"tRNS" in bytes(image[:4096]) else "RGB"
    if name == "WebP":
        has_alpha = (head[12:16] == b"VP8X" and head[20] & 16) or (head[12:16] == b"VP8L" and head[24] & 16)
        return "RGBA" if has_alpha else "RGB"
    return "unchanged"


def _find_range(values: Array, form: PictureForm) -> tuple[float, float]:
    """The values that become black and white."""
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
    """uint8, (H, W, 3), or (H, W, 4) with alpha."""
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


def _resize(pixels: NDArray[np.uint8], target: tuple[int, int], box: tuple[float, ...]) -> NDArray[np.uint8]:
    """The pixels in ``box`` (x0, y0, x1, y1) in the size ``target``."""
    from PIL import Image

    height, width = pixels.shape[:2]
    x0, y0, x1, y1 = max(box[0], 0), max(box[1], 0), min(box[2], width), min(box[3], height)
    if target == (width, height) and (x0, y0, x1, y1) == (0, 0, width, height):
        return pixels
    scaled = Image.fromarray(pixels).resize(target, Image.Resampling.BILINEAR, (x0, y0, x1, y1), reducing_gap=2.0)
    return np.asarray(scaled)


def _encode(pixels: NDArray[np.uint8], form: PictureForm, note: str) -> ShownPicture:
    from PIL import Image

    file = io.BytesIO()
    if form.is_exact:
        Image.fromarray(pixels).save(file, "PNG", compress_level=1)
        return ShownPicture(file.getvalue(), "image/png", note)
    Image.fromarray(pixels).save(file, "WEBP", quality=78, method=0)
    return ShownPicture(file.getvalue(), "image/webp", note)
