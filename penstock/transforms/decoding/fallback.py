"""Decoding by Pillow: what the native decoders (JPEG, PNG, WebP) do not read or refuse; by tifffile what it lacks.

Pillow defines the results of decoding: *the pixels are those of Pillow, and what Pillow refuses is refused*. In
addition to Pillow, this module checks limits before pixels are allocated, has a fixed list of parsers (no Ghostscript,
no FLI, none chosen by file name), converts 16 bits to 8 by ``>> 8`` (Pillow clips), suppresses warnings, and raises
errors of one kind. The global settings of Pillow (``MAX_IMAGE_PIXELS``, ``LOAD_TRUNCATED_IMAGES``) are not changed: the
parsers are called directly, and not by ``Image.open``, which reads these settings (the parsers of WebP and TIFF read
them too, so that a lower limit of the user holds for these).

Two kinds of images are read that Pillow refuses, or reads with 8 bits only: TIFFs of many layouts
(:mod:`.decoding.tiff_pages`), and colour PNGs of 16 bits. Pillow has no mode for the latter and keeps the upper byte of
each sample, but its decoder of PNG rows can be asked for either byte::

    file ──"RGB;16B"──> upper bytes ──┐
         ──"RGB;16L"──> lower bytes ──┴──> uint16

The package that decodes JPEG XL decodes a file when it is opened, so the size is read from its header before (ISO/IEC
18181-1, 18181-2).
Called by :mod:`penstock.transforms.decoding.decode` and the fused fill; thread-safe; Pillow is imported at first use.
"""

from __future__ import annotations

import io
import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock import _native
from penstock.errors import ArgumentError, DecodeError, ImageTooLargeError, PenstockError, UnsupportedImageError
from penstock.orientation import TURNED_BY_DECODING, Region, read_tag
from penstock.paths import COEFFICIENTS
from penstock.sample import Array
from penstock.transforms.decoding import jpeg_markers
from penstock.transforms.decoding.color_profiles import convert_to_srgb, may_have_profile
from penstock.transforms.decoding.image_formats import HELD_NBYTES, PICTURE_NBYTES, find_parser, quiet, sniff
from penstock.transforms.decoding.modes import KEEPING_DEPTH, DecodedForm, from_picture, from_stored
from penstock.transforms.decoding.tiff_pages import check_nbytes, check_pixels, read_page, read_page_size
from penstock.wording import counted

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

__all__ = [
    "FRAME_BUDGET",
    "FRAME_LIMIT",
    "MAX_NBYTES",
    "PART_LIMIT",
    "PROFILE_LIMIT",
    "SCAN_BUDGET",
    "SCAN_LIMIT",
    "channel_pixels",
    "image_size",
    "iterate_chunks",
    "open_picture",
    "pil_channel",
    "pil_pixels",
    "read_jxl_size",
    "read_orientation",
    "read_pixels",
    "read_profile",
    "sniff",
]

SCAN_LIMIT: Final = 100
"""Scans that a JPEG of any size may have; encoders write up to about twelve."""

SCAN_BUDGET: Final = 1 << 28
"""Pixels x scans that a JPEG with more scans than :data:`SCAN_LIMIT` may cost (about 0.3 s of libjpeg-turbo)."""

PROFILE_LIMIT: Final = 32
"""Profiles that a PNG may have; one is valid."""

PART_LIMIT: Final = 50_000
"""Chunks of a PNG, or segments of a JPEG, in a file of few bytes; Pillow needs some 10 microseconds for each."""

FRAME_LIMIT: Final = 100
"""Frames before the one that is asked for, in an image of any size."""

FRAME_BUDGET: Final = 1 << 30
"""Pixels x frames before the one that is asked for, if they are more than :data:`FRAME_LIMIT`."""

MAX_NBYTES: Final = 5 << 28
"""Default cap on the bytes that decoding a picture may take: its pixels, and what the decoder holds of it."""

