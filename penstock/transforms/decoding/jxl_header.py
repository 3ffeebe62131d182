"""The size in the header of a JPEG XL file, read before anything is decoded (ISO/IEC 18181-1, 18181-2).

The package that decodes JPEG XL decodes a file when it is opened; its size is therefore checked here first.
"""

from __future__ import annotations

from typing import Final

__all__ = ["read_jxl_size"]

_CODESTREAM: Final = b"\xff\x0a"
_CONTAINER: Final = b"\x00\x00\x00\x0cJXL "
_RATIOS: Final = ((1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))
_LENGTHS: Final = (9, 13, 18, 30)
_HEADER_NBYTES: Final = 16
_FIRST_TRANSPOSED: Final = 5


class _BitReader:
    """Bits of a codestream, the lowest of each byte first; zeros behind the end."""

    def __init__(self, content: bytes) -> None:
        self._bits = int.from_bytes(content, "little")

    def read(self, count: int) -> int:
        """The next bits as a number."""
        value = self._bits & ((1 << count) - 1)
        self._bits >>= count
        return value


def read_jxl_size(encoded: bytes) -> tuple[int, int] | None:
    """Width and height of the upright image; None if there is no header."""
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
    """The first bytes of the codestream: those of the file, or of the first box that has some."""
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
