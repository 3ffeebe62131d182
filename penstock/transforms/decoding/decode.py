"""Decoding of images: ``penstock.decode``, and Decode, the first op of a pipeline.

The native decoders decode JPEG, PNG and WebP. Other formats, and files that they refuse or find corrupt, are decoded by
Pillow, which decides whether a file is an image. A format is recognised by the first bytes of the file, not by its
name.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from penstock import _native
from penstock.errors import ArgumentError, DecodeError
from penstock.orientation import FIRST_TRANSPOSED, Region, orient_pixels, raw_region
from penstock.repairs import check_on_truncated, get_policy
from penstock.sample import Array
from penstock.transforms.base import Fusion, ImageLike, ImageSpec, Op, Params
from penstock.transforms.decoding import fallback
from penstock.transforms.decoding.modes import DecodedForm, count_channels
from penstock.transforms.decoding.native_pixels import (
    NATIVE_MODES,
    decode_natively,
    decode_values,
    decode_with_pillow,
    in_mode,
    refuse_broken,
    repair_or_raise,
)
from penstock.transforms.inputs import as_bytes, is_decoded, is_pil

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
"""Default cap on the bytes that decoding a picture may take, its pixels included: 1.25 GiB.

Enough for progressive JPEGs of :data:`MAX_PIXELS` pixels of three components at any sampling.
"""


def decode(
    data: ImageLike,
    region: Region | None = None,
    scale: int = 1,
    max_pixels: int = MAX_PIXELS,
    orient: bool = False,
    max_nbytes: int = MAX_NBYTES,
    on_truncated: str | None = None,
    mode: str = "RGB",
    frame: int = 0,
    to_srgb: bool = False,
) -> Array:
    """Decode an image, or a part of it.

    Parameters
    ----------
    data : bytes-like
        The whole file, recognised by its first bytes: JPEG, PNG, WebP, GIF, BMP, TIFF, PPM (PGM, PBM), AVIF (if the
        installed Pillow has it), or one of the formats of ``docs/formats.md`` that need an extra.
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
        Whether to apply the Exif orientation. False as in Pillow and torchvision; OpenCV applies it. That of a TIFF,
        HEIC or JPEG XL is applied in any case.
    max_nbytes : int
        Cap on the memory that decoding takes, in any format, checked before anything is allocated: the pixels of the
        result, and what the decoder holds of the whole picture, also for a region or a reduced size. All coefficients
        of a progressive JPEG are kept until its last scan is read: 6.4 bytes per pixel in 4:4:4, 3.2 in 4:2:0. See
        ``docs/formats.md`` for the other formats.
    on_truncated : {"raise", "repair", "skip"}, optional
        What to do with an image that is truncated or damaged. "raise": raise a :class:`DecodeError`. "repair": decode
        what is there of a JPEG, with the pixels of libjpeg-turbo 3: blocks that are missing are gray, or estimated
        in a progressive file; damaged data are read on from the next restart marker. Images of other formats, and of a
        damaged header, raise. "skip": raise a :class:`BrokenImageError`, which loaders leave out. None: what the
        :class:`~penstock.StoreDataset` says that decodes the image; else "raise".
    mode : {"RGB", "BGR", "L", "RGBA", "I;16", "unchanged"}
        Channels and depth of the result; see Notes.
    frame : int
        Of an animated image (GIF, PNG, WebP, AVIF), or the page of a TIFF: 0 is the first.
    to_srgb : bool
        Whether to convert colours to sRGB by the ICC profile of the file, if it has one: by LittleCMS, with the
        perceptual intent. Not with "I;16" and "unchanged".

    Returns
    -------
    ndarray, shape (height, width, 3), uint8
        A new C-contiguous array. In other modes than "RGB" and "BGR": another shape and dtype; see Notes.

    Raises
    ------
    ArgumentError
        If the region is not inside the image, there is no such frame, or an argument is out of range.
    DecodeError
        If Pillow refuses the bytes (truncated, corrupt, not an image), or a JPEG has too many scans: more than
        100, and more than 2**28 pixels x scans.
    BrokenImageError
        The same, with ``on_truncated="skip"``.
    UnsupportedImageError
        If the image is of a kind that is not supported.
    ImageTooLargeError
        If the declared size is above ``max_pixels``, or decoding takes more than ``max_nbytes``.
    MemoryError
        If there is not enough memory.

    Notes
    -----
    "RGB": Pillow's ``convert("RGB")``. Gray is repeated, alpha is dropped (not blended), palettes are looked up, CMYK
    is converted without a profile. One difference: 16-bit samples become 8-bit by ``>> 8``, and Pillow clips them
    (32-bit and float samples are clipped; floats up to 1 become black, and are warned of). "BGR": the same in OpenCV's
    order. "L": (height, width), Pillow's ``convert("L")``, with the same difference. "RGBA": as "RGB", with the alpha
    of the file, also that of a palette or of one transparent colour (tRNS); 255 where it has none.

    "I;16": (height, width), uint16. Samples of 16 bits stay as they are; those of 8 bits are multiplied by 257, so that
    65535 is white in both, and colours become luma. Samples of 32 bits are refused.

    "unchanged": the array as stored. (height, width) for gray; (height, width, channels) for gray with alpha (2), RGB
    (3) and RGBA (4). uint8 or uint16; int32 or float32 where a TIFF has such samples. Palettes are looked up and one
    bit becomes 0 and 255, as in OpenCV's ``IMREAD_UNCHANGED``, but in the order RGB; CMYK, YCbCr and Lab become RGB.
    Nothing is reduced to 8 bits silently: an image of which Pillow would drop bits is refused.

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
    form = DecodedForm(mode, frame, to_srgb)
    encoded = as_bytes(data)
    try:
        orientation = int(read_orientations([encoded], max_pixels)[0]) if orient else 1
        if region is not None:
            region = _check_region(region, encoded, max_pixels, orientation, frame)
    except DecodeError as error:
        raise refuse_broken(error, on_truncated)  # noqa: B904  # the same object, or one that is chained
    try:
        found = decode_natively(encoded, region, max_pixels, scale, max_nbytes, form)
        if found is not None:
            pixels = found
        else:
            pixels = fallback.read_pixels(encoded, max_pixels, region, scale, max_nbytes, form)
    except DecodeError as error:
        repaired = repair_or_raise(encoded, error, on_truncated, max_pixels, region, scale, max_nbytes)
        pixels = in_mode(repaired, encoded, mode)
    return pixels if orientation == 1 else orient_pixels(pixels, orientation)


