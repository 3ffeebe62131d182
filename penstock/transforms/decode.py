"""Decoding of images: ``penstock.decode``, and Decode, the first op of a pipeline.

The native decoders decode JPEG, PNG and WebP. Other formats, and files that they refuse or find corrupt, are decoded by
Pillow, which decides whether a file is an image. A format is recognised by the first bytes of the file, not by its
name.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from penstock import _native
from penstock.errors import (
    ArgumentError,
    BrokenImageError,
    DecodeError,
    ImageTooLargeError,
    UnsupportedImageError,
)
from penstock.repairs import check_on_truncated, get_policy, note_repair
from penstock.sample import Array
from penstock.transforms import fallback, jpeg_markers
from penstock.transforms.base import Fusion, ImageLike, ImageSpec, Op, Params
from penstock.transforms.inputs import is_pil, is_tensor
from penstock.transforms.orientation import FIRST_TRANSPOSED, Region, orient_pixels, raw_region

__all__ = [
    "MAX_NBYTES",
    "MAX_PIXELS",
    "Decode",
    "as_bytes",
    "decode",
    "decode_with_pillow",
    "fill_missing_sizes",
    "read_orientations",
    "refuse_broken",
    "sizes",
]

MAX_PIXELS: Final = 1 << 27
"""Default cap on the declared width x height: 134 megapixels, 400 MB as RGB."""

MAX_NBYTES: Final = fallback.MAX_NBYTES
"""Default cap on the bytes that the coefficients of a JPEG of several scans may take: 1 GiB.

