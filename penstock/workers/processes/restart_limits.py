"""How many workers may die, at a sample, at a batch and before they have started, until that is an error.

``backend`` asks it at each death, and replaces the worker as long as it may.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from penstock.workers.base import Task
from penstock.workers.processes.transport import Status

__all__ = ["RestartLimits"]

_CRASHES: Final = 2
"""Workers that may crash or exit at the same row of one batch before that is an error."""
_KILLS: Final = 5
"""The same for workers that a signal from outside ended (SIGKILL, SIGTERM): chance, or lack of memory."""
_DEATHS: Final = 20
"""Workers that may die at one batch in all."""
_FAILED_STARTS: Final = 3
"""Workers in a row that may die by themselves before they have started the epoch."""
_KILLED_STARTS: Final = 10
"""The same if the last one was killed from outside."""


class RestartLimits:
    """Counts the deaths of an epoch's workers."""

    def __init__(self) -> None:
        self._failed_starts = 0
        self._max_failed_starts = _FAILED_STARTS
        self._deaths: Counter[int | tuple[int, int]] = Counter()  # by batch, and by batch and row

    def start_epoch(self) -> None:
        """Forget the deaths of the epoch before."""
        self._deaths.clear()
        self._failed_starts = 0

    def record_start(self) -> None:
        """Record that a worker has started the epoch."""
        self._failed_starts = 0

    def record_death(self, *, started: bool, killed: bool) -> None:
        """Record that a worker died: whether it had ``started`` the epoch, and was ``killed`` from outside."""
        self._failed_starts = 0 if started else self._failed_starts + 1
        self._max_failed_starts = _KILLED_STARTS if killed else _FAILED_STARTS

    @property
    def starts_fail(self) -> bool:
        """Whether too many workers have died before they had started."""
        return self._failed_starts >= self._max_failed_starts

    def exceeds(self, task: Task, status: Status, *, killed: bool) -> bool:
        """Count a death at ``task``; whether too many died at the same row, or at the batch in all."""
        self._deaths[task.seq] += 1
        if self._deaths[task.seq] >= _DEATHS:
            return True
        if status.batch != task.seq:
            return False  # it had not begun this batch
        row = task.seq, status.row
        self._deaths[row] += 1
        return self._deaths[row] >= (_KILLS if killed else _CRASHES)

    def forget_batch(self, task: Task) -> None:
        """Forget the deaths at ``task``, which is now built differently."""
        del self._deaths[task.seq]
