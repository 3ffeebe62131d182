"""The bytes of files: of this machine, mapped into memory, or of remote objects; ranges have bounds that are checked.

A view stays readable as long as it is referenced, also after the store is closed. The maps are pages of the system's
cache: nothing is copied, and no file stays open.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Final

import numpy as np

from penstock import _native
from penstock.stores.common.mirrors import ByteRanges, ByteSource, find_mirror
from penstock.stores.common.regular_file import open_regular
from penstock.system.mapping import map_file, reserve

__all__ = ["MappedFiles", "identify_file", "map_sized", "open_source"]

_READ_AHEAD_NBYTES: Final = 1 << 28
"""Bytes that are read ahead at once, of a file of this machine."""
_MAX_RANGE_NBYTES: Final = 1 << 25
"""The same of one range."""


class MappedFiles:
    """Regular files, or copies of remote objects, each opened when it is first read in this process.

    ``paths``: the files, numbered from 0. They must not be truncated while they are mapped: see
    :class:`~penstock.stores.container.ContainerStore`, which compares their sizes before each read.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        self._sources: list[ByteSource | None] = [None] * len(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def source(self, number: int) -> ByteSource:
        """The bytes of a file. Two threads may open a file twice; one of both is then kept.

        Raises OSError if it cannot be opened, or is not a regular file.
        """
        source = self._sources[number]
        if source is None:
            source = self._sources[number] = open_source(self._paths[number])
        return source

    def whole(self, number: int) -> memoryview:
        """All bytes of a file, a read-only view: those of a remote object are fetched. OSError as :meth:`source`."""
        source = self.source(number)
        source.require()
        return source.window

    def ranges(self, number: int, begin: int = 0, nbytes: int | None = None) -> ByteRanges:
        """Return bytes of a file, by default all; of a remote copy, slices are fetched when they are taken.

        Raises ValueError and OSError as :meth:`view`.
        """
        return self.source(number).ranges(begin, nbytes)

    def view(self, number: int, offset: int, nbytes: int) -> memoryview:
        """Return a range of bytes of a file: a read-only view.

        Raises
        ------
        ValueError
            If the range is not inside the file.
        OSError
            As :meth:`source`.
        """
        return (self._sources[number] or self.source(number)).read(offset, nbytes)

    def announce(self, ranges: Iterable[tuple[int, int, int]]) -> int:
        """Begin to fetch ranges (number of the file, offset, number of bytes); how many bytes are asked for.

        Those outside of their file are left out.
        """
        found: dict[int, list[tuple[int, int]]] = {}
        for number, offset, nbytes in ranges:
            if 0 <= offset <= offset + nbytes <= self.source(number).nbytes:
                found.setdefault(number, []).append((offset, nbytes))
        return sum(self.source(number).announce(each) for number, each in found.items())


class _MappedSource:
    """The bytes of a file of this machine, of which nothing has to be fetched; no descriptor stays open."""

    def __init__(self, path: Path) -> None:
        descriptor = open_regular(path)
        try:
            self.window = map_file(descriptor, os.fstat(descriptor).st_size, is_writable=False).data
        finally:
            os.close(descriptor)
        self.nbytes, self._name = len(self.window), path.name

    def read(self, offset: int, nbytes: int, *, keep: bool = False) -> memoryview:
        del keep
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise ValueError(
                f"bytes {offset} to {offset + nbytes} must be inside {self._name}, which has {self.nbytes}"
            )
        return self.window[offset : offset + nbytes]

    def ranges(self, begin: int = 0, nbytes: int | None = None) -> memoryview:
        return self.read(begin, self.nbytes - begin if nbytes is None else nbytes)

    def require(self, offset: int = 0, nbytes: int | None = None) -> None:
        pass

    def announce(self, ranges: Iterable[tuple[int, int]]) -> int:
        parts = np.array([(at, min(nbytes, _MAX_RANGE_NBYTES)) for at, nbytes in ranges], np.int64)
        begins, sizes = parts.reshape(-1, 2).T.copy()
        return _native.read_ahead(self.window, begins, sizes, most_nbytes=_READ_AHEAD_NBYTES)

    def forget(self, offset: int, nbytes: int) -> None:
        pass

    def submit(self, call: Callable[[], object]) -> Future[object]:
        done = Future[object]()
        done.set_result(call())
        return done


def open_source(path: Path) -> ByteSource:
    """Return the bytes of a regular file, or of the remote object of which it is a copy.

    Raises OSError if that is impossible.
    """
    return find_mirror(path) or _MappedSource(path)


def identify_file(path: Path) -> tuple[int, int]:
    """Return device and inode of the file at a path; zeros if there is none."""
    try:
        seen = path.stat()
    except FileNotFoundError:
        return 0, 0
    return seen.st_dev, seen.st_ino


def map_sized(path: Path, nbytes: int, *, is_reserved: bool = False) -> tuple[memoryview, tuple[int, int]]:
    """Map a file that has a size, or gets it, with its device and inode; other processes may do so at once.

    A file that is larger is replaced by an empty one, never truncated: a process that has it mapped would be ended by
    SIGBUS. ``is_reserved``: the whole file gets room on its disk, such that all of it may be read; on a full tmpfs,
    reading a hole ends a process too.

    Raises OSError if the system refuses, or has no room.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    file = open_regular(path, flags)
    try:
        if os.fstat(file).st_size > nbytes:
            path.unlink(missing_ok=True)
            larger, file = file, open_regular(path, flags)
            os.close(larger)
        seen = os.fstat(file)
        if seen.st_size < nbytes:
            os.ftruncate(file, nbytes)
        if is_reserved and nbytes:
            reserve(file, nbytes)
        return map_file(file, nbytes, is_writable=False).data, (seen.st_dev, seen.st_ino)
    finally:
        os.close(file)
