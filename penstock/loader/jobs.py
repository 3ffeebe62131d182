"""What workers do with a task: fill rows, or build samples and collate, or pull from a stream.

::

    FillJob     dataset.fill(indices, slot's arrays, keys, rows)          the fast path: no samples, no collation
    SampleJob   samples[i] = dataset[index]; collate_fn(samples)          the general path
    StreamJob   next(iterator) under one lock; collate_fn(samples)        iterable datasets

Jobs are shared by threads; a build's rows never overlap. Every job works under its own trace. A worker process has a
copy of the job, which leaves trace, slots and delivery behind and finds its own there (:meth:`_Job.move_in`).
"""

from __future__ import annotations

import copy
import itertools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from penstock.datasets.base import Filler, fetch, located
from penstock.rng import sample_scope
from penstock.sample import SampleKeys, Tree
from penstock.slots import Layout, SlotPool
from penstock.trace import Trace
from penstock.workers.base import END, Done, Task

__all__ = ["FillJob", "Opening", "SampleJob", "StreamJob"]

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Opening:
    """How a worker begins an epoch.

    Parameters
    ----------
    epoch : int
        Which one.
    worker : int
        Whose opening it is.
    samples : int
        How many samples it gave in this epoch before.
    state : dict, optional
        :attr:`Build.state` after these: ``dataset`` and ``iterator`` (their own states, or None), ``ended``.
    resumed : bool
        Whether ``state`` is one of this epoch; else only what the dataset itself remembers is taken from it.
    rng : bytes, optional
        State of a worker process's generators (:func:`penstock.workers.info.rng_state`) to begin with.
    """

    epoch: int = 0
    worker: int = 0
    samples: int = 0
    state: Mapping[str, Any] | None = None
    resumed: bool = True
    rng: bytes | None = None


def _as_it_is(batch: Any) -> Any:
    return batch


