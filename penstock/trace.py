"""Nanoseconds per stage; always on, as it costs little.

A worker opens a stage for each chunk of rows, not for each sample::

    with trace.stage("read", items=len(indices)):
        records = store.read(indices)

:func:`stage` and :func:`add` write to the trace that the worker has activated for its thread
(:meth:`Trace.activate`); without one they do nothing, so that datasets need no reference to it. Each thread adds to its
own counters, without a lock; :meth:`Trace.total` sums them.

What is fetched from remote stores is counted by :func:`count_remote`. A thread that sends requests counts for the trace
of the thread that asked for them (:class:`counting`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar, Final

from penstock import system

__all__ = [
    "STAGES",
    "Observer",
    "Trace",
    "add",
    "count_remote",
    "counting",
    "current",
    "current_worker",
    "name_worker",
    "stage",
]

STAGES: Final = ("read", "decode", "augment", "collate", "transport", "wait")
"""Stages of a batch, in order; ``wait`` is the time for which the consumer waits for a batch."""


_ORDER: Final = {name: 2 * i for i, name in enumerate(STAGES)}
_active = threading.local()


def add(stage: str, time_ns: int, items: int = 1) -> None:
    """Add to the current thread's trace, if it has one; see :meth:`Trace.add`."""
    row: list[int] | None = getattr(_active, "row", None)
    if row is not None:
        at = _ORDER[stage]
        row[at] += time_ns
        row[at + 1] += items
    elif (observed := getattr(_active, "observed", None)) is not None:
        observed.add(stage, time_ns, items)


class stage:  # noqa: N801  # a context manager, written as one; entered once for every chunk
    """Add the time of the body to stage ``name`` of the current thread's trace."""

    __slots__ = ("_items", "_name", "_start")

    def __init__(self, name: str, items: int = 1) -> None:
        self._name, self._items = name, items

    def __enter__(self) -> None:
        self._start = time.perf_counter_ns()

    def __exit__(self, *exc: object) -> None:
        add(self._name, time.perf_counter_ns() - self._start, self._items)


def name_worker(worker: int) -> None:
    """Have traces count what the current thread does as work of this worker. Called by a thread that is one."""
    _active.worker = worker


def current_worker() -> int:
    """Return the number of the worker that the current thread is; -1 if it is none."""
    return getattr(_active, "worker", -1)


def count_remote(**counts: int) -> None:
    """Add to the current thread's trace, if it has one; see :meth:`Trace.count_remote`."""
    trace = current()
    if trace is not None:
        trace.count_remote(**counts)


class counting:  # noqa: N801  # as stage
    """Have :func:`count_remote` add to ``trace`` in the current thread, in the body."""

    __slots__ = ("_before", "_trace")

    def __init__(self, trace: Trace | None) -> None:
        self._trace = trace

    def __enter__(self) -> None:
        self._before, _active.trace = current(), self._trace

    def __exit__(self, *exc: object) -> None:
        _active.trace = self._before


def current() -> Trace | None:
    """Return the trace to which :func:`count_remote` adds in the current thread."""
    trace: Trace | None = getattr(_active, "trace", None)
    return trace


class Observer:
    """Is told what a loader does, by the thread that does it; here nothing is done with it.

    A loader's counters tell each of its observers of batches that are delivered. The first one with ``observes_work``
    is also told how batches are built: a trace takes it from the counters, and a job from its trace. A worker process
    has its own copy, forked or pickled with the job.
    """

    observes_work: ClassVar[bool] = False

    def delivered(self, samples: int) -> None:
        """A batch is delivered to the consumer."""

    def end_epoch(self) -> None:
        """No further batch of an epoch is delivered."""

    def starting_processes(self) -> AbstractContextManager[None]:
        """Return a context in which worker processes are started."""
        return nullcontext()

    def start_worker(self, worker: int, *, is_process: bool) -> None:
        """A worker is about to begin its work; it calls this itself."""

    def begin_part(self, batch: int, indices: Sequence[object]) -> None:
        """The thread begins samples of a batch; ``indices`` are empty for a stream."""

    def begin_sample(self, place: int, count: int = 1) -> None:
        """The thread begins the sample at ``place``, or ``count`` samples from there on; -1: their collation."""

    def add(self, stage: str, time_ns: int, items: int) -> None:
        """The thread has spent ``time_ns`` up to now in a stage."""

    def end_part(self, samples: int) -> None:
        """The thread has built ``samples``, or has failed."""

    def begin_collation(self, batch: int) -> None:
        """All samples of a batch are built: the thread that has built the last one begins to make the batch."""

    def end_batch(self, samples: int, begun_ns: int) -> None:
        """The batch is made, whose first part was begun at ``begun_ns``. A worker process then adds ``transport``."""


