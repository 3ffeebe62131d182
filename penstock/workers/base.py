"""The interfaces between loaders, jobs and worker backends; nothing here knows datasets or loaders.

::

    loader --submit(Task)--> backend: build = job.begin(task)
                                      build.run(0, 8), build.run(8, 16), ...   on any worker, in any order
                                      build.finish()                           once, when every row is there
    loader <--result()------ Done(seq, batch or error)

A backend begins tasks in the order of submission. It returns batches as they are finished; the loader orders them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from penstock.errors import ArgumentError
from penstock.ranks import World, find_world
from penstock.repairs import Repaired
from penstock.sample import Batch, DatasetLike, SampleKeys, State, Watch
from penstock.trace import Observer, Trace
from penstock.workers.slow_samples import SlowSamples

if TYPE_CHECKING:
    from penstock.workers.left_out import LeftOut

__all__ = [
    "END",
    "NOTHING",
    "Backend",
    "BatchBuild",
    "Capabilities",
    "Indices",
    "Job",
    "Task",
    "TaskResult",
    "WorkerStart",
    "chunk_rows",
    "name_rows",
    "name_samples",
]


Indices = Any
"""Indices of a batch: an int64 array, or a sequence of :data:`~penstock.sample.Index`."""


class _Marker:
    """A constant in place of a batch; pickling keeps its identity."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> str:
        return self._name


END: Batch = _Marker("END")
"""The batch of a task whose stream has ended."""

NOTHING: Batch = _Marker("NOTHING")
"""The batch of a task whose samples were all left out: nothing is delivered."""


@dataclass(slots=True)
class Task:
    """One batch to build."""

    seq: int  # position of the batch in its epoch
    indices: Indices
    """What the sampler drew: an int64 array, or a list if indices are not ints. Empty for a stream's batch."""
    keys: SampleKeys  # random keys, one for each index
    sampler_state: State = None
    """State of another library's sampler after this draw; kept for the loader's ``state_dict``."""
    worker: int | None = None  # the worker process that must build it; None: worker ``seq`` modulo their number
    snapshot: bool = True  # whether :attr:`TaskResult.state` and :attr:`TaskResult.rng` are wanted
    fatal: Mapping[int, str] | None = None
    """Set when a worker has died at this batch, if the job is ``tolerant``: samples are then built one at a time,
    without those at these positions. The values say how their workers died."""
    size: int | None = None  # samples of a stream's batch; None: the job's batch size


@dataclass(slots=True)
class TaskResult:
    """One batch that is built, or the error in its place."""

    seq: int  # the task's, or the one that the job gave it (a stream's batches are numbered as they are pulled)
    batch: Batch = None  # the batch, if there is no error
    error: BaseException | None = None  # why there is no batch
    rows: int = 0  # samples that were drawn
    state: State = None  # :attr:`BatchBuild.state` after the batch
    task: Task | None = field(default=None, repr=False)  # whose batch it is
    worker: int | None = None  # the worker process that built it
    rng: bytes | None = None  # state of that process's random generators after the batch; None: unchanged
    left_out: Sequence[LeftOut] = ()  # the job's records of samples that are missing in ``batch``, or replaced
    repaired: Sequence[Repaired] = ()  # records of the images of the batch that were repaired


def _find_world() -> World | None:
    with suppress(ArgumentError):  # raised in whoever asks for them
        return find_world()
    return None


@dataclass(slots=True)
class WorkerStart:
    """How a worker starts an epoch."""

    epoch: int = 0  # number of the epoch
    worker: int = 0  # number of the worker
    samples: int = 0  # samples that came from this worker in this epoch before
    state: State = None
    """:attr:`BatchBuild.state` after these samples: ``dataset`` and ``iterator`` (their states, or None), ``ended``."""
    resumed: bool = True
    """Whether ``state`` is one of this epoch; if not, only the dataset's own state is restored from it."""
    rng: bytes | None = None
    """State of a worker process's random generators (:func:`penstock.workers.info.rng_state`) to begin with."""
    world: World | None = field(default_factory=_find_world)
    """The ranks as the parent finds them, which a worker process believes; None if they contradict one another."""


