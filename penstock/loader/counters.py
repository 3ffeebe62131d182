"""What a loader has spent, delivered and left out: iterators count, ``loader.stats()`` reads."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.loader.faults import LeftOutLog
from penstock.loader.order import Order
from penstock.loader.position import Position
from penstock.loader.stats import EpochTime, LoaderRates, QueueStats, RemoteStats, Stats, WorkerStats, make_stages
from penstock.loader.tuning import LoaderTuner
from penstock.repairs import Repaired
from penstock.sample import Batch, State
from penstock.system.system_files import SystemFiles
from penstock.trace import STAGES, Observer, Trace
from penstock.workers.base import NOTHING, Backend, Task, TaskResult
from penstock.workers.left_out import LeftOut

__all__ = ["LoaderCounters", "PeriodicReport", "count_nbytes"]

_MAX_REPAIRED: Final = 10_000

_MEASURED: Final = 64
"""Of so many batches, one is measured: looking at all arrays of each would cost more than counting it."""

_MOST: Final = 256
"""Most values that are looked at: a batch may be a list of many small objects."""

_LIBRARIES: Final = frozenset({"numpy", "torch", "torchvision", "penstock"})
"""Whose ``nbytes`` is asked for: a property of a user's own class may do anything."""

_RECENT_NS: Final = 300 * 10**9
_SNAPSHOT_NS: Final = 30 * 10**9
"""A verdict is of so much time; between two snapshots is so much."""

_TICK_NS: Final = 10**9 // os.sysconf("SC_CLK_TCK")

_Times = dict[str, tuple[int, int]]


class _HasPosition(Protocol):
    position: Position


class _HasQueue(Protocol):
    backend: Backend

    @property
    def epoch(self) -> _HasPosition: ...

    def queue(self) -> QueueStats: ...


class _Spent(NamedTuple):
    """What was spent; replaced as a whole, so that a thread that asks at the end of an epoch finds nothing missing."""

    traces: tuple[Trace, ...]  # those that grow
    retired: dict[int, _Times]  # by worker; -1: the consumer itself
    remote: RemoteStats
    epoch_time: EpochTime  # up to the following times, if there are traces
    begun_ns: int
    begun_cpu_ns: int


