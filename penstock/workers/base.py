"""What a backend is given and what it gives back; it knows neither datasets nor loaders.

::

    loader --submit(Task)--> backend: build = job.begin(task)
                                      build.run(0, 8), build.run(8, 16), ...   on any worker, in any order
                                      build.finish()                           once, when every row is there
    loader <--result()------ Done(seq, batch or error)

A backend keeps the order in which tasks are *begun*; it returns them as they end, and the loader puts them in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from penstock.sample import SampleKeys, Watch
from penstock.trace import Trace

__all__ = [
    "END",
    "NOTHING",
    "Backend",
    "Build",
    "Capabilities",
    "Done",
    "Job",
    "Task",
    "chunk_rows",
    "name_rows",
    "name_samples",
]


class _Instead:
    """Stands where a batch would; pickles as itself."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> str:
        return self._name


END = _Instead("END")
"""The batch of a task that found its stream at an end."""

NOTHING = _Instead("NOTHING")
"""The batch of a task of whose samples every one was left out: there is nothing to deliver."""


@dataclass(slots=True)
class Task:
    """One batch to build.

    Parameters
    ----------
    seq : int
        Position of the batch in its epoch.
    indices : sequence
        What the sampler drew: an int64 array, or a list where indices are not ints. Empty for a stream's batch.
    keys : SampleKeys
        Where each sample's randomness hangs; one for each index.
    sampler_state : object
        State of a foreign sampler after this draw; carried along for the loader's ``state_dict``.
    worker : int, optional
        Who must build it, where workers are processes; None: worker ``seq`` modulo their number.
    snapshot : bool
        Whether :attr:`Done.state` and :attr:`Done.rng` are wanted.
    fatal : mapping, optional
        Given once a worker has died at this batch (of a job that is ``tolerant``): samples are then built one at a
        time, without those at these positions, which ended their workers in the way that the values tell.
    size : int, optional
        Samples of a stream's batch; None: as many as the job's batches have.
    """

    seq: int
    indices: Any
    keys: SampleKeys
    sampler_state: Any = None
    worker: int | None = None
    snapshot: bool = True
    fatal: Mapping[int, str] | None = None
    size: int | None = None


@dataclass(slots=True)
class Done:
    """One batch that is built, or why it is not.

    ``seq`` is the task's, or the one that the job gave it (a stream's tasks are numbered as they are pulled). ``state``
    is what :attr:`Build.state` was at the end. ``worker`` and ``rng`` (the state of the worker's random generators
    after this batch; None: as before) are known where workers are processes. ``rows`` are the samples drawn;
    ``left_out`` says what is missing of them in ``batch``, or replaced, by the job's own records.
    """

    seq: int
    batch: Any = None
    error: BaseException | None = None
    rows: int = 0
    state: Any = None
    task: Task | None = field(default=None, repr=False)
    worker: int | None = None
    rng: bytes | None = None
    left_out: Sequence[Any] = ()


class Build(Protocol):
    """One batch on its way. ``rows`` rows of work, to be run in chunks that may overlap in time.

    Beside these it may have ``left_out``, for :attr:`Done.left_out` after :meth:`finish`, and ``whole``: a worker that
    builds alone then runs all rows at once.
    """

    rows: int
    seq: int
    state: Any

    def run(self, start: int, stop: int) -> None:
        """Do rows ``start..stop``; raises the user's error with its place noted."""
        ...

    def finish(self) -> Any:
        """The batch, after every row has run. The build keeps no reference to it."""
        ...


