"""What all jobs have in common: the trace, the start of a worker, collation, and where an error happened."""

from __future__ import annotations

import contextlib
import copy
import logging
import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Self, TypeGuard, cast

import numpy as np

from penstock.datasets.base import has_prefetch, prefetch
from penstock.datasets.error_location import add_location
from penstock.datasets.seeded_libraries import find_seeders
from penstock.datasets.streams.division import StatefulObject
from penstock.rng import batch_scope, seed_batch, seeding_globals
from penstock.sample import Batch, DatasetLike, Index, Sample, State, Watch
from penstock.trace import Observer, Trace, counting
from penstock.workers.base import NOTHING, BatchBuild, Indices, Job, Task, TaskResult, WorkerStart, name_rows
from penstock.workers.left_out import SampleRules
from penstock.workers.slow_samples import SlowSamples

__all__ = [
    "LoaderJob",
    "ObservedWatch",
    "ReadTimer",
    "chunk_location",
    "collate_samples",
    "count_requested",
    "is_stateful",
    "note_length",
    "take_snapshot",
    "take_snapshot_at_start",
]

_logger = logging.getLogger(__name__)

_NEEDLESS, _RARELY = 16, 16
"""After so many calls of ``prefetch`` in a row that found nothing to read, it is called once in so many batches."""


def _unchanged(batch: Batch) -> Batch:
    return batch


