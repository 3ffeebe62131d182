"""Decompression of gzip, zlib, bzip2, xz, Zstandard, Brotli and Snappy: from the beginning of a file, in pieces.

Stores that need random access decompress to files: :mod:`penstock.stores.common.decompressed`. Streams of tar shards
read :class:`DecompressedFile`. gzip, zlib, bzip2 and xz are read by the standard library, the others by pyarrow.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, Self

from penstock.registry import require
from penstock.stores.common.regular_file import open_file
from penstock.stores.common.sequential import open_sequential

__all__ = ["CODECS", "PROGRAMS", "DecompressedFile", "decompress_chunks", "find_codec"]

CODECS: Final = ("gz", "zlib", "bz2", "xz", "zstd", "br", "snappy")
"""The compressions that are read. ``gz`` and ``zlib`` are told apart by their first bytes."""

PROGRAMS: Final = {"gz": "gzip", "bz2": "bzip2"}
"""The names of codecs that people know under another one."""

_READ_NBYTES: Final = 1 << 20
_SIGNATURES: Final = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\0": "xz"}
_SIGNATURE_NBYTES: Final = 6
_ARROW_NAMES: Final = {"zstd": "zstd", "br": "brotli"}


def find_codec(path: Path) -> str:
    """``gz``, ``bz2`` or ``xz`` by the first bytes of a file; else empty. Raises OSError."""
    with open_file(path) as file:
        head = file.read(_SIGNATURE_NBYTES)
    return next((codec for signature, codec in _SIGNATURES.items() if head.startswith(signature)), "")


class DecompressedFile:
    """The decompressed bytes of a file, read from the beginning.

    ``path``: the file. ``codec``: one of :data:`CODECS` but ``snappy``; empty: the bytes are those of the file. Raises
    OSError if it cannot be opened.
    """

    def __init__(self, path: Path, codec: str) -> None:
        self._file = open_sequential(path)
        self._pieces = decompress_chunks(self._file, codec) if codec else None
        self._rest = memoryview(b"")

    def read(self, nbytes: int) -> bytes:
        """The next ``nbytes`` bytes, fewer only at the end. Raises OSError, or as :func:`decompress_chunks`."""
        if self._pieces is None:
            return self._file.read(nbytes)
        found: list[bytes] = []
        while nbytes:
            if not self._rest:
                piece = next(self._pieces, None)
                if piece is None:
                    break
                self._rest = memoryview(piece)
            found.append(bytes(self._rest[:nbytes]))
            self._rest = self._rest[nbytes:]
            nbytes -= len(found[-1])
        return found[0] if len(found) == 1 else b"".join(found)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def decompress_chunks(file: BinaryIO, codec: str, nbytes: int | None = None) -> Iterator[bytes]:
    """The decompressed bytes of an open file, in pieces of bounded size.

    ``file``: read from its position on. ``codec``: one of :data:`CODECS`. ``nbytes``: the number of decompressed bytes:
    Snappy needs it, and decompresses at once. Raises ValueError or EOFError if the bytes are damaged or truncated.
    Raises OptionalPackageError if the compression needs pyarrow.
    """
    if codec in _STREAMS:
        yield from _decompress_streams(file, _STREAMS[codec])
    elif codec in _ARROW_NAMES:
        yield from _decompress_with_arrow(file, _ARROW_NAMES[codec])
    else:
        assert codec == "snappy", f"a codec of {CODECS}"
        yield _unsnap(file, nbytes)


class _Inflater:
    """gzip and zlib as :mod:`bz2` and :mod:`lzma` have their decompressors."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
        self.needs_input = True

    eof = property(lambda self: self._inflate.eof)
    unused_data = property(lambda self: self._inflate.unused_data)

    def decompress(self, piece: bytes, most_nbytes: int) -> bytes:
        """Some bytes, at most so many."""
        found = self._inflate.decompress(self._inflate.unconsumed_tail + piece, most_nbytes)
        self.needs_input = len(found) < most_nbytes
        return found


_Decompressor = _Inflater | bz2.BZ2Decompressor | lzma.LZMADecompressor
_STREAMS: Final[dict[str, Callable[[], _Decompressor]]] = {
    "gz": _Inflater,
    "zlib": _Inflater,
    "bz2": bz2.BZ2Decompressor,
    "xz": lzma.LZMADecompressor,
}


def _decompress_streams(file: BinaryIO, make: Callable[[], _Decompressor]) -> Iterator[bytes]:
    """Of streams that follow one another, as members of gzip do."""
    piece = file.read(_READ_NBYTES)
    if not piece:
        raise EOFError("it is empty")
    while piece:
        decompressor = make()
        while True:
            try:
                yield decompressor.decompress(piece, _READ_NBYTES)
            except (OSError, zlib.error, lzma.LZMAError) as error:  # bz2 raises OSError for wrong bytes
                raise ValueError(str(error)) from error
            if decompressor.eof:
                break
            piece = file.read(_READ_NBYTES) if decompressor.needs_input else b""
            if decompressor.needs_input and not piece:
                raise EOFError("its end is missing")
        # padding behind a stream is allowed
        piece = (decompressor.unused_data or file.read(_READ_NBYTES)).lstrip(b"\0")


def _decompress_with_arrow(file: BinaryIO, codec: str) -> Iterator[bytes]:
    arrow = require("pyarrow", extra="parquet", purpose=f"to read {codec} compression")
    try:
        stream = arrow.CompressedInputStream(arrow.PythonFile(BorrowedFile(file), "r"), codec)
        while piece := stream.read(_READ_NBYTES):
            yield piece
    except OSError as error:  # what Arrow raises for wrong bytes
        raise ValueError(str(error)) from error


class BorrowedFile:
    """An open file for Arrow, which closes what it is given."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, nbytes: int) -> bytes:
        """The next bytes."""
        return self._file.read(nbytes)

    def close(self) -> None:
        """Leave the file open."""


def _unsnap(file: BinaryIO, nbytes: int | None) -> bytes:
    arrow = require("pyarrow", extra="parquet", purpose="to read Snappy compression")
    if nbytes is None:
        raise ValueError("the size of Snappy data must be known")
    compressed = file.read()
    if len(compressed) * 64 + 64 < nbytes:
        raise ValueError(f"its {len(compressed)} bytes cannot decompress to {nbytes}")
    try:
        return bytes(arrow.Codec("snappy").decompress(compressed, decompressed_size=nbytes, asbytes=True))
    except OSError as error:
        raise ValueError(str(error)) from error
