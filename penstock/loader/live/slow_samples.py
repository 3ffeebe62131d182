"""The slowest samples that a process has built: which ones, and how long each has taken.

Most datasets build several samples in one call. So that single ones are timed, few of the batches are built in parts of
one sample (:meth:`SlowSamples.limit_rows`): as many as cost 0.5 % of the time. Where samples take microseconds, few are
timed.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

__all__ = ["SlowSamples", "TimedSample"]

_KEPT: Final = 8
_SAMPLE_NS: Final = 500
"""What it costs to time one."""
_MOST_COST: Final = 0.005
_LEAST_COST: Final = 0.02
"""Parts of the time of all batches, and of one that is built sample by sample: one of four at most is."""
_NEW: Final = 0.05
"""Weight of a measurement in a mean."""
_BEFORE: Final = -2
_AFTER: Final = -1
"""Places: no sample has begun; none will. After the last sample comes the collation, whose place is -1."""
_MOST_INDICES: Final = 8


@dataclass(frozen=True, slots=True)
class TimedSample:
    """A sample, or several that one call has built.

    Parameters
    ----------
    time_ns, count : int
        How long that has taken, and how many samples it were.
    indices : tuple of int
        In the dataset, the first eight; empty for a stream.
    batch, worker : int
        Of the epoch; -1: the consumer's thread.
    """

    time_ns: int
    count: int
    indices: tuple[int, ...]
    batch: int
    worker: int


class _Part:
    """What a thread is building."""

    __slots__ = ("batch", "begun_ns", "count", "indices", "is_timed", "place", "since_ns")

    def __init__(self, batch: int, indices: Sequence[object]) -> None:
        self.batch, self.indices, self.place, self.count, self.is_timed = batch, indices, _BEFORE, 1, True
        self.begun_ns = self.since_ns = time.perf_counter_ns()


class SlowSamples:
    """Keeps the eight slowest samples since they were last taken; threads report theirs at the same time."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._lock = threading.Lock()
        self._slowest: list[tuple[float, int, TimedSample]] = []
        self._least_ns, self._number, self._drawn = 0.0, 0, 1
        self._single_ns = self._among_ns = 0.0  # a sample that is a part of its own, and one of several

    def name_worker(self, worker: int) -> None:
        """The thread is this worker."""
        self._local.worker = worker

    def limit_rows(self) -> int | None:
        """1 for a batch that is to be built sample by sample, of which there are the fewer the more that costs."""
        if not self._among_ns:
            return None
        if not self._single_ns:  # what it costs is found with this batch
            return 1
        return 1 if self._is_next(max(self._single_ns / self._among_ns - 1, _LEAST_COST)) else None

    def _is_next(self, cost: float) -> bool:
        """Whether the turn has come of what costs this part of the time of a batch; not each of a fixed number."""
        self._drawn = (self._drawn * 1_103_515_245 + 12_345) & 0x7FFFFFFF
        return (self._drawn >> 8) % max(1, round(cost / _MOST_COST)) == 0

    def begin_part(self, batch: int, indices: Sequence[object]) -> None:
        """The thread begins samples of a batch."""
        part = self._local.part = _Part(batch, indices)
        sample_ns = self._among_ns or self._single_ns
        part.is_timed = not sample_ns or self._is_next(_SAMPLE_NS / sample_ns)

    def begin_sample(self, place: int, count: int) -> None:
        """It begins ``count`` samples at ``place`` of the part; -1: their collation."""
        part: _Part | None = getattr(self._local, "part", None)
        if part is not None and part.is_timed:
            now = time.perf_counter_ns()
            if part.place >= 0 and now - part.since_ns > self._least_ns * part.count:
                self._keep(part, now - part.since_ns)
            part.place, part.count, part.since_ns = place, count, now

    def end_part(self, samples: int) -> None:
        """It has built ``samples``, or has failed."""
        part: _Part | None = getattr(self._local, "part", None)
        if part is None or not samples:
            return
        each_ns = (time.perf_counter_ns() - part.begun_ns) / samples
        if samples == 1:
            self._single_ns += _NEW * (each_ns - self._single_ns) if self._single_ns else each_ns
        else:
            self._among_ns += _NEW * (each_ns - self._among_ns) if self._among_ns else each_ns
        if part.place == _BEFORE:  # one call has built them all, or they were not timed
            part.place, part.count, part.is_timed = 0, samples, True
        self.begin_sample(_AFTER, 1)
        self._local.part = None

    def _keep(self, part: _Part, time_ns: int) -> None:
        indices = tuple(
            int(index)
            for index in part.indices[part.place : part.place + min(part.count, _MOST_INDICES)]
            if isinstance(index, (int, np.integer))
        )
        sample = TimedSample(time_ns, part.count, indices, part.batch, getattr(self._local, "worker", -1))
        with self._lock:
            self._number += 1
            entry = (time_ns / max(part.count, 1), self._number, sample)
            if len(self._slowest) < _KEPT:
                heapq.heappush(self._slowest, entry)
            else:
                heapq.heappushpop(self._slowest, entry)
            if len(self._slowest) == _KEPT:
                self._least_ns = self._slowest[0][0]

    def take(self) -> list[TimedSample]:
        """The slowest since the last call, the slowest first."""
        with self._lock:
            taken, self._slowest, self._least_ns = self._slowest, [], 0.0
        return [sample for _, _, sample in sorted(taken, reverse=True)]