class LoaderJob(Job):
    """Base of all jobs.

    Parameters
    ----------
    trace : Trace
        Records times; active while a build runs.
    worker_init_fn : callable, optional
        Called with the worker's number in each worker.
    deliver : callable, optional
        The last step, called in the consumer's process.
    worker_starts : mapping, optional
        By worker, how it starts an epoch that is resumed, or whose number matters.
    rules : SampleRules, optional
        What is done about samples that fail, and how random generators are seeded.
    """

    batched = True
    collate: Callable[[Sample], Batch] | None = None

    def __init__(
        self,
        trace: Trace,
        worker_init_fn: Callable[[int], None] | None,
        deliver: Callable[[Batch], Batch] | None = None,
        worker_starts: Mapping[int, WorkerStart] | None = None,
        rules: SampleRules | None = None,
    ) -> None:
        self.trace, self.observer = trace, trace.observer
        self.rules = rules or SampleRules()
        self._worker_init_fn = worker_init_fn
        self._deliver: Callable[[Batch], Batch] = deliver or _unchanged
        self._epoch_starts = worker_starts or {}
        self.watch: Watch | None = None
        self.in_worker_process = self.prefetches = False
        self._needless = 0
        self._seeders: Sequence[Callable[[int], None]] | None = None

    @property
    def tolerant(self) -> bool:
        """Whether the rules allow a batch without some of its samples."""
        return self.rules.tolerant

    @property
    def seeds_globals(self) -> bool:
        """Whether the rules say that samples or batches do."""
        return self.rules.seed_per_sample or self.rules.seed_per_batch

    def __getstate__(self) -> dict[str, object]:
        return {
            **self.__dict__,
            "trace": None,
            "_deliver": _unchanged,
            "_epoch_starts": {},
            "_seeders": None,
            "watch": None,
        }

    def attach(self, memory: object, trace: Trace, watch: Watch) -> None:  # noqa: ARG002  # memory is FillJob's
        """Use the trace and the watch of a worker process; the batch is delivered by the parent."""
        self.trace, self._deliver = trace, _unchanged
        trace.observer = self.observer
        self.watch, self.in_worker_process = watch, True
        if self.slow is not None:
            self.slow = SlowSamples()  # a forked process has those of its parent

    def start_worker(self, worker: int) -> None:
        """Tell the observer of the worker, and call ``worker_init_fn``."""
        if self.observer is not None:
            self.observer.start_worker(worker, is_process=self.in_worker_process)
        if self._worker_init_fn is not None:
            self._worker_init_fn(worker)

    def worker_start(self, worker: int, last: TaskResult | None = None, samples: int = 0) -> WorkerStart:
        """Return how the worker starts: as the epoch says, or after the last batch of the worker that it replaces."""
        given = self._epoch_starts.get(worker) or WorkerStart(worker=worker)
        if last is None:
            return given
        return WorkerStart(given.epoch, worker, given.samples + samples, last.state, rng=last.rng)

    def start_epoch(self, start: WorkerStart) -> State:  # noqa: ARG002  # a stream's
        """Decide whether the dataset is asked to look ahead."""
        self.prefetches = has_prefetch(self.dataset)
        return None

    def begin(self, task: Task) -> BatchBuild:
        """Begin a batch by :meth:`make_build`, and wrap it where its samples are timed or observed."""
        if self.observer is not None and not isinstance(self.watch, ObservedWatch):
            self.watch = ObservedWatch(self.watch, self.observer)
        if self.in_worker_process and self.rules.seed_per_batch:
            seed_batch(task.keys, task.seq, self._find_seeders())
        build = self.make_build(task)
        if self.slow is not None and self.slow.is_due(build.rows):
            build = self._time(build, task, self.slow)
        if self.observer is None:
            return build
        return cast("BatchBuild", _ObservedBuild(build, self.observer, task))

    def _time(self, build: BatchBuild, task: Task, slow: SlowSamples) -> BatchBuild:
        """A build whose samples are timed one by one; of a stream, all together."""
        build.tell(slow)
        timed = _ObservedBuild(build, slow, task)
        if not build.whole:
            timed.most_rows = 1
        return cast("BatchBuild", timed)

    @abstractmethod
    def make_build(self, task: Task) -> BatchBuild:
        """Begin a batch; each kind of job has its own."""

    def prefetch(self, task: Task) -> None:
        """Have the dataset look ahead to the samples of ``task``. Asks rarely while the dataset has nothing to read."""
        if self._needless >= _NEEDLESS and self._needless % _RARELY:
            self._needless += 1
            return
        indices = task.indices.tolist() if isinstance(task.indices, np.ndarray) else list(task.indices)
        try:
            with counting(self.trace):
                self._needless = 0 if prefetch(self.dataset, indices) else self._needless + 1
        except Exception:  # whatever a dataset raises: building the batch raises it again, if it matters
            _logger.debug("prefetch of batch %d failed", task.seq, exc_info=True)

    def deliver(self, batch: Batch) -> Batch:
        """Apply the last step of delivery to a batch that has samples."""
        return batch if batch is NOTHING else self._deliver(batch)

    def seeding(self) -> AbstractContextManager[None]:
        """A context in which global generators are seeded for each sample and each collation, if the rules say so."""
        if not self.rules.seed_per_sample:
            return contextlib.nullcontext()
        put_back = not self.in_worker_process  # where nothing else uses them
        return seeding_globals(put_back=put_back, others=self._find_seeders())

    def _find_seeders(self) -> Sequence[Callable[[int], None]]:
        if self._seeders is None:
            self._seeders = find_seeders([("dataset", self.dataset), ("collate_fn", self.collate)])
        return self._seeders


class ObservedWatch:
    """A watch that also tells an observer."""

    def __init__(self, watch: Watch | None, observer: Observer) -> None:
        self._watch, self._observer = watch, observer

    def __call__(self, place: int, count: int = 1) -> None:
        """Tell the watch and the observer of a call."""
        if self._watch is not None:
            self._watch(place, count)
        self._observer.begin_sample(place, count)


class _ObservedBuild:
    """A build that tells an observer what is done; all else is the build's own."""

    def __init__(self, build: BatchBuild, observer: Observer, task: Task) -> None:
        self._build, self._observer, self._task = build, observer, task
        self._begun_ns = 0
        self.most_rows = build.most_rows

    def __getattr__(self, name: str) -> object:
        return getattr(self._build, name)

    def run(self, start: int, stop: int) -> None:
        """Build rows, and tell the observer when the part begins and ends."""
        self._begun_ns = self._begun_ns or time.perf_counter_ns()
        indices = self._task.indices
        part: Indices = indices[start:stop] if isinstance(indices, (list, tuple, np.ndarray)) else ()
        self._observer.begin_part(self._task.seq, part)
        try:
            self._build.run(start, stop)
        finally:
            self._observer.end_part(self._build.count_samples(start, stop))

    def finish(self) -> Batch:
        """Make the batch, and tell the observer when collation begins and ends."""
        self._begun_ns = self._begun_ns or time.perf_counter_ns()
        self._observer.begin_collation(self._task.seq)
        try:
            return self._build.finish()
        finally:
            self._observer.end_batch(self._build.rows, self._begun_ns)


