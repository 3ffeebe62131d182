"""Shared memory of batches: slots that a worker writes and the parent reads, and that are used again.

::

    worker: reserve -> write ----- SlotReport: spans (first time: a descriptor) ----------> parent: map, lease
              ^                                                                                   |
              '----------------- SlotReturn: slots whose last array was deleted -----------------'

A slot is a memory file without a name; it belongs to the worker that made it. Both sides close the descriptor once the
file is mapped, so that the number of descriptors is constant however many batches are kept. The system frees the memory
with the last mapping, whichever process is killed. If the system refuses memory (a limit, a full tmpfs), batches are
sent through the socket instead, with one warning.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Final, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from penstock.sample import Array
from penstock.system import memory_file
from penstock.system.mapping import map_file
from penstock.workers.processes.messages import BufferSpan, SlotReport, SlotReturn
from penstock.workers.slots import Lease, PageLock, Quarantine, SlotPool

__all__ = ["ParentSlot", "ParentSlots", "WorkerMemory"]

ALIGNMENT: Final = 4096
_KEEP: Final = 4
"""Free slots that a worker keeps; if there are more, it drops the smallest."""


class _WorkerSlot:
    """A slot, in the worker that made it."""

    __slots__ = ("array", "fd", "lease", "number")

    def __init__(self, number: int, nbytes: int) -> None:
        self.number = number
        self.fd: int | None = memory_file("penstock-slot", nbytes)
        self.array = map_file(self.fd, nbytes)
        self.lease: weakref.ref[Lease] | None = None

    def take(self) -> Lease:
        lease = Lease(_NO_POOL, self.array)
        self.lease = weakref.ref(lease)
        return lease

    @property
    def in_use(self) -> bool:
        """Whether an array of this process still views it (a dataset may keep what it collated)."""
        return self.lease is not None and self.lease() is not None


class _NoPool:
    """The pool of a worker's leases; it does nothing, as the parent reports when a slot is free."""

    def _give_back(self, memory: NDArray[np.uint8]) -> None:
        pass

    _discard = _give_back


_NO_POOL: Final = cast("SlotPool", _NoPool())  # a lease calls these two methods only


