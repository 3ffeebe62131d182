"""The slowest samples of a loader that is viewed: which ones, and how long each has taken.

::

    LoaderJob.begin ── is_due ──> one of several batches ── begin_part, begin_sample, end_part ──> take
                                  in a worker process: take ──> BatchBuilt ──> add_all, in the loader's process

Datasets that fill rows build several samples in one call: the rows of a batch that is timed are built one by one.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from penstock.trace import Observer, current_worker

__all__ = ["SlowSamples", "TimedPart"]

_ROW_S: Final = 0.02
"""Seconds, for each row of a batch that is timed, until another one is: 0.1 ms more for a row is 0.5 % of it."""
_KEPT: Final = 8
_MOST: Final = 4096
"""Samples that wait to be taken."""
_MOST_INDICES: Final = 8


class TimedPart(NamedTuple):
    """A sample, or several that one call has built."""

    time_ns: int
    samples: int
    indices: tuple[int, ...]  # in the dataset, the first eight; empty for a stream
    batch: int  # of the epoch
    worker: int  # -1: the consumer's thread


class SlowSamples(Observer):
    """Is told of the batches that are timed; threads report theirs at the same time. A copy has none."""

    def __init__(self) -> None:
        self._part = threading.local()
        self._samples: deque[TimedPart] = deque(maxlen=_MOST)
        self._due_s = 0.0

    def __reduce__(self) -> tuple[type[SlowSamples], tuple[()]]:
        return SlowSamples, ()

    def is_due(self, rows: int) -> bool:
        """Return whether a batch that begins now is to be timed; the first one is."""
        if (now := time.monotonic()) < self._due_s:
            return False
        self._due_s = now + rows * _ROW_S
        return True

    def begin_part(self, batch: int, indices: Sequence[object]) -> None:
        """Note the batch and the indices of a part, and the time."""
        part = self._part
        part.batch, part.indices, part.place, part.since_ns = batch, indices, -1, time.perf_counter_ns()

    def begin_sample(self, place: int, count: int = 1) -> None:
        """Add the time of the sample before, and begin to time this one."""
        part, now = self._part, time.perf_counter_ns()
        if part.place >= 0:
            self._add(now)
        part.place, part.count, part.since_ns = place, count, now

    def end_part(self, samples: int) -> None:
        """Add the time of the last sample; if one call has built all samples, of all."""
        if self._part.place < 0:  # one call has built them all
            self._part.place, self._part.count = 0, samples
        self._add(time.perf_counter_ns())

    def _add(self, now: int) -> None:
        part = self._part
        if part.count > 0:
            chosen = part.indices[part.place : part.place + min(part.count, _MOST_INDICES)]
            indices = tuple(int(index) for index in chosen if isinstance(index, (int, np.integer)))
            self._samples.append(TimedPart(now - part.since_ns, part.count, indices, part.batch, current_worker()))

    def add_all(self, samples: Sequence[TimedPart], worker: int) -> None:
        """Add what a worker process has taken."""
        self._samples.extend(sample._replace(worker=worker) for sample in samples)

    def take(self) -> list[TimedPart]:
        """The slowest since the last call, the slowest first."""
        taken = [self._samples.popleft() for _ in range(len(self._samples))]
        return heapq.nlargest(_KEPT, taken, key=lambda sample: sample.time_ns / sample.samples)
