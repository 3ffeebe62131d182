"""LitData's chunks whose samples are compressed inside the file, in batches or one by one: written out uncompressed.

::

    batch     "LDFZ01" | count, rows of a frame, frames | offset of each sample and of the end, from 0, uint32
              | frames: first sample, samples, offset, bytes compressed, bytes | frames of Zstandard
    sample    an ordinary chunk, each sample one frame of Zstandard

Called by :mod:`penstock.stores.common.decompressed`. Each frame is decompressed to the number of bytes that it
declares; all of them together to at most 4 GiB, which 32-bit offsets can address.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import BinaryIO, Final

import numpy as np

from penstock.stores.common.compression import decompress_chunks

__all__ = ["expand_frames", "expand_samples"]

_PREFIX: Final = struct.Struct("<8sHHIII")  # magic, version, flags, samples, samples in a frame, frames
_MAGIC: Final = b"LDFZ01\0\0"
_FRAME: Final = np.dtype(
    [("first", "<u4"), ("count", "<u4"), ("offset", "<u8"), ("compressed_nbytes", "<u4"), ("nbytes", "<u4")]
)
_MOST_NBYTES: Final = 1 << 32


def expand_frames(file: BinaryIO) -> Iterator[bytes]:
    """An ordinary chunk of the samples of a chunk that is compressed in batches.

    Raises ValueError if it is damaged.
    """
    content = file.read()
    if len(content) < _PREFIX.size:
        raise ValueError("its header is truncated")
    magic, version, _, count, _, frame_count = _PREFIX.unpack_from(content)
    if magic != _MAGIC or version != 1:
        raise ValueError("it is no chunk that is compressed in batches, or of a later version")
    begin = _PREFIX.size + 4 * (count + 1)
    if begin + frame_count * _FRAME.itemsize > len(content):
        raise ValueError("its table is truncated")
    offsets = np.frombuffer(content, "<u4", count + 1, _PREFIX.size).astype(np.int64)
    frames = np.frombuffer(content, _FRAME, frame_count, begin)
    if frames["nbytes"].sum(dtype=np.int64) != offsets[-1]:
        raise ValueError("its frames and its samples do not have the same number of bytes")
    yield _make_head(offsets)
    for frame in frames:
        nbytes = int(frame["nbytes"])
        compressed = content[int(frame["offset"]) :][: int(frame["compressed_nbytes"])]
        frame_bytes = _decompress(compressed, nbytes)
        if len(frame_bytes) != nbytes:
            raise ValueError(f"a frame must have {nbytes} bytes, got {len(frame_bytes)}")
        yield frame_bytes


def expand_samples(file: BinaryIO) -> Iterator[bytes]:
    """An ordinary chunk of the samples of a chunk in which each sample is compressed.

    Raises ValueError if it is damaged.
    """
    content = file.read()
    count = int.from_bytes(content[:4], "little")
    if len(content) < 4 * count + 8:
        raise ValueError("its table is truncated")
    bounds = np.frombuffer(content, "<u4", count + 1, 4).astype(np.int64)
    samples, rest = [], _MOST_NBYTES
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        samples.append(_decompress(content[begin:end], rest))
        rest -= len(samples[-1])
    yield _make_head(np.cumsum([0, *map(len, samples)]))
    yield from samples


def _make_head(offsets: np.ndarray[tuple[int], np.dtype[np.int64]]) -> bytes:
    """The number of samples, and their offsets in a chunk whose samples follow."""
    head_nbytes = 4 * len(offsets) + 4
    if offsets[-1] + head_nbytes >= _MOST_NBYTES:
        raise ValueError(f"a chunk must have less than {_MOST_NBYTES} bytes")
    return struct.pack("<I", len(offsets) - 1) + (offsets + head_nbytes).astype("<u4").tobytes()


def _decompress(compressed: bytes, most_nbytes: int) -> bytes:
    pieces, written = [], 0
    for piece in decompress_chunks(io.BytesIO(compressed), "zstd"):
        written += len(piece)
        if written > most_nbytes:
            raise ValueError(f"a frame has more than {most_nbytes} bytes")
        pieces.append(piece)
    return b"".join(pieces)