Enough for :data:`MAX_PIXELS` pixels of three components at any sampling (0.87 GB at most).
"""

_PNG: Final = b"\x89PNG\r\n\x1a\n"

_NOT_BROKEN: Final = (UnsupportedImageError, ImageTooLargeError)
"""Refusals of images that may be whole."""


def decode(
    data: ImageLike,
    region: Region | None = None,
    scale: int = 1,
    max_pixels: int = MAX_PIXELS,
    orient: bool = False,
    max_nbytes: int = MAX_NBYTES,
    on_truncated: str | None = None,
) -> NDArray[np.uint8]:
    """Decode an image, or a part of it.

    Parameters
    ----------
    data : bytes-like
        The whole file: JPEG, PNG, WebP, GIF (first frame), BMP, TIFF, PPM (PGM, PBM) or AVIF (if the installed Pillow
        has it), recognised by its first bytes.
    region : tuple of four int, optional
        ``x0, y0, x1, y1`` in pixels of the full-size image (as oriented, with ``orient=True``); x1 and y1 are outside.
        A JPEG, PNG or WebP is decoded up to the last row of the region: a truncated file is refused in any case, but
        other damage below is not found. An interlaced PNG is decoded whole.
    scale : {1, 2, 4, 8}
        Decode at 1/scale: JPEG by libjpeg's scaled inverse DCT, other formats (and a JPEG with a side below ``scale``)
        by averages of scale x scale pixels. The size is rounded up, and the region is extended to whole pixels:
        ``x0 // scale`` to ``ceil(x1 / scale)`` (in the rows of the file).
    max_pixels : int
        Cap on the declared width x height, checked before anything is allocated.
    orient : bool
        Whether to apply the Exif orientation. False as in Pillow and torchvision; OpenCV applies it. Pillow
        applies that of a TIFF in any case.
    max_nbytes : int
        Cap on the memory for the coefficients of a JPEG of several scans, checked before anything is allocated. A
        progressive file has several scans, and all its coefficients are kept until the last scan is read: 6.4 bytes
        per pixel in 4:4:4, 3.2 in 4:2:0, also for a region or a reduced size. Other images need none.
    on_truncated : {"raise", "repair", "skip"}, optional
        What to do with an image that is truncated or damaged. "raise": raise a :class:`DecodeError`. "repair": decode
        what is there of a JPEG, with the pixels of libjpeg-turbo 3: blocks that are missing are gray, or estimated
        in a progressive file; damaged data are read on from the next restart marker. Images of other formats, and of a
        damaged header, raise. "skip": raise a :class:`BrokenImageError`, which loaders leave out. None: what the
        :class:`~penstock.StoreDataset` says that decodes the image; else "raise".

    Returns
    -------
    ndarray, shape (height, width, 3), uint8
        RGB; a new C-contiguous array. The pixels are Pillow's ``convert("RGB")``: gray is repeated, alpha is dropped
        (not blended), palettes are looked up, CMYK is converted without a profile. One difference: 16-bit samples
        become 8-bit by ``>> 8``, and Pillow clips them (32-bit and float samples are clipped).

    Raises
    ------
    ArgumentError
        If the region is not inside the image, or an argument is out of range.
    DecodeError
        If Pillow refuses the bytes (truncated, corrupt, not an image), or a JPEG has too many scans: more than
        100, and more than 2**28 pixels x scans.
    BrokenImageError
        The same, with ``on_truncated="skip"``.
    UnsupportedImageError
        If the image is of a kind that is not supported.
    ImageTooLargeError
        If the declared size is above ``max_pixels``, or the coefficients take more than ``max_nbytes``.
    MemoryError
        If there is not enough memory.

    Notes
    -----
    Thread-safe; the GIL is released while pixels are decoded.

    Examples
    --------
    >>> import io
    >>> import numpy as np
    >>> from PIL import Image
    >>> import penstock as ps
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (64, 48), "white").save(file, "JPEG")
    >>> ps.decode(file.getvalue(), region=(8, 8, 40, 24)).shape
    (16, 32, 3)
    """
    if scale not in {1, 2, 4, 8}:
        raise ArgumentError(f"scale must be 1, 2, 4 or 8, for 1/scale of the size, got {scale!r}")
    check_on_truncated(on_truncated)
    encoded = as_bytes(data)
    try:
        orientation = int(read_orientations([encoded], max_pixels)[0]) if orient else 1
        if region is not None:
            region = _check_region(region, encoded, max_pixels, orientation)
    except DecodeError as error:
        raise refuse_broken(error, on_truncated)  # noqa: B904  # the same object, or one that is chained
    try:
        if _is_decoded_natively(encoded, scale):
            pixels = _decode_natively(encoded, region, max_pixels, scale, max_nbytes)
        else:
            pixels = fallback.rgb_pixels(encoded, max_pixels, region, scale, max_nbytes)
    except DecodeError as error:
        pixels = _decode_broken(encoded, error, on_truncated, max_pixels, region, scale, max_nbytes)
    return pixels if orientation == 1 else orient_pixels(pixels, orientation)


def sizes(images: Sequence[ImageLike], max_pixels: int = MAX_PIXELS) -> NDArray[np.int32]:
    """Width and height that each image's header declares.

    Parameters
    ----------
    images : sequence of bytes-like
        Whole files.
    max_pixels : int
        Cap for images that the native decoder does not read (the others are capped where they are decoded).

    Returns
    -------
    ndarray, shape (n, 2), int32
        Of the image as stored (no Exif orientation), never of a thumbnail inside it.

    Raises
    ------
    DecodeError
        For the first unreadable one, with its ``position``.
    """
    return fill_missing_sizes(images, _native.sizes(images), max_pixels)


class Decode(Op):
    """Encoded bytes to HWC uint8 RGB: the first op of a pipeline over a store.

    Parameters
    ----------
    orient : bool
        Whether to apply the Exif orientation. Boxes, keypoints and masks are then taken to be those of the oriented
        picture (as labelled in a viewer that orients); a mask file's own orientation is not read.
    max_pixels : int
        Cap on the declared width x height.
    scale : {"full", "auto"}
        "auto": where a crop and a resize follow, decode a JPEG at a half, a quarter or an eighth, as far as ``quality``
        allows; see ``docs/scaled-decoding.md`` for what that changes. Sizes, random numbers and coordinates stay those
        of the full-size picture. What Pillow decodes, and samples with boxes, keypoints, masks or several images are
        decoded in full.
    quality : float
        With "auto": how many decoded samples, across and down, each pixel of the result keeps at least; 1 or more.
    max_nbytes : int
        Cap on the memory for the coefficients of a JPEG of several scans (every progressive one), for each worker
        thread or process that decodes: see :func:`decode`. A lower cap bounds what such files take without refusing
        large baseline ones, which keep no coefficients.
    on_truncated : {"raise", "repair", "skip"}, optional
        What to do with images and masks that are truncated or damaged: see :func:`decode`. Masks are not repaired: with
        "repair", a broken mask raises.

    Raises
    ------
    ArgumentError
        If an argument is out of range.
    """

    takes_pixels: ClassVar[bool] = False

    def __init__(
        self,
        orient: bool = False,
        max_pixels: int = MAX_PIXELS,
        scale: str = "full",
        quality: float = 2.0,
        max_nbytes: int = MAX_NBYTES,
        on_truncated: str | None = None,
    ) -> None:
        check_on_truncated(on_truncated)
        if scale not in {"full", "auto"}:
            raise ArgumentError(
                f"scale of Decode must be 'full' or 'auto', got {scale!r}; penstock.decode takes 1, 2, 4 or 8"
            )
        if not 1 <= quality < math.inf:
            raise ArgumentError(
                f"quality of Decode must be a finite number of samples per pixel, at least 1, got {quality!r}"
            )
        self.orient = orient
        self.max_pixels = max_pixels
        self.scale = scale
        self.quality = quality
        self.max_nbytes = max_nbytes
        self.on_truncated = on_truncated

    def image(self, image: ImageLike, params: Params) -> NDArray[np.uint8]:  # noqa: ARG002  # nothing to draw
        """Decode; see :func:`decode`."""
        return decode(
            image,
            max_pixels=self.max_pixels,
            orient=self.orient,
            max_nbytes=self.max_nbytes,
            on_truncated=self.on_truncated,
        )

    def image_refused(self, encoded: bytes, refusal: str) -> NDArray[np.uint8]:
        """Decode an image that the native decoder refused with this message, without orientation."""
        try:
            return decode_with_pillow(encoded, refusal, self.max_pixels, max_nbytes=self.max_nbytes)
        except DecodeError as error:
            return _decode_broken(encoded, error, self.on_truncated, self.max_pixels, None, 1, self.max_nbytes)

    def mask(self, mask: ImageLike, params: Params) -> Array:  # noqa: ARG002
        """Decode a single-channel image with its values as stored; arrays and PIL images are taken as they are."""
        if is_pil(mask):
            return fallback.pil_channel(mask)
        if not _is_decoded(mask):
            try:
                mask = _decode_values(as_bytes(mask), self.max_pixels, self.max_nbytes)
            except DecodeError as error:
                if (self.on_truncated or get_policy()) == "repair":
                    error.add_note("not repaired: this is a mask, and the classes of its missing pixels are unknown")
                raise refuse_broken(error, self.on_truncated)  # noqa: B904  # as in `decode`
        decoded: Array = mask
        return decoded

    def spec(self, spec: ImageSpec) -> ImageSpec:  # noqa: ARG002  # there is no image before
        """uint8 images of unknown size and three channels."""
        return ImageSpec(dtype="uint8")

    def fuse(self, fusion: Fusion) -> bool:
        """Begin the fused prefix; only the first op does."""
        if fusion.decode is not None:
            return False
        fusion.decode = self
        return True


def _is_decoded_natively(encoded: bytes, scale: int) -> bool:
    if encoded.startswith(_PNG) or encoded[8:12] == b"WEBP":
        return scale == 1
    return encoded.startswith(b"\xff\xd8") and (scale == 1 or _native.sizes([encoded]).min() >= scale)


def _decode_natively(
    encoded: bytes, region: Region | None, max_pixels: int, scale: int, max_nbytes: int
) -> NDArray[np.uint8]:
    if region is not None and encoded.startswith(b"\xff\xd8") and jpeg_markers.is_cut(encoded):
        return decode_with_pillow(encoded, "the end marker is missing", max_pixels, region, scale, max_nbytes)
    try:
        pixels: NDArray[np.uint8] = _native.decode(encoded, region, max_pixels, scale, max_nbytes=max_nbytes)
    except _native.TooLargeError as error:
        raise ImageTooLargeError(str(error)) from error
    except (_native.UnsupportedError, _native.CorruptError) as refusal:
        return decode_with_pillow(encoded, str(refusal), max_pixels, region, scale, max_nbytes)
    return pixels


def _decode_values(encoded: bytes, max_pixels: int, max_nbytes: int) -> NDArray[np.generic]:
    """The values of an image of one channel, by the native decoder where it reads them."""
    if encoded.startswith(_PNG):
        try:
            values: NDArray[np.generic] = _native.decode_values(encoded, max_pixels)
        except _native.TooLargeError as error:
            raise ImageTooLargeError(str(error)) from error
        except (_native.UnsupportedError, _native.CorruptError):
            pass  # Pillow decides, and its error says more
        else:
            return values
    return fallback.channel_pixels(encoded, max_pixels, max_nbytes)


def _decode_broken(
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
    try:
        pixels: NDArray[np.uint8] = _native.decode_damaged(encoded, region, max_pixels, scale, max_nbytes=max_nbytes)
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
    """Decode by Pillow what the native decoder refused; if Pillow refuses it too, its error also has our reason."""
    try:
        return fallback.rgb_pixels(encoded, max_pixels, region, scale, max_nbytes)
    except DecodeError as error:
        error.add_note(f"the native decoder: {refusal}")
        raise


def fill_missing_sizes(images: Sequence[ImageLike], sizes: NDArray[np.int32], max_pixels: int) -> NDArray[np.int32]:
    """Replace each (0, 0) of ``sizes``, in place, by the size that Pillow reads in the header of the image."""
    for position in np.flatnonzero(sizes[:, 0] == 0).tolist():
        try:
            sizes[position] = fallback.image_size(as_bytes(images[position]), max_pixels)
        except DecodeError as error:
            error.locate(position=position)
            raise
    return sizes


def read_orientations(images: Sequence[ImageLike], max_pixels: int) -> NDArray[np.uint8]:
    """Exif orientation of each image, 1 to 8; 1 where it is missing or damaged, and for TIFF, which Pillow turns."""
    orientations: NDArray[np.uint8] = _native.orientations(images)
    for position in np.flatnonzero(orientations == 0).tolist():
        orientations[position] = fallback.read_orientation(as_bytes(images[position]), max_pixels)
    return orientations


def _check_region(region: Region, encoded: bytes, max_pixels: int, orientation: int) -> Region:
    """Check a region of the oriented image, and return it in rows of the file."""
    width, height = (int(side) for side in _native.sizes([encoded])[0])
    if width == 0:
        width, height = fallback.image_size(encoded, max_pixels)
    shown = (height, width) if orientation >= FIRST_TRANSPOSED else (width, height)
    if len(corners := [int(side) for side in region]) != 4:
        raise ArgumentError(f"region must be four ints x0, y0, x1, y1, got {region!r}")
    x0, y0, x1, y1 = corners
    if not (0 <= x0 < x1 <= shown[0] and 0 <= y0 < y1 <= shown[1]):
        raise ArgumentError(
            f"region x0, y0, x1, y1 must have 0 <= x0 < x1 <= {shown[0]} and 0 <= y0 < y1 <= {shown[1]}, the image's "
            f"size, got {tuple(region)!r}"
        )
    return raw_region((x0, y0, x1, y1), orientation, width, height)


def _is_decoded(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.ndim >= 2


def as_bytes(data: ImageLike) -> bytes:
    """The bytes of a file; not copied if they are ``bytes``.

    Raises
    ------
    ArgumentError
        If ``data`` is a path, or decoded already.
    """
    if isinstance(data, bytes):
        return data
    if _is_decoded(data) or is_pil(data) or is_tensor(data):
        kind = "a tensor" if is_tensor(data) else "an array"
        what = "a PIL image" if is_pil(data) else f"{kind} of shape {tuple(data.shape)}"
        raise ArgumentError(
            f"an image to decode must be a file's bytes, got {what}, which is decoded already; leave Decode out of its "
            "pipeline"
        )
    if isinstance(data, str | os.PathLike):
        raise ArgumentError(
            f"an image to decode must be a file's bytes, got the path {data!r}; give Path(path).read_bytes()"
        )
    try:
        return bytes(data) if isinstance(data, bytearray | memoryview) else memoryview(data).tobytes()
    except TypeError as error:
        raise ArgumentError(f"an image to decode must be bytes-like, got {type(data).__name__}") from error
