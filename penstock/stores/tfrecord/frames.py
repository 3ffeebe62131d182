"""The frames of TFRecord files: where each record lies, and whether it is undamaged.

::

    frame     length, 8 bytes | masked CRC-32C of the length, 4 | record | masked CRC-32C of the record, 4

Source: TensorFlow's description of the format. Lengths are checked when the frames are searched, records when they are
read.
"""

from __future__ import annotations

import struct
from array import array
from pathlib import Path
from typing import Final

import numpy as np

from penstock import _native
from penstock.errors import StoreFormatError
from penstock.sample import Array
from penstock.wording import counted

__all__ = ["CRC_NBYTES", "HEAD_NBYTES", "PLACE", "find_frames", "is_frame", "is_intact", "mask_crc"]

HEAD_NBYTES: Final = 12
"""Bytes of a frame before the record."""
CRC_NBYTES: Final = 4
"""Bytes of a frame behind the record."""
PLACE: Final = np.dtype([("offset", np.int64), ("nbytes", np.int64)])
"""Where a record lies in its file."""

_HEAD: Final = struct.Struct("<QI")
_CRC: Final = struct.Struct("<I")
_MASK: Final = 0xA282EAD8


def mask_crc(crc: int) -> int:
    """Return a CRC as it is stored: rotated by 15 bits, and a constant added."""
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def is_frame(head: bytes | memoryview) -> bool:
    """Return whether some bytes begin with a length and its checksum."""
    return len(head) >= HEAD_NBYTES and _HEAD.unpack_from(head)[1] == mask_crc(_native.crc32c(head[:8]))


def find_frames(content: memoryview, path: Path) -> Array:
    """The places of the records of a file, as :data:`PLACE`; records are not read.

    Raises
    ------
    StoreFormatError
        If the file is truncated, or a length is damaged: names the file, the byte and the number of records before it.
    """
    places = array("q")  # offset, nbytes, ...
    unpack, crc32c, nbytes = _HEAD.unpack_from, _native.crc32c, len(content)
    at = 0
    while at < nbytes:
        if nbytes - at < HEAD_NBYTES + CRC_NBYTES:
            raise _make_error(path, at, len(places) // 2, "is truncated")
        length, crc = unpack(content, at)
        if crc != mask_crc(crc32c(content[at : at + 8])):
            raise _make_error(
                path, at, len(places) // 2, "is damaged, or no TFRecord file: the checksum of a length is wrong"
            )
        if length > nbytes - at - HEAD_NBYTES - CRC_NBYTES:
            raise _make_error(path, at, len(places) // 2, f"is truncated: a record has {length} bytes")
        places.append(at + HEAD_NBYTES)
        places.append(length)
        at += HEAD_NBYTES + length + CRC_NBYTES
    return np.array(places, np.int64).view(PLACE)


def is_intact(content: memoryview, offset: int, nbytes: int) -> bool:
    """Return whether a record has the checksum that is stored behind it."""
    (crc,) = _CRC.unpack_from(content, offset + nbytes)
    return bool(crc == mask_crc(_native.crc32c(content[offset : offset + nbytes])))


def _make_error(path: Path, at: int, count: int, what: str) -> StoreFormatError:
    return StoreFormatError(f"{path.name} {what}, at byte {at}, behind {counted(count, 'record')}", offset=at)