class BatchBuild(Protocol):
    """One batch that is being built: ``rows`` rows of work, run in chunks that may overlap in time.

    Subclasses inherit the defaults of ``whole``, ``most_rows``, ``left_out``, ``repaired`` and ``tell``.
    """

    __slots__ = ()

    rows: int
    seq: int
    state: State
    whole: ClassVar[bool] = False
    """Whether a worker that builds the batch alone runs all rows at once."""

    most_rows: int = 32
    """Most rows of a chunk, where the user gives no number."""
    repaired: Sequence[Repaired] = ()
    """Records of images that were repaired; valid after :meth:`finish`."""

    def tell(self, observer: Observer) -> None:  # noqa: ARG002  # a default
        """Tell it of each sample that begins, beside the job's ``watch``; streams do not."""
        return

    def count_samples(self, start: int, stop: int) -> int:
        """Samples that ``run(start, stop)`` has built; one a row, but for streams."""
        return stop - start

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """Records of samples that are missing in the batch, or replaced; valid after :meth:`finish`."""
        return ()

    def run(self, start: int, stop: int) -> None:
        """Build rows ``start..stop``; raises the user's error with a note where it happened."""
        ...

    def finish(self) -> Batch:
        """Return the batch, after every row has run. The build keeps no reference to it."""
        ...


