"""Decoding by Pillow: all formats except JPEG and PNG, and files of these that the native decoders refuse.

Pillow defines the results of decoding: *the pixels are those of Pillow, and what Pillow refuses is refused*. In
addition to Pillow, this module checks limits before pixels are allocated, has a fixed list of parsers (no Ghostscript,
no FLI, none chosen by file name), converts 16 bits to 8 by ``>> 8`` (Pillow clips), suppresses warnings, and raises
errors of one kind. The global settings of Pillow (``MAX_IMAGE_PIXELS``, ``LOAD_TRUNCATED_IMAGES``) are not changed: the
parsers are called directly, and not by ``Image.open``, which reads these settings (the parsers of WebP and TIFF read
them too, so that a lower limit of the user holds for these).

Called by :mod:`penstock.transforms.decode` and the fused fill; thread-safe; Pillow is imported at first use.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import DecodeError, ImageTooLargeError, PenstockError, UnsupportedImageError
from penstock.sample import Array
from penstock.transforms import jpeg_markers
from penstock.transforms.orientation import Region
from penstock.transforms.pillow_warnings import quiet

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

__all__ = [
    "MAX_NBYTES",
    "SCAN_BUDGET",
    "SCAN_LIMIT",
    "channel_pixels",
    "image_size",
    "pil_channel",
    "pil_pixels",
    "read_orientation",
    "rgb_pixels",
    "sniff",
]

SCAN_LIMIT: Final = 100
"""Scans that a JPEG of any size may have; encoders write up to about twelve."""

SCAN_BUDGET: Final = 1 << 28
"""Pixels x scans that a JPEG with more scans than :data:`SCAN_LIMIT` may cost (about 0.3 s of libjpeg-turbo)."""

MAX_NBYTES: Final = 1 << 30
"""Default cap on the bytes of coefficients that a JPEG of several scans may need."""

_PARSERS: Final = {
    "JPEG": ("PIL.JpegImagePlugin", "JpegImageFile"),
    "PNG": ("PIL.PngImagePlugin", "PngImageFile"),
    "GIF": ("PIL.GifImagePlugin", "GifImageFile"),
    "WebP": ("PIL.WebPImagePlugin", "WebPImageFile"),
    "BMP": ("PIL.BmpImagePlugin", "BmpImageFile"),
    "TIFF": ("PIL.TiffImagePlugin", "TiffImageFile"),
    "PPM": ("PIL.PpmImagePlugin", "PpmImageFile"),
    "AVIF": ("PIL.AvifImagePlugin", "AvifImageFile"),
}
_MAGIC: Final = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"GIF87a": "GIF",
    b"GIF89a": "GIF",
    b"BM": "BMP",
    b"II*\x00": "TIFF",
    b"MM\x00*": "TIFF",
    b"II+\x00": "TIFF",
    b"MM\x00+": "TIFF",
    **{b"P%d%c" % (kind, space): "PPM" for kind in range(1, 7) for space in b" \t\n\x0b\x0c\r"},
}
_NOT_READ: Final = {
    b"\x00\x00\x00\x0cjP  ": "JPEG 2000",
    b"\xff\x4f\xff\x51": "JPEG 2000",
    b"\x00\x00\x00\x0cJXL ": "JPEG XL",
    b"\xff\x0a": "JPEG XL",
    b"8BPS": "Photoshop",
    b"%PDF": "PDF",
    b"\x00\x00\x01\x00": "icon",
    b"v/1\x01": "OpenEXR",
    b"#?RADIANCE": "Radiance HDR",
    b"qoif": "QOI",
    b"DDS ": "DDS",
}
_AVIF_BRANDS: Final = (b"avif", b"avis")
_IMAGE_BRANDS: Final = (b"mif1", b"msf1")  # of any codec; the following brands tell which
_LOSSLESS, _JPEG_LS = 0xC3, 0xF7


def sniff(head: bytes) -> str:
    """The format by the first bytes of a file, one of :data:`_PARSERS`; its name is not used.

    Raises
    ------
    UnsupportedImageError
        If it is an image format that is not supported.
    DecodeError
        If it is no known format.
    """
    for magic, name in _MAGIC.items():
        if head.startswith(magic):
            return name
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "WebP"
    other = next((name for magic, name in _NOT_READ.items() if head.startswith(magic)), None)
    if head[4:8] == b"ftyp":
        brand = head[8:12]
        if brand in _AVIF_BRANDS or (brand in _IMAGE_BRANDS and any(each in head[16:32] for each in _AVIF_BRANDS)):
            return "AVIF"
        other = "Canon raw" if brand == b"crx " else "HEIF/HEIC or a video"
    if other is not None:
        raise UnsupportedImageError(
            f"the format {other} is not supported; convert the image to one of {', '.join(_PARSERS)}", offset=0
        )
    if not head:
        raise DecodeError("an image must have at least one byte, got none", offset=0)
    raise DecodeError(
        f"not an image: the first bytes are {head[:16]!r}; the format must be one of {', '.join(_PARSERS)}", offset=0
    )


def image_size(encoded: bytes, max_pixels: int) -> tuple[int, int]:
    """Width and height in the header of the image, not of an Exif thumbnail."""
    with _open(encoded, max_pixels) as image:
        return image.size


def read_orientation(encoded: bytes, max_pixels: int) -> int:
    """Exif orientation, 1 to 8; 1 if there is none, if it is damaged, and for TIFF (where Pillow applies it)."""
    if encoded.startswith(b"\xff\xd8") and not jpeg_markers.has_metadata(encoded):
        return 1
    with _open(encoded, max_pixels) as image:
        if image.format == "TIFF":
            return 1
        try:
            orientation = image.getexif().get(0x0112, 1)
        except Exception:  # noqa: BLE001  # any error of Pillow's Exif parser on hostile tags; pixels do not depend on it
            return 1
        return orientation if isinstance(orientation, int) and 1 <= orientation <= 8 else 1


def rgb_pixels(
    encoded: bytes,
    max_pixels: int,
    region: Region | None = None,
    scale: int = 1,
    max_nbytes: int = MAX_NBYTES,
) -> NDArray[np.uint8]:
    """Decode to HWC RGB.

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
        Cap on the memory that libjpeg takes for the coefficients of a JPEG of several scans.

    Returns
    -------
    ndarray, shape (height, width, 3), uint8
        A new C-contiguous array.

    Raises
    ------
    DecodeError, UnsupportedImageError, ImageTooLargeError
    """
    with _open(encoded, max_pixels) as image:
        _check_jpeg(encoded, image, max_nbytes)
        factor = _shrink_on_load(image, encoded, scale)
        image.load()
        pixels = _to_rgb(image)
    if factor > 1:
        pixels = _reduce(pixels, factor)
    if region is not None:
        x0, y0, x1, y1 = region
        pixels = pixels[y0 // scale : -(-y1 // scale), x0 // scale : -(-x1 // scale)]
    return np.array(pixels, order="C")  # Pillow's arrays cannot be written to


def channel_pixels(encoded: bytes, max_pixels: int, max_nbytes: int = MAX_NBYTES) -> NDArray[np.generic]:
    """Decode a single-channel image (a mask) to HW with its values as stored, also palette indices.

    Raises
    ------
    DecodeError
        If it cannot be decoded.
    UnsupportedImageError
        If the image has several channels.
    """
    with _open(encoded, max_pixels) as image:
        if image.format == "PPM" and image.mode in {"L", "I"}:
            _refuse_stretched(image)
        _check_jpeg(encoded, image, max_nbytes)
        image.load()
        return pil_channel(image)


def pil_pixels(image: Image) -> NDArray[np.uint8]:
    """The pixels of a PIL image, HWC RGB, as :func:`rgb_pixels` gives them for its file; the image is not changed."""
    return np.array(image if image.mode == "RGB" else _to_rgb(image.copy()), order="C")


def pil_channel(image: Image) -> NDArray[np.generic]:
    """The values of a PIL image of one channel, HW, as :func:`channel_pixels` gives them for its file."""
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
def _open(encoded: bytes, max_pixels: int) -> Iterator[ImageFile]:
    """Parse the header and check the limits; errors in the body of the ``with`` become DecodeError."""
    name = sniff(encoded[:32])
    if name == "WebP":  # libwebp allocates the canvas when the file is opened
        _check_pixels(_webp_size(encoded), max_pixels)
    parser = _parser(name)
    try:
        with quiet(), parser(io.BytesIO(encoded), "") as image:
            _check_pixels(image.size, max_pixels)
            if name == "JPEG":
                _check_scans(encoded, image.size)
            yield image
    except (PenstockError, MemoryError):
        raise
    except Exception as error:  # Pillow's parsers raise exceptions of any type on hostile bytes
        raise _refusal(name, encoded, error) from error


def _parser(name: str) -> Any:
    module, attribute = _PARSERS[name]
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise UnsupportedImageError(f"the installed Pillow does not read {name}; install a newer Pillow") from error


def _check_pixels(size: tuple[int, int], max_pixels: int) -> None:
    width, height = size
    if width * height > max_pixels:
        raise ImageTooLargeError(
            f"the header declares {width} x {height} = {width * height} pixels, above the cap of {max_pixels}; "
            "raise max_pixels if the image is meant to be that large"
        )


def _check_scans(jpeg: bytes, size: tuple[int, int]) -> None:
    allowed = max(SCAN_LIMIT, SCAN_BUDGET // (size[0] * size[1]))
    if jpeg_markers.count_scans(jpeg, allowed) > allowed:
        raise DecodeError(
            f"a JPEG of {size[0]} x {size[1]} must have at most {allowed} scans, got more: it is refused as a "
            "decompression bomb"
        )


def _check_jpeg(encoded: bytes, image: ImageFile, max_nbytes: int) -> None:
    """Refuse a JPEG that needs too much memory, or has too little data for its size."""
    if image.format != "JPEG":
        return
    if jpeg_markers.lacks_data(encoded):
        raise DecodeError(
            f"truncated JPEG: {len(encoded)} bytes are too few for the {image.width} x {image.height} pixels that its "
            "header declares"
        )
    nbytes = jpeg_markers.coefficient_nbytes(encoded)
    if nbytes > max_nbytes:
        raise ImageTooLargeError(
            f"a JPEG of several scans (progressive) whose coefficients take {nbytes} bytes, above the cap of "
            f"{max_nbytes}; raise max_nbytes if the image is meant to be that large"
        )


def _webp_size(webp: bytes) -> tuple[int, int]:
    """The canvas size from a WebP header (RFC 9649); (0, 0) if it is damaged; libwebp then refuses the file."""
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


def _reduce(pixels: NDArray[np.uint8], factor: int) -> NDArray[np.uint8]:
    from PIL import Image

    return np.asarray(Image.fromarray(pixels).reduce(factor))


def _to_rgb(image: Image) -> NDArray[np.uint8]:
    if image.mode.startswith("I;16"):
        return _gray(np.asarray(image) >> 8)
    if image.mode == "I" and getattr(image, "format", None) == "PPM":  # brought to 16 bits, whatever its largest value
        return _gray(np.asarray(image) >> 8)
    image.info.pop("transparency", None)  # irrelevant to RGB, and convert() would warn about it
    try:
        return np.asarray(image.convert("RGB"))
    except ValueError as error:
        raise UnsupportedImageError(
            f"a {image.format} image of mode {image.mode} cannot be converted to RGB"
        ) from error


def _gray(values: Array) -> NDArray[np.uint8]:
    return np.repeat(values.astype(np.uint8)[:, :, None], 3, axis=2)


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
    """The property of a refused JPEG that is not supported, by its frame header; None if there is none."""
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
