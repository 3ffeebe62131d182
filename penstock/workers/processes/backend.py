"""The backends whose workers are isolated: send tasks, return batches, and replace workers that die.

::

    submit(task) -> worker seq % n ----message---> builds it in a slot
    result()     <- wait: connections (batches), ends (deaths) <-'
                       a worker that died is replaced, and the batches that it had not delivered are built again,
                       up to a number of deaths (RestartLimits) at which its death is an error

What a worker is, a process of this machine or an actor of a cluster, is its transport's affair
(:mod:`penstock.workers.processes.transport`).

Every wait is on all connections and ends at once, so that a death is seen when it happens. A job, a task or a
batch may refer to the loader, so the finalizer of the backend holds only the processes
(:class:`~penstock.workers.processes.worker_process.RunningWorkers`): a backend without references, or in a cycle, is
collected, and its workers end.
"""

from __future__ import annotations

import atexit
import copy
import logging
import os
import threading
import time
import warnings
import weakref
from collections import deque
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing.process import BaseProcess
from typing import Final

from penstock.errors import SampleError, StallError, WorkerError
from penstock.sample import State
from penstock.workers.base import Backend, Job, Task, TaskResult, WorkerStart
from penstock.workers.processes.messages import BatchBuilt, EpochStarted
from penstock.workers.processes.restart_limits import RestartLimits
from penstock.workers.processes.transport import Transport
from penstock.workers.processes.worker import WorkerIdentity
from penstock.workers.processes.worker_process import RunningWorkers, StartResult, WorkerProcess

__all__ = ["IsolatedBackend"]

_logger = logging.getLogger(__name__)

_POLL_S: Final = 0.5
_SEE_STDERR: Final = "see what they write to stderr"


_alive: weakref.WeakSet[IsolatedBackend] = weakref.WeakSet()


