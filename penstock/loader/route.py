"""Which worker process gets the next task."""

from __future__ import annotations

__all__ = ["Route"]


class Route:
    """Chooses a worker process for each task, as torch does.

    In order: one worker after the other, without those whose stream has ended. As they come: likewise, but without
    those that have an even part of what may be under way, so that a stuck worker gets no further task.
    """

    def __init__(self, num_workers: int, limit: int, *, in_order: bool, first: int = 0) -> None:
        self._limit, self._in_order, self._next = limit, in_order, first % num_workers
        self._is_live = [True] * num_workers
        self._tasks = [0] * num_workers

    def has_room(self) -> bool:
        """Whether some worker may get a further task."""
        return any(map(self._takes_more, range(len(self._is_live))))

    def is_over(self) -> bool:
        """Whether the stream of every worker has ended."""
        return not any(self._is_live)

    def choose(self) -> int:
        """The worker for the next task; call :meth:`has_room` first."""
        while not self._takes_more(self._next):
            self._next = (self._next + 1) % len(self._is_live)
        worker = self._next
        self._tasks[worker] += 1
        self._next = (worker + 1) % len(self._is_live)
        return worker

    def finish(self, worker: int) -> None:
        """Count a task of ``worker`` as done."""
        self._tasks[worker] -= 1

    def retire(self, worker: int) -> None:
        """Give ``worker`` no further task: its stream has ended."""
        self._is_live[worker] = False

    def _takes_more(self, worker: int) -> bool:
        part = self._limit // max(1, sum(self._is_live))
        return self._is_live[worker] and (self._in_order or self._tasks[worker] < part)
