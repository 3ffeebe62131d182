"""Files that are mapped into memory; those of a store as views of byte ranges, with bounds that are checked.

A view stays readable as long as it is referenced, also after the store is closed. The maps are pages of the system's
cache: nothing is copied.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.stores.common.mirrors import ByteRanges, MirrorBytes, find_mirror
from penstock.stores.common.regular_file import open_regular
from penstock.system.interrupts import pass_on_interrupts

__all__ = ["MappedFiles", "identify_file", "map_file", "map_sized", "map_whole"]

pass_on_interrupts()
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_longlong]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED: Final = ctypes.c_void_p(-1).value


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

    def ranges(self, number: int) -> ByteRanges:
        """Return the bytes of a file; of a copy of a remote object, slices are fetched when they are taken."""
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


def map_file(fd: int, nbytes: int, *, is_writable: bool = True) -> NDArray[np.uint8]:
    """The memory of a descriptor, shared; unmapped when the last view of it is deleted.

    ``mmap.mmap`` would keep a copy of the descriptor as long as the mapping.

    Raises OSError if the system refuses.
    """
    return np.asarray(_MappedFile(fd, nbytes, is_writable=is_writable)) if nbytes else np.empty(0, np.uint8)


def map_whole(path: Path) -> memoryview:
    """All bytes of a regular file, read-only; no descriptor stays open. OSError if that is impossible."""
    descriptor = open_regular(path)
    try:
        return map_file(descriptor, os.fstat(descriptor).st_size, is_writable=False).data
    finally:
        os.close(descriptor)


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
            _reserve(file, nbytes)
        return map_file(file, nbytes, is_writable=False).data, (seen.st_dev, seen.st_ino)
    finally:
        os.close(file)


def _reserve(fd: int, nbytes: int) -> None:
    """Have the disk give a file room for all its bytes; OSError if there is none.

    Not by ``os.posix_fallocate``, which writes to each block where a file system cannot do so.
    """
    if (reserve := getattr(_libc, "fallocate", None)) is None:  # not Linux: a hole takes no room when it is read
        return
    if reserve(fd, 0, ctypes.c_longlong(0), ctypes.c_longlong(nbytes)):
        number = ctypes.get_errno()
        if number in {errno.ENOSPC, errno.EDQUOT}:
            raise OSError(number, os.strerror(number))


class _MappedFile:
    __slots__ = ("__array_interface__", "_address", "_nbytes")

    def __init__(self, fd: int, nbytes: int, *, is_writable: bool) -> None:
        self._nbytes, self._address = nbytes, None
        access = mmap.PROT_READ | (mmap.PROT_WRITE if is_writable else 0)
        address = _libc.mmap(None, nbytes, access, mmap.MAP_SHARED, fd, 0)
        if address == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._address = address
        self.__array_interface__ = {
            "data": (address, not is_writable), "shape": (nbytes,), "typestr": "|u1", "version": 3
        }  # fmt: skip

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing() and getattr(self, "_address", None) is not None:  # None if __init__ was interrupted
            _libc.munmap(self._address, self._nbytes)