class WorkerMemory:
    """The slots of one worker process, in which its batches are built.

    A job that fills rows uses it as a slot pool (:meth:`take`); collation gets its arrays by :meth:`allocate`.
    """

    def __init__(self) -> None:
        self._free: list[_WorkerSlot] = []
        self._lent: dict[int, _WorkerSlot] = {}
        self._count = 0
        self._expected_nbytes = 0
        self._slots: list[_WorkerSlot] = []  # of the current batch, with their leases
        self._leases: list[Lease] = []
        self._used_nbytes = 0
        self._reserved_nbytes = 0
        self._dropped: list[int] = []
        self._refused: OSError | None = None

    def begin(self) -> None:
        """Start a batch. Slots of a batch that was not sent are free again."""
        self._free += self._slots
        self._slots, self._leases, self._used_nbytes, self._reserved_nbytes = [], [], 0, 0

    def reserve(self, nbytes: int) -> NDArray[np.uint8] | None:
        """Reserve ``nbytes`` of memory for the batch; None if the system refuses."""
        start = -(-self._used_nbytes // ALIGNMENT) * ALIGNMENT
        if not self._slots or start + nbytes > self._slots[-1].array.nbytes:
            # doubling: a batch has few slots, however many arrays
            slot = self._take(max(nbytes, self._expected_nbytes - self._reserved_nbytes, self._reserved_nbytes))
            if slot is None:
                return None
            self._slots.append(slot)
            self._leases.append(slot.take())
            start = 0
        self._used_nbytes = start + nbytes
        self._reserved_nbytes += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return self._leases[-1].bytes()[start : start + nbytes]

    def allocate(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return an array with arbitrary content, in the batch's memory unless it is small or the system refuses."""
        wanted = np.dtype(dtype)
        nbytes = wanted.itemsize * int(np.prod(shape, dtype=np.int64))
        memory = self.reserve(nbytes) if nbytes >= ALIGNMENT else None
        return np.empty(shape, wanted) if memory is None else memory.view(wanted).reshape(shape)

    def take(self, nbytes: int) -> Lease:
        """Lease memory that the parent can map; ordinary memory if none can be had."""
        memory = self.reserve(nbytes)
        return Lease(_NO_POOL, np.empty(nbytes, np.uint8) if memory is None else memory)

    def store(self, buffer: NDArray[np.uint8]) -> BufferSpan | None:
        """Return the span of bytes that lie in the batch's memory, or are copied there.

        It is None if the system refuses memory.
        """
        address = buffer.__array_interface__["data"][0]
        for slot in self._slots:
            start = address - slot.array.__array_interface__["data"][0]
            if start >= 0 and start + buffer.nbytes <= slot.array.nbytes:
                return BufferSpan(slot.number, start, buffer.nbytes)
        memory = self.reserve(buffer.nbytes)
        if memory is None:
            return None
        memory[:] = buffer
        return self.store(memory)

    def view(self, span: BufferSpan) -> NDArray[np.uint8]:
        """Return the bytes of a span of the batch that is being built."""
        slot = next(slot for slot in self._slots if slot.number == span.slot)
        return slot.array[span.start : span.start + span.nbytes]

    def finish(self, spans: Sequence[BufferSpan]) -> tuple[SlotReport, list[int]]:
        """End a batch: its report, and the descriptors of its new slots, which :meth:`record_sent` closes.

        Slots that hold none of its ``spans`` (collation wrote something there that is not in the batch) are free again:
        the parent would not map them, and so never return them.
        """
        self._expected_nbytes = max(self._reserved_nbytes, self._expected_nbytes // 2)
        used = {span.slot for span in spans}
        self._free += [slot for slot in self._slots if slot.number not in used]
        self._slots = [slot for slot in self._slots if slot.number in used]
        new = [(slot.number, slot.array.nbytes) for slot in self._slots if slot.fd is not None]
        refused = "" if self._refused is None else str(self._refused)
        plain = [(span.slot, span.start, span.nbytes) for span in spans]
        return SlotReport(plain, new, self._dropped, refused), [slot.fd for slot in self._slots if slot.fd is not None]

    def record_sent(self) -> None:
        """Record that the report was sent: the batch's slots are the parent's."""
        for slot in self._slots:
            if slot.fd is not None:
                os.close(slot.fd)
                slot.fd = None
            self._lent[slot.number] = slot
        self._slots, self._leases, self._dropped = [], [], []

    def accept_returned(self, returned: SlotReturn) -> None:
        """Take slots back from the parent.

        A slot is lost if the parent could not map it, or has forked while it was leased.
        """
        for number in returned.lost:
            del self._lent[number]
        self._free += [self._lent.pop(number) for number in returned.freed]
        while len(self._free) > _KEEP:
            self._drop(min(self._free, key=lambda slot: slot.array.nbytes))

    def _take(self, nbytes: int) -> _WorkerSlot | None:
        fitting = [slot for slot in self._free if slot.array.nbytes >= nbytes and not slot.in_use]
        if fitting:
            slot = min(fitting, key=lambda slot: slot.array.nbytes)
            self._free.remove(slot)
            return slot
        for slot in [slot for slot in self._free if not slot.in_use]:
            self._drop(slot)  # too small
        if self._refused is not None:
            return None
        self._count += 1
        rounded = -(-(nbytes + nbytes // 16) // ALIGNMENT) * ALIGNMENT
        try:
            return _WorkerSlot(self._count, rounded)
        except OSError as error:
            self._refused = error
            return None

    def _drop(self, slot: _WorkerSlot) -> None:
        self._free.remove(slot)
        if slot.fd is None:
            self._dropped.append(slot.number)
        else:
            os.close(slot.fd)


class ParentSlots:
    """The parent's view of one worker's slots.

    ``page_lock``: called with address and size of each mapping; the function that it returns is called when it is
    unmapped. ``quarantine``: holds slots that a device may still read; one for all workers. Given with ``page_lock``.
    """

    def __init__(self, page_lock: PageLock | None = None, quarantine: Quarantine[ParentSlot] | None = None) -> None:
        self._mapped: dict[int, ParentSlot] = {}
        self._page_lock, self._quarantine = page_lock, quarantine
        self._lost: deque[int] = deque()
        self.freed: deque[int] = deque()

    def add(self, new: Sequence[tuple[int, int]], fds: Sequence[int]) -> None:
        """Map new slots (number, size) and close ``fds``. Those that cannot be mapped are returned as lost.

        Raises OSError if a descriptor is missing because this process has too many open files, or the system refuses.
        """
        try:
            self._map(new, fds)
        except BaseException:
            self._lost += [number for number, _ in new if number not in self._mapped]
            raise
        finally:
            for fd in fds:
                os.close(fd)

    def _map(self, new: Sequence[tuple[int, int]], fds: Sequence[int]) -> None:
        if len(fds) < len(new):
            raise OSError("this process has too many open files; raise the limit by `ulimit -n`")
        for (number, nbytes), fd in zip(new, fds, strict=True):
            memory = map_file(fd, nbytes)
            self._mapped[number] = ParentSlot(number, memory, self.freed, self._lost, self._page_lock, self._quarantine)

    def free(self, spans: Sequence[BufferSpan]) -> None:
        """Return the slots of a batch that is not used."""
        self.freed.extend({span.slot for span in spans if span.slot in self._mapped})

    def drop(self, numbers: list[int]) -> None:
        """Unmap slots that the worker has dropped."""
        for number in numbers:
            self._mapped.pop(number, None)

    def lease_buffers(self, spans: Sequence[BufferSpan]) -> list[NDArray[np.uint8]]:
        """Return views of slots; a slot is freed (:attr:`freed`) when the last view of it is deleted."""
        slots = {number: self._mapped[number] for number in {span.slot for span in spans}}
        leases = {number: Lease(cast("SlotPool", slot), slot.array) for number, slot in slots.items()}
        return [leases[number].bytes()[start : start + nbytes] for number, start, nbytes in spans]

    def take_returned(self) -> SlotReturn:
        """Slots that were freed or lost since the last call."""
        _release_slots(self._quarantine)
        freed, lost = ([queue.popleft() for _ in range(len(queue))] for queue in (self.freed, self._lost))
        self.drop(lost)
        return SlotReturn(freed, lost)

    def put_back(self, returned: SlotReturn) -> None:
        """Undo :meth:`take_returned`: the worker did not get the message."""
        self.freed.extend(returned.freed)
        self._lost += returned.lost


class ParentSlot:
    """A slot, as the parent has mapped it; the pool of its leases."""

    def __init__(
        self,
        number: int,
        memory: NDArray[np.uint8],
        freed: deque[int],
        lost: deque[int],
        page_lock: PageLock | None,
        quarantine: Quarantine[ParentSlot] | None,
    ) -> None:
        self.number, self._freed, self._lost, self._quarantine = number, freed, lost, quarantine
        self.array = memory
        if page_lock is not None:
            unlock = page_lock(self.array.__array_interface__["data"][0], self.array.nbytes)
            # an array's weak references are called before the memory that it views is unmapped
            weakref.finalize(self.array, unlock).atexit = False

    def _give_back(self, memory: NDArray[np.uint8]) -> None:  # noqa: ARG002  # called by a lease
        if self._quarantine is None:
            self.free()
        else:
            self._quarantine.put(self)  # which keeps it mapped if the worker exits meanwhile
            _release_slots(self._quarantine)

    def _discard(self, memory: NDArray[np.uint8]) -> None:  # noqa: ARG002  # called by a lease
        self._lost.append(self.number)

    def free(self) -> None:
        """Return the slot to the worker, with the next message."""
        self._freed.append(self.number)


def _release_slots(quarantine: Quarantine[ParentSlot] | None) -> None:
    while quarantine is not None and (slot := quarantine.get()) is not None:
        slot.free()
