"""The parent's side: gives tasks to worker processes, takes batches, and does not mind if a worker dies.

::

    submit(task) -> worker seq % n ----socket---> builds it in a slot
    result()     <- poll: sockets (batches), sentinels (deaths) <-'
                       a worker that died is replaced, and what it had not delivered is built again

Every wait is on all sockets and sentinels at once, so that a death is seen when it happens. The pool's state is held
by the pool, not by the backend, so that a forgotten backend is collected and its workers end.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from multiprocessing.context import BaseContext
from typing import Any, ClassVar

from penstock.slots import PageLock
from penstock.workers.base import Capabilities, Done, Job, Task
from penstock.workers.processes.pool import Pool

__all__ = ["ProcessBackend"]

_alive: weakref.WeakSet[Pool] = weakref.WeakSet()


class ProcessBackend:
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
        Locks the memory that batches lie in, for a device's copies.
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
        self._pool = Pool(num_workers, context, base_seed, restart_workers=restart_workers, page_lock=page_lock)
        self._finalizer = weakref.finalize(self, Pool.stop, self._pool)
        self._finalizer.atexit = False  # _stop_all does it, before multiprocessing ends its children
        _alive.add(self._pool)

    @property
    def processes(self) -> list[Any]:
        """The workers' process objects (``pid``, ``is_alive()``, ``exitcode``); one that was replaced is not there."""
        return [worker.process for worker in self._pool.workers]

    def start(self, job: Job) -> None:
        """Start the workers (once); a further call begins an epoch of the same dataset in them."""
        self._pool.start(job)

    def opened(self, timeout_s: float | None = None) -> list[Any]:
        """Wait until every worker has begun; each one's :attr:`~penstock.workers.base.Build.state` before any batch.

        Raises
        ------
        Exception
            What ``worker_init_fn`` or ``iter(dataset)`` raised in a worker; WorkerError if workers die of it,
            StallError if for ``timeout_s`` no further one has begun.
        """
        pool = self._pool
        pool.await_starts(timeout_s)
        for worker in pool.workers:
            assert worker.state_at_start is not None, "waited for above"
            if worker.state_at_start.failure is not None:
                raise worker.state_at_start.failure.rebuilt(worker.number)
        return [worker.state_at_start.state for worker in pool.workers if worker.state_at_start is not None]

    def submit(self, task: Task) -> None:
        """See :class:`~penstock.workers.base.Backend`."""
        self._pool.submit(task)

    def result(self, timeout_s: float | None = None) -> Done | None:
        """See :class:`~penstock.workers.base.Backend`."""
        pool = self._pool
        pool.settle()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not pool.done:
            left = None if deadline is None else deadline - time.monotonic()
            if pool.at_exit and threading.current_thread() is not threading.main_thread():
                raise SystemExit  # which ends this thread without a word: the program is at its end
            if pool.closed or (left is not None and left <= 0):
                return None
            pool.wait(left)
        return pool.done.popleft()

    def pause(self) -> None:
        """See :class:`~penstock.workers.base.Backend`. Idle workers must not keep the loader that they belong to."""
        self._pool.job = None

    def progress(self) -> int:
        """Samples begun and batches ended, over all workers."""
        return self._pool.progress()

    def samples_per_call(self) -> int:
        """See :class:`~penstock.workers.base.Backend`."""
        return self._pool.samples_per_call()

    def stuck(self) -> str:
        """The stack of each worker that is in the middle of something, as it says itself when asked by a signal."""
        return self._pool.stuck()

    def close(self) -> None:
        """End the workers: asked first, then terminated, then killed; two seconds at most."""
        if self._pool.pid == os.getpid():  # a forked child has no workers: they are its parent's
            self._finalizer()


@atexit.register
def _stop_all() -> None:
    for pool in list(_alive):
        pool.at_exit = True  # a daemon thread may be waiting for a batch
        pool.stop()


def _forget_in_child() -> None:
    """A forked child must not hold the parent's ends: its workers would not see the parent die."""
    for pool in list(_alive):
        pool.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