class _Job:
    """What all jobs share.

    Parameters
    ----------
    trace : Trace
        Where time is kept; current while a build runs.
    worker_init_fn : callable, optional
        Called with the worker's number in each worker.
    deliver : callable, optional
        The last step, taken where the consumer is.
    openings : mapping, optional
        By worker, how it begins an epoch that is resumed, or whose number matters.
    """

    def __init__(
        self,
        trace: Trace,
        worker_init_fn: Callable[[int], None] | None,
        deliver: Callable[[Any], Any] | None = None,
        openings: Mapping[int, Opening] | None = None,
    ) -> None:
        self.trace = trace
        self._worker_init_fn = worker_init_fn
        self._deliver: Callable[[Any], Any] = deliver or _as_it_is
        self._openings = openings or {}
        self.watch: Callable[[int], None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "trace": None, "_deliver": _as_it_is, "_openings": {}}

    def move_in(self, memory: Any, trace: Trace, watch: Callable[[int], None]) -> None:  # noqa: ARG002  # memory is FillJob's
        """See :class:`~penstock.workers.base.Job`."""
        self.trace, self._deliver, self.watch = trace, _as_it_is, watch

    def start_worker(self, worker: int) -> None:
        """See :class:`~penstock.workers.base.Job`."""
        if self._worker_init_fn is not None:
            self._worker_init_fn(worker)

    def opening(self, worker: int, last: Done | None = None, samples: int = 0) -> Opening:
        """See :class:`~penstock.workers.base.Job`."""
        given = self._openings.get(worker) or Opening(worker=worker)
        if last is None:
            return given
        return Opening(given.epoch, worker, given.samples + samples, last.state, rng=last.rng)

    def open(self, opening: Opening) -> Any:  # noqa: ARG002  # a stream's
        """See :class:`~penstock.workers.base.Job`."""
        return None

    def deliver(self, batch: Any) -> Any:
        """See :class:`~penstock.workers.base.Job`."""
        return self._deliver(batch)


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
        super().__init__(trace, worker_init_fn, deliver)
        self.dataset, self.layout, self.pool = dataset, layout, pool
        self.rows = np.arange(layout.rows, dtype=np.int64)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "pool": None}

    def move_in(self, memory: Any, trace: Trace, watch: Callable[[int], None]) -> None:
        """See :class:`~penstock.workers.base.Job`."""
        super().move_in(memory, trace, watch)
        self.pool = memory

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
    deliver, openings
        As for all jobs.
    stateful : bool
        Whether the dataset's own ``state_dict`` is kept with each batch, if it has one.
    """

    def __init__(
        self,
        trace: Trace,
        worker_init_fn: Any,
        dataset: Any,
        collate: Callable[[Any], Any],
        *,
        batched: bool,
        deliver: Callable[[Any], Any] | None = None,
        openings: Mapping[int, Opening] | None = None,
        stateful: bool = False,
    ) -> None:
        super().__init__(trace, worker_init_fn, deliver, openings)
        self.dataset, self.collate, self.batched = dataset, collate, batched
        self._stateful = stateful and _is_stateful(dataset)

    def open(self, opening: Opening) -> Any:
        """See :class:`~penstock.workers.base.Job`."""
        if self._stateful and opening.state is not None and opening.state["dataset"] is not None:
            self.dataset.load_state_dict(copy.deepcopy(opening.state["dataset"]))
        return self.snapshot()

    def snapshot(self) -> Any:
        """What the dataset says of itself; None if it does not."""
        return _snapshot(self.dataset, None, ended=False) if self._stateful else None

    def begin(self, task: Task) -> _SampleBuild:
        """See :class:`~penstock.workers.base.Job`."""
        return _SampleBuild(self, task)


class _SampleBuild:
    whole = True  # to a worker that builds alone: a dataset's __getitems__ is asked for the batch at once
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
                self._samples[start:stop] = fetch(job.dataset, indices, task.keys[start:stop], job.watch)
            except IndexError as error:
                _note_length(error, job.dataset)
                raise

    def finish(self) -> Any:
        samples, self._samples = self._samples, []
        if self._task.snapshot:
            self.state = self._job.snapshot()
        return _collated(self._job, samples, self._task)


class StreamJob(_Job):
    """Batches of what an iterator yields, in its order, whichever worker pulls.

    Threads pull from one iterator; each process has a replica of its own, which
    :func:`~penstock.workers.get_worker_info` tells its part.

    Parameters
    ----------
    dataset : iterable
        Iterated once per epoch, from its start or from where an opening says: the dataset's own state is restored, or
        the stream is run forward.
    batch_size : int, optional
        Samples per batch; None without auto-batching.
    drop_last : bool
        Leave out a last batch that is short.
    collate : callable
        As for :class:`SampleJob`.
    seed : int
        Part of the samples' keys, with the epoch and each sample's number in the stream.
    first : int, optional
        Number of the epoch's first batch, where batches are numbered as they are pulled; None: by their tasks.
    deliver, openings
        As for all jobs.
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
        *,
        first: int | None = None,
        deliver: Callable[[Any], Any] | None = None,
        openings: Mapping[int, Opening] | None = None,
    ) -> None:
        super().__init__(trace, worker_init_fn, deliver, openings)
        self.dataset, self.collate, self.batched = dataset, collate, batch_size is not None
        self._size, self._drop_last, self._seed = batch_size or 1, drop_last, seed
        self._numbers = None if first is None else itertools.count(first)
        self._epoch = self._samples = self._first_key = 0
        self._lock: Any = None
        self._iterator: Any = None
        self._pending: list[Any] = []

    def open(self, opening: Opening) -> Any:
        """Iterate the dataset, from where ``opening`` says; see :class:`~penstock.workers.base.Job`."""
        self._lock, self._pending = threading.Lock(), []
        self._epoch, self._first_key, self._samples = opening.epoch, opening.worker << 48, 0
        dataset, saved = self.dataset, opening.state
        if saved is not None and saved["dataset"] is not None:
            dataset.load_state_dict(copy.deepcopy(saved["dataset"]))
        self._iterator = iter(dataset)
        if not opening.resumed:
            return self._snapshot(ended=False)
        restored = saved is not None and (saved["dataset"] is not None or saved["iterator"] is not None)
        if saved is not None and saved["iterator"] is not None:
            self._iterator.load_state_dict(copy.deepcopy(saved["iterator"]))
        if not restored and opening.samples:
            _logger.warning(
                "%s has no state_dict: running it forward over %d samples", type(dataset).__name__, opening.samples
            )
            while self._samples < opening.samples:
                self._next(None)
        if saved is not None and saved["ended"]:
            self._iterator = iter(())
        self._samples = opening.samples
        return self._snapshot(ended=False)

    def _snapshot(self, *, ended: bool) -> Any:
        return _snapshot(self.dataset, self._iterator, ended=ended)

    def _next(self, default: Any = END) -> Any:
        """The stream's next sample, built under its own key; ``default`` past the end."""
        with sample_scope(self._seed, self._epoch, self._first_key + self._samples):
            if self.watch is not None:
                self.watch(self._samples)
            self._samples += 1
            return next(self._iterator, default)

    def begin(self, task: Task) -> _StreamBuild:
        """See :class:`~penstock.workers.base.Job`."""
        return _StreamBuild(self, task)

    def pull(self, task: Task) -> _Pulled:
        """The next batch's samples and the stream's state after it.

        If the iterator raises, what it gave before waits for the next batch: only what failed is missing.
        """
        with self._lock:
            seq = task.seq if self._numbers is None else next(self._numbers)
            samples, self._pending = self._pending, []
            ended = False
            try:
                while len(samples) < self._size and (sample := self._next()) is not END:
                    samples.append(sample)
                ended = len(samples) < self._size
            except BaseException as error:  # noqa: BLE001  # handed to the build, which raises it
                self._pending = samples
                return _Pulled(seq, [], error=located(error, sample=self._samples - 1))
            # what a stream says of itself at its end may be its start again
            state = self._snapshot(ended=ended) if task.snapshot or ended else None
            if ended:
                self._iterator = iter(())  # an end is final, also for an iterator that would go on
            if self._drop_last and ended:
                samples = []
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
            pulled = self._job.pull(self._task)
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


def _snapshot(dataset: Any, iterator: Any, *, ended: bool) -> dict[str, Any] | None:
    """What dataset and iterator say of themselves (once, if they are the same object); None if neither does."""
    own = _is_stateful(dataset) and iterator is not dataset
    its = iterator is not None and _is_stateful(iterator)
    if not own and not its:
        return None
    return {
        "dataset": copy.deepcopy(dataset.state_dict()) if own else None,
        "iterator": copy.deepcopy(iterator.state_dict()) if its else None,
        "ended": ended,
    }


def _collated(job: SampleJob | StreamJob, samples: list[Any], task: Task) -> Any:
    start = time.perf_counter_ns()
    try:
        return job.deliver(job.collate(samples if job.batched else samples[0]))
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
