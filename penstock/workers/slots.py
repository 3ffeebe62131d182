"""Memory of batches, which is used again as soon as no array views it.

::

    SlotPool --take()--> Lease --arrays()--> views, which the user slices, keeps, or gives to torch
        ^                                      |
        '--- __del__, after the last view ----'

A lease is the ``base`` of all arrays made from it. It exists as long as any view (also slices and torch tensors), and
then returns its slot to the pool. A pool does not block: it allocates a new slot if all are in use, and keeps at most
``keep`` free ones. A hook page-locks slots that a device copies from; these wait in quarantine until the device has
read them. Returning and taking are atomic: any thread may do both, also the garbage collector during ``take``.

A forked process does not use the slots of its parent: its pool is empty. In the parent, a slot that was leased during a
fork is not used again, because the child may use its batch.
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
from typing import Final, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from penstock.errors import ArgumentError
from penstock.ragged import RaggedRows, RaggedSpec
from penstock.sample import Array, ArraySpec, Tree, tree_leaves, tree_map
from penstock.system.interrupts import pass_on_interrupts

__all__ = ["BatchLayout", "Lease", "PageLock", "Quarantine", "SlotPool", "SpareMemory"]

T = TypeVar("T")

_ALIGNMENT = 4096
"""Each array begins on a page, so that whole pages are page-locked and fields do not share cache lines."""

_CACHE_LINE: Final = 64

_LATER_DEATHS: Final = 2
"""Number of later slots that must come back before a page-locked slot is used again; see :class:`Quarantine`."""


_forks = 0
"""Number of forks of this process, counted before and after each; a lease compares it to detect a fork."""


def _count_fork() -> None:
    global _forks  # noqa: PLW0603  # forks are counted for the process
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_count_fork, after_in_parent=_count_fork)

pass_on_interrupts()


class PageLock(Protocol):
    """Page-locks memory for asynchronous copies to a device, and reports when they have ended."""

    def __call__(self, address: int, nbytes: int) -> Callable[[], None]:
        """Lock the pages from ``address`` on; the result unlocks them, and is called once before they are unmapped."""
        ...

    def fence(self) -> Callable[[], bool]:
        """Return a function that returns whether the device has done all work submitted so far; any thread calls it."""
        ...


class Quarantine(Generic[T]):
    """Slots that no tensor views, but that a device may still read.

    After ``batch.to(device, non_blocking=True)`` a consumer may delete the batch before the copy has ended. So each
    slot that comes back gets a fence, and is used again only when its fence and those of the next two slots are open.
    The two are for consumers that copy one or two batches ahead on another stream, because a fence covers only the
    current streams of the thread.

    ``fence``: :meth:`PageLock.fence`.
    """

    def __init__(self, fence: Callable[[], Callable[[], bool]]) -> None:
        self._fence = fence
        self._waiting: deque[tuple[T, Callable[[], bool]]] = deque()
        self._one_at_a_time = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, slot: T) -> None:
        """Add a slot with a new fence; may be called by any thread, also in ``__del__``."""
        self._waiting.append((slot, self._fence()))

    def get(self) -> T | None:
        """Return the oldest slot, if the device no longer reads it; else None."""
        if not self._one_at_a_time.acquire(
            blocking=False
        ):  # else the garbage collector, during get(), would wait for itself
            return None
        try:
            if len(self._waiting) <= _LATER_DEATHS or not all(self._waiting[i][1]() for i in range(_LATER_DEATHS + 1)):
                return None
            return self._waiting.popleft()[0]
        finally:
            self._one_at_a_time.release()


class SlotPool:
    """Free slots, and the number of allocated ones.

    ``keep``: most free slots; others are unmapped. ``page_lock``: called once for each slot; its result is called when
    the slot is unmapped (not at exit, where the system unlocks the pages). Slots come back through a
    :class:`Quarantine`. Raises ArgumentError if ``keep`` is negative.
    """

    def __init__(self, keep: int = 4, *, page_lock: PageLock | None = None) -> None:
        if keep < 0:
            raise ArgumentError(f"keep should be non-negative, but got {keep}")
        self.keep = keep
        self.allocated = 0
        self._page_lock = page_lock
        self._reset_for_process()

    def _reset_for_process(self) -> None:
        self._pid = os.getpid()
        self._quarantine: Quarantine[NDArray[np.uint8]] | None = None
        if self._page_lock is not None:
            self._quarantine = Quarantine(self._page_lock.fence)
        self._free: deque[NDArray[np.uint8]] = deque()  # append and pop are atomic, so that __del__ needs no lock

    @property
    def free(self) -> int:
        """Number of free slots; others are leased or in quarantine."""
        return len(self._free)

    def take(self, nbytes: int) -> Lease:
        """Return a lease on a slot of at least ``nbytes``; its content is arbitrary."""
        if self._pid != os.getpid():
            self._reset_for_process()  # free slots belong to the parent process
        self._release()
        while True:
            try:
                memory = self._free.pop()  # the one used last, whose pages are in the caches
            except IndexError:
                memory = self._allocate(nbytes)
                break
            if memory.nbytes >= nbytes:
                break
        return Lease(self, memory)

    def _allocate(self, nbytes: int) -> NDArray[np.uint8]:
        pages = mmap.mmap(-1, max(1, -(-nbytes // _ALIGNMENT)) * _ALIGNMENT)
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
        """Do not use a slot again; it is unmapped with its lease."""

    def _release(self) -> None:
        while self._quarantine is not None and (memory := self._quarantine.get()) is not None:
            self._keep(memory)

    def _keep(self, memory: NDArray[np.uint8]) -> None:
        if len(self._free) < self.keep:
            self._free.append(memory)


class Lease:
    """The use of one slot, from :meth:`SlotPool.take` until the lease is deleted."""

    __slots__ = ("__array_interface__", "__weakref__", "_forks", "_memory", "_pid", "_pool")

    def __init__(self, pool: SlotPool, memory: NDArray[np.uint8]) -> None:
        self._pool, self._memory, self._forks, self._pid = pool, memory, _forks, os.getpid()
        self.__array_interface__ = memory.__array_interface__

    def bytes(self) -> NDArray[np.uint8]:
        """Return the slot as a writable array that keeps this lease alive."""
        return np.asarray(self)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing() or getattr(self, "_pid", None) != os.getpid():  # without it, __init__ was interrupted
            return  # the slot belongs to the parent process
        if self._forks == _forks:
            self._pool._give_back(self._memory)  # noqa: SLF001  # a pool and its leases are one unit
        else:
            self._pool._discard(self._memory)  # noqa: SLF001  # as above


@dataclass(frozen=True, slots=True)
class _Extent:
    start: int
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
        return _Extent(start, spec)

    def resized(self, rows: int) -> BatchLayout:
        """The layout of batches of ``rows`` samples."""
        return BatchLayout(self.spec, rows)

    def arrays(self, lease: Lease, rows: int | None = None) -> Tree:
        """Return what a dataset fills, in the spec's structure, for ``rows`` samples (all by default).

        Views of ``lease`` with arbitrary content; a :class:`~penstock.ragged.RaggedRows` for each ragged leaf.
        """
        memory, count = lease.bytes(), self.rows if rows is None else rows

        def view(extent: _Extent | RaggedSpec) -> Array | RaggedRows:
            if isinstance(extent, RaggedSpec):
                return extent.make_rows(count)
            spec = extent.spec
            return np.ndarray((count, *spec.shape), spec.dtype, memory, extent.start)

        return tree_map(view, self._extents)


class SpareMemory:
    """The end of a slot, from which ragged arrays are allocated; what does not fit is allocated elsewhere.

    Parameters
    ----------
    memory : ndarray of uint8
        The bytes of the slot after the arrays of fixed shape.

    Attributes
    ----------
    nbytes : int
        Bytes that were asked for, whether they fitted or not.
    """

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self._memory = memory
        self.nbytes = 0

    def allocate(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return an array with arbitrary content; it begins at a multiple of 64 bytes."""
        wanted = np.dtype(dtype)
        start = self.nbytes
        end = start + math.prod(shape) * wanted.itemsize
        self.nbytes = -(-end // _CACHE_LINE) * _CACHE_LINE
        if end > self._memory.nbytes:
            return np.empty(shape, wanted)
        return self._memory[start:end].view(wanted).reshape(shape)
