"""Checks each image before it is packed: that it is a complete image, and its size.

``header`` reads the first bytes and the markers: format, size, and whether the file is truncated, in some ten
microseconds an image. ``decode`` also decodes the image. An image that passes may still contain flipped bits: only a
checksum of the source could detect them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from penstock.errors import DecodeError, ImageTooLargeError
from penstock.paths import COEFFICIENTS
from penstock.transforms.decoding import fallback

__all__ = ["CHECKS", "MAX_PIXELS", "check_image"]

CHECKS: Final = ("header", "decode")
MAX_PIXELS: Final = 1 << 27
"""The default limit of decoding: a packed image can be decoded with default settings."""

_EOI: Final = b"\xff\xd9"
_SOS: Final = 0xDA
_WITHOUT_SEGMENT: Final = frozenset((0x00, 0x01, *range(0xD0, 0xD9), 0xFF))  # with stuffing and fill bytes
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_HUFFMAN_FRAMES: Final = frozenset({0xC0, 0xC1, 0xC2})  # baseline, extended, progressive

_BOXES: Final = frozenset({b"ftyp", b"meta", b"moov", b"mdat", b"free", b"skip", b"uuid"})
_JXL_BOXES: Final = frozenset(
    {b"JXL ", b"ftyp", b"jxlc", b"jxlp", b"jxll", b"jxli", b"jbrd", b"Exif", b"xml ", b"jumb", b"brob", b"free"}
)
_PPM_SPACE: Final = rb"(?:\s|#[^\r\n]{0,1000}[\r\n]){1,1000}"
_PPM_SIZE: Final = re.compile(rb"P([456])" + _PPM_SPACE + rb"(\d{1,10})" + _PPM_SPACE + rb"(\d{1,10})")
_PPM_LARGEST: Final = re.compile(_PPM_SPACE + rb"(\d{1,10})")


def check_image(content: bytes, how: str) -> tuple[int, int]:
    """Width and height of an encoded image, if it is complete.

    ``content``: the bytes of the file. ``how``: {"header", "decode"}: what to check. Raises DecodeError if it is empty,
    not an image, truncated, larger than :data:`MAX_PIXELS`, or (``"decode"``) cannot be decoded.
    """
    if not content:
        raise DecodeError("the file is empty")
    kind = fallback.sniff(content[:32])
    _refuse_truncated(kind, content)
    is_file = kind == "JPEG" and not content.startswith(COEFFICIENTS)  # whose length its head says
    size = _jpeg_size(content) if is_file else fallback.image_size(content, MAX_PIXELS)
    if size[0] * size[1] > MAX_PIXELS:
        raise ImageTooLargeError(
            f"an image must have at most {MAX_PIXELS} pixels, its header declares {size[0]} x {size[1]}"
        )
    if how == "decode":
        from penstock.transforms.decoding.decode import decode  # imports the native core, which "header" does not need

        decode(content, max_pixels=MAX_PIXELS)
    return size


def _jpeg_size(jpeg: bytes) -> tuple[int, int]:
    """Return the size in the frame header; refuse a file without a scan, or without an end-of-image marker."""
    size = None
    at = 2
    while at + 4 <= len(jpeg):
        if jpeg[at] != 0xFF:  # stray bytes between segments: use the size that Pillow finds, as decoding does
            size = size or fallback.image_size(jpeg, MAX_PIXELS)
            at = max(jpeg.find(b"\xff", at), at + 1)
            continue
        marker = jpeg[at + 1]
        if marker in _WITHOUT_SEGMENT:
            at += 1 if marker == 0xFF else 2
            continue
        if marker == _SOS:
            if size is None:
                raise DecodeError("damaged JPEG: its scan comes before its frame header", offset=at)
            if jpeg.rfind(_EOI, at) < 0:
                raise DecodeError(f"truncated JPEG: no end-of-image marker in its {len(jpeg)} bytes", offset=len(jpeg))
            return size
        if marker in _FRAMES and size is None:
            if at + 9 > len(jpeg):
                break
            if marker not in _HUFFMAN_FRAMES or jpeg[at + 4] != 8 or not any(jpeg[at + 5 : at + 7]):
                size = fallback.image_size(jpeg, MAX_PIXELS)
            else:
                size = int.from_bytes(jpeg[at + 7 : at + 9], "big"), int.from_bytes(jpeg[at + 5 : at + 7], "big")
        at += 2 + max(int.from_bytes(jpeg[at + 2 : at + 4], "big"), 2)
    raise DecodeError(f"truncated JPEG: its {len(jpeg)} bytes end before any scan", offset=len(jpeg))


def _refuse_truncated(kind: str, content: bytes) -> None:
    """Refuse a truncated file. BMP, TIFF and PPM as text do not say reliably where they end."""
    is_truncated = _TRUNCATION_CHECKS.get(kind)
    if is_truncated is not None and is_truncated(content):
        raise DecodeError(f"truncated {kind}: the end is missing behind its {len(content)} bytes", offset=len(content))


def _png_is_truncated(png: bytes) -> bool:
    return b"IEND" not in png[-4096:] and b"IEND" not in png


def _webp_is_truncated(webp: bytes) -> bool:
    return int.from_bytes(webp[4:8], "little") + 8 > len(webp)


def _gif_is_truncated(gif: bytes) -> bool:
    """Return whether the blocks of the first frame end without a last block."""
    at = 13 + _gif_table_nbytes(gif, 10)
    while at < len(gif):
        introducer = gif[at]
        if introducer == 0x2C:  # the image: position, colour table, code size, blocks
            return _find_gif_blocks_end(gif, at + 11 + _gif_table_nbytes(gif, at + 9)) is None
        if introducer == 0x3B:
            return False  # the end, without an image: an error of decoding
        end = _find_gif_blocks_end(gif, at + 2) if introducer == 0x21 else at + 1  # an extension, or a stray byte
        if end is None:
            return True
        at = end
    return True


def _gif_table_nbytes(gif: bytes, at: int) -> int:
    flags = gif[at] if at < len(gif) else 0
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _find_gif_blocks_end(gif: bytes, at: int) -> int | None:
    while at < len(gif):
        length = gif[at]
        at += 1 + length
        if length == 0:
            return at
    return None


def _avif_is_truncated(avif: bytes) -> bool:
    """Return whether a box ends behind the end of the file, or no box contains pixels. Also of HEIC."""
    return _boxes_are_truncated(avif, _BOXES, frozenset({b"mdat"}), has_pixels=b"idat" in avif)


def _jxl_is_truncated(jxl: bytes) -> bool:
    """Return whether a JPEG XL in boxes is truncated; a file of the bare codestream does not say where it ends."""
    if jxl.startswith(b"\xff\x0a"):
        return False
    return _boxes_are_truncated(jxl, _JXL_BOXES, frozenset({b"jxlc", b"jxlp"}), has_pixels=False)


def _boxes_are_truncated(
    content: bytes, kinds: frozenset[bytes], holding: frozenset[bytes], *, has_pixels: bool
) -> bool:
    at = 0
    while content[at + 4 : at + 8] in kinds:
        has_pixels = has_pixels or content[at + 4 : at + 8] in holding
        nbytes = int.from_bytes(content[at : at + 4], "big")
        if nbytes == 0:  # to the end
            break
        if nbytes == 1:
            nbytes = int.from_bytes(content[at + 8 : at + 16], "big")
        at += max(nbytes, 8)
        if at > len(content):
            return True
    return not has_pixels


def _ppm_is_truncated(ppm: bytes) -> bool:
    """Return whether there are fewer bytes of pixels than the header declares."""
    size = _PPM_SIZE.match(ppm)
    if size is None:
        return False  # as text, or with very long comments
    kind, width, height = (int(number) for number in size.groups())
    if kind == 4:
        return len(ppm) - size.end() - 1 < -(-width // 8) * height
    largest = _PPM_LARGEST.match(ppm, size.end())
    if largest is None:
        return False
    pixel_nbytes = (3 if kind == 6 else 1) * (1 if int(largest[1]) < 256 else 2)
    return len(ppm) - largest.end() - 1 < width * height * pixel_nbytes


_TRUNCATION_CHECKS: Final[dict[str, Callable[[bytes], bool]]] = {
    "PNG": _png_is_truncated,
    "WebP": _webp_is_truncated,
    "GIF": _gif_is_truncated,
    "AVIF": _avif_is_truncated,
    "HEIC": _avif_is_truncated,
    "JPEG XL": _jxl_is_truncated,
    "PPM": _ppm_is_truncated,
}