class Job(Protocol):
    """How tasks become batches. All threads share one job, so everything that it calls must be thread-safe.

    A worker process has its own copy, pickled or forked, without the parent's trace, slots and delivery.

    Subclasses inherit the defaults of ``dataset``, ``prefetches``, ``tolerant``, ``is_movable``, ``seeds_globals`` and
    ``prefetch``. A backend with workers sets ``watch``. Each chunk of rows counts as one call for all of them, until
    the job calls ``watch`` with the positions, relative to the chunk's first row, that a call asks for.
    """

    trace: Trace
    observer: Observer | None = None
    watch: Watch | None = None
    slow: SlowSamples | None = None
    """Times some of the batches."""
    dataset: DatasetLike = None
    prefetches: bool = False
    """Whether :meth:`prefetch` does something; decided by :meth:`start_epoch`."""

    @property
    def tolerant(self) -> bool:
        """Whether a batch may be delivered without some of its samples."""
        return False

    @property
    def is_movable(self) -> bool:
        """Whether any worker builds the same batch of a task: none depends on what its worker did before."""
        return False

    @property
    def seeds_globals(self) -> bool:
        """Whether each sample or batch seeds the global generators: their states between batches say nothing."""
        return False

    def worker_start(self, worker: int, last: TaskResult | None = None, samples: int = 0) -> WorkerStart:
        """Return how ``worker`` starts the epoch; small, can be pickled.

        ``last`` and ``samples`` are given if the worker replaces one that died: the last batch that came from it, and
        how many samples came from it in this epoch. The new worker continues after them.
        """
        ...

    def start_epoch(self, start: WorkerStart) -> State:
        """Start an epoch in a worker, before any :meth:`begin`; may raise the user's error.

        Returns :attr:`BatchBuild.state` before the first batch.
        """
        ...

    def start_worker(self, worker: int) -> None:
        """Called once in each worker before it works; may raise the user's error."""
        ...

    def prefetch(self, task: Task) -> None:  # noqa: ARG002  # a default
        """Have the dataset look ahead to the samples of ``task``; does not wait, and does not raise.

        Called as soon as the process that builds the batch has the task, if :attr:`prefetches`.
        """
        return

    def begin(self, task: Task) -> BatchBuild:
        """Begin a batch: take its memory, decide its rows. Called in the order of submission."""
        ...

    def deliver(self, batch: Batch) -> Batch:
        """The last step, in the consumer's process: from what was built to what the user gets."""
        ...

    def attach(self, memory: object, trace: Trace, watch: Watch) -> None:
        """Use the resources of a worker process: its memory (a slot pool), its trace, its watch."""
        ...


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend is able to do, so that a loader can choose one without knowing its name."""

    isolated: bool = False
    """Each worker is a process of its own: it has a copy of the dataset and its own global random generators, and a
    stream is iterated once in each."""
    builds_ahead: bool = True
    """Batches are built while the consumer does something else; False: inside :meth:`Backend.result`."""
    shares_memory: bool = True
    """Workers write to the memory of this process, so that a batch's arrays may lie in the loader's slots."""
    splits_batches: bool = False  # several workers may build rows of one batch
    pins_memory: bool = False  # batches arrive in memory of the backend's own, which it page-locks by ``page_lock``


class Backend(Protocol):
    """Executes tasks. Belongs to one iterator at a time; its methods are called from one thread.

    The constructor of every backend takes ``(num_workers, chunk_size=None, *, context=None, base_seed=0,
    page_lock=None)`` and ignores what does not apply to it.
    """

    capabilities: ClassVar[Capabilities]

    @property
    def processes(self) -> Sequence[BaseProcess]:
        """Process objects of the workers (``pid``, ``is_alive()``, ``exitcode``); none if workers are threads."""
        return ()

    def start(self, job: Job) -> None:
        """Start an epoch of ``job``; the first call starts the workers."""
        ...

    def wait_for_start(self, timeout_s: float | None = None) -> list[State]:
        """Wait until every worker has started the epoch; returns what :meth:`Job.start_epoch` returned in each.

        Raises
        ------
        Exception
            What :meth:`Job.start_epoch` or :meth:`Job.start_worker` raised in a worker.
        StallError
            If within ``timeout_s`` no further worker has started; with the stacks of those that have not.
        """
        ...

    def resize(self, num_workers: int) -> None:
        """Have so many of the workers work, of those that the backend was made for; the others are not started, or end.

        Called before :meth:`start`, or between two calls of :meth:`submit`; only for jobs that are movable.
        """
        raise NotImplementedError(f"{type(self).__name__} has a fixed number of workers, not {num_workers}")

    def submit(self, task: Task) -> None:
        """Queue one task; does not wait."""
        ...

    def result(self, timeout_s: float | None = None) -> TaskResult | None:
        """Return the next batch that is finished, whichever it is; None if none is within ``timeout_s``."""
        ...

    def pause(self) -> None:
        """Drop the job between epochs, when everything submitted has been returned; the workers stay."""
        ...

    def progress(self) -> int:
        """Return a number that grows whenever a worker does something; if it does not grow, the workers are stuck."""
        ...

    def count_ready(self) -> int:
        """Batches that are finished, and not taken by :meth:`result`; may be called by any thread."""
        return 0

    def samples_per_call(self) -> int:
        """The most samples that a running call asks for, at least 1; see :class:`~penstock.sample.Watch`."""
        ...

    def describe_workers(self) -> str:
        """Return what each busy worker is doing, with its stack, for the message of a StallError."""
        ...

    def close(self) -> None:
        """Stop the workers, within about two seconds whatever they do. Queued tasks are dropped. Idempotent."""
        ...


def chunk_rows(rows: int, workers: int, chunk_size: int | None, most: int) -> int:
    """Return the rows of a chunk: ``chunk_size`` if given, else ``rows`` by the workers, within 8 and ``most``.

    ``rows`` are those of the batches that wait. Large chunks have less overhead in Python, most of which holds the
    interpreter's lock. Where one batch waits, as at the end of an epoch, all workers build it.
    """
    if chunk_size is not None:
        return chunk_size
    return min(max(-(-rows // workers), 8), most)


def name_rows(task: Task, start: int, stop: int) -> dict[str, object]:
    """Return the index, or indices, of rows ``start..stop`` of a task, for an error; empty if they have none."""
    indices = list(task.indices[start:stop])
    shown = [int(i) if isinstance(i, np.integer) else i for i in indices]
    if len(shown) == 1:
        return {"index": shown[0]}
    return (
        {"indices": shown if len(shown) <= 16 else f"{shown[0]} to {shown[-1]} ({len(shown)} in all)"} if shown else {}
    )


def name_samples(task: Task, row: int, count: int) -> str:
    """Text for samples ``row`` to ``row + count - 1`` of a task, with their indices."""
    rows = f"samples {row}..{row + count - 1}" if count > 1 else f"sample {row}"
    where = name_rows(task, row, row + max(count, 1))
    if isinstance(listed := where.get("indices"), list):
        where["indices"] = ", ".join(map(str, listed))
    return f"{rows} of batch {task.seq}" + "".join(f" ({name} {shown})" for name, shown in where.items())
