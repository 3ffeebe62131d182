"""Arrays in memory that worker processes share: forked ones inherit it, others open it when they unpickle it.

::

    memory file without a name ──mapped──> arrays of this process, writable until they are sealed
              └── pickled as (process, descriptor, inode) ──> /proc/PID/fd/N ──mapped──> read-only arrays of a worker

The file exists as long as a process maps it. Pickled arrays can be opened while the process that pickled them lives.
Made by :meth:`penstock.ArrayDataset.from_store`.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.errors import BatchMemoryError, StoreError
from penstock.sample import Array, ArraySpec
from penstock.system import memory_file, open_descriptor_of
from penstock.system.interrupts import pass_on_interrupts

__all__ = ["SharedArrays"]

pass_on_interrupts()
_ALIGNMENT: Final = 4096


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an array is in the file."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


class SharedArrays:
    """Arrays in one memory file.

    ``specs``: shape of a row and dtype of each array. ``count``: number of rows. Raises BatchMemoryError if there is no
    memory for them.
    """

    def __init__(self, specs: Sequence[ArraySpec], count: int) -> None:
        places, offset = [], 0
        for spec in specs:
            places.append(_Place(offset, (count, *spec.shape), spec.dtype.str))
            offset += -(-spec.nbytes * count // _ALIGNMENT) * _ALIGNMENT
        nbytes = max(offset, 1)
        try:
            self._fd = memory_file("penstock-arrays", nbytes)
            self._map(nbytes, tuple(places), mmap.ACCESS_WRITE)
        except OSError as error:
            raise BatchMemoryError(
                f"there is no memory for {nbytes} bytes of decoded records ({error.strerror}); use a smaller size, or "
                "a StoreDataset"
            ) from error

    def _map(self, nbytes: int, places: tuple[_Place, ...], access: int) -> None:
        self._places, self._nbytes = places, nbytes
        memory = mmap.mmap(self._fd, nbytes, access=access)
        self.arrays: list[Array] = [
            np.ndarray(place.shape, np.dtype(place.dtype), memory, place.offset) for place in places
        ]

    def seal(self) -> None:
        """Make the arrays read-only: every worker has the same memory."""
        for array in self.arrays:
            array.flags.writeable = False

    def __reduce__(self) -> tuple[object, ...]:
        return _attach, (os.getpid(), self._fd, os.fstat(self._fd).st_ino, self._nbytes, self._places)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing() and getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)
            self._fd = -1


def _attach(process: int, fd: int, inode: int, nbytes: int, places: tuple[_Place, ...]) -> SharedArrays:
    """Return the arrays of another process, in this one; their memory is not copied."""
    shared = SharedArrays.__new__(SharedArrays)
    try:
        shared._fd = open_descriptor_of(process, fd)  # noqa: SLF001  # a constructor of the class
        seen = os.fstat(shared._fd)  # noqa: SLF001  # as above
        if (seen.st_ino, seen.st_size) != (inode, nbytes):
            raise FileNotFoundError(2, "it is another file now")  # one handler
        shared._map(nbytes, places, mmap.ACCESS_READ)  # noqa: SLF001  # as above
    except OSError as error:
        raise StoreError(
            f"decoded records are in the memory of process {process}, which has ended or is not readable here "
            f"({error.strerror}); decode the store again"
        ) from error
    return shared
