"""A batch's memory: allocated once, used again as soon as nobody looks at it any more.

::

    SlotPool --take()--> Lease --arrays()--> views, which the user slices, keeps, hands to torch
        ^                                      |
        '------ the last view dies: __del__ ---'

A lease is the ``base`` of every array made from it, so it lives exactly as long as the longest-lived view (slices
and torch tensors included) and gives its slot back when it dies. A pool never waits: it allocates another slot if
every one is in use, and lets go of what it holds beyond ``keep`` free ones. This module knows no loader and no
thread; giving back and taking are atomic, so any thread may do either, also the garbage collector in the middle
of ``take``.
"""

from __future__ import annotations

import mmap
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.sample import ArraySpec, Tree, tree_leaves, tree_map

__all__ = ["Layout", "Lease", "SlotPool"]

_ALIGNMENT = 4096
"""Every array begins on a page: whole pages can be page-locked, and no two fields share a cache line."""


class SlotPool:
    """Slots that are free, and the counting of all.

    Parameters
    ----------
    keep : int
        Free slots to hold on to; surplus ones are unmapped.
    huge_pages : bool
        Advise the kernel to back slots by huge pages, where it can.
    """

    def __init__(self, keep: int = 4, *, huge_pages: bool = False) -> None:
        if keep < 0:
            raise ArgumentError(f"keep should be non-negative, but got {keep}")
        self.keep = keep
        self.allocated = 0
        self._huge_pages = huge_pages
        self._free: deque[NDArray[np.uint8]] = deque()  # append and pop are atomic: no lock that __del__ could meet

    @property
    def free(self) -> int:
        """Slots that wait for use; the others are leased."""
        return len(self._free)

    def take(self, nbytes: int) -> Lease:
        """A lease on a slot of at least ``nbytes``; its content is arbitrary."""
        while True:
            try:
                memory = self._free.pop()  # the one used last: its pages are warm
            except IndexError:
                memory = self._allocate(nbytes)
                break
            if memory.nbytes >= nbytes:
                break
        return Lease(self, memory)

    def _allocate(self, nbytes: int) -> NDArray[np.uint8]:
        pages = mmap.mmap(-1, max(1, -(-nbytes // _ALIGNMENT)) * _ALIGNMENT)
        if self._huge_pages and hasattr(mmap, "MADV_HUGEPAGE"):
            pages.madvise(mmap.MADV_HUGEPAGE)
        self.allocated += 1
        return np.frombuffer(pages, np.uint8)

    def _give_back(self, memory: NDArray[np.uint8]) -> None:
        if len(self._free) < self.keep:
            self._free.append(memory)


class Lease:
    """The right to one slot; made by :meth:`SlotPool.take`, ended by its own death."""

    __slots__ = ("__array_interface__", "__weakref__", "_memory", "_pool")

    def __init__(self, pool: SlotPool, memory: NDArray[np.uint8]) -> None:
        self._pool, self._memory = pool, memory
        self.__array_interface__ = memory.__array_interface__

    def bytes(self) -> NDArray[np.uint8]:
        """The slot as a writable array that keeps this lease alive."""
        return np.asarray(self)

    def __del__(self) -> None:
        self._pool._give_back(self._memory)  # noqa: SLF001  # a lease is its pool's other half


@dataclass(frozen=True, slots=True)
class _Place:
    start: int
    row_nbytes: int
    spec: ArraySpec


class Layout:
    """Where the arrays of a batch of ``rows`` samples lie in a slot.

    Parameters
    ----------
    spec : tree of ArraySpec
        One sample.
    rows : int
        Samples of a full batch.
    """

    def __init__(self, spec: Tree, rows: int) -> None:
        self.rows = rows
        self.nbytes = 0
        self._spec = spec
        for leaf in tree_leaves(spec):
            if leaf.dtype.hasobject:
                raise ArgumentError(f"a slot holds plain numbers, not dtype {leaf.dtype}")
        self._places = tree_map(self._reserve, spec)

    def _reserve(self, spec: ArraySpec) -> _Place:
        start = self.nbytes
        self.nbytes += -(-spec.nbytes * self.rows // _ALIGNMENT) * _ALIGNMENT
        return _Place(start, spec.nbytes, spec)

    def resized(self, rows: int) -> Layout:
        """The same for batches of ``rows`` samples."""
        return Layout(self._spec, rows)

    def arrays(self, lease: Lease, rows: int | None = None) -> Tree:
        """The batch's arrays as views of ``lease``, of ``rows`` samples (all by default); content is arbitrary."""
        memory, count = lease.bytes(), self.rows if rows is None else rows

        def carve(place: _Place) -> NDArray[Any]:
            part = memory[place.start : place.start + place.row_nbytes * count]
            return part.view(place.spec.dtype).reshape(count, *place.spec.shape)

        return tree_map(carve, self._places)
