"""What a backend is given and what it gives back; it knows neither datasets nor loaders.

::

    loader --submit(Task)--> backend: build = job.begin(task)
                                      build.run(0, 8), build.run(8, 16), ...   on any worker, in any order
                                      build.finish()                           once, when every row is there
    loader <--result()------ Done(seq, batch or error)

A backend keeps the order in which tasks are *begun*; it returns them as they end, and the loader puts them in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.sample import SampleKeys

__all__ = ["Backend", "Build", "Done", "Job", "Task", "chunk_rows"]


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
    """

    seq: int
    indices: Any
    keys: SampleKeys
    sampler_state: Any = None


@dataclass(slots=True)
class Done:
    """One batch that is built, or why it is not.

    ``seq`` is the task's, or the one that the job gave it (a stream's tasks are numbered as they are pulled). ``state``
    is what :attr:`Build.state` was at the end.
    """

    seq: int
    batch: Any = None
    error: BaseException | None = None
    rows: int = 0
    state: Any = None
    task: Task | None = field(default=None, repr=False)


class Build(Protocol):
    """One batch on its way. ``rows`` rows of work, to be run in chunks that may overlap in time."""

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
    """What is done with tasks; shared by all workers, so that everything it calls must be thread-safe."""

    def begin(self, task: Task) -> Build:
        """Start a batch: take its memory, decide its rows. Called in the order of submission."""
        ...

    def start_worker(self, worker: int) -> None:
        """Called once in each worker before it works; may raise the user's error."""
        ...


class Backend(Protocol):
    """Executes tasks. Not shared between iterators; its methods are called from one thread."""

    def start(self, job: Job) -> None:
        """Make ready to work on ``job``; the first call starts the workers."""
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
