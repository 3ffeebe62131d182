"""The hashes of the pages of an LMDB file, in a file beside it: is each page the one that was written.

::

    pages.xxh3   ┌ header ┬ xxh3_64 of page 0, 1, 2, ...
                 └─ page size, count, hash of the hashes

The file is written once, when a pack is finished. :class:`~penstock.stores.common.lmdb.pages.PageFile` compares each
page of a tree that it reads with its hash; verification compares all pages. See docs/decisions/0002-page-seals.md.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from penstock import _native
from penstock.stores.common.lmdb.pages import HASHES, PageFile, is_page_size
from penstock.stores.common.mapped_files import open_source
from penstock.stores.common.regular_file import open_regular

__all__ = ["PageHashFile"]

_HEADER: Final = struct.Struct("<8sIIQ8s")  # magic, page size, 0, count, xxh3_64 of the header so far and all hashes
_HASH: Final = struct.Struct("<Q")
_MAGIC: Final = b"PSSEAL\x01\n"
_MAX_ATTEMPTS: Final = 4
_BLOCK_NBYTES: Final = 1 << 16
"""Bytes of hashes that are fetched at once, of a pack in object storage: those of 32 MiB of the pack."""
_PART_NBYTES: Final = 1 << 20  # a whole number of pages of every size; it fits into a processor's cache


class PageHashFile:
    """The hashes of the pages of a file, in ``pages.xxh3`` beside it.

    ``path``: the file of hashes. Raises FileNotFoundError if it is missing. Raises ValueError if it is no file of
    hashes, is truncated, or cannot be read.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._source = open_source(path)
            self._nbytes = self._source.nbytes
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ValueError(f"it cannot be read: {error.strerror}") from error
        head = self._source.read(*self._block(0, 0), keep=True)[: _HEADER.size]
        if len(head) < _HEADER.size or bytes(head[: len(_MAGIC)]) != _MAGIC:
            raise ValueError("its header is not of this format")
        _, self.page_nbytes, _, self.count, self._hashed = _HEADER.unpack(head)
        if not is_page_size(self.page_nbytes):
            raise ValueError(f"its page size must be one of LMDB, got {self.page_nbytes} bytes")
        if self._nbytes != _HEADER.size + 8 * self.count:
            raise ValueError(f"its size must be that of {self.count} hashes")

    def is_damaged(self) -> bool:
        """Return whether the hashes do not match their own checksum; reads all of them."""
        self._source.require()
        content = self._source.window
        state = xxhash.xxh3_64(content[: _HEADER.size - 8])
        for at in range(_HEADER.size, len(content), 1 << 20):
            state.update(content[at : at + (1 << 20)])
        return bool(state.digest() != self._hashed)

    def load(self, first: int, count: int) -> NDArray[np.uint64]:
        """The hashes of pages ``first`` and following."""
        count = max(min(count, self.count - first), 0)
        begin, nbytes = self._block(first, count)
        content = self._source.read(begin, nbytes, keep=True)
        return np.frombuffer(content, "<u8", count, _HEADER.size + 8 * first - begin)

    def _block(self, first: int, count: int) -> tuple[int, int]:
        """The bytes of some hashes and their neighbours, which are fetched with them: offset and number."""
        at = _HEADER.size + 8 * first
        begin, end = at & -_BLOCK_NBYTES, (at + 8 * count + _BLOCK_NBYTES - 1) & -_BLOCK_NBYTES
        return begin, min(end, self._nbytes) - begin

    def announce(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Begin to fetch the hashes of the pages in some ranges of the file: offset and number of bytes."""
        size = self.page_nbytes
        self._source.announce(
            {self._block(page, 1) for begin, nbytes in ranges for page in (begin // size, (begin + nbytes - 1) // size)}
        )

    def fit(self, found: NDArray[np.uint64], first: int, *, again: bool) -> bool:
        """Return whether pages ``first`` and following of the file have the hashes ``found``.

        ``again``: they did not, twice; then the hashes themselves are fetched again.
        """
        count = min(len(found), self.count - first)
        if count <= 0:
            return True  # they have no hashes
        if again:
            self._source.forget(*self._block(first, count))
        return bool(np.array_equal(found[:count], self.load(first, count)))

    def matches(self, number: int, page: bytes) -> bool:
        """Return whether the hash of page ``number`` is that of ``page``."""
        if number >= self.count:
            return False
        found = xxhash.xxh3_64_intdigest(page)
        for _ in range(_MAX_ATTEMPTS):
            begin, nbytes = self._block(number, 1)
            content = self._source.read(begin, nbytes, keep=True)
            if _HASH.unpack_from(content, _HEADER.size + 8 * number - begin)[0] == found:
                return True
            # of a remote pack, the page was compared when it came; the hash may have come wrong later
            self._source.forget(begin, nbytes)
        return False

    @staticmethod
    def write(folder: Path, file_name: str) -> Path:
        """Write the hashes of ``file_name`` to a synced temporary file; the caller renames it to ``HASHES``."""
        temporary = folder / f"{HASHES}.tmp"
        temporary.unlink(missing_ok=True)  # a file, or a symbolic link, from before
        with PageFile(folder / file_name, str(folder)) as pages, temporary.open("wb") as file:
            head = _HEADER.pack(_MAGIC, pages.page_nbytes, 0, pages.pages, bytes(8))[:-8]
            state = xxhash.xxh3_64(head)
            file.write(head + bytes(8))
            with io.FileIO(open_regular(folder / file_name)) as written:
                for content in _read_parts(written, pages.nbytes):
                    hashes = _native.hash_pages(content, pages.page_nbytes).tobytes()
                    state.update(hashes)
                    file.write(hashes)
            file.seek(len(head))
            file.write(state.digest())
            file.flush()
            os.fsync(file.fileno())
        return temporary


def _read_parts(file: io.FileIO, nbytes: int) -> Iterator[memoryview]:
    """Yield the first ``nbytes`` bytes of a file, some pages at a time.

    A part is valid until the next one is asked for.

    Their memory is used again, such that it stays in the cache of the processor: to allocate it anew takes longer than
    to read it.
    """
    buffer = memoryview(bytearray(_PART_NBYTES))
    for offset in range(0, nbytes, _PART_NBYTES):
        part = buffer[: nbytes - offset]
        if file.readinto(part) != len(part):
            raise OSError(f"the file ends before byte {nbytes}")
        yield part
