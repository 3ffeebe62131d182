"""A pool of worker processes: sends tasks, receives batches, and replaces workers that die."""

from __future__ import annotations

import copy
import logging
import os
import signal
import time
import warnings
import weakref
from collections import deque
from dataclasses import replace
from multiprocessing.context import BaseContext
from typing import Final

from penstock.errors import SampleError, StallError, WorkerError
from penstock.workers.base import END, Job, Task, TaskResult, WorkerStart
from penstock.workers.processes.batch_encoding import unpack_state
from penstock.workers.processes.messages import BatchBuilt, EpochStarted
from penstock.workers.processes.restarts import RestartLimits
from penstock.workers.processes.start import Launcher, describe_start_error
from penstock.workers.processes.status import collect_stacks
from penstock.workers.processes.termination import (
    SIGKILL_EXIT,
    describe_exit,
    has_exited,
    wait_for_exit,
)
from penstock.workers.processes.transport import Transport
from penstock.workers.processes.worker import WorkerIdentity
from penstock.workers.processes.worker_process import RunningWorkers, StartResult, WorkerProcess

__all__ = ["Pool"]

_logger = logging.getLogger(__name__)

_POLL_S: Final = 0.5
_SEE_STDERR: Final = "see what they write to stderr"
_EXIT_S: Final = 1.0
"""Longest wait for a worker that has closed its connection to exit before it is killed, and then again."""


