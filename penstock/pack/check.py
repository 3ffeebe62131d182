"""Is this an image, and how large: the look that each image gets before it is packed.

``header`` reads the first bytes and the markers: format, size, and that the file does not end early, at some ten
microseconds an image. ``decode`` decodes it besides. A picture that passes may still hold flipped bits: only its
checksum, taken here, tells later on.
"""

from __future__ import annotations

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
            if marker not in _EVERYDAY_FRAMES or jpeg[at + 4] != 8 or not any(jpeg[at + 5 : at + 7]):
                size = fallback.image_size(jpeg, MAX_PIXELS)
            else:
                size = int.from_bytes(jpeg[at + 7 : at + 9], "big"), int.from_bytes(jpeg[at + 5 : at + 7], "big")
        at += 2 + max(int.from_bytes(jpeg[at + 2 : at + 4], "big"), 2)
    raise DecodeError(f"truncated JPEG: its {len(jpeg)} bytes end before any scan", offset=len(jpeg))


def _refuse_cut(kind: str, content: bytes) -> None:
    """Refuse what ends early by its own account; BMP and TIFF give none that holds in practice."""
    cut = (
        (kind == "PNG" and b"IEND" not in content[-4096:] and b"IEND" not in content)
        or (kind == "GIF" and b";" not in content[-64:])
        or (kind == "WebP" and int.from_bytes(content[4:8], "little") + 8 > len(content))
    )
    if cut:
        raise DecodeError(f"truncated {kind}: its {len(content)} bytes have no end", offset=len(content))
