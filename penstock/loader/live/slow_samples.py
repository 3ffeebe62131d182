"""The slowest samples that a process has built: which ones, and how long each has taken.

Most datasets build several samples in one call. So that single ones are timed, few of the batches are built in parts of
one sample (:meth:`SlowSamples.limit_rows`): as many as cost 0.5 % of the time.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

__all__ = ["SlowSample", "SlowSamples"]

_KEPT: Final = 8
_PART_NS: Final = 20_000
"""What a part of a batch costs beside its samples."""
_MOST_COST: Final = 0.005
_BEFORE: Final = -2
_AFTER: Final = -1
"""Places: no sample has begun; none will. After the last sample comes the collation, whose place is -1."""
_MOST_INDICES: Final = 8


@dataclass(frozen=True, slots=True)
class SlowSample:
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

    __slots__ = ("batch", "begun_ns", "count", "indices", "place", "since_ns")

    def __init__(self, batch: int, indices: Sequence[object]) -> None:
        self.batch, self.indices, self.place, self.count = batch, indices, _BEFORE, 1
        self.begun_ns = self.since_ns = time.perf_counter_ns()


class SlowSamples:
    """Keeps the eight slowest samples since they were last taken; threads report theirs at the same time."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._lock = threading.Lock()
        self._slowest: list[tuple[float, int, SlowSample]] = []
        self._least_ns, self._number, self._sample_ns = 0.0, 0, 0.0

    def name_worker(self, worker: int) -> None:
        """The thread is this worker."""
        self._local.worker = worker

    def limit_rows(self, batch: int) -> int | None:
        """1 for batches that are to be built sample by sample, of which there are the fewer the shorter samples are."""
        if not self._sample_ns:
            return None
        apart = max(1, round(_PART_NS / (_MOST_COST * self._sample_ns)))
        return 1 if (batch * 2_654_435_761 & 0xFFFFFFFF) % apart == 0 else None  # not each of a fixed number

    def begin_part(self, batch: int, indices: Sequence[object]) -> None:
        """The thread begins samples of a batch."""
        self._local.part = _Part(batch, indices)

    def begin_sample(self, place: int, count: int) -> None:
        """It begins ``count`` samples at ``place`` of the part; -1: their collation."""
        part: _Part | None = getattr(self._local, "part", None)
        if part is not None:
            now = time.perf_counter_ns()
            if part.place >= 0 and now - part.since_ns > self._least_ns * part.count:
                self._keep(part, now - part.since_ns)
            part.place, part.count, part.since_ns = place, count, now

    def end_part(self, samples: int) -> None:
        """It has built ``samples``, or has failed."""
        part: _Part | None = getattr(self._local, "part", None)
        if part is None or not samples:
            return
        spent_ns = time.perf_counter_ns() - part.begun_ns
        self._sample_ns += 0.1 * (spent_ns / samples - self._sample_ns) if self._sample_ns else spent_ns / samples
        if part.place == _BEFORE:  # one call has built them all
            part.place, part.count = 0, samples
        self.begin_sample(_AFTER, 1)
        self._local.part = None

    def _keep(self, part: _Part, time_ns: int) -> None:
        indices = tuple(
            int(index)
            for index in part.indices[part.place : part.place + min(part.count, _MOST_INDICES)]
            if isinstance(index, (int, np.integer))
        )
        sample = SlowSample(time_ns, part.count, indices, part.batch, getattr(self._local, "worker", -1))
        with self._lock:
            self._number += 1
            entry = (time_ns / max(part.count, 1), self._number, sample)
            if len(self._slowest) < _KEPT:
                heapq.heappush(self._slowest, entry)
            else:
                heapq.heappushpop(self._slowest, entry)
            if len(self._slowest) == _KEPT:
                self._least_ns = self._slowest[0][0]

    def take(self) -> list[SlowSample]:
        """The slowest since the last call, the slowest first."""
        with self._lock:
            taken, self._slowest, self._least_ns = self._slowest, [], 0.0
        return [sample for _, _, sample in sorted(taken, reverse=True)]
