"""Decompression of gzip, zlib, bzip2, xz, Zstandard, Brotli and Snappy: from the beginning of a file, in pieces.

Stores that need random access decompress to files: :mod:`penstock.stores.common.decompressed`. Streams of tar shards
read :class:`DecompressedFile`. gzip, zlib, bzip2 and xz are read by the standard library, the others by pyarrow. Of a
copy of a remote object, the next parts are fetched while one is read; of other files, the system reads ahead itself.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Self

from penstock.errors import StoreError
from penstock.registry import require
from penstock.stores.common.mirrors import MirrorFile
from penstock.stores.common.regular_file import open_file

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["CODECS", "PROGRAMS", "DecompressedFile", "decompress_chunks", "find_codec"]

CODECS: Final = ("gz", "zlib", "bz2", "xz", "zstd", "br", "snappy")
"""The compressions that are read. ``gz`` and ``zlib`` are told apart by their first bytes."""

PROGRAMS: Final = {"gz": "gzip", "bz2": "bzip2"}
"""The names of codecs that people know under another one."""

_READ_NBYTES: Final = 1 << 20
_SIGNATURES: Final = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\0": "xz"}
_SIGNATURE_NBYTES: Final = 6
_ARROW_NAMES: Final = {"zstd": "zstd", "br": "brotli"}
_PART_NBYTES: Final = 4 << 20
_FIRST_NBYTES: Final = 1 << 16
_PARTS_AHEAD: Final = 8
"""Parts that are asked for at once: 32 MiB are 160 MB/s where a request takes 200 ms."""


def find_codec(path: Path) -> str:
    """Return ``gz``, ``bz2`` or ``xz`` by the first bytes of a file; else an empty text. Raises OSError."""
    with open_file(path) as file:
        head = file.read(_SIGNATURE_NBYTES)
    return next((codec for signature, codec in _SIGNATURES.items() if head.startswith(signature)), "")


class DecompressedFile:
    """The decompressed bytes of a file, read from the beginning.

    ``path``: the file. ``codec``: one of :data:`CODECS` but ``snappy``; empty: the bytes are those of the file. Raises
    OSError if it cannot be opened.
    """

    def __init__(self, path: Path, codec: str) -> None:
        self._file = open_file(path, _SequentialReader, _FIRST_NBYTES)
        self._pieces = decompress_chunks(self._file, codec) if codec else None
        self._rest = memoryview(b"")

    def read(self, nbytes: int) -> bytes:
        """Return the next ``nbytes`` bytes, fewer only at the end. Raises OSError, or as :func:`decompress_chunks`."""
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
        """Return some bytes, at most so many."""
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
    """Decompress streams that follow one another, as members of gzip do."""
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
        """Return the next bytes."""
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


class _SequentialReader(io.RawIOBase):
    """The bytes of a copy of a remote object, which is referenced until the reader is closed."""

    def __init__(self, mirror: MirrorFile) -> None:
        super().__init__()
        self._mirror: MirrorFile | None = mirror
        self._at = self._announced = 0
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Return True: the file can be read."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read the next bytes; their number, 0 at the end."""
        if not self._rest and self._mirror is not None:
            self._rest = self._read_part(self._mirror)
        target = memoryview(buffer).cast("B")
        content = self._rest[: len(target)]
        target[: len(content)] = content
        self._rest = self._rest[len(content) :]
        return len(content)

    def close(self) -> None:
        """Let go of the copy."""
        self._mirror, self._rest = None, memoryview(b"")
        super().close()

    def _read_part(self, mirror: MirrorFile) -> memoryview:
        """The next part, after those behind it were announced; at first few bytes, which may be all that is read."""
        begin = self._at
        if not begin:
            self._at = min(_FIRST_NBYTES, _PART_NBYTES, mirror.nbytes)
            return mirror.read(0, self._at)
        end = min(begin + _PART_NBYTES * (_PARTS_AHEAD + 1), mirror.nbytes)
        ahead = range(max(begin + _PART_NBYTES, self._announced), end, _PART_NBYTES)
        mirror.announce([(at, min(_PART_NBYTES, mirror.nbytes - at)) for at in ahead])
        self._announced = max(self._announced, ahead.stop)
        self._at = min(begin + _PART_NBYTES, mirror.nbytes)
        try:
            return mirror.read(begin, self._at - begin)
        except StoreError as error:
            error.locate(offset=begin)
            raise
