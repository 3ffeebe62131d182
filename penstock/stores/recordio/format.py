"""The format of RecordIO files (dmlc-core, MXNet): frames, records in parts, headers of images, the text of an index.

::

    0xced7230a │ part << 29 | nbytes │ payload │ zeros up to a multiple of 4        one frame
    part: 0 a whole record; 1, 2, 3 the first, a middle, the last part of a record that contains the magic number at a
          multiple of 4 bytes, which is left out between its parts

    flag │ label (float32) │ id │ id2 │ flag numbers (float32) │ image        the payload of an image: 24 bytes first

Called by :mod:`.recordio.store`. Lengths in a file are compared with what the file has
before they are used. Sources: dmlc-core's ``recordio.h`` and MXNet's ``recordio.py`` (the format; no code of theirs
is here).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.stores.common.mirrors import ByteRanges

__all__ = [
    "FRAME_HEAD_NBYTES",
    "HEADER_NBYTES",
    "MAGIC_BYTES",
    "ROW",
    "Rows",
    "join_parts",
    "parse_index",
    "read_headers",
    "scan_frames",
]

_MAGIC: Final = 0xCED7230A
MAGIC_BYTES: Final = struct.pack("<I", _MAGIC)
HEADER_NBYTES: Final = 24
"""Bytes of the header of an image, without the numbers of its label."""
_LENGTH: Final = (1 << 29) - 1  # the bits of a length

_FRAME: Final = struct.Struct("<II")
FRAME_HEAD_NBYTES: Final = 8
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_CHUNK_RECORDS: Final = 1 << 16


Rows = np.ndarray[tuple[int], np.dtype[np.void]]
"""One row of :data:`ROW` for each record."""

ROW: Final = np.dtype(
    [
        ("shard", np.uint32),
        ("flag", np.uint32),
        ("start", np.int64),
        ("nbytes", np.int64),
        ("head_nbytes", np.int64),
        ("id", np.int64),
        ("id2", np.int64),
        ("label", np.float32),
        ("is_split", np.bool_),
    ],
    align=True,
)
"""What a scan finds of a record: number of its file; how many numbers its label has (0: one, in ``label``); where its
first frame begins; bytes of its payload, and of what stands before the image in it; ids, as numbers with a sign; the
label; whether it lies in several parts."""


def scan_frames(content: ByteRanges) -> Rows:
    """Find the records of a file: ``start``, ``nbytes`` and ``is_split`` of their rows, the rest is zero.

    Raises ValueError if a frame does not begin with the magic number, is longer than the rest of the file, or the parts
    of a record are not in order.
    """
    offsets, words = array("q"), array("I")
    append_offset, append_word, unpack = offsets.append, words.append, _FRAME.unpack
    at, nbytes, last = 0, len(content), len(content) - FRAME_HEAD_NBYTES
    while at <= last:
        magic, word = unpack(content[at : at + FRAME_HEAD_NBYTES])
        if magic != _MAGIC:
            raise ValueError(f"record {_count_records(words)} must begin with the magic number at byte {at}")
        append_offset(at)
        append_word(word)
        at += FRAME_HEAD_NBYTES + ((word & _LENGTH) + 3 & ~3)
    if at != nbytes:
        raise ValueError(
            f"the file of {nbytes} bytes ends inside record {_count_records(words)}; it was truncated, or its writer "
            "was not closed"
        )
    return _group_parts(np.frombuffer(offsets, np.int64), np.frombuffer(words, np.uint32))


def _count_records(words: Sequence[int]) -> int:
    return sum(word >> 29 in {_WHOLE, _LAST} for word in words)


def _group_parts(offsets: NDArray[np.int64], words: NDArray[np.uint32]) -> Rows:
    if not len(words):
        return np.zeros(0, ROW)
    parts, lengths = words >> 29, (words & _LENGTH).astype(np.int64)
    begins = (parts == _WHOLE) | (parts == _FIRST)
    is_open = (parts == _FIRST) | (parts == _MIDDLE)
    wrong = np.flatnonzero((parts > _LAST) | (begins == np.append(False, is_open[:-1])))
    if len(wrong) or is_open[-1]:
        where = offsets[wrong[0]] if len(wrong) else len(offsets) - 1
        number = int(np.count_nonzero(begins[: wrong[0]])) if len(wrong) else int(np.count_nonzero(begins)) - 1
        raise ValueError(f"the parts of record {number} must be a first, middle ones and a last one (byte {where})")
    first = np.flatnonzero(begins)
    counts = np.diff(first, append=len(parts))
    rows = np.zeros(len(first), ROW)
    rows["start"], rows["is_split"] = offsets[first], counts > 1
    rows["nbytes"] = np.add.reduceat(lengths, first) + len(MAGIC_BYTES) * (counts - 1)
    return rows


def join_parts(content: ByteRanges, start: int) -> bytes:
    """The payload of the record in several parts whose first frame is at ``start``.

    Raises ValueError if the parts are not those of a record.
    """
    pieces: list[memoryview] = []
    part, nbytes = _FIRST, len(content)
    while part != _LAST:
        if start + FRAME_HEAD_NBYTES > nbytes:
            raise ValueError(f"the file ends inside its part at byte {start}")
        magic, word = _FRAME.unpack(content[start : start + FRAME_HEAD_NBYTES])
        part, length = word >> 29, word & _LENGTH
        allowed = (_MIDDLE, _LAST) if pieces else (_FIRST,)
        if magic != _MAGIC or part not in allowed or start + FRAME_HEAD_NBYTES + length > nbytes:
            raise ValueError(f"there is no part of it at byte {start}")
        pieces.append(content[start + FRAME_HEAD_NBYTES : start + FRAME_HEAD_NBYTES + length])
        start += FRAME_HEAD_NBYTES + (length + 3 & ~3)
    return MAGIC_BYTES.join(pieces)


def read_headers(content: ByteRanges, rows: Rows) -> bool:
    """Add the headers of the images to the rows; False if a record is too short for its header and its label.

    Raises ValueError as :func:`join_parts`.
    """
    if (rows["nbytes"] < HEADER_NBYTES).any():
        return False
    heads = np.empty((len(rows), HEADER_NBYTES // 4), np.uint32)
    first = rows["start"] + FRAME_HEAD_NBYTES
    whole = np.flatnonzero(~rows["is_split"])
    if not isinstance(content, memoryview):
        pieces = [content[at : at + HEADER_NBYTES] for at in first[whole].tolist()]
        heads[whole] = np.frombuffer(b"".join(pieces), "<u4").reshape(-1, heads.shape[1])
    else:
        words = np.frombuffer(content, "<u4", len(content) // 4)
        for begin in range(0, len(whole), _CHUNK_RECORDS):
            chunk = whole[begin : begin + _CHUNK_RECORDS]
            heads[chunk] = words[first[chunk, None] // 4 + np.arange(heads.shape[1])]  # at multiples of 4
    for row in np.flatnonzero(rows["is_split"]).tolist():  # a part may end inside the header
        heads[row] = np.frombuffer(join_parts(content, int(rows["start"][row])), "<u4", heads.shape[1])
    rows["flag"], rows["label"] = heads[:, 0], heads[:, 1].copy().view(np.float32)
    rows["id"], rows["id2"] = heads[:, 2:].copy().view("<i8").T
    rows["head_nbytes"] = HEADER_NBYTES + 4 * rows["flag"].astype(np.int64)
    return not (rows["head_nbytes"] > rows["nbytes"]).any()


def parse_index(text: str) -> tuple[list[str], NDArray[np.int64]]:
    """Parse the keys and offsets of an ``.idx`` file: a line ``key, tab, offset`` for each record.

    Raises ValueError if a line is something else.
    """
    keys: list[str] = []
    offsets = array("q")
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        key, tab, offset = line.rstrip().partition("\t")
        if not (tab and key and offset.isascii() and offset.isdigit() and len(offset) < 19) or "\0" in key:
            raise ValueError(f"line {number} must be a key, a tab and an offset, got {line!r:.80}")
        keys.append(key)
        offsets.append(int(offset))
    return keys, np.array(offsets, np.int64)
