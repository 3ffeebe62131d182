"""What one picture is measured for: its header, and how its pixels look.

::

    record ──measure(HEADER)──> format, mode, size, bytes, orientation, whether the header can be read
           ──measure(PIXELS)──> the same, and brightness, contrast, sharpness, a hash, whether it can be decoded

Pixels are decoded at a fraction of the size, as gray. Called by :mod:`.scanning`, in its threads.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.errors import DecodeError, ImageTooLargeError, UnsupportedImageError
from penstock.sample import Array, Blob
from penstock.transforms.decoding import jpeg_markers
from penstock.transforms.decoding.decode import MAX_PIXELS, as_bytes, decode, read_orientations, sizes
from penstock.transforms.decoding.image_formats import find_parser, quiet, sniff
from penstock.transforms.decoding.orientation import orient_pixels
from penstock.view.canvas import as_rgb

__all__ = [
    "FACTS", "FORMATS", "HEADER", "MODES", "PIXELS", "REPAIRED", "UNREADABLE", "Facts", "measure", "unreadable",
]  # fmt: skip

HEADER: Final = 1
PIXELS: Final = 2
"""Levels of measuring; the second includes the first."""

UNREADABLE: Final = 1
REPAIRED: Final = 2
"""What may be wrong with the bytes of a picture, as bits; repaired: damaged, but decoded as far as possible."""

FORMATS: Final = (
    "", "JPEG", "PNG", "GIF", "WebP", "BMP", "TIFF", "PPM", "AVIF", "HEIC", "JPEG XL", "pixels", "unsupported",
)  # fmt: skip
MODES: Final = ("", "L", "LA", "RGB", "RGBA", "P", "PA", "CMYK", "1", "I;16", "I", "F", "other")
"""Names of what is kept as a number; the empty one where it is not known."""

FACTS: Final = np.dtype([
    ("level", "u1"), ("format", "u1"), ("mode", "u1"), ("bit_depth", "u1"), ("orientation", "u1"), ("broken", "u1"),
    ("masks", "u2"), ("width", "i4"), ("height", "i4"), ("nbytes", "u4"),
    ("brightness", "f4"), ("contrast", "f4"), ("sharpness", "f4"), ("hash", "u8"),
])  # fmt: skip
"""What is kept of a record: 40 bytes."""

_LONG_SIDE: Final = 256
_CHANNEL_MODES: Final[Mapping[int, str]] = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_PNG_MODES: Final[Mapping[int, str]] = {0: "L", 2: "RGB", 3: "P", 4: "LA", 6: "RGBA"}
_ROWS, _COLUMNS = np.mgrid[0:8, 0:8]
_HASH_ORDER: Final = np.argsort((_ROWS + _COLUMNS).ravel() % 4, kind="stable")
"""The order of the bits of a hash: each 16 of them lie all over the picture, so that a border of one colour does not
make them equal (see :mod:`.duplicates`)."""


class Facts(NamedTuple):
    """What is kept of a record; in the order of :data:`FACTS`.

    Brightness and contrast are the mean and the standard deviation of gray values, 0 to 255; sharpness is the variance
    of the Laplacian. Both are taken of the picture reduced to at most 256 pixels a side. NaN: not measured.
    """

    level: int
    format: int = 0
    mode: int = 0
    bit_depth: int = 0
    orientation: int = 1
    broken: int = 0
    masks: int = 0
    width: int = 0
    height: int = 0
    nbytes: int = 0
    brightness: float = np.nan
    contrast: float = np.nan
    sharpness: float = np.nan
    hash: int = 0


def unreadable(level: int) -> Facts:
    """Those of a record that cannot be read."""
    return Facts(level, broken=UNREADABLE)


def measure(image: Blob | Array | None, level: int, masks: int = 0) -> Facts:
    """The facts of a picture.

    Parameters
    ----------
    image : bytes-like, ndarray (height, width, channels) or None
        A file, or pixels; None: the record has no picture.
    level : {HEADER, PIXELS}
        How much is measured.
    masks : int
        Number of masks of the record, which is kept as it is.
    """
    masks = min(masks, 0xFFFF)
    if image is None:
        return Facts(level, masks=masks)
    if isinstance(image, np.ndarray) and image.ndim == 3:
        return _measure_pixels(image, level, masks)
    encoded = as_bytes(image)
    facts = Facts(level, nbytes=min(len(encoded), 0xFFFFFFFF), masks=masks)
    try:
        form = sniff(encoded[:32])
        width, height = (int(side) for side in sizes([encoded])[0])
        orientation = int(read_orientations([encoded], MAX_PIXELS)[0])
    except DecodeError as error:
        is_image = isinstance(error, UnsupportedImageError | ImageTooLargeError)
        return facts._replace(broken=UNREADABLE, format=FORMATS.index("unsupported" if is_image else ""))
    mode, depth = _read_mode(encoded, form)
    facts = facts._replace(
        format=FORMATS.index(form), mode=MODES.index(mode), bit_depth=depth, orientation=orientation,
        width=width, height=height,
    )  # fmt: skip
    return facts if level == HEADER else _measure_look(encoded, facts)


def _read_mode(encoded: bytes, form: str) -> tuple[str, int]:
    """The mode, as Pillow names it, and bits of a channel; "" and 0 where they are not known."""
    if form == "JPEG":
        _, depth, channels = jpeg_markers.frame(encoded) or (0, 0, 0)
        return {1: "L", 3: "RGB", 4: "CMYK"}.get(channels, ""), depth
    if form == "PNG":
        return _PNG_MODES.get(encoded[25], ""), encoded[24]
    try:
        with quiet(), find_parser(form)(io.BytesIO(encoded)) as picture:
            mode: str = picture.mode
    except Exception:  # noqa: BLE001  # any error of Pillow's parsers: the size is known, and the mode says little
        return "", 0
    depth = {"1": 1, "I": 32, "F": 32}.get(mode, 16 if mode.startswith("I;16") else 8)
    return mode if mode in MODES else "I;16" if depth == 16 else "other", depth


def _measure_pixels(image: Array, level: int, masks: int) -> Facts:
    """The facts of a picture that is stored as its pixels."""
    height, width, channels = image.shape
    facts = Facts(
        level, FORMATS.index("pixels"), MODES.index(_CHANNEL_MODES.get(channels, "other")), image.dtype.itemsize * 8,
        masks=masks, width=width, height=height, nbytes=min(image.nbytes, 0xFFFFFFFF),
    )  # fmt: skip
    if level == HEADER or 0 in image.shape:
        return facts
    step = max(1, max(width, height) // (2 * _LONG_SIDE))
    rgb = as_rgb(image[::step, ::step]).astype(np.float32)
    return _add_look(facts, rgb @ np.array([0.299, 0.587, 0.114], np.float32))


def _measure_look(encoded: bytes, facts: Facts) -> Facts:
    longest, shortest = max(facts.width, facts.height), min(facts.width, facts.height)
    scale = next((each for each in (8, 4, 2) if longest >= each * _LONG_SIDE and shortest >= each * 9), 1)
    try:
        gray = decode(encoded, scale=scale, mode="L")
    except DecodeError:
        try:
            gray = decode(encoded, scale=scale, mode="L", on_truncated="repair")
        except DecodeError:
            return facts._replace(broken=UNREADABLE)
        facts = facts._replace(broken=REPAIRED)
    return _add_look(facts, orient_pixels(gray, facts.orientation).astype(np.float32))


def _add_look(facts: Facts, gray: NDArray[np.float32]) -> Facts:
    height, width = gray.shape
    ratio = max(1.0, max(height, width) / _LONG_SIDE)
    small = _reduce(gray, max(1, round(height / ratio)), max(1, round(width / ratio)))
    inner = small[1:-1, 1:-1]
    laplacian = small[:-2, 1:-1] + small[2:, 1:-1] + small[1:-1, :-2] + small[1:-1, 2:] - 4 * inner
    return facts._replace(
        brightness=float(small.mean()), contrast=float(small.std()),
        sharpness=float(laplacian.var()) if laplacian.size else np.nan, hash=_hash(small),
    )  # fmt: skip


def _reduce(gray: NDArray[np.float32], height: int, width: int) -> NDArray[np.float32]:
    """Means of blocks of a picture, whose sizes differ by one pixel at most; never more than there are pixels."""
    for axis, wanted in ((0, height), (1, width)):
        length = gray.shape[axis]
        edges = np.arange(min(wanted, length)) * length // min(wanted, length)
        counts = np.diff(np.append(edges, length)).astype(np.float32)
        sums: NDArray[np.float32] = np.add.reduceat(gray, edges, axis)
        gray = sums / (counts[:, None] if axis == 0 else counts)
    return gray


def _hash(gray: NDArray[np.float32]) -> int:
    """64 bits: whether gray falls from each of 9 x 8 blocks to the one right of it (dHash, N. Krawetz 2013).

    Pictures that differ by compression, size or a little colour differ by a few bits.
    """
    repeats = [-(-least // length) for least, length in zip((8, 9), gray.shape, strict=True)]
    blocks = _reduce(np.repeat(np.repeat(gray, repeats[0], 0), repeats[1], 1), 8, 9)
    bits = (blocks[:, :-1] > blocks[:, 1:] + 0.5).ravel()[_HASH_ORDER]
    return int.from_bytes(np.packbits(bits).tobytes(), "big")
