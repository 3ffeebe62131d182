"""Files that are mapped into memory; those of a store as views of byte ranges, with bounds that are checked.

A view stays readable as long as it is referenced, also after the store is closed. The maps are pages of the system's
cache: nothing is copied.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from penstock.stores.common.mirrors import ByteRanges, ByteSource, MirrorBytes, find_mirror
from penstock.stores.common.regular_file import open_regular
from penstock.system.mapping import map_file, reserve

__all__ = ["MappedFiles", "identify_file", "map_sized", "open_source"]


class MappedFiles:
    """Regular files, each mapped when it is first read in this process.

    ``paths``: the files, numbered from 0. They must not be truncated while they are mapped: see
    :class:`~penstock.stores.container.ContainerStore`, which compares their sizes before each read.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        self._views: list[memoryview | None] = [None] * len(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def whole(self, number: int) -> memoryview:
        """All bytes of a file: a read-only view. Two threads may map a file twice; one of the maps is then kept.

        Raises OSError if it cannot be opened, or is not a regular file.
        """
        view = self._views[number]
        if view is None:
            descriptor = open_regular(self._paths[number])
            try:
                nbytes = os.fstat(descriptor).st_size
                view = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) if nbytes else b"")
            finally:
                os.close(descriptor)
            self._views[number] = view
        return view

    def ranges(self, number: int, begin: int = 0, nbytes: int | None = None) -> ByteRanges:
        """Return bytes of a file, by default all; of a remote copy, slices are fetched when they are taken."""
        if (mirror := find_mirror(self._paths[number])) is not None:
            return MirrorBytes(mirror, begin, nbytes)
        return self.whole(number) if nbytes is None else self.view(number, begin, nbytes)

    def view(self, number: int, offset: int, nbytes: int) -> memoryview:
        """A range of bytes of a file: a read-only view.

        Raises
        ------
        ValueError
            If the range is not inside the file.
        OSError
            As :meth:`whole`.
        """
        if (mirror := find_mirror(self._paths[number])) is not None:
            return mirror.read(offset, nbytes)
        whole = self._views[number] or self.whole(number)
        if offset < 0 or nbytes < 0 or offset + nbytes > len(whole):
            raise ValueError(
                f"bytes {offset} to {offset + nbytes} must be inside {self._paths[number].name}, which has {len(whole)}"
            )
        return whole[offset : offset + nbytes]


class _MappedSource:
    """The bytes of a file of this machine, of which nothing has to be fetched; no descriptor stays open."""

    def __init__(self, path: Path) -> None:
        descriptor = open_regular(path)
        try:
            self.window = map_file(descriptor, os.fstat(descriptor).st_size, is_writable=False).data
        finally:
            os.close(descriptor)
        self.nbytes = len(self.window)

    def read(self, offset: int, nbytes: int, *, keep: bool = False) -> memoryview:
        del keep
        return self.window[offset : offset + nbytes]

    def require(self, offset: int = 0, nbytes: int | None = None) -> None:
        pass

    def announce(self, ranges: Iterable[tuple[int, int]]) -> int:
        del ranges
        return 0

    def forget(self, offset: int, nbytes: int) -> None:
        pass


def open_source(path: Path) -> ByteSource:
    """The bytes of a regular file, or of the remote object of which it is a copy. OSError if that is impossible."""
    return find_mirror(path) or _MappedSource(path)


def identify_file(path: Path) -> tuple[int, int]:
    """Device and inode of the file at a path; zeros if there is none."""
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
