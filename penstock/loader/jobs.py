"""What workers do with a task: fill rows, or build samples and collate, or pull from a stream.

::

    FillJob     dataset.fill(indices, slot's arrays, keys, rows)          the fast path: no samples, no collation
    SampleJob   samples[i] = dataset[index]; collate_fn(samples)          the general path
    StreamJob   next(iterator) under one lock; collate_fn(samples)        iterable datasets

Jobs are shared by threads; a build's rows never overlap. Every job works under its own trace.
"""

from __future__ import annotations

import copy
import itertools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from penstock.datasets.base import Filler, fetch, located
from penstock.loader.state import Progress
from penstock.rng import sample_scope
from penstock.sample import SampleKeys, Tree
from penstock.slots import Layout, SlotPool
from penstock.trace import Trace
from penstock.workers.base import Task

__all__ = ["END", "FillJob", "SampleJob", "StreamJob"]

END = object()
"""The batch of a task that found its stream at an end."""

_logger = logging.getLogger(__name__)


class _Job:
    """What all jobs share.

    Parameters
    ----------
    trace : Trace
        Where time is kept; current while a build runs.
    worker_init_fn : callable, optional
        Called with the worker's number in each worker.
    """

    def __init__(self, trace: Trace, worker_init_fn: Callable[[int], None] | None) -> None:
        self.trace = trace
        self._worker_init_fn = worker_init_fn

    def start_worker(self, worker: int) -> None:
        """See :class:`~penstock.workers.base.Job`."""
        if self._worker_init_fn is not None:
            self._worker_init_fn(worker)


class FillJob(_Job):
    """Batches that a dataset fills by itself.

    Parameters
    ----------
    dataset : Filler
        Fills chunks, from several threads at once.
    layout : Layout
        Of a full batch; a longer one (from a batch sampler) gets its own.
    pool : SlotPool
        Where slots come from.
    deliver : callable
        From the arrays, in the sample's structure, to what the user gets.
    """

    def __init__(
        self,
        trace: Trace,
        worker_init_fn: Any,
        dataset: Filler,
        layout: Layout,
        pool: SlotPool,
        deliver: Callable[[Tree], Any],
    ) -> None:
        super().__init__(trace, worker_init_fn)
        self.dataset, self.layout, self.pool, self.deliver = dataset, layout, pool, deliver
        self.rows = np.arange(layout.rows, dtype=np.int64)

    def begin(self, task: Task) -> _FillBuild:
        """Lease a slot; see :class:`~penstock.workers.base.Job`."""
        return _FillBuild(self, task)


class _FillBuild:
    __slots__ = ("_arrays", "_job", "_rows", "_task", "rows", "seq", "state")

    def __init__(self, job: FillJob, task: Task) -> None:
        self._job, self._task = job, task
        self.seq, self.rows, self.state = task.seq, len(task.indices), None
        layout, self._rows = job.layout, job.rows
        if self.rows > layout.rows:
            layout, self._rows = layout.resized(self.rows), np.arange(self.rows, dtype=np.int64)
        self._arrays: Tree = layout.arrays(job.pool.take(layout.nbytes), self.rows)

    def run(self, start: int, stop: int) -> None:
        job, task = self._job, self._task
        job.trace.activate()
        try:
            job.dataset.fill(
                task.indices[start:stop],
                self._arrays,
                SampleKeys(task.keys.seed, task.keys.epoch, task.keys.indices[start:stop]),
                self._rows[start:stop],
            )
        except BaseException as error:  # noqa: BLE001  # raised again, with its place
            if isinstance(error, IndexError):
                _note_length(error, job.dataset)
            raise located(error, **_place(error, task, start, stop))  # noqa: B904  # the same object, or one that is chained
        finally:
            job.trace.deactivate()

    def finish(self) -> Any:
        arrays, self._arrays = self._arrays, None
        return self._job.deliver(arrays)


