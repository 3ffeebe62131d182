"""``resize``: makes the images of records smaller before they are stored, and what is in their pixels with them.

::

    image ──decode, orient──> pixels ──Resize (bicubic, antialiased)──> smaller ──encode──> stored       lossy
    boxes, keypoints, masks, instances, areas, width, height ──the same scale──> stored

An image that is small enough, upright and of the right format keeps its bytes. The result depends on the bytes of the
record and the options alone, so that a run that was interrupted is resumed to the same store, and ``verify`` compares
with it. Called by :mod:`.pipeline.record_checks`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.errors import ArgumentError, PackError, UnsupportedImageError, check_choice
from penstock.pack.pipeline.image_check import MAX_PIXELS
from penstock.sample import Array, SampleKeys
from penstock.transforms.decoding import fallback
from penstock.transforms.decoding.decode import decode, read_orientations
from penstock.transforms.decoding.encode import ENCODED_FORMATS, QUALITY, check_encoding, encode
from penstock.transforms.decoding.image_formats import sniff
from penstock.transforms.ops.resize import Resize

__all__ = ["NOTHING_RESIZED", "ResizeReport", "ResizedImage", "Resizing"]

_RESIZE: Final = re.compile(r"(?:(shorter|longest):)?([1-9][0-9]{0,4})")
_NO_KEYS: Final = SampleKeys(0, 0, np.zeros(1, np.int64))
"""Resizing draws nothing."""
_NAMES: Final[Mapping[str, str]] = {"jpeg": "JPEG", "png": "PNG", "webp": "WebP"}


@dataclass(frozen=True, slots=True)
class ResizeReport:
    """What resizing changed, in one run.

    Parameters
    ----------
    resized, kept : int
        Number of images that were encoded anew, and that kept their bytes.
    nbytes_before, nbytes_after : int
        Bytes of all these images in the source, and in the pack.
    measured : int
        Number of images that were decoded again and compared with the pixels that were encoded.
    psnr : float
        Mean of their peak signal-to-noise ratios, in dB; NaN where none was measured, infinite where nothing was lost.
    """

    resized: int = 0
    kept: int = 0
    nbytes_before: int = 0
    nbytes_after: int = 0
    measured: int = 0
    psnr: float = math.nan

    def __add__(self, other: ResizeReport) -> ResizeReport:
        """Add the counts of two reports, and average their PSNR."""
        measured = self.measured + other.measured
        weighed = [each.psnr * each.measured for each in (self, other) if each.measured]
        return ResizeReport(
            self.resized + other.resized,
            self.kept + other.kept,
            self.nbytes_before + other.nbytes_before,
            self.nbytes_after + other.nbytes_after,
            measured,
            sum(weighed) / measured if measured else math.nan,
        )


NOTHING_RESIZED: Final = ResizeReport()
"""The report of no image."""


@dataclass(frozen=True, slots=True)
class ResizedImage:
    """The bytes of an image, and how its pixels moved."""

    content: bytes  # the file to store
    old: tuple[int, int]
    new: tuple[int, int]
    """``old`` and ``new``: width and height of the upright image before and after."""
    pixels: Array | None  # what was encoded; None if the bytes are those of the source
    orientation: int = 1  # how the picture was turned

    def measure_psnr(self) -> float:
        """Peak signal-to-noise ratio of the stored image to the pixels that were encoded, in dB."""
        assert self.pixels is not None, "only an image that was encoded"
        has_alpha = self.pixels.ndim == 3 and self.pixels.shape[2] == 4
        stored = decode(self.content, mode="RGBA" if has_alpha else "unchanged")
        error = np.mean(np.square(stored.astype(np.float64) - self.pixels))
        return math.inf if error == 0 else 10 * math.log10(np.iinfo(self.pixels.dtype).max ** 2 / error)


@dataclass(frozen=True, slots=True)
class Resizing:
    """How images are made smaller."""

    side: str  # {"shorter", "longest"}: the side that gets the size
    size: int  # pixels of that side, at most
    format: str  # {"jpeg", "png", "webp"}: how results are encoded
    quality: int | None  # of "jpeg" and "webp"

    @classmethod
    def parse(cls, resize: int | str | None, image_format: str | None, quality: int | None) -> Resizing | None:
        """Parse the arguments of :func:`penstock.pack`; None without ``resize``.

        Raises ArgumentError if a value is not allowed, or one is given without ``resize``.
        """
        if resize is None:
            if image_format is not None or quality is not None:
                raise ArgumentError(
                    "quality and image_format must be given with resize, since other images keep their bytes, got "
                    f"quality={quality!r} and image_format={image_format!r}"
                )
            return None
        found = _RESIZE.fullmatch(str(resize))
        if found is None or isinstance(resize, bool | float):
            raise ArgumentError(
                "resize must be the number of pixels of the shorter side, or 'longest:' and that of the longer side, "
                f"such as 512 or 'longest:512', got {resize!r:.80}"
            )
        chosen = "jpeg" if image_format is None else image_format
        check_choice("image_format", chosen, ENCODED_FORMATS)
        check_encoding(chosen, quality)
        return cls(found[1] or "shorter", int(found[2]), chosen, None if chosen == "png" else int(quality or QUALITY))

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Resizing | None:
        """Parse the options of a pack's origin; None if it has none that are understood."""
        try:
            quality = int(options["quality"]) if "quality" in options else None
            return cls.parse(options.get("resize"), options.get("image_format"), quality)
        except (ArgumentError, ValueError):
            return None

    @property
    def options(self) -> dict[str, str]:
        """What decides the content of a pack, for its origin."""
        given = {"resize": f"{self.side}:{self.size}", "image_format": self.format}
        return given if self.quality is None else {**given, "quality": str(self.quality)}

    @property
    def op(self) -> Resize:
        """The op that resizes pixels, and what is in them."""
        if self.side == "longest":
            return Resize(None, "bicubic", max_size=self.size)
        return Resize(self.size, "bicubic")

    def find_size(self, width: int, height: int) -> tuple[int, int]:
        """Return width and height after resizing, which are never larger."""
        side = max(width, height) if self.side == "longest" else min(width, height)
        if side <= self.size:
            return width, height
        new = self.op.draw(_NO_KEYS, np.array([[width, height]], np.int32), 0)[0]
        return int(new[0]), int(new[1])

    def apply(self, encoded: bytes, size: tuple[int, int]) -> ResizedImage:
        """Resize an image of ``size`` (width and height in its header).

        Raises DecodeError if it cannot be decoded. Raises PackError if the format cannot hold its values.
        """
        orientation = int(read_orientations([encoded], MAX_PIXELS)[0])
        kind = sniff(encoded[:32])
        if orientation == 1 and kind == _NAMES[self.format] and self.find_size(*size) == size:
            return ResizedImage(encoded, size, size, None)
        pixels = self._decode(encoded)
        old = pixels.shape[1], pixels.shape[0]
        new = self.find_size(*old)
        if new != old:
            pixels = self.op.native(pixels, np.array(new, np.int32))
        profile = fallback.read_profile(encoded, MAX_PIXELS, is_gray=pixels.ndim == 2 or pixels.shape[2] == 2)
        try:
            content = encode(pixels, self.format, self.quality, icc_profile=profile)
        except ArgumentError as error:
            raise PackError(f"it cannot be stored as {self.format}: {error.message}") from error
        return ResizedImage(content, old, new, pixels, orientation)

    def _decode(self, encoded: bytes) -> Array:
        """Return the upright pixels, with the channels and the depth that the format holds."""
        try:
            pixels = decode(encoded, mode="unchanged", orient=True, max_pixels=MAX_PIXELS)
        except UnsupportedImageError:
            if self.format == "png":
                raise
            return decode(encoded, orient=True, max_pixels=MAX_PIXELS)  # 16 bits a colour, which these do not hold
        if self.format == "png" and pixels.dtype in {np.dtype(np.uint8), np.dtype(np.uint16)}:
            return pixels
        if pixels.dtype == np.uint16:
            pixels = (pixels >> 8).astype(np.uint8)
        if pixels.dtype != np.uint8:
            raise PackError(f"its values are {pixels.dtype}, which {self.format} cannot hold")
        channels = 1 if pixels.ndim == 2 else pixels.shape[2]
        if self.format == "jpeg":
            return pixels[:, :, 0] if channels == 2 else pixels[:, :, :3] if channels == 4 else pixels
        if channels < 3:  # WebP has colours only
            gray = pixels if pixels.ndim == 2 else pixels[:, :, 0]
            alpha = [] if channels == 1 else [pixels[:, :, 1]]
            return np.dstack([gray, gray, gray, *alpha])
        return pixels
