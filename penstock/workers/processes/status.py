"""What a worker process is doing, written by it to memory that the parent can read at any time.

::

    page 0    int64: progress, batch, row, since (ns of the monotonic clock), stop, dumps_stacks, count,
              finished
    page 1..  the stacks that the worker's fault handler writes on a signal or a crash

There is no message and no lock: the status can be read when the worker hangs, spins in C or was killed.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.system import memory_file
from penstock.system.mapping import map_file

__all__ = ["StatusReading", "StopWork", "WorkerStatus", "collect_stacks"]

_PROGRESS, _BATCH, _ROW, _SINCE, _STOP, _DUMPS_STACKS, _COUNT, _FINISHED = range(8)
_PAGE: Final = 4096
_SIZE: Final = _PAGE + (1 << 16)
_SIGNAL: Final = signal.SIGUSR1
_POLL_S: Final = 0.01
"""Interval of reading a stack; one that is the same twice is complete."""


class StopWork(BaseException):
    """Raised in a worker between two samples when the parent wants no more."""


@dataclass(frozen=True, slots=True)
class StatusReading:
    """A copy of a :class:`WorkerStatus`, with its attributes, which can be sent to another machine."""

    progress: int = 0
    batch: int = -1
    row: int = -1
    count: int = 1
    busy_s: float = 0.0
    text: str = ""

    def stacks(self) -> str:
        """Return what the fault handler had written."""
        return self.text


class WorkerStatus:
    """The status of one worker process.

    ``fd``: descriptor of a status that the parent made; None: make a new one.
    """

    def __init__(self, fd: int | None = None) -> None:
        self.fd = memory_file("penstock-status", _SIZE) if fd is None else fd
        self._memory = map_file(self.fd, _SIZE).data
        self._words = self._memory[:_PAGE].cast("q")
        self.first_row = 0
        """Set by the worker: the row of the batch to which positions given to :meth:`watch` are relative."""
        if fd is None:
            self._clear_progress()

    @classmethod
    def create(cls, path: str) -> WorkerStatus:
        """Return a new status in the file ``path``, which can be opened when the worker is dead.

        Raises if it exists.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.posix_fallocate(fd, 0, _SIZE)  # or a signal would end the process where memory is short
        status = cls(fd)
        status._clear_progress()
        return status

    def _clear_progress(self) -> None:
        self._words[_BATCH], self._words[_ROW], self._words[_SINCE] = -1, -1, time.monotonic_ns()

    @classmethod
    def read_file(cls, path: str) -> StatusReading:
        """Read the status in the file ``path``, and delete the file.

        Raises OSError if there is no such file.
        """
        status = cls(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        try:
            os.unlink(path)  # noqa: PTH108  # a str
            return status.read()
        finally:
            status.close()

    def read(self) -> StatusReading:
        """A copy of the present values."""
        return StatusReading(self.progress, self.batch, self.row, self.count, self.busy_s, self.stacks())

    # the worker's side

    def dump_stacks(self) -> None:
        """Write the stacks of the process's threads, for :meth:`stacks`; not called by the worker's own thread."""
        self.clear_stacks()
        faulthandler.dump_traceback(self.fd, all_threads=True)

    def enable_stack_dumps(self) -> None:
        """Have this process write its stacks here on a signal and on a crash."""
        os.lseek(self.fd, _PAGE, os.SEEK_SET)
        faulthandler.disable()  # enabled by the parent, its signal handlers may have been replaced: set them anew
        faulthandler.enable(self.fd, all_threads=True)
        faulthandler.register(_SIGNAL, self.fd, all_threads=True, chain=False)
        self._words[_DUMPS_STACKS] = 1

    def begin_batch(self, seq: int) -> None:
        """Record that work on a batch begins."""
        words = self._words
        words[_BATCH], words[_ROW], words[_COUNT], words[_SINCE] = seq, -1, 1, time.monotonic_ns()
        words[_PROGRESS] += 1

    def watch(self, place: int, count: int = 1) -> None:
        """Record that a call for ``count`` rows begins; see :class:`~penstock.sample.Watch`.

        Raises
        ------
        StopWork
            If the parent has called :meth:`request_stop`.
        """
        words = self._words
        if words[_STOP]:
            raise StopWork
        words[_ROW] = self.first_row + place
        words[_COUNT] = count
        words[_SINCE] = time.monotonic_ns()
        words[_PROGRESS] += 1

    def end_batch(self) -> None:
        """Record that the batch is done."""
        words = self._words
        words[_PROGRESS] += 1
        words[_BATCH], words[_COUNT] = -1, 1
        words[_FINISHED] += 1

    # the parent's side

    def close(self) -> None:
        """Close the descriptor; what was written can still be read. Idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    @property
    def dumps_stacks(self) -> bool:
        """Whether the worker has called :meth:`enable_stack_dumps`; before that, the signal would end it."""
        return bool(self._words[_DUMPS_STACKS])

    @property
    def progress(self) -> int:
        """A number that grows with each call and each batch."""
        return self._words[_PROGRESS]

    @property
    def batch(self) -> int:
        """Number of the batch that is, or was, worked on; -1 between two."""
        return self._words[_BATCH]

    @property
    def row(self) -> int:
        """Row that is, or was, worked on, or the first of :attr:`count`; -1 if unknown."""
        return self._words[_ROW]

    @property
    def count(self) -> int:
        """Number of samples that the current or last call asks for; at least 1."""
        return max(1, self._words[_COUNT])

    @property
    def finished(self) -> int:
        """Number of batches that the process has built and sent since its start."""
        return self._words[_FINISHED]

    @property
    def busy_s(self) -> float:
        """Seconds since the worker last recorded something, or since it was started."""
        return (time.monotonic_ns() - self._words[_SINCE]) / 1e9

    def request_stop(self) -> None:
        """Have the worker stop before the next sample."""
        self._words[_STOP] = 1

    def clear_stacks(self) -> None:
        """Remove earlier stacks; the next ones are written to the same place (both sides share the file's offset)."""
        self._memory[_PAGE:] = bytes(_SIZE - _PAGE)
        os.lseek(self.fd, _PAGE, os.SEEK_SET)

    def stacks(self) -> str:
        """Return what the fault handler has written."""
        return bytes(self._memory[_PAGE:]).split(b"\0", 1)[0].decode("utf-8", "replace").strip()

    def request_stacks(self, pid: int) -> str | None:
        """Have the process write its stacks, for :meth:`stacks`; if it cannot, the reason."""
        if not self.dumps_stacks:
            return "(it is still starting: importing what the dataset needs, or waiting for a lock that was held)"
        self.clear_stacks()
        try:
            os.kill(pid, _SIGNAL)
        except ProcessLookupError:
            return "(the process has exited)"
        return None


def collect_stacks(workers: Sequence[tuple[WorkerStatus, int]], timeout_s: float = 0.5) -> list[str]:
    """Return the stacks of processes, given by status and pid. All are requested at once.

    Returns
    -------
    list of str
        What each process wrote within ``timeout_s`` in all, or why it wrote nothing.
    """
    results = [status.request_stacks(pid) for status, pid in workers]
    seen = [""] * len(workers)
    deadline = time.monotonic() + timeout_s
    while None in results and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        for i, (status, _) in enumerate(workers):
            stacks = status.stacks() if results[i] is None else ""
            if stacks and stacks == seen[i]:
                results[i] = stacks
            seen[i] = stacks
    return [result or seen[i] or "(no answer: the process is stopped)" for i, result in enumerate(results)]
