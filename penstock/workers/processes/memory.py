"""Batches in memory that a worker writes and the parent reads: slots without a name, used again and again.

::

    worker: reserve -> write ----- message: slot, offset (first time: its descriptor) ----> parent: map, lease
              ^                                                                                   |
              '----------------- next task: slots whose last array died -------------------------'

A slot belongs to the worker that made it. Both sides close the descriptor once it is mapped, so that their number
stays constant however many batches are kept; memory goes when the last mapping does, whoever is killed. Where no
memory can be had (a limit, a full tmpfs), batches travel through the socket instead, with one warning.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
import tempfile
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from penstock.slots import Lease, PageLock, Quarantine

__all__ = ["ParentSlots", "WorkerMemory", "mapped", "memory_file"]

ALIGNMENT: Final = 4096
_LARGE: Final = 64 << 20
"""Bytes from which on a file's memory is compared with what there is."""
_KEEP: Final = 4
"""Free slots that a worker holds on to; with more, the smallest goes."""


def memory_file(name: str, nbytes: int) -> int:
    """A descriptor of ``nbytes`` of zeroed memory without a name in any file system; its pages are reserved.

    Raises
    ------
    OSError
        If there is not so much: now, not by a signal when it is written.
    """
    if (
        nbytes > _LARGE and nbytes > _available_nbytes()
    ):  # reserving them one by one would end in the death of a process
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create(name, os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        os.ftruncate(fd, nbytes)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, nbytes)
    except OSError:
        os.close(fd)
        raise
    return fd


def _available_nbytes() -> int:
    """Bytes of memory that the system could hand out now; an unreachable number where it does not say."""
    try:
        said = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable:"))
        return int(said.split()[1]) << 10
    except (OSError, StopIteration, ValueError, IndexError):
        return 1 << 62


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_longlong]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED: Final = ctypes.c_void_p(-1).value


def mapped(fd: int, nbytes: int) -> NDArray[np.uint8]:
    """The memory of a descriptor, shared and writable; unmapped when the last view of it dies.

    ``mmap.mmap`` would hold a copy of the descriptor as long as the mapping lives: one for each batch that is kept.

    Raises
    ------
    OSError
        If the system refuses.
    """
    return np.asarray(_Mapped(fd, nbytes))