class SampleJob(_Job):
    """Batches of samples that are built one by one and collated.

    Parameters
    ----------
    dataset : dataset
        Any map-style dataset.
    collate : callable
        From the list of samples to the batch; from the one sample without auto-batching.
    batched : bool
        Whether samples come in batches.
    """

    def __init__(
        self, trace: Trace, worker_init_fn: Any, dataset: Any, collate: Callable[[Any], Any], *, batched: bool
    ) -> None:
        super().__init__(trace, worker_init_fn)
        self.dataset, self.collate, self.batched = dataset, collate, batched

    def begin(self, task: Task) -> _SampleBuild:
        """See :class:`~penstock.workers.base.Job`."""
        return _SampleBuild(self, task)


class _SampleBuild:
    __slots__ = ("_job", "_samples", "_task", "rows", "seq", "state")

    def __init__(self, job: SampleJob, task: Task) -> None:
        self._job, self._task = job, task
        self.seq, self.rows, self.state = task.seq, len(task.indices), None
        self._samples: list[Any] = [None] * self.rows

    def run(self, start: int, stop: int) -> None:
        job, task = self._job, self._task
        indices = task.indices[start:stop]
        if isinstance(indices, np.ndarray):
            indices = indices.tolist()
        with _Reading(job.trace, len(indices)):
            try:
                self._samples[start:stop] = fetch(job.dataset, indices, task.keys[start:stop])
            except IndexError as error:
                _note_length(error, job.dataset)
                raise

    def finish(self) -> Any:
        samples, self._samples = self._samples, []
        return _collated(self._job, samples, self._task)


class StreamJob(_Job):
    """Batches of what an iterator yields, in its order, whichever worker pulls.

    Parameters
    ----------
    dataset : iterable
        Iterated once, from the start of the epoch or from where ``progress`` stands.
    batch_size : int, optional
        Samples per batch; None without auto-batching.
    drop_last : bool
        Leave out a last batch that is short.
    collate : callable
        As for :class:`SampleJob`.
    seed : int
        Part of the samples' keys, with the epoch and each sample's number in the stream.
    progress : Progress
        Where the epoch stands. The dataset's own state is restored, or the stream is run forward.
    """

    def __init__(
        self,
        trace: Trace,
        worker_init_fn: Any,
        dataset: Any,
        batch_size: int | None,
        drop_last: bool,
        collate: Callable[[Any], Any],
        seed: int,
        progress: Progress,
    ) -> None:
        super().__init__(trace, worker_init_fn)
        self.collate, self.batched = collate, batch_size is not None
        self._size, self._drop_last = batch_size or 1, drop_last
        self._seed, self._epoch = seed, progress.epoch
        self._lock = threading.Lock()
        self._batches, self._samples = itertools.count(progress.batches), 0
        self._pending: list[Any] = []
        saved = progress.dataset
        if saved is not None and saved["of"] == "dataset":
            dataset.load_state_dict(copy.deepcopy(saved["state"]))
        self._iterator: Any = iter(dataset)
        if saved is not None and saved["of"] == "iterator":
            self._iterator.load_state_dict(copy.deepcopy(saved["state"]))
        self._owner, self._owned = (
            (self._iterator, "iterator") if _is_stateful(self._iterator) else (dataset, "dataset")
        )
        if not _is_stateful(self._owner):
            self._owner = None
        if saved is None and progress.samples:
            _logger.warning(
                "%s has no state_dict: running it forward over %d samples", type(dataset).__name__, progress.samples
            )
            while self._samples < progress.samples:
                self._next(None)
        if saved is not None and saved["ended"]:
            self._iterator = iter(())
        self._samples = progress.samples

    def _next(self, default: Any = END) -> Any:
        """The stream's next sample, built under its own key; ``default`` past the end."""
        with sample_scope(self._seed, self._epoch, self._samples):
            self._samples += 1
            return next(self._iterator, default)

    def begin(self, task: Task) -> _StreamBuild:
        """See :class:`~penstock.workers.base.Job`."""
        return _StreamBuild(self, task)

    def pull(self) -> _Pulled:
        """The next batch's samples and the owner's state after it.

        If the iterator raises, what it gave before waits for the next batch: only what failed is missing.
        """
        with self._lock:
            seq = next(self._batches)
            samples, self._pending = self._pending, []
            try:
                while len(samples) < self._size and (sample := self._next()) is not END:
                    samples.append(sample)
                if len(samples) < self._size:
                    self._iterator = iter(())  # an end is final, also for an iterator that would go on
            except BaseException as error:  # noqa: BLE001  # handed to the build, which raises it
                self._pending = samples
                return _Pulled(seq, [], error=located(error, sample=self._samples - 1))
            if self._drop_last and len(samples) < self._size:
                samples = []
            state = None
            if self._owner is not None:
                ended = len(samples) < self._size  # what a stream says of itself then may be its start again
                state = {"of": self._owned, "state": copy.deepcopy(self._owner.state_dict()), "ended": ended}
            return _Pulled(seq, samples, state)


