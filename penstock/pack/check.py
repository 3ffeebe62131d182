"""Is this an image, and how large: the look that each image gets before it is packed.

``header`` reads the first bytes and the markers: format, size, and that the file does not end early, at some ten
microseconds an image. ``decode`` decodes it besides. A picture that passes may still hold flipped bits: only its
checksum, taken here, tells later on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from penstock.errors import DecodeError, ImageTooLargeError
from penstock.transforms import fallback

__all__ = ["CHECKS", "MAX_PIXELS", "check_image"]

CHECKS: Final = ("header", "decode")
MAX_PIXELS: Final = 1 << 27
"""As in decoding: what is packed can be read with default settings."""

_EOI: Final = b"\xff\xd9"
_SOS: Final = 0xDA
_SKIPPED: Final = frozenset((0x00, 0x01, *range(0xD0, 0xD9), 0xFF))  # stuffing, markers without a segment, fill
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_EVERYDAY_FRAMES: Final = frozenset({0xC0, 0xC1, 0xC2})  # baseline, extended, progressive: Huffman-coded

_BOXES: Final = frozenset({b"ftyp", b"meta", b"moov", b"mdat", b"free", b"skip", b"uuid"})
_GAP: Final = rb"(?:\s|#[^\r\n]{0,1000}[\r\n]){1,1000}"
_PPM_SIZE: Final = re.compile(rb"P([456])" + _GAP + rb"(\d{1,10})" + _GAP + rb"(\d{1,10})")
_PPM_LARGEST: Final = re.compile(_GAP + rb"(\d{1,10})")


def check_image(content: bytes, how: str) -> tuple[int, int]:
    """Width and height of an encoded image, if it is a whole one.

    Parameters
    ----------
    content : bytes
        The file.
    how : {"header", "decode"}
        How closely to look.

    Raises
    ------
    DecodeError
        If it is empty, not an image, cut short, larger than :data:`MAX_PIXELS`, or (``"decode"``) cannot be decoded.
    """
    if not content:
        raise DecodeError("the file is empty")
    kind = fallback.sniff(content[:32])
    _refuse_cut(kind, content)
    size = _jpeg_size(content) if kind == "JPEG" else fallback.image_size(content, MAX_PIXELS)
    if size[0] * size[1] > MAX_PIXELS:
        raise ImageTooLargeError(f"its header declares {size[0]} x {size[1]} pixels, more than {MAX_PIXELS}")
    if how == "decode":
        from penstock.transforms.decode import decode  # the native core, not needed for "header"

        decode(content, max_pixels=MAX_PIXELS)
    return size


def _jpeg_size(jpeg: bytes) -> tuple[int, int]:
    """Size by the frame header; refuses a file without a scan, or without an end after it."""
    size = None
    at = 2
    while at + 4 <= len(jpeg):
        if jpeg[at] != 0xFF:  # stray bytes between segments: what Pillow makes of them is what decoding will
            size = size or fallback.image_size(jpeg, MAX_PIXELS)
            at = max(jpeg.find(b"\xff", at), at + 1)
            continue
        marker = jpeg[at + 1]
        if marker in _SKIPPED:
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
            if marker not in _EVERYDAY_FRAMES or jpeg[at + 4] != 8 or not any(jpeg[at + 5 : at + 7]):
                size = fallback.image_size(jpeg, MAX_PIXELS)
            else:
                size = int.from_bytes(jpeg[at + 7 : at + 9], "big"), int.from_bytes(jpeg[at + 5 : at + 7], "big")
        at += 2 + max(int.from_bytes(jpeg[at + 2 : at + 4], "big"), 2)
    raise DecodeError(f"truncated JPEG: its {len(jpeg)} bytes end before any scan", offset=len(jpeg))


def _refuse_cut(kind: str, content: bytes) -> None:
    """Refuse what ends early by its own account; BMP, TIFF and PPM as text give none that holds in practice."""
    is_cut = _CUT.get(kind)
    if is_cut is not None and is_cut(content):
        raise DecodeError(f"truncated {kind}: its {len(content)} bytes have no end", offset=len(content))


def _png_is_cut(png: bytes) -> bool:
    return b"IEND" not in png[-4096:] and b"IEND" not in png


def _webp_is_cut(webp: bytes) -> bool:
    return int.from_bytes(webp[4:8], "little") + 8 > len(webp)


def _gif_is_cut(gif: bytes) -> bool:
    """Whether the blocks of the first frame end before the one that says that it is the last."""
    at = 13 + _gif_table_nbytes(gif, 10)
    while at < len(gif):
        introducer = gif[at]
        if introducer == 0x2C:  # the image: its place, its colours, the code size, its blocks
            return _gif_blocks_end(gif, at + 11 + _gif_table_nbytes(gif, at + 9)) is None
        if introducer == 0x3B:
            return False  # the end, without an image: what that is worth, decoding says
        end = _gif_blocks_end(gif, at + 2) if introducer == 0x21 else at + 1  # an extension, or a stray byte
        if end is None:
            return True
        at = end
    return True


def _gif_table_nbytes(gif: bytes, at: int) -> int:
    flags = gif[at] if at < len(gif) else 0
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _gif_blocks_end(gif: bytes, at: int) -> int | None:
    while at < len(gif):
        length = gif[at]
        at += 1 + length
        if length == 0:
            return at
    return None


def _avif_is_cut(avif: bytes) -> bool:
    """Whether a box of the file says that it ends behind the file's end, or there is none with the pixels."""
    at, has_pixels = 0, b"idat" in avif
    while avif[at + 4 : at + 8] in _BOXES:
        has_pixels = has_pixels or avif[at + 4 : at + 8] == b"mdat"
        nbytes = int.from_bytes(avif[at : at + 4], "big")
        if nbytes == 0:  # to the end
            break
        if nbytes == 1:
            nbytes = int.from_bytes(avif[at + 8 : at + 16], "big")
        at += max(nbytes, 8)
        if at > len(avif):
            return True
    return not has_pixels


def _ppm_is_cut(ppm: bytes) -> bool:
    """Whether there are fewer bytes of pixels than the header promises."""
    size = _PPM_SIZE.match(ppm)
    if size is None:
        return False  # as text, or with endless comments
    kind, width, height = (int(number) for number in size.groups())
    if kind == 4:
        return len(ppm) - size.end() - 1 < -(-width // 8) * height
    largest = _PPM_LARGEST.match(ppm, size.end())
    if largest is None:
        return False
    pixel_nbytes = (3 if kind == 6 else 1) * (1 if int(largest[1]) < 256 else 2)
    return len(ppm) - largest.end() - 1 < width * height * pixel_nbytes


_CUT: Final[dict[str, Callable[[bytes], bool]]] = {
    "PNG": _png_is_cut,
    "WebP": _webp_is_cut,
    "GIF": _gif_is_cut,
    "AVIF": _avif_is_cut,
    "PPM": _ppm_is_cut,
}