class ReadTimer:
    """Adds the time of building samples to stage ``read``, without what the dataset itself adds to a stage."""

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
        self.trace.add_rest("read", max(0, spent - traced), 0 if traced else self.items)
        self.trace.deactivate()


def is_stateful(value: object) -> TypeGuard[StatefulObject]:
    """Return whether a dataset or iterator has a state of its own."""
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def take_snapshot_at_start(dataset: DatasetLike, iterator: object = None) -> State:
    """:func:`take_snapshot` before the first sample; None if it fails: many have no state before their first sample."""
    try:
        return take_snapshot(dataset, iterator, ended=False)
    except Exception:  # whatever their state_dict raises: no sample is lost
        _logger.debug("no state before the first sample of %s", type(dataset).__name__, exc_info=True)
        return None


def take_snapshot(dataset: DatasetLike, iterator: object, *, ended: bool) -> State:
    """The states of dataset and iterator (once, if they are the same object); None if neither has one."""
    owner = None if iterator is dataset else dataset
    if not is_stateful(owner) and not is_stateful(iterator):
        return None
    return {
        "dataset": copy.deepcopy(owner.state_dict()) if is_stateful(owner) else None,
        "iterator": copy.deepcopy(iterator.state_dict()) if is_stateful(iterator) else None,
        "ended": ended,
    }


def collate_samples(job: LoaderJob, samples: Sample, task: Task, seq: int, key: int | None = None) -> Batch:
    """The batch of ``samples`` (a list, or what ``__getitems__`` returned); an error names the batch and its indices.

    ``key`` is the batch's random key, besides seed and epoch; None: ``seq``.
    """
    assert job.collate is not None, "a job that builds samples collates them"
    count = len(task.indices) or len(samples)
    if job.watch is not None:
        job.watch(-1, count if job.batched or not len(task.indices) else count_requested(task.indices[0]))
    start = time.perf_counter_ns()
    try:
        with job.seeding(), batch_scope(task.keys.seed, task.keys.epoch, seq if key is None else key):
            return job.deliver(job.collate(samples if job.batched else samples[0]))
    except BaseException as error:  # noqa: BLE001  # raised again, with its place
        if _asks_for_tensors(error):
            error.add_note("penstock.StoreDataset gives arrays, penstock.torch.StoreDataset tensors")
        raise add_location(error, batch=seq, **name_rows(task, 0, len(task.indices)))  # noqa: B904  # the same object, or one that is chained
    finally:
        job.trace.add("collate", time.perf_counter_ns() - start, count)


def _asks_for_tensors(error: BaseException) -> bool:
    """Whether code was given an array and needs a tensor: by what torch says, or by an attribute of tensors alone."""
    if isinstance(error, AttributeError) and isinstance(error.obj, np.ndarray):
        return hasattr(getattr(sys.modules.get("torch"), "Tensor", None), error.name or "")
    return isinstance(error, TypeError) and "Tensor" in str(error) and "ndarray" in str(error)


def count_requested(index: Index) -> int:
    """Return how many samples ``dataset[index]`` asks for: with a batch sampler in place of a sampler, several."""
    return max(1, len(index)) if isinstance(index, list) or (isinstance(index, np.ndarray) and index.ndim) else 1


def chunk_location(error: BaseException, task: Task, start: int, stop: int) -> dict[str, object]:
    """Return where a chunk failed, for :func:`~.error_location.add_location`; empty if the error names the sample."""
    where = getattr(error, "where", {})
    return {} if "index" in where else name_rows(task, start, stop)


def note_length(error: IndexError, dataset: DatasetLike) -> None:
    """Add a note with ``len(dataset)`` to an IndexError of an index that is below it."""
    try:
        count = len(dataset)
    except (TypeError, NotImplementedError):
        return
    error.add_note(f"len(dataset) is {count}; a dataset must have every index below its length")