_PPM_NBYTES: Final = 1 << 16
_PPM_COMMENTS: Final = 1000
_COMMENT: Final = re.compile(rb"#[^\r\n]*")
_RGB: Final = DecodedForm()
T_found = TypeVar("T_found")
_LOSSLESS, _JPEG_LS = 0xC3, 0xF7
_CODESTREAM: Final = b"\xff\x0a"
_CONTAINER: Final = b"\x00\x00\x00\x0cJXL "
_RATIOS: Final = ((1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))
_LENGTHS: Final = (9, 13, 18, 30)
_HEADER_NBYTES: Final = 16
_FIRST_TRANSPOSED: Final = 5
_BYTES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "RGB;16B": ("RGB", ("RGB;16B", "RGB;16L")),
    "RGBA;16B": ("RGBA", ("RGBA;16B", "RGBA;16L")),
    "LA;16B": ("RGBA", ("RGBA",)),
}
"""By the layout of rows: the mode of Pillow, and the layouts that give the upper and the lower bytes.

Two samples of 16 bits have the four bytes of one RGBA pixel.
"""


def image_size(encoded: bytes, max_pixels: int, frame: int = 0) -> tuple[int, int]:
    """Return the width and height in the header of the image, or of one of its frames; not of an Exif thumbnail."""
    if sniff(encoded[:32]) == "JPEG XL":
        return _jxl_size(encoded, max_pixels)
    try:
        with open_picture(encoded, max_pixels) as image:
            _seek_frame(image, frame, max_pixels)
            return image.size
    except DecodeError as error:
        return _try_tifffile(error, encoded, lambda: read_page_size(encoded, frame, max_pixels))


def read_orientation(encoded: bytes, max_pixels: int) -> int:
    """Read the Exif orientation, 1 to 8; 1 if there is none, if it is damaged, and for TIFF and JPEG XL."""
    if encoded.startswith(b"\xff\xd8") and not jpeg_markers.has_metadata(encoded):
        return 1
    with open_picture(encoded, max_pixels) as image:
        # a JPEG XL is turned by its own header, whatever the Exif tag says
        return 1 if image.format in TURNED_BY_DECODING else read_tag(image)


def read_profile(encoded: bytes, max_pixels: int, *, is_gray: bool) -> bytes | None:
    """Return the ICC profile of a file, if it is one of gray, or of RGB, pixels as is asked for; else None."""
    if encoded.startswith(b"\xff\xd8") and not may_have_profile(encoded):
        return None
    with open_picture(encoded, max_pixels) as image:
        profile = image.info.get("icc_profile")
        fits = image.mode in ({"1", "L", "LA", "I;16"} if is_gray else {"P", "RGB", "RGBA"})
        return profile if fits and isinstance(profile, bytes) and profile else None


