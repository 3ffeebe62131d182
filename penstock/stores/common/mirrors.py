"""Files of this machine that are copies of remote objects, and have only the pages that were read so far.

Whoever reads a file of a store may find that it is such a copy, and asks it for bytes before it reads them. They are
fetched by :mod:`penstock.stores.remote`; a process that opens no remote store never imports it.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["MirrorFile", "PageHashes", "find_mirror", "register_mirror"]


class PageHashes(Protocol):
    """The hashes of the pages of an object, as it was written."""

    page_nbytes: int

    def announce(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Begin to fetch those of the pages in some ranges of the object (offset, number of bytes)."""
        ...

    def fit(self, found: NDArray[np.uint64], first: int, *, again: bool) -> bool:
        """Whether pages ``first`` and following have the hashes ``found``; ``again``: they had not, twice."""
        ...


class MirrorFile(Protocol):
    """A copy of a remote object that is filled as it is read. Thread-safe.

    ``window`` is a map of the file, in which bytes that were not fetched are 0.
    """

    nbytes: int
    version: int
    window: memoryview
    hashes: PageHashes | None

    def read(self, offset: int, nbytes: int, *, keep: bool = False) -> memoryview:
        """Bytes of the object, fetched if the copy does not have them; StoreError if that is impossible.

        ``keep``: they say where other bytes are, and are kept though the cache is full.
        """
        ...

    def require(self, offset: int = 0, nbytes: int | None = None) -> None:
        """Have bytes of the object, by default all, in the file; StoreError if that is impossible."""
        ...

    def announce(self, ranges: Iterable[tuple[int, int]]) -> int:
        """Begin to fetch ranges (offset, number of bytes) that are read soon; how many bytes are asked for."""
        ...

    def hold(self, ranges: Iterable[tuple[int, int]]) -> bool:
        """Fetch what is missing of some ranges, at once; False if the file does not have all of it then."""
        ...

    def make_reader(self) -> Callable[[int, int], bytes]:
        """What reads bytes (offset, number) past the copy, mostly in order, to say what is wrong with the object.

        Bytes that do not have their hashes are fetched again, and returned nevertheless if they stay so.
        """
        ...

    def forget(self, offset: int, nbytes: int) -> None:
        """Have bytes fetched again when they are read next."""
        ...

    def submit(self, call: Callable[[], object]) -> object:
        """Call it in another thread, once what was announced before is asked for."""
        ...


_mirrors: dict[str, list[weakref.ref[MirrorFile]]] = {}
"""By path, the newest first: a process that opens a store twice has two copies of one object."""


def register_mirror(path: Path, mirror: MirrorFile) -> None:
    """Have :func:`find_mirror` find it as long as it is referenced."""
    known = [each for each in _mirrors.get(os.fspath(path), ()) if each() is not None]
    _mirrors[os.fspath(path)] = [weakref.ref(mirror), *known]


def find_mirror(path: str | Path) -> MirrorFile | None:
    """The remote object of which a file is a copy; None for all other files."""
    if not _mirrors:
        return None
    return next((mirror for each in _mirrors.get(os.fspath(path), ()) if (mirror := each()) is not None), None)