class Job(Protocol):
    """What is done with tasks; shared by all threads that work, so that everything it calls must be thread-safe.

    A process works on its own copy: pickled or forked, without what belongs to the parent (trace, slots, delivery).
    It may have ``tolerant``: whether batches may come without some of their samples.

    ``watch`` is set where work is done in workers, by the backend. Each chunk of rows counts as one call for all of
    them, until the job calls ``watch`` with the places, from the chunk's first row, that a call asks for.
    """

    trace: Trace
    watch: Watch | None

    def opening(self, worker: int, last: Done | None = None, samples: int = 0) -> Any:
        """What ``worker`` needs to know to begin the epoch; picklable, small.

        ``last`` and ``samples``: the last batch that came from a worker which died, and how many samples came from it
        in this epoch; its successor goes on behind them.
        """
        ...

    def open(self, opening: Any) -> Any:
        """Begin an epoch where the work is done, before any :meth:`begin`; may raise the user's error.

        Returns :attr:`Build.state` as it is before the first batch.
        """
        ...

    def start_worker(self, worker: int) -> None:
        """Called once in each worker before it works; may raise the user's error."""
        ...

    def begin(self, task: Task) -> Build:
        """Start a batch: take its memory, decide its rows. Called in the order of submission."""
        ...

    def deliver(self, batch: Any) -> Any:
        """The last step, where the consumer is: from what was built to what the user gets."""
        ...

    def move_in(self, memory: Any, trace: Trace, watch: Watch) -> None:
        """Make a worker process's copy at home: where slots come from, where time is kept, where calls are reported."""
        ...


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a kind of backend is able to do, so that a loader can choose without knowing its name.

    Parameters
    ----------
    isolated : bool
        Each worker is a process of its own: it has a copy of the dataset and its own global random generators, and a
        stream is iterated once in each.
    builds_ahead : bool
        Batches are built while the consumer does something else; False: when :meth:`Backend.result` is called.
    shares_memory : bool
        Workers write to the memory of this process, so that a batch's arrays may lie in a slot of the loader's.
    splits_batches : bool
        Several workers may build rows of one batch.
    pins_memory : bool
        The memory in which batches arrive is the backend's own, and it page-locks that memory by ``page_lock``.
    """

    isolated: bool = False
    builds_ahead: bool = True
    shares_memory: bool = True
    splits_batches: bool = False
    pins_memory: bool = False


class Backend(Protocol):
    """Executes tasks. Not shared between iterators; its methods are called from one thread.

    The constructor of every backend takes ``(num_workers, chunk_size=None, *, context=None, base_seed=0,
    page_lock=None)`` and ignores what does not apply to it.
    """

    capabilities: ClassVar[Capabilities]

    def start(self, job: Job) -> None:
        """Make ready to work on ``job``; the first call starts the workers."""
        ...

    def opened(self, timeout_s: float | None = None) -> list[Any]:
        """Wait until every worker has begun; what :meth:`Job.open` gave, or raised, in each.

        A StallError with their stacks if none of those that have not begun does so within ``timeout_s``.
        """
        ...

    def submit(self, task: Task) -> None:
        """Queue one task; does not wait."""
        ...

    def result(self, timeout_s: float | None = None) -> Done | None:
        """The next batch that ends, whichever it is; None if none did within ``timeout_s``."""
        ...

    def pause(self) -> None:
        """Let go of the job between epochs (everything submitted has been returned); the workers stay."""
        ...

    def progress(self) -> int:
        """A number that grows whenever a worker gets on, for telling slow from stuck."""
        ...

    def samples_per_call(self) -> int:
        """The most samples that a call which is running asks for, at least 1; see :class:`~penstock.sample.Watch`."""
        ...

    def stuck(self) -> str:
        """What each busy worker is doing, with its stack, for a stall's message."""
        ...

    def close(self) -> None:
        """Stop; returns within about two seconds whatever the workers do. Queued tasks are dropped. Idempotent."""
        ...


def chunk_rows(rows: int, workers: int, chunk_size: int | None) -> int:
    """Rows per chunk: ``chunk_size`` if given, else a worker's even share, 8 rows at least and 32 at most.

    Small chunks spread a batch evenly, large ones pay Python's fixed cost per chunk less often. A worker that is done
    goes on to the next batch, so that an uneven spread costs latency alone.
    """
    if chunk_size is not None:
        return chunk_size
    return min(max(-(-rows // workers), 8), 32)


def name_rows(task: Task, start: int, stop: int) -> dict[str, Any]:
    """The index, or indices, of rows ``start..stop`` of a task, for an error; empty if they have none."""
    indices = list(task.indices[start:stop])
    shown = [int(i) if isinstance(i, np.integer) else i for i in indices]
    if len(shown) == 1:
        return {"index": shown[0]}
    return (
        {"indices": shown if len(shown) <= 16 else f"{shown[0]} to {shown[-1]} ({len(shown)} in all)"} if shown else {}
    )


def name_samples(task: Task, row: int, count: int) -> str:
    """Samples ``row`` to ``row + count - 1`` of a task in words, with their indices."""
    rows = f"samples {row}..{row + count - 1}" if count > 1 else f"sample {row}"
    where = name_rows(task, row, row + max(count, 1))
    if isinstance(listed := where.get("indices"), list):
        where["indices"] = ", ".join(map(str, listed))
    return f"{rows} of batch {task.seq}" + "".join(f" ({name} {shown})" for name, shown in where.items())
