"""A pool of worker processes: who gets which task, what became of it, and who comes in a dead one's place."""

from __future__ import annotations

import copy
import logging
import multiprocessing.process
import os
import select
import signal
import time
import warnings
from collections import Counter, deque
from dataclasses import replace
from multiprocessing.context import BaseContext
from typing import Any, Final

from penstock.errors import SampleError, StallError, WorkerError
from penstock.slots import PageLock, Quarantine
from penstock.trace import STAGES
from penstock.workers.base import END, Done, Job, Task
from penstock.workers.processes.board import stacks_of
from penstock.workers.processes.ending import KILLED, await_end, end_all, fate, has_ended
from penstock.workers.processes.packing import unpack, unpacked_state
from penstock.workers.processes.seat import Seat, Start
from penstock.workers.processes.start import Launcher, refusal
from penstock.workers.processes.worker import Place

__all__ = ["Pool"]

_logger = logging.getLogger(__name__)

_CRASHES: Final = 2
"""Workers that may crash or end in the same place of one batch, before it is an error."""
_KILLS: Final = 5
"""The same by a signal from outside (SIGKILL, SIGTERM): chance, or want of memory."""
_DEATHS: Final = 20
"""Workers that one batch may take with it in all."""
_LOOK_S: Final = 0.5
_FALSE_STARTS: Final = 3
"""Workers in a row that may die by themselves before they have begun."""
_KILLED_STARTS: Final = 10
"""The same where the last was killed from outside."""
_SEE_STDERR: Final = "see what they write to stderr"
_DYING_S: Final = 1.0
"""What a worker that has let its descriptors go may take to end before it is killed, and then."""


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
        self.closed = self.at_exit = False
        quarantine = None if page_lock is None else Quarantine(page_lock.fence)
        self.workers = [Seat(number, page_lock, quarantine) for number in range(num_workers)]
        self._context, self._base_seed, self._restart = context, base_seed, restart_workers
        self._launcher: Launcher | None = None
        self._remote: Job | None = None
        self._messages = self._false_starts = 0
        self._most_false_starts = _FALSE_STARTS
        self._deaths: Counter[Any] = Counter()  # by batch, and by batch and row
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

    def _launch(self, worker: Seat, opening: Any) -> None:
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
        worker.in_hand = not worker.dead
        worker.pending.append(task)
        if worker.dead:
            self._revive(worker)
        else:
            self._send(worker, task)
        worker.in_hand = False

    def _send(self, worker: Seat, task: Task) -> None:
        try:
            worker.send(task)
        except Exception as error:  # noqa: BLE001  # indices that cannot be pickled
            worker.pending.remove(task)
            failed = SampleError(f"indices cannot be sent to a worker: {type(error).__name__}: {error}", batch=task.seq)
            self.done.append(Done(task.seq, error=failed, task=task, worker=worker.number))

    def wait(self, timeout_s: float | None) -> None:
        """Wait until something happens, or ``timeout_s`` have passed, and take what there is."""
        self._mend()
        poll, by_fd = select.poll(), {}
        for worker in self.workers:
            fd = -1 if worker.dead else worker.channel.fileno()
            if fd >= 0:  # else another thread is ending them all
                poll.register(fd, select.POLLIN | (select.POLLOUT if worker.channel.unsent else 0))
                poll.register(worker.process.sentinel, select.POLLIN)
                by_fd[fd] = by_fd[worker.process.sentinel] = worker
        patience_s = _LOOK_S if timeout_s is None else min(max(timeout_s, 0.0), _LOOK_S)
        ready = {by_fd[fd].number for fd, _ in poll.poll(patience_s * 1000)}
        # a process that the worker has started may hold its descriptors open: look at the worker itself now and then
        ready |= {w.number for w in self.workers if not ready and not w.dead and has_ended(w.process)}
        for number in sorted(ready):
            self._attend(self.workers[number])

    def await_starts(self, timeout_s: float | None = None) -> None:
        """Wait until every worker has begun the epoch.

        Raises
        ------
        WorkerError
            If one cannot begin.
        StallError
            If for ``timeout_s`` no further one has begun.
        """
        start, heard = time.monotonic(), self._messages
        while late := [worker for worker in self.workers if worker.state_at_start is None]:
            for worker in late:
                if worker.dead and (self._cannot_start or not self._restart):
                    how = worker.fate.rstrip(". ")
                    raise WorkerError(f"a worker {how} before it had begun; {_SEE_STDERR}", worker=worker.number)
                if worker.dead:
                    self._replace(worker)
            self.wait(timeout_s)
            if self._messages != heard:
                start, heard = time.monotonic(), self._messages
            elif timeout_s is not None and time.monotonic() - start > timeout_s:
                raise StallError(f"workers have not begun within {timeout_s} seconds; {self.stuck()}")

    def _mend(self) -> None:
        """Go on after an interrupt that was caught (Ctrl-C in a notebook) and had come in the middle of something.

        What is known of a worker is wrong then, but for what is pending: another one does that.
        """
        self.settle()
        for worker in self.workers:
            if worker.in_hand and not worker.dead:
                worker.process.kill()
                self._bury(worker, "was in the middle of a message when the program was interrupted")
            elif worker.dead and worker.pending:
                self._revive(worker)
            worker.in_hand = False

    def _attend(self, worker: Seat) -> None:
        worker.in_hand = True
        worker.channel.flush()
        before = self._messages
        while not self.closed and (message := worker.channel.receive()) is not None:
            self._messages += 1
            head, body, fds = message
            if head[0] == "opened":
                self._false_starts = 0
                worker.state_at_start = Start.told(head[1], head[2], worker.number)
            else:
                self._take(worker, head, body, fds)
        silent = self._messages == before  # else the system need not be asked about it each time
        if not self.closed and (worker.channel.ended or (silent and has_ended(worker.process))):
            self._bury(worker)
        worker.in_hand = False

    def _take(self, worker: Seat, head: Any, body: bytes, fds: list[int]) -> None:
        _, seq, rows, state, rng, failure, left_out, places, new, (dropped, refused), times = head
        task = worker.pending[0]
        assert task.seq == seq, "a worker does its tasks in order"
        worker.slots.drop(dropped)
        self._count(times)
        self._warn_of_memory(refused)
        done = Done(seq, rows=rows, task=task, worker=worker.number, rng=rng, left_out=left_out)
        start = time.perf_counter_ns()
        try:
            self._map(worker, new, fds, places)
            done.state = unpacked_state(state)
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
        worker.finished = done
        self._settle(worker)

    def settle(self) -> None:
        """Make sure that what workers have finished is in :attr:`done`, wherever an interrupt came."""
        for worker in self.workers:
            if worker.finished is not None:
                self._settle(worker)

    def _settle(self, worker: Seat) -> None:
        """Done is what is ``worker.finished``; each step is taken once, however often this is begun."""
        done = worker.finished
        assert done is not None, "asked for what is finished"
        if worker.last is None or worker.last.task is not done.task:
            last = replace(done, batch=None, error=None)
            worker.last, worker.rng, worker.samples = last, done.rng or worker.rng, worker.samples + done.rows
        if worker.pending and worker.pending[0] is done.task:
            worker.pending.popleft()
        if not any(other is done for other in self.done):
            self.done.append(done)
        worker.finished = None

    def _map(self, worker: Seat, new: Any, fds: list[int], places: Any) -> None:
        try:
            worker.slots.add(new, fds)
        except OSError:
            worker.slots.refuse(places)
            raise

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

    def _bury(self, worker: Seat, why: str = "") -> None:
        """A worker is dead, or let its descriptors go: tell why, and have its tasks done by another."""
        if await_end([worker.process], _DYING_S):
            why = why or "closed its socket, went on, and had to be killed"
            worker.process.kill()
            await_end([worker.process], _DYING_S)
        worker.release()
        worker.dead = True
        worker.fate = why or fate(worker.process)
        began = worker.state_at_start is not None
        killed = not why and worker.process.exitcode in {-signal.SIGKILL, -signal.SIGTERM}
        self._false_starts = 0 if began else self._false_starts + 1
        self._most_false_starts = _KILLED_STARTS if killed else _FALSE_STARTS
        if worker.pending:
            first = worker.pending[0]
            died = self._obituary(worker, first)
            too_many = began and self._are_too_many(worker, first, _KILLS if killed else _CRASHES)
            hopeless = not self._restart or self._cannot_start
            if hopeless or (too_many and not self._leave_out(worker, first, died)):
                worker.pending.popleft()
                self.done.append(Done(first.seq, error=died, rows=len(first.indices), task=first, worker=worker.number))
            else:
                if first.fatal is None and getattr(self.job, "tolerant", False):
                    first.fatal = {}  # sample by sample from now on: the next death says at which
                _logger.warning("%s; another one builds its batches again", died)
            if worker.pending:
                self._revive(worker)

    def _are_too_many(self, worker: Seat, task: Task, limit: int) -> bool:
        """Count a death; whether as many were in the same place, which is no chance, or many in all."""
        self._deaths[task.seq] += 1
        if self._deaths[task.seq] >= _DEATHS:
            return True
        if worker.board.batch != task.seq:
            return False  # it had not come to it
        place = task.seq, worker.board.row
        self._deaths[place] += 1
        return self._deaths[place] >= limit

    def _leave_out(self, worker: Seat, task: Task, died: WorkerError) -> bool:
        """Have a batch built without the sample that ends its workers, if the job may do that; whether it may."""
        if task.fatal is None or "index" not in died.where or worker.board.row in task.fatal:
            return False
        task.fatal = {**task.fatal, worker.board.row: f"its worker process {worker.fate}".rstrip()}
        del self._deaths[task.seq]
        return True

    @property
    def _cannot_start(self) -> bool:
        return self._false_starts >= self._most_false_starts

    def _revive(self, worker: Seat) -> None:
        if self.closed:
            return
        if self._cannot_start:
            self._give_up(worker, f"workers die before they have begun; {_SEE_STDERR}")
            return
        try:
            self._replace(worker)
        except WorkerError as error:
            self._give_up(worker, error.message)

    def _replace(self, worker: Seat) -> None:
        """Start another process in a dead one's place, and give it what was the dead one's."""
        assert self.job is not None, "there is a job as long as somebody waits"
        worker.in_hand = True
        last = None if worker.last is None else replace(worker.last, rng=worker.rng)
        self._launch(worker, self.job.opening(worker.number, last, worker.samples))
        for task in list(worker.pending):
            self._send(worker, task)
        worker.in_hand = False

    def _give_up(self, worker: Seat, why: str) -> None:
        for task in worker.pending:
            error = WorkerError(why, worker=worker.number, batch=task.seq)
            self.done.append(Done(task.seq, error=error, rows=len(task.indices), task=task, worker=worker.number))
        worker.pending.clear()

    def _obituary(self, worker: Seat, task: Task) -> WorkerError:
        pid, how = worker.process.pid, worker.fate
        hint = " It was likely out of memory." if how == KILLED else ""
        stack = worker.board.stack()
        cause = RuntimeError(f"DataLoader worker (pid {pid}) {how}{hint}" + (f"\n{stack}" if stack else ""))
        error = WorkerError(
            f"DataLoader worker (pid(s) {pid}) exited unexpectedly: it {how}",
            worker=worker.number, batch=task.seq, **worker.asked_for(task),
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

    def samples_per_call(self) -> int:
        """The most samples that a call in a busy worker asks for, at least 1."""
        busy = (worker.board.count for worker in self.workers if worker.pending and not worker.dead)
        return max(busy, default=1)

    def stuck(self) -> str:
        """What each busy worker is at."""
        busy = [w for w in self.workers if not w.dead and (w.pending or w.state_at_start is None)]
        # one that has ended is not asked: its number may be another's
        living = [worker for worker in busy if not has_ended(worker.process)]
        stacks = stacks_of([(worker.board, worker.process.pid) for worker in living])
        said = {worker.number: stack for worker, stack in zip(living, stacks, strict=True)}
        parts = []
        for worker in busy:
            who = f"worker {worker.number} (pid {worker.process.pid})"
            at = f"has been busy for {worker.board.busy_s:.1f} s with {worker.doing()}, here:\n"
            parts.append(f"{who} {at}{said[worker.number]}" if worker.number in said else f"{who} has ended")
        return "\n".join(parts) or "every worker is idle"

    # the end

    def stop(self) -> None:
        """End the workers; two seconds at most."""
        if self.closed or self.pid != os.getpid():
            return
        self.closed = True
        living = [worker for worker in self.workers if worker.process is not None and not worker.dead]
        try:
            for worker in living:
                worker.dead = True
                worker.board.stop()
                worker.channel.close()
            end_all([worker.process for worker in living])
        finally:  # an interrupt here: the lifelines close, and the kernel kills who is left
            for worker in living:
                worker.release()
            for worker in self.workers:
                worker.pending.clear()
            self.job = self._remote = None

    def forget(self) -> None:
        """In a forked child: close the copies of the parent's ends, and leave its workers to it."""
        for worker in self.workers:
            multiprocessing.process._children.discard(worker.process)  # type: ignore[attr-defined]  # noqa: SLF001  # or the child's exit would end them
            if worker.lifeline >= 0:
                worker.let_go()