class LoaderCounters:
    """What a loader's iterators have spent, delivered and left out; outlives them."""

    def __init__(self, left_out_log: LeftOutLog) -> None:
        self.left_out_log = left_out_log
        self._batches = self._samples = self._repaired_count = 0
        self._measured_samples = self._measured_nbytes = 0
        self._repaired: deque[Repaired] = deque(maxlen=_MAX_REPAIRED)
        self._forget_workers()

    def _forget_workers(self) -> None:
        # Attributes are set one by one: an object whose __dict__ was looked at is slower, and this is counted in.
        self._spent = _Spent((), {}, RemoteStats(), EpochTime(), 0, 0)
        self._worker_batches: dict[int, int] = {}
        self._iterators: list[weakref.ref[_HasQueue]] = []
        self._observers: list[Observer] = []
        self._newest: tuple[Task, Sequence[LeftOut]] | None = None  # of the batch delivered last
        self.publisher: Observer | None = None  # of penstock.loader.live, one of the observers
        self.tuner: LoaderTuner | None = None  # where the loader chooses its workers
        self._worker_cpu_ns: dict[int, int] = {}  # by process; also of those that have ended
        self._recent: deque[Stats] = deque(maxlen=_RECENT_NS // _SNAPSHOT_NS + 1)
        self._due_ns = 0

    def __getstate__(self) -> dict[str, State]:
        """The counts; times, and whoever reads them, are those here."""
        here = {"_spent", "_worker_batches", "_iterators", "_observers", "_newest"}
        here |= {"publisher", "tuner", "_worker_cpu_ns", "_recent", "_due_ns"}
        return {name: value for name, value in self.__dict__.items() if name not in here}

    def __setstate__(self, state: dict[str, State]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self._forget_workers()

    def open(self, trace: Trace | None = None) -> Trace:
        """Return a trace that counts from now on; by default a new one."""
        if trace is None:
            trace = Trace(next((each for each in self._observers if each.observes_work), None))
        spent = self._spent
        if not spent.traces:
            spent = spent._replace(begun_ns=time.perf_counter_ns(), begun_cpu_ns=time.process_time_ns())
        self._spent = spent._replace(traces=(*spent.traces, trace))
        return trace

    def retire(self, trace: Trace) -> None:
        """Add up a trace that grows no more."""
        spent = self._spent
        if trace in spent.traces:
            self._worker_cpu_ns = self._read_worker_cpu_ns()
            self._spent = _Spent(
                tuple(other for other in spent.traces if other is not trace),
                _sum(spent.retired, trace.total_by_worker()), spent.remote + RemoteStats(**trace.remote()),
                self._measure_epochs(spent), time.perf_counter_ns(), time.process_time_ns(),
            )  # fmt: skip
            for observer in self._observers:
                observer.end_epoch()

    def _measure_epochs(self, spent: _Spent) -> EpochTime:
        """Return the time in which an epoch was under way, up to now."""
        if not spent.traces:
            return spent.epoch_time
        return EpochTime(
            spent.epoch_time.time_ns + time.perf_counter_ns() - spent.begun_ns,
            spent.epoch_time.cpu_ns + time.process_time_ns() - spent.begun_cpu_ns,
            sum(self._read_worker_cpu_ns().values()),
        )

    def _read_worker_cpu_ns(self) -> dict[int, int]:
        """Return the processor time of each worker process; of those that have ended, what is known of it."""
        files, cpu_ns = SystemFiles(), self._worker_cpu_ns.copy()
        for pid in self.list_worker_pids():
            words = (files.read(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()[11:13]
            cpu_ns[pid] = max(cpu_ns.get(pid, 0), sum(map(int, words)) * _TICK_NS)
        return cpu_ns

    def watch(self, iterator: _HasQueue) -> None:
        """Look at this iterator's batches for :meth:`stats`, as long as it lives."""
        living = [other for other in self._iterators if other() is not None]
        self._iterators = [*living, weakref.ref(iterator)]  # a new list: other threads may go through the old one

    def add_observer(self, observer: Observer) -> None:
        """Tell it of each batch from now on, and of the work of epochs that begin from now on."""
        self._observers = [*self._observers, observer]

    def remove_observer(self, observer: Observer) -> bool:
        """Tell it no more of batches; whether it was told."""
        found = observer in self._observers
        self._observers = [other for other in self._observers if other is not observer]
        return found

    def count(self, done: TaskResult) -> None:
        """A batch was delivered."""
        if not self._batches % _MEASURED:
            self._measured_samples += done.rows
            self._measured_nbytes += count_nbytes(done.batch)
        self._batches += done.batch is not NOTHING
        self._samples += done.rows - self.left_out_log.count_missing(done)
        worker = done.worker
        if worker is not None:
            self._worker_batches[worker] = self._worker_batches.get(worker, 0) + 1
        if done.task is not None and done.batch is not NOTHING:
            self._newest = done.task, done.left_out
        if done.repaired:
            self._repaired_count += len(done.repaired)
            self._repaired.extend(done.repaired)
        if (now_ns := time.perf_counter_ns()) >= self._due_ns:
            self._due_ns, self._worker_cpu_ns = now_ns + _SNAPSHOT_NS, self._read_worker_cpu_ns()
            self._recent.append(replace(self.stats(), earlier=None))
        if self._observers:
            for observer in self._observers:
                observer.delivered(done.rows)

    @property
    def batch_nbytes(self) -> float:
        """Bytes of a delivered batch, from those that were measured; 0.0 before the first."""
        return self._measured_nbytes / max(1, self._measured_samples) * self._samples / max(1, self._batches)

    def list_worker_pids(self) -> list[int]:
        """Return the worker processes of iterators that live."""
        iterators = [iterator for known in self._iterators if (iterator := known()) is not None]
        return [process.pid for iterator in iterators for process in iterator.backend.processes if process.pid]

    def find_repeats(self, order: Order) -> NDArray[np.bool_]:
        """Find the rows of the batch returned last that are to be left out of a metric."""
        epochs = [iterator.epoch.position for known in self._iterators if (iterator := known()) is not None]
        task, left_out = self._newest or (None, ())
        origins = [position.origin for position in epochs if task is not None and position.epoch == task.keys.epoch]
        if task is None or not origins:
            raise ArgumentError("find_repeats() is about the batch returned last: call it in the loop over the loader")
        repeats = order.find_repeats(origins[-1], task.seq, len(task.indices))
        rows = [record.row for record in left_out if record.row is not None]
        if self.left_out_log.on_error != "replace":
            return np.delete(repeats, rows)
        repeats[rows] = True
        return repeats

    def repaired(self) -> list[Repaired]:
        """Return the newest 10,000 images that were repaired, oldest first; a copy."""
        return list(self._repaired)

    def stats(self) -> Stats:
        """Return the statistics of all that the loader has done. Changes nothing: :meth:`count` keeps snapshots."""
        spent = self._spent
        workers, remote = spent.retired, spent.remote
        for trace in spent.traces:
            workers, remote = _sum(workers, trace.total_by_worker()), remote + RemoteStats(**trace.remote())
        total = functools.reduce(_add, workers.values(), dict.fromkeys(STAGES, (0, 0)))
        queues = [iterator.queue() for known in self._iterators if (iterator := known()) is not None]
        each = [WorkerStats(n, make_stages(times), self._worker_batches.get(n, 0)) for n, times in workers.items()]
        now = Stats(
            make_stages(total), self._batches, self._samples, total["wait"][0], self.left_out_log.count,
            self._repaired_count, tuple(each), self._measured_nbytes / max(1, self._measured_samples),
            sum((queue for queue in queues if queue.limit), QueueStats()), time.perf_counter_ns(), remote,
            () if self.tuner is None else tuple(self.tuner.changes), self._measure_epochs(spent),
        )  # fmt: skip
        recent = list(self._recent)
        old = [each for each in recent if now.taken_ns - each.taken_ns >= _RECENT_NS]
        return replace(now, earlier=(old[-1:] or recent[:1])[0]) if recent else now


class PeriodicReport(Observer):
    """One function that is called; a context manager.

    Parameters
    ----------
    counters : LoaderCounters
        Of the loader.
    callback : callable
        Called with the rates since the last call.
    period_s : float
        Least seconds between calls.
    clock : callable
        Gives seconds.

    Raises
    ------
    ArgumentError
        If ``period_s`` is negative, or ``callback`` cannot be called.
    """

    def __init__(
        self,
        counters: LoaderCounters,
        callback: Callable[[LoaderRates], object],
        period_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not callable(callback):
            raise ArgumentError(f"callback must be callable, got {type(callback).__name__}")
        if not period_s >= 0:
            raise ArgumentError(f"period_s must be at least 0, got {period_s}")
        self._counters, self._callback, self._period_s, self._clock = counters, callback, period_s, clock
        self._last = counters.stats()
        self._due = clock() + period_s
        counters.add_observer(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def delivered(self, samples: int) -> None:  # noqa: ARG002  # the counters have counted them
        """Call the function, if it is time to."""
        if self._clock() >= self._due:
            self._report()

    def close(self) -> None:
        """Call the function once more, if there were batches since the last call, and never again. Idempotent."""
        if self._counters.remove_observer(self) and self._counters.stats().batches > self._last.batches:
            self._report()

    def _report(self) -> None:
        now = self._counters.stats()
        rates, self._last = now.since(self._last), now
        self._due = self._clock() + self._period_s
        try:
            self._callback(rates)
        except Exception as error:  # noqa: BLE001  # training goes on: what is reported must not stop it
            self._counters.remove_observer(self)
            warnings.warn(
                f"reports of the loader end: {type(error).__name__}: {error} in {self._callback!r}",
                RuntimeWarning,
                stacklevel=2,
            )


def _sum(a: dict[int, _Times], b: dict[int, _Times]) -> dict[int, _Times]:
    nothing = dict.fromkeys(STAGES, (0, 0))
    return {worker: _add(a.get(worker, nothing), b.get(worker, nothing)) for worker in sorted({*a, *b})}


def _add(a: _Times, b: _Times) -> _Times:
    return {stage: (a[stage][0] + b[stage][0], a[stage][1] + b[stage][1]) for stage in STAGES}


def count_nbytes(batch: Batch) -> int:
    """Bytes of the arrays, text and bytes in a batch's dicts, lists and tuples; of the first 256 values."""
    total, looked_at, waiting = 0, 0, [batch]
    while waiting and looked_at < _MOST:
        value = waiting.pop()
        looked_at += 1
        kind = type(value)
        if kind is np.ndarray:  # the usual kinds first: this is called while an epoch is under way
            total += value.nbytes
        elif kind is dict or (kind is not list and kind is not tuple and isinstance(value, Mapping)):
            waiting.extend(itertools.islice(value.values(), _MOST))
        elif isinstance(value, (list, tuple)):
            waiting.extend(value[:_MOST])
        elif isinstance(value, (str, bytes, bytearray)):
            total += len(value)
        else:
            total += _read_nbytes(value)
    return total


def _read_nbytes(value: object) -> int:
    if type(value).__module__.partition(".")[0] not in _LIBRARIES:
        return 0
    with contextlib.suppress(Exception):  # sparse tensors have none, and say so in several ways
        if isinstance(nbytes := getattr(value, "nbytes", 0), int):
            return nbytes
    return 0