@dataclass(slots=True)
class _Pulled:
    seq: int
    samples: list[Any]
    state: Any = None
    error: BaseException | None = None


class _StreamBuild:
    __slots__ = ("_job", "_samples", "_task", "rows", "seq", "state")

    def __init__(self, job: StreamJob, task: Task) -> None:
        self._job, self._task = job, task
        self.seq, self.rows, self.state = task.seq, 1, None
        self._samples: list[Any] = []

    def run(self, start: int, stop: int) -> None:  # noqa: ARG002  # one row: the pull
        with _Reading(self._job.trace, 0) as reading:
            pulled = self._job.pull()
            reading.items = len(pulled.samples)
        self.seq, self._samples, self.state = pulled.seq, pulled.samples, pulled.state
        if pulled.error is not None:
            raise pulled.error

    def finish(self) -> Any:
        samples, self._samples = self._samples, []
        self.rows = len(samples)
        return _collated(self._job, samples, self._task) if samples else END


class _Reading:
    """Times the making of samples as stage ``read``, less what the dataset itself has put under a stage."""

    __slots__ = ("_start", "_traced", "items", "trace")

    def __init__(self, trace: Trace, items: int) -> None:
        self.trace, self.items = trace, items

    def __enter__(self) -> Self:
        self.trace.activate()
        self._traced = self.trace.thread_ns()
        self._start = time.perf_counter_ns()
        return self

    def __exit__(self, *exc: object) -> None:
        spent, traced = time.perf_counter_ns() - self._start, self.trace.thread_ns() - self._traced
        self.trace.add("read", max(0, spent - traced), 0 if traced else self.items)
        self.trace.deactivate()


def _is_stateful(what: Any) -> bool:
    return hasattr(what, "state_dict") and hasattr(what, "load_state_dict")


def _collated(job: SampleJob | StreamJob, samples: list[Any], task: Task) -> Any:
    start = time.perf_counter_ns()
    try:
        return job.collate(samples if job.batched else samples[0])
    except BaseException as error:  # noqa: BLE001  # raised again, with its place
        raise located(error, batch=task.seq, **_between(task, 0, len(task.indices)))  # noqa: B904  # the same object, or one that is chained
    finally:
        job.trace.add("collate", time.perf_counter_ns() - start, len(samples))


def _place(error: BaseException, task: Task, start: int, stop: int) -> dict[str, Any]:
    """Where a chunk failed; the sample itself if the error says which row of the chunk it was."""
    where = getattr(error, "where", {})
    return {} if "index" in where else _between(task, start, stop)


def _between(task: Task, start: int, stop: int) -> dict[str, Any]:
    indices = list(task.indices[start:stop])
    shown = [int(i) if isinstance(i, np.integer) else i for i in indices]
    if len(shown) == 1:
        return {"index": shown[0]}
    return (
        {"indices": shown if len(shown) <= 16 else f"{shown[0]} to {shown[-1]} ({len(shown)} in all)"} if shown else {}
    )


def _note_length(error: IndexError, dataset: Any) -> None:
    """An index that the dataset itself promised: say both numbers."""
    try:
        count = len(dataset)
    except (TypeError, NotImplementedError):
        return
    error.add_note(f"len(dataset) is {count}; a dataset must have every index below its length")
