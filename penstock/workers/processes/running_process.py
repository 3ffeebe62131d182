"""The backend whose workers are processes of this machine: how they are started, watched and ended.

Processes by :mod:`~penstock.workers.processes.start`, connections by :mod:`~penstock.workers.processes.sockets`.
"""

from __future__ import annotations

import multiprocessing.process
import select
import signal
from collections.abc import Sequence
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import ClassVar, Final, cast

from penstock.errors import WorkerError
from penstock.system import require_worker_processes
from penstock.workers.base import Capabilities, Job, WorkerStart
from penstock.workers.processes.backend import IsolatedBackend
from penstock.workers.processes.memory import ParentSlot
from penstock.workers.processes.sockets import SocketConnection
from penstock.workers.processes.start import Launcher, describe_start_error
from penstock.workers.processes.status import WorkerStatus, collect_stacks
from penstock.workers.processes.termination import describe_exit, end_processes, has_exited, wait_for_exit
from penstock.workers.processes.transport import RunningWorker
from penstock.workers.processes.worker import WorkerIdentity, run_worker
from penstock.workers.slots import PageLock, Quarantine

__all__ = ["ProcessBackend", "ProcessTransport", "RunningProcess"]

_EXIT_S: Final = 1.0
"""Longest wait for a worker that has closed its connection to exit before it is killed, and then again."""


class ProcessBackend(IsolatedBackend):
    """Executes tasks in processes of this machine.

    Parameters
    ----------
    num_workers, base_seed
        As for :class:`IsolatedBackend`.
    chunk_size : int, optional
        Ignored: a batch is not split between processes.
    context : BaseContext, optional
        How processes are started; None: see :mod:`penstock.workers.processes.start`.
    page_lock : PageLock, optional
        Page-locks the memory of batches, for a device's copies.

    Raises
    ------
    WorkerError
        On another system than Linux.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(isolated=True, shares_memory=False, pins_memory=True)

    def __init__(
        self,
        num_workers: int,
        chunk_size: int | None = None,  # noqa: ARG002  # every backend's arguments
        *,
        context: BaseContext | None = None,
        base_seed: int = 0,
        page_lock: PageLock | None = None,
    ) -> None:
        require_worker_processes()
        super().__init__(num_workers, base_seed, ProcessTransport(context, page_lock))


class RunningProcess:
    """One worker process and its connection; see :class:`~penstock.workers.processes.transport.RunningWorker`.

    ``connection``: new; closed with the worker. ``transport``: has the launcher.
    """

    process: BaseProcess

    def __init__(self, connection: SocketConnection, transport: ProcessTransport) -> None:
        self.connection, self._transport = connection, transport
        self.place = self.exit_reason = ""
        self.was_killed = False

    @property
    def status(self) -> WorkerStatus:
        """Its memory, which can be read whatever the process does."""
        return self.connection.status

    def count_finished(self) -> int:
        """Count the batches that the worker's status says are finished."""
        return self.connection.status.finished

    def start(self, identity: WorkerIdentity, job: Job, start: WorkerStart) -> None:
        """Start the process with its end of the connection."""
        connection, launcher = self.connection, self._transport.launcher
        assert launcher is not None, "prepare() comes first"
        try:
            args = (connection.remote, identity, job, start)
            self.process = launcher.start(run_worker, args, f"penstock-worker-{identity.worker}")
        except OSError as error:
            connection.close()
            raise WorkerError(describe_start_error(error), worker=identity.worker) from error
        except BaseException:
            connection.close()
            raise
        finally:
            connection.close_remote()

    def has_exited(self) -> bool:
        """Return whether the process has exited."""
        return has_exited(self.process)

    def request_stop(self) -> None:
        """Ask the process to exit; does not wait."""
        self.status.request_stop()
        self.connection.disconnect()

    def kill(self) -> None:
        """Kill the process; does not wait."""
        self.process.kill()

    def end(self, reason: str = "") -> None:
        """Wait for the process to exit, or kill it, and close the connection."""
        if wait_for_exit([self.process], _EXIT_S):
            reason = reason or "closed its connection, did not exit, and had to be killed"
            self.process.kill()
            wait_for_exit([self.process], _EXIT_S)
        self.connection.close()
        self.exit_reason = reason or describe_exit(self.process)
        self.was_killed = not reason and self.process.exitcode in {-signal.SIGKILL, -signal.SIGTERM}

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def close_in_child(self) -> None:
        """Close the copies of the parent's ends in a forked child, which may be this worker's process."""
        if hasattr(self, "process"):  # or the child would end the process when it exits
            multiprocessing.process._children.discard(self.process)  # type: ignore[attr-defined]  # noqa: SLF001  # there is no public way
        self.connection.close_in_child()


class ProcessTransport:
    """Starts processes; see :class:`~penstock.workers.processes.transport.Transport`.

    ``context``: how processes are started; None: see :mod:`penstock.workers.processes.start`. ``page_lock``: page-locks
    the memory of batches, for a device's copies.
    """

    def __init__(self, context: BaseContext | None, page_lock: PageLock | None) -> None:
        self._context, self._page_lock = context, page_lock
        self._quarantine: Quarantine[ParentSlot] | None = None if page_lock is None else Quarantine(page_lock.fence)
        self.launcher: Launcher | None = None

    def prepare(self, job: Job) -> None:
        """Choose the start method; see :class:`~penstock.workers.processes.transport.Transport`."""
        self.launcher = Launcher.choose(self._context, job)

    def connect(self, worker: int) -> RunningProcess:
        """Make a worker that is not started yet, with a pair of sockets."""
        try:
            return RunningProcess(SocketConnection(self._page_lock, self._quarantine), self)
        except OSError as error:
            raise WorkerError(describe_start_error(error), worker=worker) from error

    def wait(self, workers: Sequence[RunningWorker], timeout_s: float) -> list[int]:
        """Wait by ``poll`` until a worker can be received from or sent to, or has ended."""
        poll, positions = select.poll(), {}
        for position, worker in enumerate(cast("Sequence[RunningProcess]", workers)):
            fd, sentinel = worker.connection.channel.fileno(), worker.process.sentinel
            if fd >= 0:  # else another thread is closing them all
                poll.register(fd, select.POLLIN | (select.POLLOUT if worker.connection.channel.unsent else 0))
                poll.register(sentinel, select.POLLIN)
                positions[fd] = positions[sentinel] = position
        return sorted({positions[fd] for fd, _ in poll.poll(timeout_s * 1000)})

    def refresh(self, workers: Sequence[RunningWorker]) -> None:
        """Do nothing: a status is memory that is shared with the process."""

    def collect_stacks(self, workers: Sequence[RunningWorker]) -> list[str]:
        """Have the processes write their stacks on a signal."""
        own = cast("Sequence[RunningProcess]", workers)
        return collect_stacks([(worker.status, worker.process.pid or 0) for worker in own])

    def stop(self, workers: Sequence[RunningWorker]) -> None:
        """Ask the processes to exit, then terminate, then kill them."""
        own = cast("Sequence[RunningProcess]", workers)
        try:
            for worker in own:
                worker.request_stop()
            end_processes([worker.process for worker in own])
        finally:  # after an interrupt too: the kernel then kills those that are still running
            for worker in own:
                worker.close()
