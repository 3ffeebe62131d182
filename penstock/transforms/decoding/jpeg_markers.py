"""Markers of a JPEG, read without decoding: number of scans, metadata, and whether the file is truncated.

Called before Pillow decodes a JPEG. A progressive file of 200 kB can have thousands of scans of a large image, and
libjpeg decodes each of them; counting them costs a search for FF bytes. Only markers are read here; entropy-coded data
are left to the decoder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = [
    "add_huffman_tables",
    "coefficient_nbytes",
    "count_scans",
    "frame",
    "has_metadata",
    "is_cut",
    "iterate_segments",
    "lacks_data",
]

# In entropy-coded bytes FF is followed by 00 (stuffing), D0..D7 (restart) or FF (fill); all else is a marker.
_MARKER: Final = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]", re.DOTALL)
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC} | {0xF7}  # all SOF; F7 is JPEG-LS
_PROGRESSIVE: Final = frozenset({0xC2, 0xCA})
_HUFFMAN: Final = frozenset({0xC0, 0xC1, 0xC2})
_MOST_BLOCKS_PER_BYTE: Final = 32
_SOS, _EOI, _APP1, _TEM, _DHT = 0xDA, 0xD9, 0xE1, 0x01, 0xC4
_SEQUENTIAL: Final = frozenset({0xC0, 0xC1})
_STANDARD_TABLES: Final = bytes.fromhex(
    "ffc4001f0000010501010101010100000000000000000102030405060708090a0bffc400b5100002010303020403050504040000"
    "017d01020300041105122131410613516107227114328191a1082342b1c11552d1f02433627282090a161718191a25262728292a"
    "3435363738393a434445464748494a535455565758595a636465666768696a737475767778797a838485868788898a9293949596"
    "9798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae1e2e3e4e5e6e7e8e9eaf1f2"
    "f3f4f5f6f7f8f9faffc4001f0100030101010101010101010000000000000102030405060708090a0bffc400b511000201020404"
    "03040705040400010277000102031104052131061241510761711322328108144291a1b1c109233352f0156272d10a162434e125"
    "f11718191a262728292a35363738393a434445464748494a535455565758595a636465666768696a737475767778797a82838485"
    "868788898a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae2e3"
    "e4e5e6e7e8e9eaf2f3f4f5f6f7f8f9fa"
)
"""Segments of the typical Huffman tables of ITU-T T.81, K.3 to K.6, which libjpeg writes and motion JPEG leaves out."""


def count_scans(jpeg: bytes, limit: int) -> int:
    """The number of scans up to the end of the first image, at most ``limit + 1``."""
    scans = 0
    for marker, _ in iterate_segments(jpeg):
        scans += marker == _SOS
        if scans > limit:
            break
    return scans


def frame(jpeg: bytes) -> tuple[int, int, int] | None:
    """``(SOF marker, bits per sample, components)`` of the first frame header, or None if there is none."""
    for marker, at in iterate_segments(jpeg):
        if marker in _FRAMES and at + 10 <= len(jpeg):
            return marker, jpeg[at + 4], jpeg[at + 9]
    return None


def add_huffman_tables(jpeg: bytes) -> bytes | None:
    """Return a sequential JPEG without Huffman tables, with the standard ones; None for other files.

    Frames of motion JPEG (AVI, cameras) are such. libjpeg-turbo decodes them with the same tables.
    """
    is_sequential = False
    for marker, at in iterate_segments(jpeg):
        if marker == _DHT:
            return None
        is_sequential = is_sequential or marker in _SEQUENTIAL
        if marker == _SOS:
            return jpeg[:at] + _STANDARD_TABLES + jpeg[at:] if is_sequential else None
    return None


def coefficient_nbytes(jpeg: bytes) -> int:
    """Return how many bytes libjpeg allocates for coefficients: two for each in a file of several scans; else 0.

    A file has several scans if it is progressive or its first scan lacks a component (``jinit_d_coef_controller``).
    """
    header = next((at for marker, at in iterate_segments(jpeg) if marker in _FRAMES), None)
    scan = next((at for marker, at in iterate_segments(jpeg) if marker == _SOS), None)
    if header is None or scan is None or max(header + 10, scan + 5) > len(jpeg):
        return 0
    if jpeg[header + 1] not in _PROGRESSIVE and jpeg[scan + 4] >= jpeg[header + 9]:
        return 0
    return 128 * _blocks(jpeg, header)


def lacks_data(jpeg: bytes) -> bool:
    """Return whether a Huffman-coded file has less than an eighth of the bits that its blocks need at least.

    Each block needs two bits or more (one, in the first scan of a progressive file). libjpeg fills in missing data: a
    header of some hundred bytes would cost as much time as the largest image.
    """
    header = next((at for marker, at in iterate_segments(jpeg) if marker in _FRAMES), None)
    if header is None or header + 10 > len(jpeg) or jpeg[header + 1] not in _HUFFMAN:
        return False
    return _blocks(jpeg, header) > _MOST_BLOCKS_PER_BYTE * len(jpeg)


def _blocks(jpeg: bytes, header: int) -> int:
    """Number of blocks of 8 x 8 in the image whose frame header begins at ``header``."""
    height, width = (int.from_bytes(jpeg[at : at + 2], "big") for at in (header + 5, header + 7))
    samplings = jpeg[header + 11 : header + 10 + 3 * jpeg[header + 9] : 3]
    factors = [(sampling >> 4, sampling & 15) for sampling in samplings]
    across, down = (max((factor[axis] for factor in factors), default=0) for axis in (0, 1))
    if not across or not down:
        return 0
    mcus = -(-width // (8 * across)) * -(-height // (8 * down))
    return mcus * sum(h * v for h, v in factors)


def has_metadata(jpeg: bytes) -> bool:
    """Return whether there is an APP1 segment (Exif or XMP) before the first scan."""
    for marker, _ in iterate_segments(jpeg):
        if marker == _APP1:
            return True
        if marker == _SOS:
            return False
    return False


def is_cut(jpeg: bytes) -> bool:
    """Whether there is no end marker after the last scan, because the file is truncated or its end is overwritten.

    A part of an image can be decoded from a file that is truncated below it. The file must be refused whichever part is
    asked for, so this is always checked; for most files it is one comparison.
    """
    return not jpeg.endswith(b"\xff\xd9") and jpeg.rfind(b"\xff\xd9") < jpeg.rfind(b"\xff\xda")


def iterate_segments(jpeg: bytes) -> Iterator[tuple[int, int]]:
    """``(marker, offset)`` of every segment, in order, up to the first EOI or the end of the bytes."""
    at = 2
    while match := _MARKER.search(jpeg, at):
        marker, at = jpeg[match.start() + 1], match.start() + 2
        yield marker, match.start()
        if marker == _EOI:
            return
        if marker != _TEM:
            at += max(int.from_bytes(jpeg[at : at + 2], "big"), 2)
