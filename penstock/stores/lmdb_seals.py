"""The hashes of an LMDB file's pages, kept beside it: is each page the one that was written.

::

    pages.xxh3   ┌ header ┬ xxh3_64 of page 0, 1, 2, ...
                 └─ page size, count, hash of the hashes

Written once, when a pack is finished. Each page that :class:`~penstock.stores.lmdb_pages.PageFile` reads is compared
with its hash; verification compares all of them. The reasons are in docs/decisions/0002-page-seals.md.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from penstock.stores.lmdb_pages import PageFile, is_page_size
from penstock.stores.regular import open_regular

__all__ = ["SEALS", "Seals", "page_hashes"]

SEALS: Final = "pages.xxh3"

_SEALS = struct.Struct("<8sIIQ8s")  # magic, page size, 0, count, xxh3_64 of the header so far and all hashes
_SEALS_MAGIC: Final = b"PSSEAL\x01\n"
_CHUNK_PAGES: Final = 2048


class Seals:
    """The hashes of a file's pages, as kept beside it in ``pages.xxh3``.

    Parameters
    ----------
    path : Path
        That file. FileNotFoundError if it is missing, ValueError if it is not one, cut short, or cannot be read.
    """

    def __init__(self, path: Path) -> None:
        try:
            file = os.fdopen(open_regular(path), "rb")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ValueError(f"it cannot be read: {error.strerror}") from error
        with file:
            head = file.read(_SEALS.size)
            if len(head) < _SEALS.size or not head.startswith(_SEALS_MAGIC):
                raise ValueError("its header is not one of this format")
            _, self.page_nbytes, _, self.count, self._hashed = _SEALS.unpack(head)
            if not is_page_size(self.page_nbytes):
                raise ValueError(f"its pages of {self.page_nbytes} bytes are not those of an LMDB file")
            if os.fstat(file.fileno()).st_size != _SEALS.size + 8 * self.count:
                raise ValueError(f"its size is not that of {self.count} hashes")
            self._bytes = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self._hashes = np.frombuffer(self._bytes, "<u8", offset=_SEALS.size)

    def broken(self) -> bool:
        """Whether the seals themselves do not hold; reads all of them."""
        state = xxhash.xxh3_64(self._bytes[: _SEALS.size - 8])
        for at in range(_SEALS.size, len(self._bytes), 1 << 20):
            state.update(self._bytes[at : at + (1 << 20)])
        return bool(state.digest() != self._hashed)

    def load(self, first: int, count: int) -> NDArray[np.uint64]:
        """The hashes of pages ``first`` and following."""
        return self._hashes[first : first + count]

    def fits(self, number: int, page: bytes) -> bool:
        """Whether a page is the one that was sealed."""
        return number < self.count and bool(self._hashes[number] == xxhash.xxh3_64_intdigest(page))

    @staticmethod
    def write(folder: Path, file_name: str) -> Path:
        """Seal ``file_name`` in ``folder``: written aside and synced; the caller renames it to ``SEALS``."""
        aside = folder / f"{SEALS}.tmp"
        aside.unlink(missing_ok=True)  # whatever an interrupted run, or a link, has left there
        with PageFile(folder / file_name, str(folder)) as pages, aside.open("wb") as file:
            head = _SEALS.pack(_SEALS_MAGIC, pages.page_nbytes, 0, pages.pages, bytes(8))[:-8]
            state = xxhash.xxh3_64(head)
            file.write(head + bytes(8))
            for first in range(0, pages.pages, _CHUNK_PAGES):
                hashes = page_hashes(pages.read(first, min(_CHUNK_PAGES, pages.pages - first)), pages.page_nbytes)
                state.update(hashes.tobytes())
                file.write(hashes.tobytes())
            file.seek(len(head))
            file.write(state.digest())
            file.flush()
            os.fsync(file.fileno())
        return aside


def page_hashes(content: bytes, page_nbytes: int) -> NDArray[np.uint64]:
    """xxh3_64 of each page; a last part of one is hashed as it is."""
    view = memoryview(content)
    digest = xxhash.xxh3_64_intdigest
    return np.array([digest(view[at : at + page_nbytes]) for at in range(0, len(view), page_nbytes)], "<u8")
