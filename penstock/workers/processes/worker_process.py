"""One worker of a backend, as the parent sees it: what runs for it, its tasks and what it has reported.

Made once for each worker number. The process, or actor, may exit and be replaced by another; the backend decides about
that.
"""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass
from multiprocessing.process import BaseProcess

from penstock.errors import SampleError, WorkerError
from penstock.sample import State
from penstock.workers.base import END, Job, Task, TaskResult, WorkerStart, name_rows, name_samples
from penstock.workers.processes.batch_encoding import unpack_state
from penstock.workers.processes.captured_errors import CapturedError
from penstock.workers.processes.messages import BatchBuilt, EpochStarted, StartEpoch
from penstock.workers.processes.termination import SIGKILL_EXIT
from penstock.workers.processes.transport import Connection, RunningWorker, Status, Transport
from penstock.workers.processes.worker import WorkerIdentity

__all__ = ["RunningWorkers", "StartResult", "WorkerProcess"]


@dataclass(slots=True)
class StartResult:
    """The state of a worker's dataset before its first batch of an epoch, or why the epoch could not be started."""

    state: State
    error: CapturedError | None

    @classmethod
    def from_message(cls, message: EpochStarted, worker: int) -> StartResult:
        """Return the result that a worker has sent; a state that cannot be unpickled is an error."""
        try:
            return cls(unpack_state(message.state), message.error)
        except Exception as error:  # noqa: BLE001  # raised by wait_for_start()
            reason = f"the dataset's state cannot be unpickled: {type(error).__name__}: {error}"
            return cls(None, CapturedError.capture(SampleError(reason, worker=worker)))


class RunningWorkers:
    """What runs for a backend: all that is needed to end it when the backend is collected.

    ``transport``: ends the workers.
    """

    def __init__(self, transport: Transport) -> None:
        self.pid, self._transport = os.getpid(), transport
        self.by_number: dict[int, RunningWorker] = {}
        self.ending: list[RunningWorker] = []
        """Those that were asked to end, as there are enough of them."""

    def stop(self) -> None:
        """End the workers; two seconds at most. Idempotent; does nothing in a forked child."""
        if self.pid != os.getpid():
            return
        running = [*self.by_number.values(), *self.ending]
        self.by_number.clear()
        self.ending.clear()
        if running:
            self._transport.stop(running)


