"""A pool of worker processes: their sockets, what each was given, what became of it."""

from __future__ import annotations

import copy
import logging
import multiprocessing.process
import os
import select
import signal
import socket
import time
import warnings
from collections import Counter, deque
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing.context import BaseContext
from typing import Any, Final

from penstock.errors import SampleError, WorkerError
from penstock.slots import PageLock, Quarantine
from penstock.trace import STAGES
from penstock.workers.base import END, Done, Job, Task
from penstock.workers.processes.board import Board
from penstock.workers.processes.channel import Channel
from penstock.workers.processes.failures import Failure
from penstock.workers.processes.memory import ParentSlots
from penstock.workers.processes.packing import unpack
from penstock.workers.processes.start import Launcher, refusal
from penstock.workers.processes.worker import Ends, Place, serve

__all__ = ["Pool"]

_logger = logging.getLogger(__name__)

_CRASHES: Final = 2
"""Workers that one batch may take with it by crashing or ending, before it is an error."""
_KILLS: Final = 5
"""The same by a signal from outside (SIGKILL, SIGTERM): chance, or want of memory."""
_LOOK_S: Final = 0.5
_FALSE_STARTS: Final = 3
"""Workers in a row that may die by themselves before they have begun."""
_KILLED_STARTS: Final = 10
"""The same where the last was killed from outside."""
_POLITE_S: Final = 0.8
_TERMINATED_S: Final = 0.4
_KILLED_S: Final = 0.6
"""What closing waits for workers that were asked, terminated, killed."""


@dataclass(slots=True)
class _Start:
    """What a worker said when it had begun an epoch."""

    state: Any
    failure: Failure | None


class _Worker:
    """One worker as the parent sees it; its process may be replaced."""

    def __init__(self, number: int, page_lock: PageLock | None, quarantine: Quarantine | None) -> None:
        self.number = number
        self.process: Any = None
        self.channel: Channel
        self.board: Board
        self.slots: ParentSlots
        self.lifeline = -1
        self.pending: deque[Task] = deque()
        self.state_at_start: _Start | None = None
        self.last: Done | None = None
        self.samples = 0
        self.rng: bytes | None = None
        self.reported = 0
        self.dead = False
        self._page_lock, self._quarantine = page_lock, quarantine

    def launch(self, launcher: Launcher, place: Place, job: Job, opening: Any) -> None:
        """Start the process, with descriptors of its own; if that fails, none are left."""
        with ExitStack() as given_away, ExitStack() as undo:
            ours, theirs = socket.socketpair()
            given_away.callback(theirs.close)
            self.channel = Channel(ours, blocking=False)
            undo.callback(self.channel.close)
            life_read, self.lifeline = os.pipe()
            given_away.callback(os.close, life_read)
            undo.callback(self.let_go)
            self.board = Board()
            undo.callback(self.board.close)
            ends = Ends(theirs.fileno(), life_read, self.board.fd)
            self.process = launcher.start(_serve, (ends, place, job, opening), f"penstock-worker-{self.number}")
            undo.pop_all()
        self.slots, self.state_at_start, self.dead = ParentSlots(self._page_lock, self._quarantine), None, False

    def send(self, task: Task) -> None:
        """Give it a task."""
        keys = task.keys
        drawn = None if keys.indices is task.indices else keys.indices
        numbers = (task.seq, task.indices, keys.seed, keys.epoch, drawn, task.snapshot, task.fatal)
        self.channel.send(("task", numbers, self.slots.take_freed()))

    def release(self) -> None:
        """Close the parent's descriptors."""
        self.board.close()
        self.let_go()

    def let_go(self) -> None:
        """Close the parent's ends, by which a worker sees that nobody is there; the board is the worker's too."""
        self.channel.close()
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1


def _serve(ends: Ends, place: Place, job: Job, opening: Any) -> None:
    serve(ends, place, job, opening)


