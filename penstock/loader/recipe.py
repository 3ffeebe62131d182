"""What ``iter(loader)`` decides: the dataset, what is done with it, by which workers, in which memory.

====================  =========  =============================================
dataset               workers    job
====================  =========  =============================================
fills rows            threads    rows are written into slots
any other, map-style  processes  samples are built and collated
stream                processes  each process iterates a replica of the stream
any                   ray        as processes
====================  =========  =============================================
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.context import BaseContext

from penstock.loader.counters import LoaderCounters
from penstock.loader.order import Order
from penstock.loader.tuning import LoaderTuner, count_most
from penstock.sample import Batch, DatasetLike, Sample, StateDict, Tree
from penstock.trace import Trace
from penstock.workers import BACKENDS, Backend, Capabilities, Job
from penstock.workers.jobs import FillJob, SampleJob, StreamJob, WorkerStart
from penstock.workers.left_out import SampleRules
from penstock.workers.ray.options import RayWorkers
from penstock.workers.slots import BatchLayout, PageLock, SlotPool

__all__ = ["Filling", "IdleWorkers", "Memory", "Recipe", "Settings", "Workers", "count_batches_under_way"]


def count_batches_under_way(num_workers: int, prefetch_factor: int | None) -> int:
    """Most batches of a loader that are built or ready, and not delivered."""
    return count_most(num_workers) * (prefetch_factor or 0) or 1


class Memory:
    """A loader's slots, which outlive its epochs; allocated when they are first needed."""

    def __init__(self) -> None:
        self.pool: SlotPool | None = None

    def slots(self, keep: int, page_lock: PageLock | None = None) -> SlotPool:
        """Return the pool, made by the first call."""
        if self.pool is None:
            self.pool = SlotPool(keep=keep, page_lock=page_lock)
        return self.pool


class IdleWorkers:
    """A backend whose workers wait for the next epoch of a loader with ``persistent_workers``."""

    def __init__(self) -> None:
        self._backend: Backend | None = None
        self._pid = os.getpid()

    def take(self) -> Backend | None:
        """Return the backend, which is the caller's now; None if there is none, or in a forked child."""
        backend, self._backend = self._backend, None
        if self._pid != os.getpid():  # threads stay behind in a fork
            self._pid, backend = os.getpid(), None
        return backend

    def put(self, backend: Backend) -> None:
        """Keep a backend; close it if there is one already."""
        if self._backend is None:
            backend.pause()
            self._backend = backend
        else:
            backend.close()

    def close(self) -> None:
        """Stop the workers. Idempotent."""
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()


@dataclass(slots=True)
class Settings:
    """What an iterator reads of its loader; made by each ``iter()``. It does not hold the loader."""

    order: Order  # of the samples
    num_workers: int  # the loader's
    in_order: bool
    timeout: float
    stall_timeout: float | None
    persistent: bool  # whether workers outlive an epoch
    counters: LoaderCounters  # the loader's own
    count_batches: Callable[[], int]  # ``len(loader)``
    seed: int | None = None
    idle: IdleWorkers | None = None  # where workers go at the end; None: a persistent iterator keeps its own
    snapshot_every: int | None = 1  # batches between two states of worker processes; None or 0: only their first
    begin_next: weakref.WeakMethod[Callable[[], None]] | None = None  # begins the next epoch early
    reported_length: int | None = None  # what ``len(dataset)`` was when ``len(loader)`` was called
    view: bool = False  # whether viewers are told
    tuner: LoaderTuner | None = None  # the loader's, where it chooses its workers, or how far ahead they are

    @property
    def patience_s(self) -> float | None:
        """Seconds to wait for workers without any progress; None: without limit."""
        return self.timeout or self.stall_timeout


@dataclass(frozen=True, slots=True)
class Workers:
    """Which workers build the batches."""

    kind: str  # name of the backend
    num_workers: int  # the most that there may be
    chunk_size: int | None = None
    context: BaseContext | RayWorkers | None = None  # how isolated workers are started
    init_fn: Callable[[int], None] | None = None
    page_lock: PageLock | None = None  # locks the memory in which batches arrive

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the backend."""
        found: Capabilities = BACKENDS.get(self.kind).capabilities
        return found

    @property
    def processes(self) -> int:
        """Worker processes; 0 where batches are built in this process."""
        return self.num_workers if self.capabilities.isolated else 0

    def make_backend(self, base_seed: int) -> Backend:
        """Return a backend of this kind, not started; worker ``i`` gets torch's seeds for ``base_seed + i``."""
        backend: Backend = BACKENDS.get(self.kind)(
            self.num_workers, self.chunk_size, context=self.context, base_seed=base_seed, page_lock=self.page_lock
        )
        return backend


@dataclass(frozen=True, slots=True)
class Filling:
    """Where a dataset writes rows, and what becomes of them."""

    layout: BatchLayout  # of a full batch, where its rows are known; else of one row
    pool: SlotPool
    deliver: Callable[[Tree], Batch]  # from filled arrays to what the user gets
    make_job: Callable[..., Job] = FillJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What one ``iter()`` decides; kept as long as its workers."""

    workers: Workers
    limit: int  # most batches under way or ready
    dataset: DatasetLike  # the job's
    is_stream: bool  # whether the dataset is iterated; whether samples come in batches
    batched: bool
    collate: Callable[[Sample], Batch]  # from the list of samples to the batch; without batches from the one sample
    rules: SampleRules  # what becomes of samples that fail, and how random generators are seeded
    filling: Filling | None = None  # if the dataset fills rows
    batch_size: int | None = None  # of a stream's batches
    drop_last: bool = False
    deliver: Callable[[Batch], Batch] | None = None  # from a built batch to what the user gets
    receive: Callable[[Batch], None] | None = None  # called with each batch by the consumer
    returns_as_given: bool = False  # whether what ``__getitems__`` returns is collated as it is

    def make_job(self, trace: Trace, seed: int, worker_starts: Mapping[int, WorkerStart]) -> Job:
        """Return what is done with the tasks of one epoch; ``seed`` is that of the samples' keys."""
        first, filling = (trace, self.workers.init_fn, self.dataset), self.filling
        if filling is not None:
            return filling.make_job(*first, filling.layout, filling.pool, filling.deliver, self.rules)
        more: StateDict = {"deliver": self.deliver, "worker_starts": worker_starts, "rules": self.rules}
        if self.is_stream:
            size = (self.batch_size or 1) if self.batched else None
            return StreamJob(*first, size, self.drop_last, self.collate, seed, **more)
        return SampleJob(
            *first, self.collate, batched=self.batched, stateful=True, as_given=self.returns_as_given, **more
        )