class WorkerProcess:
    """One worker of a backend.

    ``identity``: which worker it is. ``transport``: makes what runs for it.
    """

    running: RunningWorker

    def __init__(self, identity: WorkerIdentity, transport: Transport) -> None:
        self.number, self._identity = identity.worker, identity
        self.pending: deque[Task] = deque()
        self.start_result: StartResult | None = None
        self.finished: TaskResult | None = None
        """A batch that was received, and is not yet among the backend's results."""
        self.last: TaskResult | None = None
        """The last batch of the epoch, without its content."""
        self.samples = 0
        self.received = 0
        """Batches that came from its process."""
        self.rng: bytes | None = None
        self._progress = 0
        self.is_launched = self.is_dead = False
        self.is_changing = False
        """Whether its state is being changed; if an interrupt ends that, the state is not to be trusted."""
        self._transport = transport

    @property
    def is_running(self) -> bool:
        """Whether it has a process that is not known to be dead."""
        return self.is_launched and not self.is_dead

    @property
    def has_started(self) -> bool:
        """Whether its process has started the epoch, or failed to."""
        return self.is_running and self.start_result is not None

    @property
    def process(self) -> BaseProcess:
        """Its process, or what stands for it."""
        return self.running.process

    @property
    def connection(self) -> Connection:
        """The connection to its process."""
        return self.running.connection

    @property
    def status(self) -> Status:
        """What its process is doing, or was doing last."""
        return self.running.status

    def launch(self, job: Job, start: WorkerStart) -> None:
        """Start a process; if that fails, no descriptor stays open."""
        if hasattr(self, "running"):
            self.running.close()
        self.running = self._transport.connect(self.number)  # kept before the start: a fork must know of it
        self.running.start(self._identity, job, start)
        self.start_result, self.is_launched, self.is_dead, self.received = None, True, False, 0

    def release(self) -> RunningWorker:
        """Give away its process, which has no task, as if it had not been launched."""
        running = self.running
        del self.running
        self.is_launched, self.start_result = False, None
        return running

    def start_epoch(self, start: WorkerStart) -> None:
        """Have it start another epoch."""
        self.connection.send(StartEpoch(start))

    def send(self, task: Task) -> None:
        """Send it a task; raises if the task cannot be pickled."""
        self.connection.send(task)

    def close_in_child(self) -> None:
        """Close the copies of the parent's ends in a forked child, which may be this worker's process."""
        if hasattr(self, "running"):
            self.running.close_in_child()

    def take_first_state(self) -> State:
        """The state of its dataset before the first batch; raises what prevented it from starting the epoch."""
        result = self.start_result
        assert result is not None, "it has started, or failed to"
        if result.error is not None:
            raise self._rebuild(result.error)
        return result.state

    def unpack(self, message: BatchBuilt, job: Job | None) -> TaskResult:
        """Return the batch of its oldest task, or the error in its place."""
        task, start = self.pending[0], time.perf_counter_ns()
        assert task.seq == message.seq, "a worker does its tasks in order"
        done = TaskResult(
            task.seq, rows=message.rows, task=task, worker=self._owner(task), rng=message.rng,
            left_out=message.left_out, repaired=message.repaired,
        )  # fmt: skip
        try:
            if message.error is not None:
                done.error = self._rebuild(message.error)
            else:
                batch = self.connection.unpack(message.payload)
                assert job is not None, "a job is there while it works"
                done.batch = batch if batch is END else job.deliver(batch)
            done.state = unpack_state(message.state)
        except Exception as error:  # noqa: BLE001  # raised when the batch is due
            reason = f"a batch from worker {self.number} cannot be unpacked: {type(error).__name__}: {error}"
            done.batch, done.error = None, SampleError(reason, batch=task.seq)
            done.error.__cause__ = error
        if job is not None:
            job.trace.add("transport", time.perf_counter_ns() - start, 0)
        return done

    def _rebuild(self, error: CapturedError) -> BaseException:
        rebuilt = error.rebuild(self.number)
        if self.running.place:
            rebuilt.add_note(f"The worker runs on {self.running.place}.")
        return rebuilt

    def record(self, done: TaskResult) -> None:
        """Count a batch as its own; done once, however often it is called."""
        if self.last is None or self.last.task is not done.task:
            last = TaskResult(
                done.seq, rows=done.rows, state=done.state, task=done.task, worker=done.worker, rng=done.rng,
                left_out=done.left_out,
            )  # fmt: skip
            self.last, self.rng, self.samples = last, done.rng or self.rng, self.samples + done.rows
        if self.pending and self.pending[0] is done.task:
            self.pending.popleft()

    def make_failure(self, task: Task, error: BaseException, rows: int = 0) -> TaskResult:
        """Return an error in the place of a batch."""
        return TaskResult(task.seq, error=error, rows=rows, task=task, worker=self._owner(task))

    def _owner(self, task: Task) -> int:
        """Return the worker that a batch counts for: the one that the task was meant for, whichever built it."""
        return self.number if task.worker is None else task.worker

    def make_death_error(self, task: Task) -> WorkerError:
        """Return the error of a task at which its process died."""
        pid, how = self.process.pid, self.running.exit_reason
        hint = " It was likely out of memory." if how == SIGKILL_EXIT else ""
        stacks = self.status.stacks()
        cause = RuntimeError(f"DataLoader worker (pid {pid}) {how}{hint}" + (f"\n{stacks}" if stacks else ""))
        error = WorkerError(
            f"DataLoader worker (pid(s) {pid}) exited unexpectedly: it {how}",
            worker=self.number, batch=task.seq, **self.current_indices(task),
        )  # fmt: skip
        error.__cause__ = cause
        if stacks:
            error.add_note(f"The worker's last stack:\n{stacks}")
        return error

    def read_progress(self) -> int:
        """Calls begun and batches ended; it never falls, though another process may begin to count anew."""
        if self.is_launched:
            self._progress = max(self._progress, self.status.progress)
        return self._progress

    def count_sent(self) -> int:
        """Batches that the process has sent, and that are not received yet."""
        return max(0, self.running.count_finished() - self.received) if self.is_running else 0

    def describe(self, stack: str | None) -> str:
        """Return what it is doing, and where; ``stack`` is None if its process has exited."""
        where = f" on {self.running.place}" if self.running.place else ""
        who = f"worker {self.number} (pid {self.process.pid}{where})"
        if stack is None:
            return f"{who} has exited"
        return f"{who} has been busy for {self.status.busy_s:.1f} s with {self.describe_work()}, here:\n{stack}"

    def describe_work(self) -> str:
        """Return what it is doing, in words."""
        batch, row = self.status.batch, self.status.row
        if batch < 0 and self.start_result is None:
            return "its start (worker_init_fn, or opening the dataset)"
        task = next((task for task in self.pending if task.seq == batch), self.pending[0])
        return name_samples(task, row, self.status.count) if row >= 0 else f"batch {task.seq}"

    def current_indices(self, task: Task) -> dict[str, object]:
        """Return the index, or indices, of ``task`` that its current call asks for, for an error; empty if unknown."""
        row = self.status.row
        if row < 0 or self.start_result is None:
            return {}
        return name_rows(task, row, row + self.status.count)
