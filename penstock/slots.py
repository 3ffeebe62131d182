"""A batch's memory: allocated once, used again as soon as nobody looks at it any more.

::

    SlotPool --take()--> Lease --arrays()--> views, which the user slices, keeps, hands to torch
        ^                                      |
        '------ the last view dies: __del__ ---'

A lease is the ``base`` of every array made from it, so it lives exactly as long as the longest-lived view (slices
and torch tensors included) and gives its slot back when it dies. A pool never waits: it allocates another slot if
every one is in use, and lets go of what it holds beyond ``keep`` free ones. Slots that a device copies from are
page-locked by a hook, and wait in quarantine until the device has read them too. This module knows no loader, no
device and no thread; giving back and taking are atomic, so any thread may do either, also the garbage collector in the
middle of ``take``.

A forked process shares the pages, but not the slots: there a pool begins anew. In the parent, a slot that was leased
during a fork is not used again, since the child may hold its batch.
"""

from __future__ import annotations

import math
import mmap
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from penstock.errors import ArgumentError
from penstock.ragged import RaggedRows, RaggedSpec
from penstock.sample import Array, ArraySpec, Tree, tree_leaves, tree_map

__all__ = ["BatchLayout", "Lease", "PageLock", "Quarantine", "SlotPool", "SpareMemory"]

_ALIGNMENT = 4096
"""Every array begins on a page: whole pages can be page-locked, and no two fields share a cache line."""

_CACHE_LINE: Final = 64

_LATER_DEATHS: Final = 2
"""How many more leases die before a page-locked slot is used again; see :class:`Quarantine`."""


_forks = 0
"""Forks of this process so far, counted before and after each: a lease that saw another number lived during one."""


def _count_fork() -> None:
    global _forks  # noqa: PLW0603  # forks are counted for the process
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_count_fork, after_in_parent=_count_fork)


class PageLock(Protocol):
    """Makes memory fit for a device's asynchronous copies, and says when the device is done with it."""

    def __call__(self, address: int, nbytes: int) -> Callable[[], None]:
        """Lock the pages, from ``address`` on; the undo is called once, before they are unmapped."""
        ...

    def fence(self) -> Callable[[], bool]:
        """A question: has the device done all that it was told up to now? Asked by any thread; must not raise."""
        ...


class Quarantine:
    """Slots that no tensor views any more, but that a device may still be reading.

    A consumer writes ``batch.to(device, non_blocking=True)`` and drops the batch at once: the copy is queued, and not
    done. So a slot that comes back gets a fence, and is used again only when its fence and those of the next two that
    come back are open. The two more are for who copies on a side stream one or two batches ahead, and joins it later
    than dropping the batch: the fence knows only what the thread's current streams had been told.

    Parameters
    ----------
    fence : callable
        :meth:`PageLock.fence`.
    """

    def __init__(self, fence: Callable[[], Callable[[], bool]]) -> None:
        self._fence = fence
        self._waiting: deque[tuple[Any, Callable[[], bool]]] = deque()
        self._one_at_a_time = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, slot: Any) -> None:
        """Fence a slot in; from any thread, also out of ``__del__``."""
        self._waiting.append((slot, self._fence()))

    def get(self) -> Any:
        """The slot that waited longest, if the device is done with it; else None."""
        if not self._one_at_a_time.acquire(blocking=False):  # or the collector, inside get(), would wait for itself
            return None
        try:
            if len(self._waiting) <= _LATER_DEATHS or not all(self._waiting[i][1]() for i in range(_LATER_DEATHS + 1)):
                return None
            return self._waiting.popleft()[0]
        finally:
            self._one_at_a_time.release()


class SlotPool:
    """Slots that are free, and the counting of all.

    Parameters
    ----------
    keep : int
        Free slots to hold on to; surplus ones are unmapped.
    huge_pages : bool
        Advise the kernel to back slots by huge pages, where it can.
    page_lock : PageLock, optional
        Called once for each slot that is allocated; what it returns, when the slot is let go (not at exit: the system
        unlocks what is left). Slots come back through a :class:`Quarantine`.
    """

    def __init__(self, keep: int = 4, *, huge_pages: bool = False, page_lock: PageLock | None = None) -> None:
        if keep < 0:
            raise ArgumentError(f"keep should be non-negative, but got {keep}")
        self.keep = keep
        self.allocated = 0
        self._huge_pages = huge_pages
        self._page_lock = page_lock
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._quarantine = Quarantine(self._page_lock.fence) if self._page_lock is not None else None
        self._free: deque[NDArray[np.uint8]] = deque()  # append and pop are atomic: no lock that __del__ could meet

    @property
    def free(self) -> int:
        """Slots that wait for use; the others are leased, or in quarantine."""
        return len(self._free)

    def take(self, nbytes: int) -> Lease:
        """A lease on a slot of at least ``nbytes``; its content is arbitrary."""
        if self._pid != os.getpid():
            self._begin()  # the slots that were free at the fork are the parent's
        self._release()
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
        memory = np.frombuffer(pages, np.uint8)
        if self._page_lock is not None:
            # An array's weak references die before what it views: the undo comes before the unmapping.
            undo = self._page_lock(memory.__array_interface__["data"][0], memory.nbytes)
            weakref.finalize(memory, undo).atexit = False
        return memory

    def _give_back(self, memory: NDArray[np.uint8]) -> None:
        if self._quarantine is None:
            self._keep(memory)
        else:
            self._quarantine.put(memory)
            self._release()

    def _discard(self, memory: NDArray[np.uint8]) -> None:
        """Do not use a slot again; it is unmapped when its lease, which holds it, is gone."""

    def _release(self) -> None:
        while self._quarantine is not None and (memory := self._quarantine.get()) is not None:
            self._keep(memory)

    def _keep(self, memory: NDArray[np.uint8]) -> None:
        if len(self._free) < self.keep:
            self._free.append(memory)