class Trace:
    """Counters of one loader: time and number of items per stage, of each of its threads and worker processes.

    Thread-safe: every thread has its own row, created at its first :meth:`add`.

    ``observer``: is told of each :meth:`add`.
    """

    def __init__(self, observer: Observer | None = None) -> None:
        self.observer = observer
        self._local = threading.local()
        self._rows: list[tuple[int, list[int]]] = []  # with the number of the worker; -1: none
        self._process_rows: dict[int, list[int]] = {}
        self._remote: dict[str, int] = {}
        self._lock = threading.Lock()
        system.watch(self)

    def renew_in_child(self) -> None:
        """Make another lock in a forked child, which does not have the thread that may hold this one."""
        self._lock = threading.Lock()

    def _row(self) -> list[int]:
        try:
            return self._local.row  # type: ignore[no-any-return]  # threading.local is untyped
        except AttributeError:
            row = self._local.row = self._make_row(current_worker())
            return row

    def _make_row(self, worker: int) -> list[int]:
        row = [0] * (2 * len(STAGES))
        with self._lock:
            self._rows.append((worker, row))
        return row

    def add(self, stage: str, time_ns: int, items: int = 1) -> None:
        """Add ``time_ns`` nanoseconds spent on ``items`` samples (batches, for ``wait``) in ``stage``."""
        row, at = self._row(), _ORDER[stage]
        row[at] += time_ns
        row[at + 1] += items
        if self.observer is not None:
            self.observer.add(stage, time_ns, items)

    def add_rest(self, stage: str, time_ns: int, items: int) -> None:
        """:meth:`add` what is left of a time after other stages were added; no observer is told."""
        row, at = self._row(), _ORDER[stage]
        row[at] += time_ns
        row[at + 1] += items

    def add_all(self, times: Sequence[tuple[int, int]], remote: Mapping[str, int], worker: int) -> None:
        """Add what a worker process has counted: nanoseconds and items of each stage of :data:`STAGES`, and fetches.

        Not thread-safe: called by the thread that receives batches.
        """
        row = self._process_rows.get(worker)
        if row is None:
            row = self._process_rows[worker] = self._make_row(worker)
        if remote:
            self.count_remote(**remote)
        for stage, (time_ns, items) in enumerate(times):
            row[2 * stage] += time_ns
            row[2 * stage + 1] += items

    def count_remote(self, **counts: int) -> None:
        """Add to counts of what is fetched, by the names of :class:`~penstock.loader.stats.RemoteStats`."""
        with self._lock:
            for name, count in counts.items():
                self._remote[name] = self._remote.get(name, 0) + count

    def remote(self, *, take: bool = False) -> dict[str, int]:
        """The counts of :meth:`count_remote` so far; ``take``: they begin again. Empty if nothing is remote."""
        with self._lock:
            counts = dict(self._remote)
            if take:
                self._remote.clear()
        return counts

    def activate(self) -> None:
        """Have :func:`stage`, :func:`add` and :func:`count_remote` write to this trace in the current thread."""
        _active.trace = self
        if self.observer is None:
            _active.row = self._row()
        else:
            _active.row, _active.observed = None, self

    def deactivate(self) -> None:
        """Have them write to no trace in the current thread."""
        _active.row = _active.observed = _active.trace = None

    def thread_ns(self) -> int:
        """Nanoseconds that the current thread has added so far, over all stages."""
        return sum(self._row()[0::2])

    def total(self) -> dict[str, tuple[int, int]]:
        """Return ``{stage: (time_ns, items)}`` so far, over all threads and workers; a snapshot, not a view."""
        with self._lock:
            rows = [row for _, row in self._rows]
        return _sum_rows(rows)

    def total_by_worker(self) -> dict[int, dict[str, tuple[int, int]]]:
        """Return :meth:`total` of each worker, by its number; that of -1 is what the consumer's thread did."""
        with self._lock:
            rows = list(self._rows)
        workers = sorted({worker for worker, _ in rows})
        return {worker: _sum_rows([row for owner, row in rows if owner == worker]) for worker in workers}

    def reset(self) -> None:
        """Set the counters of stages to zero."""
        with self._lock:
            for _, row in self._rows:
                row[:] = [0] * len(row)


def _sum_rows(rows: Sequence[list[int]]) -> dict[str, tuple[int, int]]:
    return {
        name: (sum(row[2 * i] for row in rows), sum(row[2 * i + 1] for row in rows)) for i, name in enumerate(STAGES)
    }
