"""The backend whose workers are actors of Ray.

What it adds to :class:`~penstock.workers.processes.backend.IsolatedBackend`: actors by
:mod:`~penstock.workers.ray.transport`, and a limit on the bytes of batches under way, so that they fit into the
object store of the trainer's node::

    submit(task) -> held -> at most `max_nbytes` of batches, but one for each worker -> actors
    result()     <- each batch makes room for the next

An actor may start late, since Ray waits for free resources, and one that replaces another likewise. Where any worker
builds the same batch of a task (:attr:`Job.is_movable <penstock.workers.base.Job>`), those that have started build its
tasks meanwhile.
"""

from __future__ import annotations

import time
from collections import deque
from multiprocessing.context import BaseContext
from typing import ClassVar, Final, cast

from penstock.workers.base import Capabilities, Job, Task, TaskResult
from penstock.workers.processes.backend import IsolatedBackend
from penstock.workers.processes.worker_process import WorkerProcess
from penstock.workers.ray.options import RayWorkers
from penstock.workers.ray.running_actor import RunningActor
from penstock.workers.ray.transport import RayTransport
from penstock.workers.slots import PageLock

__all__ = ["RayBackend"]

_LATE_S: Final = 3.0
"""A worker that has not started after so long is not waited for, if others can build its batches."""


class RayBackend(IsolatedBackend):
    """Executes tasks in actors of Ray.

    ``num_workers`` and ``base_seed``: as for :class:`~penstock.workers.processes.backend.IsolatedBackend`.
    ``chunk_size`` and ``page_lock``: ignored: a batch is not split between actors, and Ray's memory is not page-locked.
    ``context``: what each actor asks for.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(isolated=True, shares_memory=False)

    def __init__(
        self,
        num_workers: int,
        chunk_size: int | None = None,  # noqa: ARG002  # every backend's arguments
        *,
        context: BaseContext | RayWorkers | None = None,
        base_seed: int = 0,
        page_lock: PageLock | None = None,  # noqa: ARG002  # as above
    ) -> None:
        self._actors = RayTransport(context if isinstance(context, RayWorkers) else RayWorkers())
        self._held: deque[Task] = deque()
        self._sent: deque[Task] = deque()
        """Tasks that were sent, from the oldest whose batch was not returned: the consumer keeps later ones."""
        self._returned: set[int] = set()
        self._max_nbytes = 0
        self._is_movable = False
        super().__init__(num_workers, base_seed, self._actors)

    def start(self, job: Job) -> None:
        """Start an epoch; actors that still run are checked first."""
        self._is_movable = job.is_movable
        if self._actors.node:  # a further epoch
            self._actors.check()
        super().start(job)
        self._held.clear()
        self._sent.clear()
        self._returned.clear()
        self._max_nbytes = self._actors.max_nbytes()

    def submit(self, task: Task) -> None:
        """Queue a task; it is sent when there is room for its batch."""
        self._actors.check()
        self._held.append(task)
        self._send_held()

    def result(self, timeout_s: float | None = None) -> TaskResult | None:
        """Return a finished batch, and send tasks that were held back."""
        done = super().result(timeout_s)
        if done is not None:
            self._returned.add(id(done.task))
            while self._sent and id(self._sent[0]) in self._returned:
                self._returned.remove(id(self._sent.popleft()))
            self._send_held()
        return done

    def _send_held(self) -> None:
        while self._held and not self.is_closed and self._actors.is_connected() and self._has_room():
            self._sent.append(self._held[0])
            super().submit(self._held.popleft())

    def _has_room(self) -> bool:
        nbytes, count = self._actors.nbytes, len(self._sent)
        return count < len(self.workers) or 0 < nbytes * (count + 1) <= self._max_nbytes

    # actors that start late

    def wait(self, timeout_s: float | None) -> None:
        """Wait for workers, and move tasks of a worker that is late to start to others."""
        super().wait(timeout_s)
        if self._is_movable:
            for worker in self.workers:
                if worker.is_running and worker.pending and not worker.has_started and _is_late(worker):
                    self._move_tasks(worker)

    def _can_do_without(self, late: list[WorkerProcess]) -> bool:
        return self._is_movable and len(late) < len(self.workers)

    def _choose(self, task: Task) -> WorkerProcess:
        worker = super()._choose(task)
        return worker if not self._is_movable or worker.has_started else self._find_started() or worker

    def _find_started(self) -> WorkerProcess | None:
        """Return the least busy of the workers that have started."""
        started = [worker for worker in self.workers if worker.has_started]
        return min(started, key=lambda worker: len(worker.pending), default=None)

    def _replace(self, worker: WorkerProcess) -> None:
        if self._is_movable:
            self._move_tasks(worker)
        super()._replace(worker)

    def _move_tasks(self, late: WorkerProcess) -> None:
        """Give the tasks of a worker that has not started to those that have."""
        while late.pending and self._find_started() is not None:
            task = late.pending[0]
            cast("RunningActor", late.running).withdraw(task)
            super().submit(task)
            late.pending.popleft()

    def close(self) -> None:
        """Drop the tasks that are held back, and stop the actors."""
        self._held.clear()
        super().close()


def _is_late(worker: WorkerProcess) -> bool:
    return time.monotonic() - cast("RunningActor", worker.running).since > _LATE_S