class Pool:
    """The workers of a :class:`~penstock.workers.processes.backend.ProcessBackend`.

    A job, a task or a batch may refer to the loader, so nothing but the backend holds the pool: its finalizer holds
    only :class:`~penstock.workers.processes.worker_process.RunningWorkers`, and a pool in a cycle is collected.

    Parameters
    ----------
    num_workers : int
        At least 1.
    transport : Transport
        Makes the connections to the workers.
    context, base_seed, restart_workers
        As for the backend.
    """

    def __init__(
        self,
        num_workers: int,
        transport: Transport,
        context: BaseContext | None,
        base_seed: int,
        *,
        restart_workers: bool,
    ) -> None:
        self.pid = os.getpid()
        self.job: Job | None = None
        self.done: deque[TaskResult] = deque()
        self.is_closed = self.is_at_exit = False
        self.workers = [WorkerProcess(number, transport) for number in range(num_workers)]
        self._transport, self._context, self._base_seed = transport, context, base_seed
        self._limits = RestartLimits(restart=restart_workers)
        self._launcher: Launcher | None = None
        self._job_to_send: Job | None = None
        self._received = 0
        self._has_warned = False
        self._running = RunningWorkers()
        weakref.finalize(
            self, self._running.stop
        ).atexit = False  # the backend's module does it, before multiprocessing

    # work

    def start(self, job: Job) -> None:
        """Launch the workers, or start another epoch in them; if one cannot be launched, end them all."""
        try:
            self._start(job)
        except BaseException:
            self.stop()
            raise

    def _start(self, job: Job) -> None:
        self.job = job
        self._limits.start_epoch()
        if self._launcher is None:
            self._launcher = Launcher.choose(self._context, job)
            self._job_to_send = copy.copy(job)
            for worker in self.workers:
                self._launch(worker, job.worker_start(worker.number))
            return
        for worker in self.workers:
            worker.last, worker.samples, worker.start_result = None, 0, None
            if worker.is_dead:
                self._launch(worker, job.worker_start(worker.number))
            else:
                worker.start_epoch(job.worker_start(worker.number))

    def _launch(self, worker: WorkerProcess, start: WorkerStart) -> None:
        assert self._launcher is not None, "start() comes first"
        assert self._job_to_send is not None, "start() comes first"
        identity = WorkerIdentity(worker.number, len(self.workers), self._base_seed)
        try:
            worker.launch(self._launcher, identity, self._job_to_send, start)
        except OSError as error:
            raise WorkerError(describe_start_error(error), worker=worker.number) from error
        self._running.ends[worker.number] = worker.process, worker.connection

    def submit(self, task: Task) -> None:
        """Send a task to its worker."""
        worker = self.workers[task.seq % len(self.workers) if task.worker is None else task.worker]
        worker.is_changing = not worker.is_dead
        worker.pending.append(task)
        if worker.is_dead:
            self._restart(worker)
        else:
            self._send(worker, task)
        worker.is_changing = False

    def _send(self, worker: WorkerProcess, task: Task) -> None:
        try:
            worker.send(task)
        except Exception as error:  # noqa: BLE001  # indices that cannot be pickled
            worker.pending.remove(task)
            failed = SampleError(f"indices cannot be sent to a worker: {type(error).__name__}: {error}", batch=task.seq)
            self.done.append(TaskResult(task.seq, error=failed, task=task, worker=worker.number))

    def wait(self, timeout_s: float | None) -> None:
        """Wait until a worker has sent something or exited, ``timeout_s`` at most, and receive what there is."""
        self._recover_from_interrupt()
        running = [worker for worker in self.workers if worker.is_running]
        limit_s = _POLL_S if timeout_s is None else min(max(timeout_s, 0.0), _POLL_S)
        ready = self._transport.wait([(worker.connection, worker.process.sentinel) for worker in running], limit_s)
        if not ready:  # a process that a worker has started may hold its descriptors open: ask for the worker itself
            ready = [at for at, worker in enumerate(running) if not worker.is_dead and has_exited(worker.process)]
        for position in ready:
            self._receive(running[position])

    def wait_for_start(self, timeout_s: float | None = None) -> list[StartResult]:
        """Wait until every worker has started the epoch.

        Raises
        ------
        WorkerError
            If workers die before that.
        StallError
            If within ``timeout_s`` no further worker has started.
        """
        since, received = time.monotonic(), self._received
        while late := [worker for worker in self.workers if worker.start_result is None]:
            for worker in late:
                if worker.is_dead and not self._limits.can_restart:
                    how = worker.exit_reason.rstrip(". ")
                    raise WorkerError(f"a worker {how} before it had started; {_SEE_STDERR}", worker=worker.number)
                if worker.is_dead:
                    self._replace(worker)
            self.wait(timeout_s)
            if self._received != received:
                since, received = time.monotonic(), self._received
            elif timeout_s is not None and time.monotonic() - since > timeout_s:
                raise StallError(f"workers have not started within {timeout_s} seconds; {self.describe_workers()}")
        return [worker.start_result for worker in self.workers if worker.start_result is not None]

    def _recover_from_interrupt(self) -> None:
        """Continue after an interrupt that was caught (Ctrl-C in a notebook) in the middle of a change.

        Of a worker that was being changed, only its pending tasks are known: another process builds them.
        """
        self.record_finished()
        for worker in self.workers:
            if worker.is_changing and not worker.is_dead:
                worker.process.kill()
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
        if not self.is_closed and (worker.connection.ended or (is_silent and has_exited(worker.process))):
            self._record_death(worker)
        worker.is_changing = False

    def _accept(self, worker: WorkerProcess, message: BatchBuilt) -> None:
        task = worker.pending[0]
        assert task.seq == message.seq, "a worker does its tasks in order"
        worker.received += 1
        if self.job is not None:
            self.job.trace.add_all(message.times, worker.number)
        self._warn_of_memory(worker.connection.memory_error)
        done = TaskResult(
            task.seq, rows=message.rows, task=task, worker=worker.number, rng=message.rng, left_out=message.left_out,
            repaired=message.repaired,
        )  # fmt: skip
        start = time.perf_counter_ns()
        try:
            if message.error is not None:
                done.error = message.error.rebuild(worker.number)
            else:
                batch = worker.connection.unpack(message.payload)
                assert self.job is not None, "a job is there while it works"
                done.batch = batch if batch is END else self.job.deliver(batch)
            done.state = unpack_state(message.state)
        except Exception as error:  # noqa: BLE001  # raised when the batch is due
            reason = f"a batch from worker {worker.number} cannot be unpacked: {type(error).__name__}: {error}"
            done.batch, done.error = None, SampleError(reason, batch=task.seq)
            done.error.__cause__ = error
        if self.job is not None:
            self.job.trace.add("transport", time.perf_counter_ns() - start, 0)
        worker.finished = done
        self._record(worker)

    def record_finished(self) -> None:
        """Put the batches that were received into :attr:`done`, wherever an interrupt came."""
        for worker in self.workers:
            if worker.finished is not None:
                self._record(worker)

    def _record(self, worker: WorkerProcess) -> None:
        """Record ``worker.finished``. Each step is done once, however often an interrupt ends this."""
        done = worker.finished
        assert done is not None, "called for a finished batch"
        if worker.last is None or worker.last.task is not done.task:
            last = TaskResult(
                done.seq, rows=done.rows, state=done.state, task=done.task, worker=done.worker, rng=done.rng,
                left_out=done.left_out,
            )  # fmt: skip
            worker.last, worker.rng, worker.samples = last, done.rng or worker.rng, worker.samples + done.rows
        if worker.pending and worker.pending[0] is done.task:
            worker.pending.popleft()
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
        if wait_for_exit([worker.process], _EXIT_S):
            reason = reason or "closed its connection, did not exit, and had to be killed"
            worker.process.kill()
            wait_for_exit([worker.process], _EXIT_S)
        worker.connection.close()
        worker.is_dead = True
        self._running.ends.pop(worker.number, None)
        worker.exit_reason = reason or describe_exit(worker.process)
        started = worker.start_result is not None
        killed = not reason and worker.process.exitcode in {-signal.SIGKILL, -signal.SIGTERM}
        self._limits.record_death(started=started, killed=killed)
        if not worker.pending:
            return
        task = worker.pending[0]
        error = self._death_error(worker, task)
        exceeds = started and self._limits.exceeds(task, worker.status, killed=killed)
        if not self._limits.can_restart or (exceeds and not self._exclude_sample(worker, task, error)):
            worker.pending.popleft()
            self.done.append(TaskResult(task.seq, error=error, rows=len(task.indices), task=task, worker=worker.number))
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
        task.fatal = {**task.fatal, worker.status.row: f"its worker process {worker.exit_reason}".rstrip()}
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
            self.done.append(TaskResult(task.seq, error=error, rows=len(task.indices), task=task, worker=worker.number))
        worker.pending.clear()

    def _death_error(self, worker: WorkerProcess, task: Task) -> WorkerError:
        pid, how = worker.process.pid, worker.exit_reason
        hint = " It was likely out of memory." if how == SIGKILL_EXIT else ""
        stacks = worker.status.stacks()
        cause = RuntimeError(f"DataLoader worker (pid {pid}) {how}{hint}" + (f"\n{stacks}" if stacks else ""))
        error = WorkerError(
            f"DataLoader worker (pid(s) {pid}) exited unexpectedly: it {how}",
            worker=worker.number, batch=task.seq, **worker.current_indices(task),
        )  # fmt: skip
        error.__cause__ = cause
        if stacks:
            error.add_note(f"The worker's last stack:\n{stacks}")
        return error

    # watching

    def progress(self) -> int:
        """Calls begun and batches ended, over all workers; it never falls."""
        for worker in self.workers:
            if worker.is_launched:
                worker.progress_seen = max(worker.progress_seen, worker.status.progress)
        return self._received + sum(worker.progress_seen for worker in self.workers)

    def count_ready(self) -> int:
        """Batches that were received, or that workers have sent."""
        return len(self.done) + sum(worker.count_sent() for worker in self.workers)

    def samples_per_call(self) -> int:
        """The most samples that a call in a busy worker asks for, at least 1."""
        busy = (worker.status.count for worker in self.workers if worker.pending and not worker.is_dead)
        return max(busy, default=1)

    def describe_workers(self) -> str:
        """What each busy worker is doing, with its stack."""
        busy = [w for w in self.workers if not w.is_dead and (w.pending or w.start_result is None)]
        # without those that have exited: their pid may belong to another process
        running = [worker for worker in busy if not has_exited(worker.process)]
        stacks = collect_stacks([(worker.status, worker.process.pid or 0) for worker in running])
        found = {worker.number: stack for worker, stack in zip(running, stacks, strict=True)}
        parts = []
        for worker in busy:
            who = f"worker {worker.number} (pid {worker.process.pid})"
            at = f"has been busy for {worker.status.busy_s:.1f} s with {worker.describe_work()}, here:\n"
            parts.append(f"{who} {at}{found[worker.number]}" if worker.number in found else f"{who} has exited")
        return "\n".join(parts) or "every worker is idle"

    # the end

    def stop(self) -> None:
        """End the workers; two seconds at most. Idempotent."""
        if self.is_closed or self.pid != os.getpid():
            return
        self.is_closed = True
        for worker in self.workers:
            worker.is_dead = worker.is_launched
        try:
            self._running.stop()
        finally:
            for worker in self.workers:
                worker.pending.clear()
            self.job = self._job_to_send = None

    def close_in_child(self) -> None:
        """In a forked child: close the copies of the parent's ends; the workers stay the parent's."""
        for worker in self.workers:
            worker.close_in_child()
