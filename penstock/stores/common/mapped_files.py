"""The files of a store, mapped into memory: views of byte ranges, with bounds that are checked.

A view stays readable as long as it is referenced, also after the store is closed. The maps are pages of the system's
cache: nothing is copied.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from pathlib import Path

from penstock.stores.common.mirrors import ByteRanges, MirrorBytes, find_mirror
from penstock.stores.common.regular_file import open_regular

__all__ = ["MappedFiles"]


class MappedFiles:
    """Regular files, each mapped when it is first read in this process.

    Parameters
    ----------
    paths : sequence of Path
        The files, numbered from 0. They must not be truncated while they are mapped: see
        :class:`~penstock.stores.container.ContainerStore`, which compares their sizes before each read.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        self._views: list[memoryview | None] = [None] * len(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def whole(self, number: int) -> memoryview:
        """All bytes of a file: a read-only view. Two threads may map a file twice; one of the maps is then kept.

        Raises
        ------
        OSError
            If it cannot be opened, or is not a regular file.
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

    def ranges(self, number: int) -> ByteRanges:
        """As :meth:`whole`; of a copy of a remote object, slices are fetched when they are taken."""
        mirror = find_mirror(self._paths[number])
        return self.whole(number) if mirror is None else MirrorBytes(mirror)

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