def sizes(images: Sequence[ImageLike], max_pixels: int = MAX_PIXELS) -> NDArray[np.int32]:
    """Return the width and height that each image's header declares.

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
    """Encoded bytes to HWC pixels, by default uint8 RGB: the first op of a pipeline over a store.

    Parameters
    ----------
    orient : bool, optional
        Whether to apply the Exif orientation. Default: what the store says of its boxes, keypoints and masks
        (:attr:`penstock.Field.upright`), as a pack of annotations does; else False. With True, boxes, keypoints and
        masks are taken to be those of the oriented picture (as labelled in a viewer that orients), and with False those
        of the rows of the file; a dataset refuses what contradicts its store. A mask file's own orientation is not
        read.
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
        Cap on the memory that decoding an image takes, for each worker thread or process that decodes: see
        :func:`decode`. Where a crop and a resize follow, the pixels of JPEGs, and of PNGs that are not interlaced, are
        resized as they come, and only what the decoder holds counts: a lower cap bounds what progressive files take
        without refusing large baseline ones.
    on_truncated : {"raise", "repair", "skip"}, optional
        What to do with images and masks that are truncated or damaged: see :func:`decode`. Masks are not repaired: with
        "repair", a broken mask raises.
    mode : {"RGB", "BGR", "L", "RGBA", "I;16", "unchanged"}
        Channels and depth of the images: see :func:`decode`. An image of one channel is (H, W, 1), and so a batch is
        (N, H, W, 1), or (N, 1, H, W) after ``ToLayout("CHW")``. "scale" has no effect in the modes "I;16" and
        "unchanged".
    frame : int
        Of an animated image, or the page of a TIFF: see :func:`decode`.
    to_srgb : bool
        Whether to convert colours by the ICC profile of each file: see :func:`decode`.
    late_color : bool
        With "auto": where a JPEG becomes smaller, resize its luma and chroma, each from its own samples, and convert
        the result to RGB or BGR; see ``docs/scaled-decoding.md``. Not with the filters "bicubic" and "lanczos".

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    In all modes: crops, flips, :class:`~penstock.transforms.Pad`, :class:`~penstock.transforms.Normalize`,
    :class:`~penstock.transforms.ToLayout`; with at most 4 channels of uint8 or uint16
    :class:`~penstock.transforms.Resize` and RandomResizedCrop; with uint8 :class:`~penstock.transforms.Letterbox`. Ops
    on colours, and those that rotate and warp, need uint8 images of three channels, and refuse others when the pipeline
    is made. They take BGR images for RGB ones.
    """

    takes_pixels: ClassVar[bool] = False

    def __init__(
        self,
        orient: bool | None = None,
        max_pixels: int = MAX_PIXELS,
        scale: str = "full",
        quality: float = 2.0,
        max_nbytes: int = MAX_NBYTES,
        on_truncated: str | None = None,
        mode: str = "RGB",
        frame: int = 0,
        to_srgb: bool = False,
        late_color: bool = False,
    ) -> None:
        check_on_truncated(on_truncated)
        form = DecodedForm(mode, frame, to_srgb)
        if scale not in {"full", "auto"}:
            raise ArgumentError(
                f"scale of Decode must be 'full' or 'auto', got {scale!r}; penstock.decode takes 1, 2, 4 or 8"
            )
        if not 1 <= quality < math.inf:
            raise ArgumentError(
                f"quality of Decode must be a finite number of samples per pixel, at least 1, got {quality!r}"
            )
        if late_color and scale != "auto":
            raise ArgumentError(
                f"late_color of Decode needs scale='auto', got late_color={late_color!r} with scale={scale!r}"
            )
        self.orient = orient
        self.max_pixels = max_pixels
        self.scale = scale
        self.quality = quality
        self.max_nbytes = max_nbytes
        self.on_truncated = on_truncated
        self.mode, self.frame, self.to_srgb = form.mode, form.frame, form.to_srgb
        self.late_color = late_color

    def follow(self, upright: bool | None, followers: Sequence[str]) -> Decode:
        """Make it the op for the records of a store, whose ``followers`` (boxes) are of the ``upright`` picture.

        ``upright`` is as in :class:`penstock.Field`. Raises ArgumentError if ``orient`` says the other.
        """
        if upright is None or self.orient is upright or (self.orient is None and not upright):
            return self
        if self.orient is None:
            made = copy.copy(self)
            made.orient = True
            return made
        if not followers:
            return self
        which = "its Exif orientation turns it" if upright else "its rows are stored"
        raise ArgumentError(
            f"the store says that {', '.join(followers)} are of the picture as {which}, and "
            f"Decode(orient={self.orient}) gives the other one; leave out orient="
        )

    @property
    def is_plain(self) -> bool:
        """Whether images become RGB, from the first frame, without conversion of colours."""
        return DecodedForm(self.mode, self.frame, self.to_srgb).is_plain

    def image(self, image: ImageLike, params: Params) -> Array:  # noqa: ARG002  # nothing to draw
        """Decode; see :func:`decode`. Three axes in every mode."""
        pixels = decode(
            image,
            max_pixels=self.max_pixels,
            orient=bool(self.orient),
            max_nbytes=self.max_nbytes,
            on_truncated=self.on_truncated,
            mode=self.mode,
            frame=self.frame,
            to_srgb=self.to_srgb,
        )
        return pixels[:, :, None] if pixels.ndim == 2 else pixels

    def image_refused(self, encoded: bytes, refusal: str) -> NDArray[np.uint8]:
        """Decode an image that the native decoder refused with this message, without orientation."""
        try:
            return decode_with_pillow(encoded, refusal, self.max_pixels, max_nbytes=self.max_nbytes)
        except DecodeError as error:
            return repair_or_raise(encoded, error, self.on_truncated, self.max_pixels, None, 1, self.max_nbytes)

    def mask(self, mask: ImageLike, params: Params) -> Array:  # noqa: ARG002
        """Decode a single-channel image with its values as stored; arrays and PIL images are taken as they are."""
        if is_pil(mask):
            return fallback.pil_channel(mask)
        if not is_decoded(mask):
            try:
                mask = decode_values(as_bytes(mask), self.max_pixels, self.max_nbytes)
            except DecodeError as error:
                if (self.on_truncated or get_policy()) == "repair":
                    error.add_note("not repaired: this is a mask, and the classes of its missing pixels are unknown")
                raise refuse_broken(error, self.on_truncated)  # noqa: B904  # as in `decode`
        decoded: Array = mask
        return decoded

    def spec(self, spec: ImageSpec) -> ImageSpec:  # noqa: ARG002  # there is no image before
        """Return a spec of unknown size, with the dtype and channels of the mode."""
        dtype = {"I;16": "uint16", "unchanged": None}.get(self.mode, "uint8")
        return ImageSpec(dtype=dtype, channels=count_channels(self.mode))

    def fuse(self, fusion: Fusion) -> bool:
        """Begin the fused prefix; only the first op does, and only for what the native call decodes."""
        is_deep = self.mode == "I;16" and not self.orient
        if fusion.decode is not None or not (self.mode in NATIVE_MODES or is_deep) or self.frame or self.to_srgb:
            return False
        fusion.decode, fusion.channels = self, count_channels(self.mode) or 3
        if is_deep:
            fusion.source = fusion.dtype = "uint16"
        return True


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
    """Read Exif orientations, 1 to 8; 1 where it is missing or damaged, and for TIFF, which Pillow turns."""
    orientations: NDArray[np.uint8] = _native.orientations(images)
    for position in np.flatnonzero(orientations == 0).tolist():
        orientations[position] = fallback.read_orientation(as_bytes(images[position]), max_pixels)
    return orientations


def _check_region(region: Region, encoded: bytes, max_pixels: int, orientation: int, frame: int) -> Region:
    """Check a region of the oriented image, and return it in rows of the file."""
    width, height = (int(side) for side in _native.sizes([encoded])[0])
    if width == 0 or frame:
        width, height = fallback.image_size(encoded, max_pixels, frame)
    shown = (height, width) if orientation >= FIRST_TRANSPOSED else (width, height)
    try:
        x0, y0, x1, y1 = (int(side) for side in region)
    except (TypeError, ValueError) as error:
        given: object = region  # whatever a caller gives
        hint = "; the mode is given by name, mode='BGR'" if isinstance(given, str) else ""
        raise ArgumentError(f"region must be four ints x0, y0, x1, y1, got {given!r:.200}{hint}") from error
    if not (0 <= x0 < x1 <= shown[0] and 0 <= y0 < y1 <= shown[1]):
        raise ArgumentError(
            f"region x0, y0, x1, y1 must have 0 <= x0 < x1 <= {shown[0]} and 0 <= y0 < y1 <= {shown[1]}, the image's "
            f"size, got {tuple(region)!r}"
        )
    return raw_region((x0, y0, x1, y1), orientation, width, height)