def read_pixels(
    encoded: bytes,
    max_pixels: int,
    region: Region | None = None,
    scale: int = 1,
    max_nbytes: int = MAX_NBYTES,
    form: DecodedForm = _RGB,
) -> Array:
    """Decode to pixels, by default HWC RGB.

    Parameters
    ----------
    encoded : bytes
        The whole file.
    max_pixels : int
        Cap on the declared width x height.
    region : tuple of four int, optional
        Inside the image, already checked; pixels of the full-size raw image.
    scale : int
        1, 2, 4 or 8; the region is mapped outward.
    max_nbytes : int
        Cap on the memory that decoding takes: the pixels, and what Pillow and the decoder hold of the picture.
    form : DecodedForm
        The mode, and the frame.

    Returns
    -------
    ndarray, shape (height, width, channels) or (height, width)
        A new C-contiguous array.

    Raises
    ------
    DecodeError, UnsupportedImageError, ImageTooLargeError
    ArgumentError
        If the file has no such frame.
    """
    try:
        pixels, factor = _load_picture(encoded, max_pixels, scale, max_nbytes, form)
    except DecodeError as error:
        if form.to_srgb:
            raise
        page = _try_tifffile(error, encoded, lambda: read_page(encoded, form.frame, max_pixels, max_nbytes))
        pixels, factor = from_stored(page, form.mode), scale
    if factor > 1:
        pixels = _reduce(pixels, factor)
    if region is not None:
        x0, y0, x1, y1 = region
        pixels = pixels[y0 // scale : -(-y1 // scale), x0 // scale : -(-x1 // scale)]
    return np.array(pixels, dtype=pixels.dtype.newbyteorder("="), order="C")  # Pillow's arrays cannot be written to


def _load_picture(encoded: bytes, max_pixels: int, scale: int, max_nbytes: int, form: DecodedForm) -> tuple[Array, int]:
    """Return the whole image, and the factor by which it must still be reduced."""
    with open_picture(encoded, max_pixels, max_nbytes) as image:
        _check_jpeg(encoded, image)
        _seek_frame(image, form.frame, max_pixels)
        check_nbytes(_picture_nbytes(encoded, image, form.mode), max_nbytes)
        is_deep = form.frame == 0 and is_deep_png(image)
        # Pillow compares a transparent colour of 16 bits with pixels that it has reduced to 8.
        if is_deep and (form.mode in KEEPING_DEPTH or (form.mode == "RGBA" and "transparency" in image.info)):
            return from_stored(read_deep_png(image, encoded), form.mode), scale
        if form.mode in KEEPING_DEPTH and loses_bits(image):
            if image.format == "TIFF":
                return from_stored(read_page(encoded, form.frame, max_pixels, max_nbytes), form.mode), scale
            raise UnsupportedImageError(
                f"a {image.format} image of more than 8 bits for each of several channels cannot be decoded in mode "
                f"{form.mode!r} without loss; decode it with mode='RGB' (8 bits), or convert it to PNG"
            )
        factor = _shrink_on_load(image, encoded, scale)
        image.load()
        is_black = image.mode == "F" and form.mode not in KEEPING_DEPTH and 0 < np.asarray(image).max() <= 1
        pixels = from_picture(convert_to_srgb(image) if form.to_srgb else image, form.mode)
    if is_black:
        text = f"an image of floats up to 1 becomes black in mode {form.mode!r}; decode it with mode='unchanged'"
        warnings.warn(text, stacklevel=2)
    return pixels, factor


def _try_tifffile(error: DecodeError, encoded: bytes, read: Callable[[], T_found]) -> T_found:
    """Try ``read`` for a TIFF of a layout that Pillow does not know; ``error`` is raised for other images."""
    if not isinstance(error.__cause__, SyntaxError | ValueError) or sniff(encoded[:32]) != "TIFF":
        raise error  # damaged data are other errors
    try:
        return read()
    except DecodeError as second:
        second.add_note(f"Pillow: {error.message}")
        raise second from error


def _jxl_size(encoded: bytes, max_pixels: int) -> tuple[int, int]:
    size = read_jxl_size(encoded)
    if size is None:
        raise DecodeError("this JPEG XL image cannot be decoded: its header is damaged or missing")
    check_pixels(size, max_pixels)
    return size


def channel_pixels(encoded: bytes, max_pixels: int, max_nbytes: int = MAX_NBYTES) -> NDArray[np.generic]:
    """Decode a single-channel image (a mask) to HW with its values as stored, also palette indices.

    Raises DecodeError if it cannot be decoded. Raises UnsupportedImageError if the image has several channels.
    """
    with open_picture(encoded, max_pixels, max_nbytes) as image:
        if image.format == "PPM" and image.mode in {"L", "I"}:
            _refuse_stretched(image)
        _check_jpeg(encoded, image)
        check_nbytes(_picture_nbytes(encoded, image, "unchanged"), max_nbytes)
        image.load()
        return pil_channel(image)


def pil_pixels(image: Image) -> NDArray[np.uint8]:
    """Return the pixels of a PIL image, HWC RGB, as :func:`read_pixels` gives them for its file.

    The image is not changed.
    """
    return np.array(image if image.mode == "RGB" else from_picture(image.copy(), "RGB"), order="C")


def pil_channel(image: Image) -> NDArray[np.generic]:
    """Return the values of a PIL image of one channel, HW, as :func:`channel_pixels` gives them for its file."""
    if len(image.getbands()) != 1:
        raise UnsupportedImageError(
            f"a mask must have one channel, got a {image.format or 'PIL'} image of mode {image.mode} with "
            f"{len(image.getbands())}"
        )
    values: NDArray[np.generic] = np.array(image.convert("L") if image.mode == "1" else image)
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _refuse_stretched(graymap: ImageFile) -> None:
    """Refuse a PGM whose values Pillow would scale to the range of 8 or 16 bits."""
    codec, *_, args = graymap.tile[0]
    largest = args[-1] if codec != "raw" and isinstance(args, tuple) else 255
    if largest not in {255, 65535}:
        raise UnsupportedImageError(
            f"a mask as PGM must have 255 or 65535 as its largest value, got {largest}, because Pillow scales other "
            "values; write the mask as PNG"
        )


@contextmanager
def open_picture(encoded: bytes, max_pixels: int, max_nbytes: int | None = None) -> Iterator[ImageFile]:
    """Parse the header and check the limits; errors in the body of the ``with`` become DecodeError."""
    name = sniff(encoded[:32])
    if name in {"WebP", "JPEG XL"}:  # libwebp allocates the canvas when the file is opened; JPEG XL is decoded then
        size = _webp_size(encoded) if name == "WebP" else _jxl_size(encoded, max_pixels)
        check_pixels(size, max_pixels)
        if max_nbytes is not None:
            check_nbytes(size[0] * size[1] * (HELD_NBYTES[name] + 4), max_nbytes)
    if name == "PNG" and encoded.count(b"iCCP") > PROFILE_LIMIT:  # Pillow inflates each, up to 1 MiB
        raise DecodeError(
            f"a PNG must have at most {PROFILE_LIMIT} profiles (iCCP chunks), got more: it is refused as a "
            "decompression bomb"
        )
    _check_parts(name, encoded)
    parser = find_parser(name)
    try:
        if encoded.startswith(COEFFICIENTS):
            encoded = _native.jpeg_from_coefficients(encoded, max_pixels)
        with quiet(), parser(io.BytesIO(encoded), "") as image:
            check_pixels(image.size, max_pixels)
            if name == "JPEG":
                _check_scans(encoded, image.size)
            yield image
    except (PenstockError, MemoryError):
        raise
    except Exception as error:  # Pillow's parsers raise exceptions of any type on hostile bytes
        raise _refusal(name, encoded, error) from error


def _check_parts(name: str, encoded: bytes) -> None:
    """Refuse a file of so many parts, or with so long a header, that Pillow would parse it for minutes."""
    if name == "PPM":
        head = _COMMENT.sub(b" ", encoded[:_PPM_NBYTES])
        if len(encoded) > _PPM_NBYTES and len(head.split(maxsplit=4)) < 4:
            raise DecodeError(f"the header of a PPM must have at most {_PPM_NBYTES} bytes, got more")
        if encoded[1:2] in b"123" and encoded.count(b"#") > _PPM_COMMENTS:
            raise DecodeError(f"a PPM of numbers must have at most {_PPM_COMMENTS} comments, got more")
        return
    least, walk = {"PNG": (12, iterate_chunks), "JPEG": (4, jpeg_markers.iterate_segments)}.get(name, (0, None))
    allowed = PART_LIMIT + len(encoded) // 4096  # of large images, 8 KiB of pixels a chunk
    if walk is None or len(encoded) < least * allowed:
        return
    if next(itertools.islice(walk(encoded), allowed, None), None) is not None:
        raise DecodeError(f"a {name} of {len(encoded)} bytes must have at most {allowed} parts, got more")


def iterate_chunks(png: bytes) -> Iterator[int]:
    """Yield where each chunk begins."""
    at = 8
    while at + 8 <= len(png):
        yield at
        at += 12 + int.from_bytes(png[at : at + 4], "big")


def _check_scans(jpeg: bytes, size: tuple[int, int]) -> None:
    allowed = max(SCAN_LIMIT, SCAN_BUDGET // (size[0] * size[1]))
    if jpeg_markers.count_scans(jpeg, allowed) > allowed:
        raise DecodeError(
            f"a JPEG of {size[0]} x {size[1]} must have at most {allowed} scans, got more: it is refused as a "
            "decompression bomb"
        )


def _check_jpeg(encoded: bytes, image: ImageFile) -> None:
    """Refuse a JPEG that has too little data for its size."""
    if image.format == "JPEG" and jpeg_markers.lacks_data(encoded):
        raise DecodeError(
            f"truncated JPEG: {len(encoded)} bytes are too few for the {image.width} x {image.height} pixels that its "
            "header declares"
        )


def _picture_nbytes(encoded: bytes, image: ImageFile, mode: str) -> int:
    """Bytes that decoding takes at most: Pillow's picture, its bytes, the result, and what the decoder holds."""
    stored = PICTURE_NBYTES.get(image.mode, 4)
    if mode in KEEPING_DEPTH:  # of a deep PNG: both bytes of the samples, their words, shifted, the result
        each = 4 + 4 + 3 * 8 if is_deep_png(image) else 3 * stored
    else:
        each = stored + 4 * (image.mode != mode) + 2 * (1 if mode == "L" else 4 if mode == "RGBA" else 3)
    held = HELD_NBYTES.get(sniff(encoded[:32]), 0)
    coefficients = jpeg_markers.coefficient_nbytes(encoded) if image.format == "JPEG" else 0
    return image.width * image.height * (each + held) + coefficients


def _seek_frame(image: ImageFile, frame: int, max_pixels: int) -> None:
    """Go to a frame of an animated image, or to a page; each frame before it may have to be decoded."""
    if frame == 0:
        return
    count = getattr(image, "n_frames", 1)
    if frame >= count:
        raise ArgumentError(
            f"frame must be in [0, {count - 1}], since this {image.format} image has {counted(count, 'frame')}, "
            f"got {frame}"
        )
    allowed = max(FRAME_LIMIT, FRAME_BUDGET // (image.width * image.height))
    if frame > allowed:
        raise ImageTooLargeError(
            f"frame {frame} of an image of {image.width} x {image.height} needs all frames before it, above the cap "
            f"of {allowed}"
        )
    try:
        image.seek(frame)
    except EOFError as error:
        raise DecodeError(
            f"this {image.format} image declares {counted(count, 'frame')} and ends before frame {frame}"
        ) from error
    check_pixels(image.size, max_pixels)


def _webp_size(webp: bytes) -> tuple[int, int]:
    """Return the canvas size from a WebP header (RFC 9649); (0, 0) if it is damaged; libwebp then refuses the file."""
    chunk, body = webp[12:16], webp[20:30]
    if len(body) < 10:
        return 0, 0
    if chunk == b"VP8X":
        return int.from_bytes(body[4:7], "little") + 1, int.from_bytes(body[7:10], "little") + 1
    if chunk == b"VP8L":
        bits = int.from_bytes(body[1:5], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return int.from_bytes(body[6:8], "little") & 0x3FFF, int.from_bytes(body[8:10], "little") & 0x3FFF


def _shrink_on_load(image: ImageFile, encoded: bytes, scale: int) -> int:
    """Let libjpeg decode at a reduced size, if it can; returns the factor that remains."""
    width, height = image.size
    if scale == 1 or image.format != "JPEG" or min(width, height) < scale:
        return scale
    if (frame := jpeg_markers.frame(encoded)) is None or frame[0] == _LOSSLESS:  # no DCT, nothing to scale
        return scale
    # width // (width // scale) lies in [scale, 2 * scale), so that Pillow picks exactly this scale.
    asked = image.draft(None, (width // scale, height // scale))  # None keeps the mode
    return scale if asked is None else 1


def _reduce(pixels: Array, factor: int) -> Array:
    """Return averages of factor x factor pixels, of each channel alone."""
    from PIL import Image

    if pixels.ndim == 3 and (pixels.shape[2] != 3 or pixels.dtype != np.uint8):
        return np.dstack([_reduce(pixels[:, :, channel], factor) for channel in range(pixels.shape[2])])
    if pixels.dtype == np.uint8:
        return np.asarray(Image.fromarray(pixels).reduce(factor))
    with np.errstate(over="ignore", invalid="ignore"):  # float64 beyond the range of float32, and NaN
        reduced = np.asarray(Image.fromarray(pixels.astype(np.float32)).reduce(factor))
        return (reduced if pixels.dtype.kind == "f" else np.rint(reduced)).astype(pixels.dtype)


def _refusal(name: str, encoded: bytes, error: Exception) -> DecodeError:
    reason = str(error) or type(error).__name__
    if type(error).__name__ == "DecompressionBombError":  # a user's own MAX_IMAGE_PIXELS, where a parser asks it itself
        return ImageTooLargeError(f"Pillow's MAX_IMAGE_PIXELS refuses this {name} image: {reason}")
    if name == "JPEG" and (kind := _exotic(encoded)):
        return UnsupportedImageError(f"unsupported JPEG: {kind} ({reason})")
    if "support not installed" in reason:
        return UnsupportedImageError(f"the installed Pillow is built without {name}: {reason}")
    offset = len(encoded) if "truncated" in reason.lower() else None
    return DecodeError(f"this {name} image cannot be decoded: {reason}", offset=offset)


def _exotic(jpeg: bytes) -> str | None:
    """Return the property of a refused JPEG that is not supported, by its frame header; None if there is none."""
    if (frame := jpeg_markers.frame(jpeg)) is None:
        return None
    marker, bits, components = frame
    if marker == _JPEG_LS:
        return "JPEG-LS"
    if bits in {12, 16}:
        return f"{bits}-bit samples"
    if marker in {0xC5, 0xC6, 0xC7, 0xCD, 0xCE, 0xCF}:
        return "hierarchical"
    return None if components in {1, 3, 4} else f"{components} components"


class _BitReader:
    """Bits of a codestream, the lowest of each byte first; zeros behind the end."""

    def __init__(self, content: bytes) -> None:
        self._bits = int.from_bytes(content, "little")

    def read(self, count: int) -> int:
        """Return the next bits as a number."""
        value = self._bits & ((1 << count) - 1)
        self._bits >>= count
        return value


def read_jxl_size(encoded: bytes) -> tuple[int, int] | None:
    """Return the width and height of the upright image; None if there is no header."""
    codestream = _find_codestream(encoded)
    if codestream is None or not codestream.startswith(_CODESTREAM) or len(codestream) < 3:
        return None
    bits = _BitReader(codestream[2:])
    is_small = bits.read(1)
    height = _read_side(bits, is_small)
    ratio = bits.read(3)
    width = height * _RATIOS[ratio - 1][0] // _RATIOS[ratio - 1][1] if ratio else _read_side(bits, is_small)
    has_defaults = bits.read(1)
    orientation = 1 + bits.read(3) if not has_defaults and bits.read(1) else 1
    return (height, width) if orientation >= _FIRST_TRANSPOSED else (width, height)


def _read_side(bits: _BitReader, is_small: int) -> int:
    if is_small:
        return 8 * (bits.read(5) + 1)
    return bits.read(_LENGTHS[bits.read(2)]) + 1


def _find_codestream(encoded: bytes) -> bytes | None:
    """Return the first bytes of the codestream: those of the file, or of the first box that has some."""
    if not encoded.startswith(_CONTAINER):
        return encoded[: 2 + _HEADER_NBYTES]
    at = 0
    while at + 8 <= len(encoded):
        nbytes, kind, header = int.from_bytes(encoded[at : at + 4], "big"), encoded[at + 4 : at + 8], 8
        if nbytes == 1:
            nbytes, header = int.from_bytes(encoded[at + 8 : at + 16], "big"), 16
        if kind in {b"jxlc", b"jxlp"}:
            start = at + header + (4 if kind == b"jxlp" else 0)
            return encoded[start : start + 2 + _HEADER_NBYTES]
        if nbytes < header:  # to the end of the file, or damaged
            return None
        at += nbytes
    return None


def is_deep_png(image: ImageFile) -> bool:
    """Return whether an opened image is a PNG of several channels of 16 bits."""
    return image.format == "PNG" and len(image.tile) == 1 and image.tile[0].args in _BYTES


def read_deep_png(image: ImageFile, encoded: bytes) -> NDArray[np.uint16]:
    """The samples of a PNG for which :func:`is_deep_png` holds, (H, W, channels); an alpha of one colour is added."""
    mode, layouts = _BYTES[str(image.tile[0].args)]
    parts = [_read_rows(encoded, mode, layout) for layout in layouts]
    if len(parts) == 2:
        pixels = parts[0].astype(np.uint16) << np.uint16(8) | parts[1]
    else:
        pixels = parts[0].view(">u2").astype(np.uint16)
    key = image.info.get("transparency")
    if isinstance(key, tuple) and mode == "RGB":
        alpha = np.where((pixels == np.array(key)).all(axis=2), 0, 0xFFFF).astype(np.uint16)
        return np.dstack([pixels, alpha])
    return pixels


def loses_bits(image: ImageFile) -> bool:
    """Return whether Pillow reduces the samples of an opened image to 8 bits, or gives unsigned ones a sign."""
    if image.format == "TIFF":
        bits: tuple[int, ...] = image.tag_v2.get(258, (8,))  # type: ignore[attr-defined]  # of TIFF; BitsPerSample
        if len(image.getbands()) == 1:
            is_unsigned = max(image.tag_v2.get(339, (1,))) == 1  # type: ignore[attr-defined]  # SampleFormat
            return image.mode == "I" and max(bits) == 32 and is_unsigned
        return max(bits) > 8
    if len(image.getbands()) == 1:
        return False
    if image.format == "PNG":
        return is_deep_png(image)  # of another frame than the first
    if image.format == "PPM":
        args = image.tile[0].args
        return isinstance(args, tuple) and int(args[-1]) > 255
    return False


def _read_rows(encoded: bytes, mode: str, layout: str) -> NDArray[np.uint8]:
    with find_parser("PNG")(io.BytesIO(encoded), "") as image:
        image._mode = mode  # noqa: SLF001  # a picture is allocated in this mode when it is loaded
        image.tile = [image.tile[0]._replace(args=layout)]
        image.info.pop("transparency", None)
        image.load()
        return np.asarray(image)
