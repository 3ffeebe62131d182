"""The backend whose workers are processes: sends tasks, returns batches, and replaces workers that die.

::

    submit(task) -> worker seq % n ----message---> builds it in a slot
    result()     <- wait: connections (batches), sentinels (deaths) <-'
                       a worker that died is replaced, and the batches that it had not delivered are built again

Every wait is on all connections and sentinels at once, so that a death is seen when it happens. An unreferenced backend
is collected, and its pool ends the workers.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from contextlib import nullcontext
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import ClassVar

from penstock.sample import State
from penstock.workers.base import Backend, Capabilities, Job, Task, TaskResult
from penstock.workers.processes.pool import Pool
from penstock.workers.processes.sockets import SocketTransport
from penstock.workers.slots import PageLock

__all__ = ["ProcessBackend"]

_alive: weakref.WeakSet[Pool] = weakref.WeakSet()


class ProcessBackend(Backend):
    """Executes tasks in processes; see :class:`~penstock.workers.base.Backend`.

    Whole batches go to one process each: ``Task.worker``, or ``seq`` modulo their number.

    Parameters
    ----------
    num_workers : int
        Processes, at least 1.
    chunk_size : int, optional
        Ignored: a batch is not split between processes.
    context : BaseContext, optional
        How processes are started; None: see :mod:`penstock.workers.processes.start`.
    base_seed : int
        Worker ``i`` begins with torch's seeds for ``base_seed + i``.
    restart_workers : bool
        Whether a worker that dies is replaced and its batches are built again; False: the batch it was at is an error.
    page_lock : PageLock, optional
        Page-locks the memory of batches, for a device's copies.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(isolated=True, shares_memory=False, pins_memory=True)

    def __init__(
        self,
        num_workers: int,
        chunk_size: int | None = None,  # noqa: ARG002  # every backend's arguments
        *,
        context: BaseContext | None = None,
        base_seed: int = 0,
        restart_workers: bool = True,
        page_lock: PageLock | None = None,
    ) -> None:
        transport = SocketTransport(page_lock)
        self._pool = Pool(num_workers, transport, context, base_seed, restart_workers=restart_workers)
        _alive.add(self._pool)

    @property
    def processes(self) -> list[BaseProcess]:
        """See :class:`~penstock.workers.base.Backend`. A process that was replaced is not among them."""
        return [worker.process for worker in self._pool.workers if worker.is_launched]

    def start(self, job: Job) -> None:
        """Start the workers (once); a further call starts an epoch of the same dataset in them."""
        observer = job.observer
        with nullcontext() if observer is None else observer.starting_processes():
            self._pool.start(job)

    def wait_for_start(self, timeout_s: float | None = None) -> list[State]:
        """See :class:`~penstock.workers.base.Backend`.

        Raises
        ------
        Exception
            What ``worker_init_fn`` or ``iter(dataset)`` raised in a worker.
        WorkerError
            If workers die before they have started.
        StallError
            If within ``timeout_s`` no further worker has started.
        """
        results = self._pool.wait_for_start(timeout_s)
        for worker, result in enumerate(results):
            if result.error is not None:
                raise result.error.rebuild(worker)
        return [result.state for result in results]

    def submit(self, task: Task) -> None:
        """See :class:`~penstock.workers.base.Backend`."""
        self._pool.submit(task)

    def result(self, timeout_s: float | None = None) -> TaskResult | None:
        """See :class:`~penstock.workers.base.Backend`."""
        pool = self._pool
        pool.record_finished()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not pool.done:
            left = None if deadline is None else deadline - time.monotonic()
            if pool.is_at_exit and threading.current_thread() is not threading.main_thread():
                raise SystemExit  # which ends this thread silently: the program is exiting
            if pool.is_closed or (left is not None and left <= 0):
                return None
            pool.wait(left)
        return pool.done.popleft()

    def pause(self) -> None:
        """See :class:`~penstock.workers.base.Backend`. Idle workers must not keep a reference to their loader."""
        self._pool.job = None

    def progress(self) -> int:
        """Calls begun and batches ended, over all workers."""
        return self._pool.progress()

    def count_ready(self) -> int:
        """See :class:`~penstock.workers.base.Backend`; also those that were sent, and are not received yet."""
        return self._pool.count_ready()

    def samples_per_call(self) -> int:
        """See :class:`~penstock.workers.base.Backend`."""
        return self._pool.samples_per_call()

    def describe_workers(self) -> str:
        """See :class:`~penstock.workers.base.Backend`. Workers write their stacks on a signal."""
        return self._pool.describe_workers()

    def close(self) -> None:
        """Ask the workers to exit, then terminate, then kill them; two seconds at most."""
        self._pool.stop()  # does nothing in a forked child: the workers are the parent's


@atexit.register
def _stop_all() -> None:
    for pool in list(_alive):
        pool.is_at_exit = True  # a daemon thread may be waiting for a batch
        pool.stop()


def _close_in_child() -> None:
    """Close the parent's ends in a forked child; otherwise workers would not notice the death of the parent."""
    for pool in list(_alive):
        pool.close_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
