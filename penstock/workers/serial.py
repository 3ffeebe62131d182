"""The backend without workers: a batch is built when it is requested, in the calling thread."""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from penstock.sample import State
from penstock.workers.base import Backend, Capabilities, Job, Task, TaskResult, chunk_rows

__all__ = ["SerialBackend"]


class SerialBackend(Backend):
    """Executes tasks in the caller's thread; see :class:`~penstock.workers.base.Backend`.

    ``num_workers``: ignored: the calling thread is the only worker. ``chunk_size``: rows per call of the job; by
    default as for one worker.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(builds_ahead=False)

    def __init__(self, num_workers: int = 0, chunk_size: int | None = None, **others: object) -> None:  # noqa: ARG002  # every backend's arguments
        self._chunk_size = chunk_size
        self._tasks: deque[Task] = deque()
        self._job: Job | None = None
        self._built = 0
        self._state: State = None

    def start(self, job: Job) -> None:
        """Start an epoch of ``job`` in the calling thread."""
        self._job = job
        self._state = job.start_epoch(job.worker_start(0))

    def wait_for_start(self, timeout_s: float | None = None) -> list[State]:  # noqa: ARG002  # nothing to wait for
        """Return the state at the start; there is nothing to wait for."""
        return [self._state]

    def submit(self, task: Task) -> None:
        """Queue a task, and have the dataset look ahead to it."""
        assert self._job is not None, "start() comes first"
        if self._job.prefetches:
            self._job.prefetch(task)
        self._tasks.append(task)

    def result(self, timeout_s: float | None = None) -> TaskResult | None:  # noqa: ARG002  # nothing to wait for
        """Build the oldest task now; see :class:`~penstock.workers.base.Backend`."""
        if not self._tasks:
            return None
        assert self._job is not None, "start() comes first"
        task = self._tasks.popleft()
        self._built += 1
        try:
            build = self._job.begin(task)
        except Exception as error:  # noqa: BLE001  # raised by the consumer when the batch is due
            return TaskResult(task.seq, error=error, task=task)
        chunk = max(build.rows, 1) if build.whole else chunk_rows(build.rows, 1, self._chunk_size, build.most_rows)
        try:
            for start in range(0, build.rows, chunk):
                build.run(start, min(start + chunk, build.rows))
            batch = build.finish()
        except Exception as error:  # noqa: BLE001  # as above
            return TaskResult(build.seq, error=error, rows=build.rows, state=build.state, task=task)
        return TaskResult(
            build.seq, batch, rows=build.rows, state=build.state, task=task, left_out=build.left_out,
            repaired=build.repaired,
        )  # fmt: skip

    def pause(self) -> None:
        """Drop the job between epochs."""
        self._job = None

    def progress(self) -> int:
        """Return the number of batches that were begun."""
        return self._built

    def samples_per_call(self) -> int:
        """Return 1: the calling thread does the work."""
        return 1

    def describe_workers(self) -> str:
        """Say that the caller builds the batches."""
        return "no worker: batches are built in the calling thread"

    def close(self) -> None:
        """Drop queued tasks."""
        self._tasks.clear()
