"""What all jobs share: a trace, a beginning in each worker, and how an error says where it happened."""

from __future__ import annotations

import contextlib
import copy
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

import numpy as np

from penstock.datasets.base import has_prefetch, located, prefetch
from penstock.datasets.libraries import find_seeders
from penstock.loader.faults import Rules
from penstock.rng import batch_scope, seeding_globals
from penstock.sample import State, Watch
from penstock.trace import Trace
from penstock.workers.base import NOTHING, Done, EpochStart, Job, Task, name_rows

__all__ = [
    "LoaderJob",
    "Reading",
    "asked_by",
    "collated",
    "is_stateful",
    "note_length",
    "place",
    "snapshot",
    "snapshot_before",
]

_logger = logging.getLogger(__name__)


def _as_it_is(batch: Any) -> Any:
    return batch


class LoaderJob(Job):
    """What all jobs share.

    Parameters
    ----------
    trace : Trace
        Where time is kept; current while a build runs.
    worker_init_fn : callable, optional
        Called with the worker's number in each worker.
    deliver : callable, optional
        The last step, taken where the consumer is.
    epoch_starts : mapping, optional
        By worker, how it begins an epoch that is resumed, or whose number matters.
    rules : Rules, optional
        What becomes of samples that fail, and how random generators are seeded.
    """

    dataset: Any
    collate: Any = None

    def __init__(
        self,
        trace: Trace,
        worker_init_fn: Callable[[int], None] | None,
        deliver: Callable[[Any], Any] | None = None,
        epoch_starts: Mapping[int, EpochStart] | None = None,
        rules: Rules | None = None,
    ) -> None:
        self.trace = trace
        self.rules = rules or Rules()
        self._worker_init_fn = worker_init_fn
        self._deliver: Callable[[Any], Any] = deliver or _as_it_is
        self._epoch_starts = epoch_starts or {}
        self.watch: Watch | None = None
        self.in_worker_process = self.prefetches = False
        self._seeders: Sequence[Callable[[int], None]] | None = None

    @property
    def tolerant(self) -> bool:
        """Whether batches may come without some of their samples."""
        return self.rules.tolerant

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "trace": None,
            "_deliver": _as_it_is,
            "_epoch_starts": {},
            "_seeders": None,
            "watch": None,
        }

    def attach(self, memory: Any, trace: Trace, watch: Watch) -> None:  # noqa: ARG002  # memory is FillJob's
        """See :class:`~penstock.workers.base.Job`."""
        self.trace, self._deliver = trace, _as_it_is
        self.watch, self.in_worker_process = watch, True

    def start_worker(self, worker: int) -> None:
        """See :class:`~penstock.workers.base.Job`."""
        if self._worker_init_fn is not None:
            self._worker_init_fn(worker)

    def epoch_start(self, worker: int, last: Done | None = None, samples: int = 0) -> EpochStart:
        """See :class:`~penstock.workers.base.Job`."""
        given = self._epoch_starts.get(worker) or EpochStart(worker=worker)
        if last is None:
            return given
        return EpochStart(given.epoch, worker, given.samples + samples, last.state, rng=last.rng)

    def start_epoch(self, start: EpochStart) -> State:  # noqa: ARG002  # a stream's
        """See :class:`~penstock.workers.base.Job`."""
        self.prefetches = has_prefetch(self.dataset)
        return None

    def prefetch(self, task: Task) -> None:
        """See :class:`~penstock.workers.base.Job`."""
        indices = task.indices.tolist() if isinstance(task.indices, np.ndarray) else list(task.indices)
        try:
            prefetch(self.dataset, indices)
        except Exception:  # whatever a dataset raises: building the batch raises it again, if it matters
            _logger.debug("prefetch of batch %d failed", task.seq, exc_info=True)

    def deliver(self, batch: Any) -> Any:
        """See :class:`~penstock.workers.base.Job`."""
        return batch if batch is NOTHING else self._deliver(batch)

    def seeding(self) -> AbstractContextManager[None]:
        """Where samples are built and collated: with global generators seeded for each, if the rules say so."""
        if not self.rules.seed_per_sample:
            return contextlib.nullcontext()
        if self._seeders is None:
            self._seeders = find_seeders([("dataset", self.dataset), ("collate_fn", self.collate)])
        put_back = not self.in_worker_process  # which has them for itself
        return seeding_globals(put_back=put_back, others=self._seeders)


class Reading:
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


def is_stateful(what: Any) -> bool:
    """Whether a dataset or iterator keeps a state of its own."""
    return hasattr(what, "state_dict") and hasattr(what, "load_state_dict")


def snapshot_before(dataset: Any, iterator: Any = None) -> dict[str, Any] | None:
    """:func:`snapshot` before the first sample; None also where they fail: many know where they are only after it."""
    try:
        return snapshot(dataset, iterator, ended=False)
    except Exception:  # whatever their state_dict raises, nothing was taken from them yet
        _logger.debug("no state before the first sample of %s", type(dataset).__name__, exc_info=True)
        return None


def snapshot(dataset: Any, iterator: Any, *, ended: bool) -> dict[str, Any] | None:
    """What dataset and iterator say of themselves (once, if they are the same object); None if neither does."""
    own = is_stateful(dataset) and iterator is not dataset
    its = iterator is not None and is_stateful(iterator)
    if not own and not its:
        return None
    return {
        "dataset": copy.deepcopy(dataset.state_dict()) if own else None,
        "iterator": copy.deepcopy(iterator.state_dict()) if its else None,
        "ended": ended,
    }


def collated(job: Any, samples: Any, task: Task, seq: int, key: int | None = None) -> Any:
    """The batch of ``samples`` (a list, or what a dataset gave for one); an error names the batch and its indices.

    ``key``: what its randomness hangs on, besides seed and epoch; None: ``seq``.
    """
    count = len(task.indices) or len(samples)
    if job.watch is not None:
        job.watch(-1, count if job.batched or not len(task.indices) else asked_by(task.indices[0]))
    start = time.perf_counter_ns()
    try:
        with job.seeding(), batch_scope(task.keys.seed, task.keys.epoch, seq if key is None else key):
            return job.deliver(job.collate(samples if job.batched else samples[0]))
    except BaseException as error:  # noqa: BLE001  # raised again, with its place
        raise located(error, batch=seq, **name_rows(task, 0, len(task.indices)))  # noqa: B904  # the same object, or one that is chained
    finally:
        job.trace.add("collate", time.perf_counter_ns() - start, count)


def asked_by(index: Any) -> int:
    """How many samples ``dataset[index]`` asks for: a batch sampler may stand where a sampler does."""
    return max(1, len(index)) if isinstance(index, list) or (isinstance(index, np.ndarray) and index.ndim) else 1


def place(error: BaseException, task: Task, start: int, stop: int) -> dict[str, Any]:
    """Where a chunk failed; the sample itself if the error says which row of the chunk it was."""
    where = getattr(error, "where", {})
    return {} if "index" in where else name_rows(task, start, stop)


def note_length(error: IndexError, dataset: Any) -> None:
    """An index that the dataset itself promised: say both numbers."""
    try:
        count = len(dataset)
    except (TypeError, NotImplementedError):
        return
    error.add_note(f"len(dataset) is {count}; a dataset must have every index below its length")
