"""What a loader has spent, delivered and left out: iterators count, ``loader.stats()`` reads."""

from __future__ import annotations

from penstock.loader.faults import LeftOutLog
from penstock.sample import State
from penstock.stats import Stats
from penstock.trace import STAGES, Trace
from penstock.workers.base import NOTHING, Done

__all__ = ["LoaderCounters"]


class LoaderCounters:
    """What a loader's iterators have spent, delivered and left out; outlives them."""

    def __init__(self, left_out_log: LeftOutLog) -> None:
        self.left_out_log = left_out_log
        self._traces: list[Trace] = []
        self._retired = dict.fromkeys(STAGES, (0, 0))
        self._batches = self._samples = 0

    def __getstate__(self) -> dict[str, State]:
        """The counts; times are those of the workers here."""
        return {**self.__dict__, "_traces": [], "_retired": dict.fromkeys(STAGES, (0, 0))}

    def open(self, trace: Trace | None = None) -> Trace:
        """A trace that counts from now on; by default a new one."""
        trace = Trace() if trace is None else trace
        self._traces.append(trace)
        return trace

    def retire(self, trace: Trace) -> None:
        """A trace grows no more."""
        if trace in self._traces:
            self._traces.remove(trace)
            self._retired = _sum(self._retired, trace.total())

    def count(self, done: Done) -> None:
        """A batch was delivered."""
        self._batches += done.batch is not NOTHING
        self._samples += done.rows - self.left_out_log.count_missing(done)

    def stats(self) -> Stats:
        """All of it."""
        total = self._retired
        for trace in list(self._traces):
            total = _sum(total, trace.total())
        return Stats.of(total, self._batches, self._samples, self.left_out_log.count)


def _sum(a: dict[str, tuple[int, int]], b: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    return {stage: (a[stage][0] + b[stage][0], a[stage][1] + b[stage][1]) for stage in a}