class IsolatedBackend(Backend):
    """Executes tasks in workers that each have a process of their own; see :class:`~penstock.workers.base.Backend`.

    Whole batches go to one worker each: ``Task.worker``, or ``seq`` modulo their number.

    ``num_workers``: workers, at least 1. ``base_seed``: worker ``i`` begins with torch's seeds for ``base_seed + i``.
    ``transport``: starts the workers, and waits for them.
    """

    def __init__(self, num_workers: int, base_seed: int, transport: Transport) -> None:
        self.job: Job | None = None
        self.done: deque[TaskResult] = deque()
        self.is_closed = self.is_at_exit = False
        self._transport = transport
        identities = [WorkerIdentity(number, num_workers, base_seed) for number in range(num_workers)]
        self.workers = [WorkerProcess(identity, self._transport) for identity in identities]
        self._active = num_workers  # workers that get tasks
        self._limits = RestartLimits()
        self._sent_job: Job | None = None  # what workers get
        self._received = 0
        self._has_warned = self._has_timed_out = False
        self._running = RunningWorkers(transport)
        weakref.finalize(self, self._running.stop).atexit = False  # _stop_all does it, before multiprocessing
        _alive.add(self)

    @property
    def processes(self) -> list[BaseProcess]:
        """The running processes of the workers. A process that was replaced, or could not start, is not among them."""
        # Another thread may ask while one is started: what is to run it may have no process yet.
        found = (getattr(getattr(worker, "running", None), "process", None) for worker in self.workers)
        return [process for process in found if process is not None]

    # work

    def start(self, job: Job) -> None:
        """Launch the workers, or start another epoch of the same dataset in them; if one fails to, end them all."""
        try:
            with nullcontext() if job.observer is None else job.observer.starting_processes():
                self._start(job)
        except BaseException:
            self.close()
            raise

    def _start(self, job: Job) -> None:
        self.job = job
        self._limits.start_epoch()
        if self._sent_job is None:
            self._transport.prepare(job)
            self._sent_job = copy.copy(job)
        for worker in self.workers:
            worker.last, worker.samples, worker.start_result = None, 0, None
            if worker.number >= self._active:
                continue
            start = job.worker_start(worker.number)
            if worker.is_running:
                worker.start_epoch(start)
            else:
                self._launch(worker, start)

    def _launch(self, worker: WorkerProcess, start: WorkerStart) -> None:
        assert self._sent_job is not None, "start() comes first"
        worker.launch(self._sent_job, start)
        self._running.by_number[worker.number] = worker.running

    def resize(self, num_workers: int) -> None:
        """Launch no worker of a higher number before it gets a task, and end those that have none."""
        self._active = num_workers
        self._end_surplus()

    def _end_surplus(self) -> None:
        for worker in self.workers[self._active :]:
            if worker.is_running and not worker.pending:
                running = worker.release()
                running.request_stop()
                self._running.ending.append(self._running.by_number.pop(worker.number, running))
        for running in [each for each in self._running.ending if each.has_exited()]:
            running.end()
            self._running.ending.remove(running)

    def submit(self, task: Task) -> None:
        """Send a task to its worker; see :class:`~penstock.workers.base.Backend`."""
        worker = self._choose(task)
        worker.is_changing = worker.is_running
        worker.pending.append(task)
        if not worker.is_running:
            self._restart(worker)
        else:
            self._send(worker, task)
        worker.is_changing = False

    def _choose(self, task: Task) -> WorkerProcess:
        """Return the worker of a task."""
        return self.workers[task.seq % len(self.workers) if task.worker is None else task.worker]

    def _send(self, worker: WorkerProcess, task: Task) -> None:
        try:
            worker.send(task)
        except Exception as error:  # noqa: BLE001  # indices that cannot be pickled
            worker.pending.remove(task)
            failed = SampleError(f"indices cannot be sent to a worker: {type(error).__name__}: {error}", batch=task.seq)
            self.done.append(worker.make_failure(task, failed))

    def wait(self, timeout_s: float | None) -> None:
        """Wait until a worker has sent something or exited, ``timeout_s`` at most, and receive what there is."""
        self._recover_from_interrupt()
        running = [worker for worker in self.workers if worker.is_running]
        limit_s = _POLL_S if timeout_s is None else min(max(timeout_s, 0.0), _POLL_S)
        ready = self._transport.wait([worker.running for worker in running], limit_s)
        if not ready:  # a process that a worker has started may hold its descriptors open: ask for the worker itself
            ready = [at for at, worker in enumerate(running) if not worker.is_dead and worker.running.has_exited()]
        for position in ready:
            self._receive(running[position])
        self._end_surplus()

    def result(self, timeout_s: float | None = None) -> TaskResult | None:
        """Wait for a finished batch and return it; None after ``timeout_s``."""
        self.record_finished()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.done:
            left = None if deadline is None else deadline - time.monotonic()
            if self.is_at_exit and threading.current_thread() is not threading.main_thread():
                raise SystemExit  # which ends this thread silently: the program is exiting
            if self.is_closed or (left is not None and left <= 0):
                self._has_timed_out = True
                return None
            self.wait(left)
        self._has_timed_out = False
        return self.done.popleft()

    def pause(self) -> None:
        """Drop the job. Idle workers must not keep a reference to their loader."""
        self.job = None

    def wait_for_start(self, timeout_s: float | None = None) -> list[State]:
        """Wait until every worker has started the epoch.

        Raises
        ------
        Exception
            What ``worker_init_fn`` or ``iter(dataset)`` raised in a worker.
        WorkerError
            If workers die before they have started.
        StallError
            If within ``timeout_s`` no further worker has started.
        """
        since, received = time.monotonic(), self._received
        while late := [worker for worker in self.workers if worker.is_launched and worker.start_result is None]:
            if self._can_do_without(late):
                break
            for worker in (worker for worker in late if worker.is_dead):
                if self._limits.starts_fail:
                    how = worker.running.exit_reason.rstrip(". ")
                    raise WorkerError(f"a worker {how} before it had started; {_SEE_STDERR}", worker=worker.number)
                self._replace(worker)
            self.wait(timeout_s)
            if self._received != received:
                since, received = time.monotonic(), self._received
            elif timeout_s is not None and time.monotonic() - since > timeout_s:
                raise StallError(f"workers have not started within {timeout_s} seconds; {self.describe_workers()}")
        has_state = [worker.is_launched and worker not in late for worker in self.workers]
        return [worker.take_first_state() if has else None for worker, has in zip(self.workers, has_state, strict=True)]

    def _can_do_without(self, late: list[WorkerProcess]) -> bool:  # noqa: ARG002  # a default
        """Return whether the epoch may begin without the workers that have not started."""
        return False

    def _recover_from_interrupt(self) -> None:
        """Continue after an interrupt that was caught (Ctrl-C in a notebook) in the middle of a change.

        Of a worker that was being changed, only its pending tasks are known: another process builds them.
        """
        self.record_finished()
        for worker in self.workers:
            if worker.is_changing and not worker.is_dead:
                worker.running.kill()
                self._record_death(worker, "was in the middle of a message when the program was interrupted")
            elif worker.is_dead and worker.pending:
                self._restart(worker)
            worker.is_changing = False

    def _receive(self, worker: WorkerProcess) -> None:
        worker.is_changing = True
        worker.connection.flush()
        before = self._received
        while not self.is_closed and (message := worker.connection.receive()) is not None:
            self._received += 1
            if isinstance(message, EpochStarted):
                self._limits.record_start()
                worker.start_result = StartResult.from_message(message, worker.number)
            else:
                self._accept(worker, message)
        is_silent = self._received == before  # else has_exited(), a system call, is not needed
        if not self.is_closed and (worker.connection.ended or (is_silent and worker.running.has_exited())):
            self._record_death(worker)
        worker.is_changing = False

    def _accept(self, worker: WorkerProcess, message: BatchBuilt) -> None:
        worker.received += 1
        if self.job is not None:
            self.job.trace.add_all(message.times, message.remote, worker.number)
            if message.slow and self.job.slow is not None:
                self.job.slow.add_all(message.slow, worker.number)
        self._warn_of_memory(worker.connection.memory_error)
        worker.finished = worker.unpack(message, self.job)
        self.record_finished()

    def record_finished(self) -> None:
        """Put the batches that were received into :attr:`done`. Each step is done once, wherever an interrupt came."""
        for worker in self.workers:
            done = worker.finished
            if done is not None:
                worker.record(done)
                if not any(other is done for other in self.done):
                    self.done.append(done)
                worker.finished = None

    def _warn_of_memory(self, error: str) -> None:
        if error and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"workers get no shared memory for batches ({error}): batches are sent through sockets, which is "
                "slower",
                RuntimeWarning,
                stacklevel=2,
            )

    # deaths

    def _record_death(self, worker: WorkerProcess, reason: str = "") -> None:
        """Handle a worker that died, or closed its connection: record the reason, and have its tasks built again."""
        worker.running.end(reason)
        worker.is_dead = True
        self._running.by_number.pop(worker.number, None)
        started, killed = worker.start_result is not None, worker.running.was_killed
        self._limits.record_death(started=started, killed=killed)
        if not worker.pending:
            return
        task = worker.pending[0]
        error = worker.make_death_error(task)
        exceeds = started and self._limits.exceeds(task, worker.status, killed=killed)
        if self._limits.starts_fail or (exceeds and not self._exclude_sample(worker, task, error)):
            worker.pending.popleft()
            self.done.append(worker.make_failure(task, error, rows=len(task.indices)))
        else:
            if task.fatal is None and self.job is not None and self.job.tolerant:
                task.fatal = {}  # sample by sample from now on: the next death shows which one
            _logger.warning("%s; another worker builds its batches again", error)
        if worker.pending:
            self._restart(worker)

    def _exclude_sample(self, worker: WorkerProcess, task: Task, error: WorkerError) -> bool:
        """Have a batch built without the sample that its workers die at; whether that is known, and allowed."""
        if task.fatal is None or "index" not in error.where or worker.status.row in task.fatal:
            return False
        task.fatal = {**task.fatal, worker.status.row: f"its worker process {worker.running.exit_reason}".rstrip()}
        self._limits.forget_batch(task)
        return True

    def _restart(self, worker: WorkerProcess) -> None:
        """Replace a dead worker; if that is not possible, its tasks fail."""
        if self.is_closed:
            return
        if self._limits.starts_fail:
            self._fail_pending(worker, f"workers die before they have started; {_SEE_STDERR}")
            return
        try:
            self._replace(worker)
        except WorkerError as error:
            self._fail_pending(worker, error.message)

    def _replace(self, worker: WorkerProcess) -> None:
        """Launch another process, and send it the tasks of the dead one."""
        assert self.job is not None, "there is a job while a batch is waited for"
        worker.is_changing = True
        last = None if worker.last is None else replace(worker.last, rng=worker.rng)
        self._launch(worker, self.job.worker_start(worker.number, last, worker.samples))
        for task in list(worker.pending):
            self._send(worker, task)
        worker.is_changing = False

    def _fail_pending(self, worker: WorkerProcess, reason: str) -> None:
        for task in worker.pending:
            error = WorkerError(reason, worker=worker.number, batch=task.seq)
            self.done.append(worker.make_failure(task, error, rows=len(task.indices)))
        worker.pending.clear()

    # watching

    def progress(self) -> int:
        """Calls begun and batches ended, over all workers; it never falls."""
        if self._has_timed_out:  # else what was received shows progress
            self._transport.refresh([worker.running for worker in self.workers if worker.is_running])
        return self._received + sum(worker.read_progress() for worker in self.workers)

    def count_ready(self) -> int:
        """Count finished batches, also those that were sent and are not received yet."""
        return len(self.done) + sum(worker.count_sent() for worker in self.workers)

    def samples_per_call(self) -> int:
        """The most samples that a running call of a worker asks for."""
        busy = (worker.status.count for worker in self.workers if worker.pending and not worker.is_dead)
        return max(busy, default=1)

    def describe_workers(self) -> str:
        """Describe each busy worker with its stack. Workers write their stacks on a signal."""
        busy = [w for w in self.workers if w.is_running and (w.pending or w.start_result is None)]
        # without those that have exited: their pid may belong to another process
        running = [worker for worker in busy if not worker.running.has_exited()]
        stacks = self._transport.collect_stacks([worker.running for worker in running])
        found = {worker.number: stack for worker, stack in zip(running, stacks, strict=True)}
        parts = (worker.describe(found.get(worker.number)) for worker in busy)
        return "\n".join(parts) or "every worker is idle"

    # the end

    def close(self) -> None:
        """Ask the workers to exit, then terminate, then kill them; two seconds at most. Idempotent."""
        if self.is_closed or self._running.pid != os.getpid():  # in a forked child: the workers are the parent's
            return
        self.is_closed = True
        for worker in self.workers:
            worker.is_dead = worker.is_launched
        try:
            self._running.stop()
        finally:
            for worker in self.workers:
                worker.pending.clear()
            self.job = self._sent_job = None

    def close_in_child(self) -> None:
        """Close the copies of the parent's ends in a forked child; the workers stay the parent's."""
        for worker in self.workers:
            worker.close_in_child()
        for running in self._running.ending:
            running.close_in_child()


@atexit.register
def _stop_all() -> None:
    for backend in list(_alive):
        backend.is_at_exit = True  # a daemon thread may be waiting for a batch
        backend.close()


def _close_in_child() -> None:
    """Close the parent's ends in a forked child; otherwise workers would not notice the death of the parent."""
    for backend in list(_alive):
        backend.close_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