class Pool:
    """What a :class:`~penstock.workers.processes.backend.ProcessBackend` and its finalizer share."""

    def __init__(
        self,
        num_workers: int,
        context: BaseContext | None,
        base_seed: int,
        *,
        restart_workers: bool,
        page_lock: PageLock | None,
    ) -> None:
        self.pid = os.getpid()
        self.job: Job | None = None
        self.done: deque[Done] = deque()
        self.closed = False
        quarantine = None if page_lock is None else Quarantine(page_lock.fence)
        self.workers = [_Worker(number, page_lock, quarantine) for number in range(num_workers)]
        self._context, self._base_seed, self._restart = context, base_seed, restart_workers
        self._launcher: Launcher | None = None
        self._remote: Job | None = None
        self._messages = self._false_starts = 0
        self._most_false_starts = _FALSE_STARTS
        self._deaths: Counter[int] = Counter()
        self._warned = False

    # work

    def start(self, job: Job) -> None:
        """Launch the workers, or begin another epoch in them; if one cannot be launched, none is left."""
        try:
            self._start(job)
        except BaseException:
            self.stop()
            raise

    def _start(self, job: Job) -> None:
        self.job = job
        self._deaths.clear()
        self._false_starts = 0
        if self._launcher is None:
            self._launcher = Launcher.choose(self._context, job)
            self._remote = copy.copy(job)
            for worker in self.workers:
                self._launch(worker, job.opening(worker.number))
            return
        for worker in self.workers:
            worker.last, worker.samples, worker.state_at_start = None, 0, None
            if worker.dead:
                self._launch(worker, job.opening(worker.number))
            else:
                worker.channel.send(("open", job.opening(worker.number)))

    def _launch(self, worker: _Worker, opening: Any) -> None:
        assert self._launcher is not None, "start() comes first"
        assert self._remote is not None, "start() comes first"
        place = Place(worker.number, len(self.workers), self._base_seed)
        try:
            worker.launch(self._launcher, place, self._remote, opening)
        except OSError as error:
            raise WorkerError(refusal(error), worker=worker.number) from error

    def submit(self, task: Task) -> None:
        """Give a task to its worker."""
        worker = self.workers[task.seq % len(self.workers) if task.worker is None else task.worker]
        worker.pending.append(task)
        if worker.dead:
            self._revive(worker)
        else:
            self._send(worker, task)

    def _send(self, worker: _Worker, task: Task) -> None:
        try:
            worker.send(task)
        except Exception as error:  # noqa: BLE001  # indices that cannot be pickled
            worker.pending.remove(task)
            failed = SampleError(f"indices cannot be sent to a worker: {type(error).__name__}: {error}", batch=task.seq)
            self.done.append(Done(task.seq, error=failed, task=task, worker=worker.number))

    def wait(self, timeout_s: float | None) -> None:
        """Wait until something happens, or ``timeout_s`` have passed, and take what there is."""
        poll, by_fd = select.poll(), {}
        for worker in self.workers:
            if not worker.dead:
                poll.register(worker.channel.fileno(), select.POLLIN | (select.POLLOUT if worker.channel.unsent else 0))
                poll.register(worker.process.sentinel, select.POLLIN)
                by_fd[worker.channel.fileno()] = by_fd[worker.process.sentinel] = worker
        patience_s = _LOOK_S if timeout_s is None else min(max(timeout_s, 0.0), _LOOK_S)
        ready = {by_fd[fd].number for fd, _ in poll.poll(patience_s * 1000)}
        # a process that the worker has started may hold its descriptors open: look at the worker itself now and then
        ready |= {w.number for w in self.workers if not ready and not w.dead and not w.process.is_alive()}
        for number in sorted(ready):
            self._attend(self.workers[number])

    def _attend(self, worker: _Worker) -> None:
        worker.channel.flush()
        while (message := worker.channel.receive()) is not None:
            self._messages += 1
            head, body, fds = message
            if head[0] == "opened":
                self._false_starts = 0
                worker.state_at_start = _Start(head[1], head[2])
            else:
                self._take(worker, head, body, fds)
        if worker.channel.ended or not worker.process.is_alive():
            self._bury(worker)

    def _take(self, worker: _Worker, head: Any, body: bytes, fds: list[int]) -> None:
        _, seq, rows, state, rng, failure, left_out, places, new, (dropped, refused), times = head
        task = worker.pending.popleft()
        assert task.seq == seq, "a worker does its tasks in order"
        worker.slots.drop(dropped)
        self._count(times)
        self._warn_of_memory(refused)
        done = Done(seq, rows=rows, state=state, task=task, worker=worker.number, rng=rng, left_out=left_out)
        start = time.perf_counter_ns()
        try:
            self._map(worker, new, fds)
            if failure is not None:
                done.error = failure.rebuilt(worker.number)
            else:
                batch = unpack(body, places, worker.slots)
                assert self.job is not None, "a job is there while it works"
                done.batch = batch if batch is END else self.job.deliver(batch)
        except Exception as error:  # noqa: BLE001  # raised by the consumer in its turn
            done.error = SampleError(
                f"a batch from worker {worker.number} cannot be unpacked: {type(error).__name__}: {error}", batch=seq
            )
            done.error.__cause__ = error
        if self.job is not None:
            self.job.trace.add("transport", time.perf_counter_ns() - start, 0)
        worker.last, worker.rng = replace(done, batch=None, error=None), rng or worker.rng
        worker.samples += rows
        self.done.append(done)

    def _map(self, worker: _Worker, new: list[tuple[int, int]], fds: list[int]) -> None:
        if len(fds) < len(new):
            for fd in fds:
                os.close(fd)
            raise OSError("this process has too many open files; raise the limit by `ulimit -n`")
        for (number, nbytes), fd in zip(new, fds, strict=True):
            worker.slots.add(number, nbytes, fd)

    def _count(self, times: Any) -> None:
        if self.job is not None:
            for stage, (time_ns, items) in zip(STAGES, times, strict=False):
                self.job.trace.add(stage, time_ns, items)

    def _warn_of_memory(self, refused: str) -> None:
        if refused and not self._warned:
            self._warned = True
            warnings.warn(
                f"workers get no shared memory for batches ({refused}): they travel through sockets, which is slower",
                RuntimeWarning,
                stacklevel=2,
            )

    # deaths

    def _bury(self, worker: _Worker) -> None:
        """A worker is dead: tell why, and have its tasks done by another."""
        worker.dead = True
        worker.process.join(1.0)
        worker.release()
        began = worker.state_at_start is not None
        killed = worker.process.exitcode in {-signal.SIGKILL, -signal.SIGTERM}
        self._false_starts = 0 if began else self._false_starts + 1
        self._most_false_starts = _KILLED_STARTS if killed else _FALSE_STARTS
        if worker.pending:
            first, limit = worker.pending[0], _KILLS if killed else _CRASHES
            self._deaths[first.seq] += began  # what dies before it begins dies of no batch
            died = self._obituary(worker, first)
            hopeless = not self._restart or self._cannot_start
            if hopeless or (self._deaths[first.seq] >= limit and not self._leave_out(worker, first, died)):
                worker.pending.popleft()
                self.done.append(Done(first.seq, error=died, rows=len(first.indices), task=first, worker=worker.number))
            else:
                if first.fatal is None and getattr(self.job, "tolerant", False):
                    first.fatal = {}  # sample by sample from now on: the next death says at which
                _logger.warning("%s; another one builds its batches again", died)
            if worker.pending:
                self._revive(worker)

    def _leave_out(self, worker: _Worker, task: Task, died: WorkerError) -> bool:
        """Have a batch built without the sample that ends its workers, if the job may do that; whether it may."""
        if task.fatal is None or "index" not in died.where or worker.board.row in task.fatal:
            return False
        task.fatal = {**task.fatal, worker.board.row: f"its worker process {_fate(worker.process)}".rstrip()}
        del self._deaths[task.seq]
        return True

    @property
    def _cannot_start(self) -> bool:
        return self._false_starts >= self._most_false_starts

    def _revive(self, worker: _Worker) -> None:
        assert self.job is not None, "tasks are there only while a job is"
        if self._cannot_start:
            self._give_up(worker, "workers die before they have begun; see what they write to stderr")
            return
        last = None if worker.last is None else replace(worker.last, rng=worker.rng)
        opening = self.job.opening(worker.number, last, worker.samples)
        try:
            self._launch(worker, opening)
        except WorkerError as error:
            self._give_up(worker, error.message)
            return
        for task in worker.pending:
            worker.send(task)

    def _give_up(self, worker: _Worker, why: str) -> None:
        for task in worker.pending:
            error = WorkerError(why, worker=worker.number, batch=task.seq)
            self.done.append(Done(task.seq, error=error, rows=len(task.indices), task=task, worker=worker.number))
        worker.pending.clear()

    def _obituary(self, worker: _Worker, task: Task) -> WorkerError:
        code, pid, row = worker.process.exitcode, worker.process.pid, worker.board.row
        index = task.indices[row] if 0 <= row < len(task.indices) and worker.state_at_start is not None else None
        how = _fate(worker.process)
        hint = " It was likely out of memory." if code == -signal.SIGKILL else ""
        stack = worker.board.stack()
        cause = RuntimeError(f"DataLoader worker (pid {pid}) {how}{hint}" + (f"\n{stack}" if stack else ""))
        error = WorkerError(
            f"DataLoader worker (pid(s) {pid}) exited unexpectedly: it {how}",
            worker=worker.number, batch=task.seq, index=getattr(index, "item", lambda: index)(),
        )  # fmt: skip
        error.__cause__ = cause
        if stack:
            error.add_note(f"The worker's last stack:\n{stack}")
        return error

    # watching

    def progress(self) -> int:
        """Samples begun and batches ended, over all workers; it never falls."""
        for worker in self.workers:
            if worker.process is not None:
                worker.reported = max(worker.reported, worker.board.progress)
        return self._messages + sum(worker.reported for worker in self.workers)

    def stuck(self) -> str:
        """What each busy worker is at."""
        parts = []
        for worker in self.workers:
            if worker.pending and not worker.dead:
                task, row, board = worker.pending[0], worker.board.row, worker.board
                shown = f" (index {task.indices[row]})" if 0 <= row < len(task.indices) else ""
                what = f"sample {row} of batch {task.seq}{shown}" if row >= 0 else f"batch {task.seq}"
                parts.append(
                    f"worker {worker.number} (pid {worker.process.pid}) has been busy for {board.busy_s:.1f} s with "
                    f"{what}, here:\n{board.ask(worker.process.pid)}"
                )
        return "\n".join(parts) or "every worker is idle"

    # the end

    def stop(self) -> None:
        """End the workers; two seconds at most."""
        if self.closed or self.pid != os.getpid():
            return
        self.closed = True
        started = [worker for worker in self.workers if worker.process is not None]
        for worker in started:
            if not worker.dead:
                worker.board.stop()
                worker.channel.close()
        for act, patience_s in (("", _POLITE_S), ("terminate", _TERMINATED_S), ("kill", _KILLED_S)):
            left = [worker.process for worker in started if worker.process.is_alive()]
            for process in left if act else ():
                getattr(process, act)()
            deadline = time.monotonic() + patience_s
            for process in left:
                process.join(max(0.0, deadline - time.monotonic()))
        for worker in started:
            worker.release()
            worker.dead = True
            worker.pending.clear()
        self.job = self._remote = None

    def forget(self) -> None:
        """In a forked child: close the copies of the parent's ends, and leave its workers to it."""
        for worker in self.workers:
            multiprocessing.process._children.discard(worker.process)  # type: ignore[attr-defined]  # noqa: SLF001  # or the child's exit would end them
            if worker.lifeline >= 0:
                worker.let_go()


def _fate(process: Any) -> str:
    code = process.exitcode
    if code is None or code >= 0:
        return f"exited with code {code}"
    return f"is killed by signal: {signal.strsignal(-code) or -code}. "
