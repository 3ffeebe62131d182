"""What a worker is at, written by it into memory that the parent can read whatever the worker does.

::

    page 0    int64: progress, batch, row, since (ns of the monotonic clock), stop, answers, count
    page 1..  the stack that the worker's fault handler writes when it is asked (a signal) or when it crashes

No message and no lock: a worker that hangs, spins in C or was killed has still said where.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Sequence
from typing import Final

from penstock.workers.processes.memory import mapped, memory_file

__all__ = ["Board", "StopWork", "stacks_of"]

_PROGRESS, _BATCH, _ROW, _SINCE, _STOP, _ANSWERS, _COUNT = range(7)
_PAGE: Final = 4096
_SIZE: Final = _PAGE + (1 << 16)
_ASK: Final = signal.SIGUSR1
_LOOK_S: Final = 0.01
"""How often boards are looked at for a stack; one that is the same twice is whole."""


class StopWork(BaseException):
    """Raised between two samples when the parent wants no more."""


class Board:
    """One worker's board.

    Parameters
    ----------
    fd : int, optional
        Of a board made by the parent; None: a new one.
    """

    def __init__(self, fd: int | None = None) -> None:
        self.fd = memory_file("penstock-board", _SIZE) if fd is None else fd
        self._memory = mapped(self.fd, _SIZE).data
        self._words = self._memory[:_PAGE].cast("q")
        self.first_row = 0
        """Where the rows that the worker tells begin in the batch; the worker's."""
        if fd is None:
            self._words[_BATCH], self._words[_ROW], self._words[_SINCE] = -1, -1, time.monotonic_ns()

    # the worker's side

    def answer(self) -> None:
        """Write this process's stacks here when asked, and when it crashes."""
        os.lseek(self.fd, _PAGE, os.SEEK_SET)
        faulthandler.enable(self.fd, all_threads=True)
        faulthandler.register(_ASK, self.fd, all_threads=True, chain=False)
        self._words[_ANSWERS] = 1

    def begin(self, batch: int) -> None:
        """Say that work on a batch begins."""
        words = self._words
        words[_BATCH], words[_ROW], words[_COUNT], words[_SINCE] = batch, -1, 1, time.monotonic_ns()
        words[_PROGRESS] += 1

    def watch(self, place: int, count: int = 1) -> None:
        """Say that a call for ``count`` rows begins; the first is ``place`` behind ``first_row``, or none is known."""
        words = self._words
        if words[_STOP]:
            raise StopWork
        words[_ROW] = self.first_row + place
        words[_COUNT] = count
        words[_SINCE] = time.monotonic_ns()
        words[_PROGRESS] += 1

    def end(self) -> None:
        """Say that the batch is done."""
        self._words[_PROGRESS] += 1
        self._words[_BATCH], self._words[_COUNT] = -1, 1

    # the parent's side

    def close(self) -> None:
        """Close the descriptor; what was written can still be read. Idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    @property
    def answers(self) -> bool:
        """Whether the worker has come so far that it can be asked: before, the signal would end it."""
        return bool(self._words[_ANSWERS])

    @property
    def progress(self) -> int:
        """Grows whenever the worker gets on."""
        return self._words[_PROGRESS]

    @property
    def batch(self) -> int:
        """The batch that is, or was, worked on; -1 between two."""
        return self._words[_BATCH]

    @property
    def row(self) -> int:
        """The row that is, or was, worked on, or the first of :attr:`count`; -1 if none is known."""
        return self._words[_ROW]

    @property
    def count(self) -> int:
        """How many samples the call asks, or asked, for; at least 1."""
        return max(1, self._words[_COUNT])

    @property
    def busy_s(self) -> float:
        """Seconds since the worker last said that it got on, or since it was started."""
        return (time.monotonic_ns() - self._words[_SINCE]) / 1e9

    def stop(self) -> None:
        """Ask the worker to end before the next sample."""
        self._words[_STOP] = 1

    def clear(self) -> None:
        """Forget an earlier stack; the next one is written to its place (both sides share the descriptor's offset)."""
        self._memory[_PAGE:] = bytes(_SIZE - _PAGE)
        os.lseek(self.fd, _PAGE, os.SEEK_SET)

    def stack(self) -> str:
        """What the fault handler has written."""
        return bytes(self._memory[_PAGE:]).split(b"\0", 1)[0].decode("utf-8", "replace").strip()

    def ask(self, pid: int) -> str | None:
        """Ask the process for its stacks, for :meth:`stack`; the reason in words if it cannot answer."""
        if not self.answers:
            return "(it is still starting: importing what the dataset needs, or waiting for a lock that was held)"
        self.clear()
        try:
            os.kill(pid, _ASK)
        except ProcessLookupError:
            return "(the process is gone)"
        return None


def stacks_of(workers: Sequence[tuple[Board, int]], patience_s: float = 0.5) -> list[str]:
    """The stacks of processes, all asked at once: boards and pids.

    Returns
    -------
    list of str
        What each wrote within ``patience_s`` in all, or why it wrote nothing.
    """
    found = [board.ask(pid) for board, pid in workers]
    seen = [""] * len(workers)
    deadline = time.monotonic() + patience_s
    while None in found and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        for i, (board, _) in enumerate(workers):
            stack = board.stack() if found[i] is None else ""
            if stack and stack == seen[i]:
                found[i] = stack
            seen[i] = stack
    return [said or seen[i] or "(no answer: the process is stopped)" for i, said in enumerate(found)]
