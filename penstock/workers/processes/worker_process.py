"""One worker of a pool, as the parent sees it: its process, its connection, its tasks and what it has reported.

Made once for each worker number. The process may exit and be replaced by another; the pool decides about that.
"""

from __future__ import annotations

import multiprocessing.process
import os
from collections import deque
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Any

from penstock.errors import SampleError
from penstock.sample import State
from penstock.workers.base import Job, Task, TaskResult, WorkerStart, name_rows, name_samples
from penstock.workers.processes.batch_encoding import unpack_state
from penstock.workers.processes.captured_errors import CapturedError
from penstock.workers.processes.messages import BuildBatch, EpochStarted, StartEpoch
from penstock.workers.processes.start import Launcher
from penstock.workers.processes.status import WorkerStatus
from penstock.workers.processes.termination import end_processes
from penstock.workers.processes.transport import ParentEnd, Transport
from penstock.workers.processes.worker import WorkerIdentity, run_worker

__all__ = ["RunningWorkers", "StartResult", "WorkerProcess"]


@dataclass(slots=True)
class StartResult:
    """The state of a worker's dataset before its first batch of an epoch, or why the epoch could not be started."""

    state: State
    error: CapturedError | None

    @classmethod
    def from_message(cls, message: EpochStarted, worker: int) -> StartResult:
        """The result that a worker has sent; a state that cannot be unpickled is an error."""
        try:
            return cls(unpack_state(message.state), message.error)
        except Exception as error:  # noqa: BLE001  # raised by wait_for_start()
            reason = f"the dataset's state cannot be unpickled: {type(error).__name__}: {error}"
            return cls(None, CapturedError.capture(SampleError(reason, worker=worker)))


class RunningWorkers:
    """The processes of a pool and their connections: all that is needed to end them when the pool is collected."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.ends: dict[int, tuple[BaseProcess, ParentEnd]] = {}

    def stop(self) -> None:
        """End the processes; two seconds at most. Idempotent; does nothing in a forked child."""
        if self.pid != os.getpid():
            return
        ends = list(self.ends.values())
        self.ends.clear()
        try:
            for _, connection in ends:
                connection.status.request_stop()
                connection.disconnect()
            end_processes([process for process, _ in ends])
        finally:  # after an interrupt too: the kernel then kills those that are still running
            for _, connection in ends:
                connection.close()


class WorkerProcess:
    """One worker of a pool.

    Parameters
    ----------
    number : int
        The worker's.
    transport : Transport
        Makes the connection to each process.
    """

    process: BaseProcess
    connection: ParentEnd

    def __init__(self, number: int, transport: Transport) -> None:
        self.number = number
        self.pending: deque[Task] = deque()
        self.start_result: StartResult | None = None
        self.finished: TaskResult | None = None
        """A batch that was received, and is not yet among the pool's results."""
        self.last: TaskResult | None = None
        """The last batch of the epoch, without its content."""
        self.samples = 0
        self.received = 0
        """Batches that came from its process."""
        self.rng: bytes | None = None
        self.progress_seen = 0
        self.is_launched = self.is_dead = False
        self.exit_reason = ""
        self.is_changing = False
        """Whether its state is being changed; if an interrupt ends that, the state is not to be trusted."""
        self._transport = transport

    @property
    def is_running(self) -> bool:
        """Whether it has a process that is not known to be dead."""
        return self.is_launched and not self.is_dead

    @property
    def status(self) -> WorkerStatus:
        """What its process is doing, or was doing last."""
        return self.connection.status

    def launch(self, launcher: Launcher, identity: WorkerIdentity, job: Job, start: WorkerStart) -> None:
        """Start a process; if that fails, no descriptor stays open."""
        if hasattr(self, "connection"):
            self.connection.close()
        connection = self.connection = self._transport.connect()
        try:
            args = (connection.remote, identity, job, start)
            self.process = launcher.start(run_worker, args, f"penstock-worker-{self.number}")
        except BaseException:
            connection.close()
            raise
        finally:
            connection.close_remote()
        self.start_result, self.is_launched, self.is_dead, self.received = None, True, False, 0

    def start_epoch(self, start: WorkerStart) -> None:
        """Have it start another epoch."""
        self.connection.send(StartEpoch(start))

    def send(self, task: Task) -> None:
        """Send it a task; raises if the task cannot be pickled."""
        self.connection.send(BuildBatch.from_task(task))

    def close_in_child(self) -> None:
        """In a forked child, which may be this worker's process: close the copies of the parent's ends."""
        if self.is_launched:  # or the child would end the process when it exits
            multiprocessing.process._children.discard(self.process)  # type: ignore[attr-defined]  # noqa: SLF001  # there is no public way
        if hasattr(self, "connection"):
            self.connection.close_in_child()

    def count_sent(self) -> int:
        """Batches that the process has sent, and that are not received yet."""
        return max(0, self.status.finished - self.received) if self.is_running else 0

    def describe_work(self) -> str:
        """What it is doing, in words."""
        batch, row = self.status.batch, self.status.row
        if batch < 0 and self.start_result is None:
            return "its start (worker_init_fn, or opening the dataset)"
        task = next((task for task in self.pending if task.seq == batch), self.pending[0])
        return name_samples(task, row, self.status.count) if row >= 0 else f"batch {task.seq}"

    def current_indices(self, task: Task) -> dict[str, Any]:
        """The index, or indices, of ``task`` that its current call asks for, for an error; empty if unknown."""
        row = self.status.row
        if row < 0 or self.start_result is None:
            return {}
        return name_rows(task, row, row + self.status.count)