class Lease:
    """The right to one slot; made by :meth:`SlotPool.take`, ended by its own death."""

    __slots__ = ("__array_interface__", "__weakref__", "_forks", "_memory", "_pid", "_pool")

    def __init__(self, pool: SlotPool, memory: NDArray[np.uint8]) -> None:
        self._pool, self._memory, self._pid, self._forks = pool, memory, os.getpid(), _forks
        self.__array_interface__ = memory.__array_interface__

    def bytes(self) -> NDArray[np.uint8]:
        """The slot as a writable array that keeps this lease alive."""
        return np.asarray(self)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing() or self._pid != os.getpid():
            return  # a fork's copy of a lease has nothing to give back
        if self._forks == _forks:
            self._pool._give_back(self._memory)  # noqa: SLF001  # a lease is its pool's other half
        else:
            self._pool._discard(self._memory)  # noqa: SLF001  # as above


@dataclass(frozen=True, slots=True)
class _Extent:
    start: int
    row_nbytes: int
    spec: ArraySpec


class BatchLayout:
    """Where the arrays of a batch of ``rows`` samples lie in a slot.

    Arrays of fixed shape come first, each from a page on. Behind them lies spare memory for ragged arrays, whose size
    is known when the batch is filled.

    Parameters
    ----------
    spec : tree of ArraySpec or RaggedSpec
        Of one sample.
    rows : int
        Samples of a full batch.

    Attributes
    ----------
    nbytes : int
        Of the arrays of fixed shape.
    is_ragged : bool
        Whether the spec has ragged leaves.

    Raises
    ------
    ArgumentError
        If a dtype holds Python objects.
    """

    def __init__(self, spec: Tree, rows: int) -> None:
        self.rows, self.spec = rows, spec
        self.nbytes = 0
        leaves = tree_leaves(spec)
        for leaf in leaves:
            if leaf.dtype.hasobject:
                raise ArgumentError(
                    f"dtype must be a dtype of numbers, got {leaf.dtype}, because a slot holds no Python objects"
                )
        self.is_ragged = any(isinstance(leaf, RaggedSpec) for leaf in leaves)
        self._extents: Tree = tree_map(self._reserve, spec)

    def _reserve(self, spec: ArraySpec | RaggedSpec) -> _Extent | RaggedSpec:
        if isinstance(spec, RaggedSpec):
            return spec
        start = self.nbytes
        self.nbytes += -(-spec.nbytes * self.rows // _ALIGNMENT) * _ALIGNMENT
        return _Extent(start, spec.nbytes, spec)

    def resized(self, rows: int) -> BatchLayout:
        """The layout of batches of ``rows`` samples."""
        return BatchLayout(self.spec, rows)

    def arrays(self, lease: Lease, rows: int | None = None) -> Tree:
        """What a dataset fills, in the spec's structure, for ``rows`` samples (all by default).

        Views of ``lease`` with arbitrary content; a :class:`~penstock.ragged.RaggedRows` for each ragged leaf.
        """
        memory, count = lease.bytes(), self.rows if rows is None else rows

        def view(extent: _Extent | RaggedSpec) -> Array | RaggedRows:
            if isinstance(extent, RaggedSpec):
                return RaggedRows(extent, count)
            part = memory[extent.start : extent.start + extent.row_nbytes * count]
            return part.view(extent.spec.dtype).reshape(count, *extent.spec.shape)

        return tree_map(view, self._extents)


class SpareMemory:
    """The end of a slot, from which ragged arrays are allocated; what does not fit is allocated elsewhere.

    Parameters
    ----------
    memory : ndarray of uint8
        The bytes of the slot behind the arrays of fixed shape.

    Attributes
    ----------
    nbytes : int
        Bytes that were asked for, whether they fitted or not.
    """

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self._memory = memory
        self.nbytes = 0

    def allocate(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """An array with arbitrary content; it begins at a multiple of 64 bytes."""
        wanted = np.dtype(dtype)
        start = self.nbytes
        end = start + math.prod(shape) * wanted.itemsize
        self.nbytes = -(-end // _CACHE_LINE) * _CACHE_LINE
        if end > self._memory.nbytes:
            return np.empty(shape, wanted)
        return self._memory[start:end].view(wanted).reshape(shape)
