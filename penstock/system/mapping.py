"""Maps files by the system's own ``mmap``: the map needs no descriptor, and its memory is an array.

``mmap.mmap`` of the standard library keeps a copy of the descriptor as long as the map.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.system.interrupts import pass_on_interrupts

__all__ = ["is_map", "map_file", "reserve"]

pass_on_interrupts()
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_longlong]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED: Final = ctypes.c_void_p(-1).value


def map_file(fd: int, nbytes: int, *, is_writable: bool = True) -> NDArray[np.uint8]:
    """Return the memory of a descriptor, shared; unmapped when the last view of it is deleted.

    ``mmap.mmap`` would keep a copy of the descriptor as long as the mapping.

    Raises OSError if the system refuses.
    """
    return np.asarray(_MappedFile(fd, nbytes, is_writable=is_writable)) if nbytes else np.empty(0, np.uint8)


def is_map(held: object) -> bool:
    """Whether it is the map of a file: by :func:`map_file`, one that cannot be written to, or by ``mmap.mmap``."""
    base: object = getattr(held, "base", None)
    return isinstance(held, mmap.mmap) or (isinstance(base, _MappedFile) and not base.is_writable)


def reserve(fd: int, nbytes: int) -> None:
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
    __slots__ = ("__array_interface__", "_address", "_nbytes", "is_writable")

    def __init__(self, fd: int, nbytes: int, *, is_writable: bool) -> None:
        self._nbytes, self._address, self.is_writable = nbytes, None, is_writable
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