class _Mapped:
    __slots__ = ("__array_interface__", "_address", "_nbytes")

    def __init__(self, fd: int, nbytes: int) -> None:
        self._nbytes, self._address = nbytes, None
        address = _libc.mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
        if address == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._address = address
        self.__array_interface__ = {"data": (address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if (
            not is_finalizing() and getattr(self, "_address", None) is not None
        ):  # it may have been interrupted before it had one
            _libc.munmap(self._address, self._nbytes)


class _Slot:
    """A worker's slot: who uses it, on both sides."""

    __slots__ = ("array", "fd", "lease", "number")

    def __init__(self, number: int, nbytes: int) -> None:
        self.number = number
        self.fd: int | None = memory_file("penstock-slot", nbytes)
        self.array = mapped(self.fd, nbytes)
        self.lease: weakref.ref[Lease] | None = None

    def take(self) -> Lease:
        lease = Lease(_NOBODY, self.array)
        self.lease = weakref.ref(lease)
        return lease

    @property
    def in_use(self) -> bool:
        """Whether code in this process still looks at it (a dataset that keeps what it collated)."""
        return self.lease is not None and self.lease() is not None


class _Nobody:
    """A worker's leases give nothing back: the parent says when a slot is free."""

    def _give_back(self, memory: NDArray[np.uint8]) -> None:
        pass

    _discard = _give_back


_NOBODY: Any = _Nobody()


class WorkerMemory:
    """The slots of one worker process, as the place where its batches are built.

    ``take`` makes it a slot pool to a job that fills; ``allocate`` gives collation its arrays.
    """

    def __init__(self) -> None:
        self._free: list[_Slot] = []
        self._lent: dict[int, _Slot] = {}
        self._count = 0
        self._hint = 0
        self._slots: list[_Slot] = []
        self._leases: list[Lease] = []
        self._used = 0
        self._reserved = 0
        self.dropped: list[int] = []
        self.refused: OSError | None = None

    def begin(self) -> None:
        """Start a batch; what one that was not sent reserved is free again."""
        self._free += self._slots
        self._slots, self._leases, self._used, self._reserved = [], [], 0, 0

    def reserve(self, nbytes: int) -> NDArray[np.uint8] | None:
        """``nbytes`` of the batch's memory; None if there is none to be had."""
        start = -(-self._used // ALIGNMENT) * ALIGNMENT
        if not self._slots or start + nbytes > self._slots[-1].array.nbytes:
            # twice as much as there is already: a batch's slots stay few, however many arrays it has
            slot = self._take(max(nbytes, self._hint - self._reserved, self._reserved))
            if slot is None:
                return None
            self._slots.append(slot)
            self._leases.append(slot.take())
            start = 0
        self._used = start + nbytes
        self._reserved += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return self._leases[-1].bytes()[start : start + nbytes]

    def allocate(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Like ``numpy.empty``, in the batch's memory where there is some."""
        wanted = np.dtype(dtype)
        nbytes = wanted.itemsize * int(np.prod(shape, dtype=np.int64))
        memory = self.reserve(nbytes) if nbytes >= ALIGNMENT else None
        return np.empty(shape, wanted) if memory is None else memory.view(wanted).reshape(shape)

    def take(self, nbytes: int) -> Any:
        """See :meth:`penstock.slots.SlotPool.take`."""
        memory = self.reserve(nbytes)
        return _Plain(np.empty(nbytes, np.uint8) if memory is None else memory)

    def place(self, buffer: NDArray[np.uint8]) -> tuple[int, int, int] | None:
        """Slot, offset and size of bytes that lie in the batch's memory, or are copied there; None: there is none."""
        address = buffer.__array_interface__["data"][0]
        for slot in self._slots:
            start = address - slot.array.__array_interface__["data"][0]
            if start >= 0 and start + buffer.nbytes <= slot.array.nbytes:
                return slot.number, start, buffer.nbytes
        memory = self.reserve(buffer.nbytes)
        if memory is None:
            return None
        memory[:] = buffer
        return self.place(memory)

    def finish(self, places: Iterable[tuple[int, int, int]]) -> tuple[list[tuple[int, int]], list[int]]:
        """The batch's new slots (number, size) and their descriptors, to be closed by :meth:`sent`.

        Slots in which none of its ``places`` is (collation wrote there what the batch is no more) are free again: the
        parent would never look at them, and so never let them go.
        """
        self._hint = max(self._reserved, self._hint // 2)
        used = {number for number, _, _ in places}
        self._free += [slot for slot in self._slots if slot.number not in used]
        self._slots = [slot for slot in self._slots if slot.number in used]
        new = [slot for slot in self._slots if slot.fd is not None]
        return [(slot.number, slot.array.nbytes) for slot in new], [slot.fd for slot in new if slot.fd is not None]

    def sent(self) -> None:
        """The batch is the parent's."""
        for slot in self._slots:
            if slot.fd is not None:
                os.close(slot.fd)
                slot.fd = None
            self._lent[slot.number] = slot
        self._slots, self._leases = [], []

    def give_back(self, freed: list[int], lost: list[int]) -> None:
        """The parent looks at ``freed`` no longer; ``lost`` are not to be used again.

        A slot is lost if the parent could not map it, or has forked while it was leased.
        """
        for number in lost:
            del self._lent[number]
        self._free += [self._lent.pop(number) for number in freed]
        while len(self._free) > _KEEP:
            self._drop(min(self._free, key=lambda slot: slot.array.nbytes))

    def _take(self, nbytes: int) -> _Slot | None:
        fitting = [slot for slot in self._free if slot.array.nbytes >= nbytes and not slot.in_use]
        if fitting:
            slot = min(fitting, key=lambda slot: slot.array.nbytes)
            self._free.remove(slot)
            return slot
        for slot in [slot for slot in self._free if not slot.in_use]:
            self._drop(slot)  # too small for what comes now
        if self.refused is not None:
            return None
        self._count += 1
        rounded = -(-(nbytes + nbytes // 16) // ALIGNMENT) * ALIGNMENT
        try:
            return _Slot(self._count, rounded)
        except OSError as error:
            self.refused = error
            return None

    def _drop(self, slot: _Slot) -> None:
        self._free.remove(slot)
        if slot.fd is None:
            self.dropped.append(slot.number)
        else:
            os.close(slot.fd)


class _Plain:
    """A piece of a slot, as a job that fills expects it."""

    __slots__ = ("_memory",)

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self._memory = memory

    def bytes(self) -> NDArray[np.uint8]:
        return self._memory


class ParentSlots:
    """The parent's view of one worker's slots.

    Parameters
    ----------
    page_lock : PageLock, optional
        Called with address and size of each mapping; what it returns is called when the mapping goes.
    quarantine : Quarantine, optional
        Where slots wait for the device, one for all workers; goes with ``page_lock``.
    """

    def __init__(self, page_lock: PageLock | None = None, quarantine: Quarantine | None = None) -> None:
        self._mapped: dict[int, Any] = {}  # of _Mapping, which is a pool to its leases
        self._page_lock, self._quarantine = page_lock, quarantine
        self._lost: deque[int] = deque()
        self.freed: deque[int] = deque()

    def add(self, new: list[tuple[int, int]], fds: list[int]) -> None:
        """Map new slots (number, size); closes ``fds``. The worker is told of those that cannot be mapped.

        Raises
        ------
        OSError
            If a descriptor did not come, because this process has too many, or the system refuses.
        """
        try:
            self._map(new, fds)
        except BaseException:
            self._lost += [number for number, _ in new if number not in self._mapped]
            raise
        finally:
            for fd in fds:
                os.close(fd)

    def _map(self, new: list[tuple[int, int]], fds: list[int]) -> None:
        if len(fds) < len(new):
            raise OSError("this process has too many open files; raise the limit by `ulimit -n`")
        for (number, nbytes), fd in zip(new, fds, strict=True):
            memory = mapped(fd, nbytes)
            self._mapped[number] = _Mapping(number, memory, self.freed, self._lost, self._page_lock, self._quarantine)

    def refuse(self, places: list[tuple[int, int, int]]) -> None:
        """Let go of the slots of a batch that nobody will look at."""
        self.freed.extend({number for number, _, _ in places if number in self._mapped})

    def drop(self, numbers: list[int]) -> None:
        """Forget slots that the worker has let go."""
        for number in numbers:
            self._mapped.pop(number, None)

    def buffers(self, places: list[tuple[int, int, int]]) -> list[NDArray[np.uint8]]:
        """Views of slots; each slot comes back (into :attr:`freed`) when the last view of it dies."""
        used = {number for number, _, _ in places}  # one lease for each: its death gives the slot back
        leases = {number: Lease(self._mapped[number], self._mapped[number].array) for number in used}
        return [leases[number].bytes()[start : start + nbytes] for number, start, nbytes in places]

    def take_freed(self) -> tuple[list[int], list[int]]:
        """Numbers of slots that came back since the last call, and of those that are not to be used again."""
        _release(self._quarantine)
        freed, lost = ([queue.popleft() for _ in range(len(queue))] for queue in (self.freed, self._lost))
        self.drop(lost)
        return freed, lost

    def put_back(self, freed: list[int], lost: list[int]) -> None:
        """Undo :meth:`take_freed`: the worker was not told."""
        self.freed.extend(freed)
        self._lost += lost


class _Mapping:
    """One mapped slot; a lease's pool."""

    def __init__(
        self,
        number: int,
        memory: NDArray[np.uint8],
        freed: deque[int],
        lost: deque[int],
        page_lock: PageLock | None,
        quarantine: Quarantine | None,
    ) -> None:
        self.number, self._freed, self._lost, self._quarantine = number, freed, lost, quarantine
        self.array = memory
        if page_lock is not None:
            undo = page_lock(self.array.__array_interface__["data"][0], self.array.nbytes)
            # An array's weak references die before what it views: the undo comes before the unmapping.
            weakref.finalize(self.array, undo).atexit = False

    def _give_back(self, memory: NDArray[np.uint8]) -> None:  # noqa: ARG002  # a lease's other half
        if self._quarantine is None:
            self.free()
        else:
            self._quarantine.put(self)  # which keeps it mapped, should its worker die meanwhile
            _release(self._quarantine)

    def _discard(self, memory: NDArray[np.uint8]) -> None:  # noqa: ARG002  # a lease's other half
        self._lost.append(self.number)

    def free(self) -> None:
        """Tell the worker, with its next task."""
        self._freed.append(self.number)


def _release(quarantine: Quarantine | None) -> None:
    while quarantine is not None and (mapping := quarantine.get()) is not None:
        mapping.free()
