"""What a backend needs of its workers, whether they are processes of this machine or actors of a cluster.

::

    IsolatedBackend ── Transport.connect() ──> RunningWorker ── start() ──────> a process, or an actor
                    ── Transport.wait() ─────> who has answered, or ended
                    ── RunningWorker.connection: send, receive, unpack
                    ── RunningWorker.end() ──> it has ended, and why

:mod:`penstock.workers.processes.running_process` starts processes, :mod:`penstock.workers.ray.running_actor` actors.
"""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from typing import Protocol

from penstock.sample import Batch
from penstock.workers.base import Job, WorkerStart
from penstock.workers.processes.messages import FromWorker, SlotPayload, ToWorker
from penstock.workers.processes.worker import WorkerIdentity

__all__ = ["Connection", "RunningWorker", "Status", "Transport"]


class Status(Protocol):
    """What a worker is doing, or was doing last, as :class:`~penstock.workers.processes.status.WorkerStatus` says."""

    @property
    def progress(self) -> int:
        """A number that grows with each call and each batch."""
        ...

    @property
    def batch(self) -> int:
        """Number of the batch that is, or was, worked on; -1 between two."""
        ...

    @property
    def row(self) -> int:
        """Row that is, or was, worked on, or the first of :attr:`count`; -1 if unknown."""
        ...

    @property
    def count(self) -> int:
        """Number of samples that the current or last call asks for; at least 1."""
        ...

    @property
    def busy_s(self) -> float:
        """Seconds since the worker last recorded something, or since it was started."""
        ...

    def stacks(self) -> str:
        """Return the stacks that the worker wrote last, on a crash or because it was asked; empty if it wrote none."""
        ...


class Connection(Protocol):
    """The parent's end of the connection to one worker. No method waits.

    Attributes
    ----------
    memory_error : str
        Why the worker gets no shared memory; empty if it does, or needs none.
    """

    memory_error: str

    @property
    def ended(self) -> bool:
        """Whether the connection is closed, and every message before that was received."""
        ...

    def send(self, message: ToWorker) -> None:
        """Send a message, or queue it; raises if it cannot be pickled."""
        ...

    def flush(self) -> None:
        """Send more of what is queued."""
        ...

    def receive(self) -> FromWorker | None:
        """Return the next message; None if there is none yet, or no more."""
        ...

    def unpack(self, payload: SlotPayload) -> Batch:
        """Return the batch of a payload; raises what unpickling it raises."""
        ...


class RunningWorker(Protocol):
    """One worker that is, or was, running, with the connection to it.

    Attributes
    ----------
    place : str
        The machine that it runs on; empty for this one.
    exit_reason : str
        How it ended, as a predicate ("exited with code 1"); valid after :meth:`end`.
    was_killed : bool
        Whether it was ended from outside, and not by what it did; valid after :meth:`end`.
    """

    place: str
    exit_reason: str
    was_killed: bool

    @property
    def process(self) -> BaseProcess:
        """What :attr:`Backend.processes <penstock.workers.base.Backend.processes>` lists."""
        ...

    @property
    def connection(self) -> Connection:
        """The connection to the worker."""
        ...

    @property
    def status(self) -> Status:
        """What it is doing, or was doing last."""
        ...

    def count_finished(self) -> int:
        """Number of batches that it has built and sent since its start."""
        ...

    def start(self, identity: WorkerIdentity, job: Job, start: WorkerStart) -> None:
        """Start it; if that fails, nothing stays open."""
        ...

    def has_exited(self) -> bool:
        """Return whether the worker has ended."""
        ...

    def request_stop(self) -> None:
        """Ask it to end; does not wait."""
        ...

    def kill(self) -> None:
        """Kill it; does not wait."""
        ...

    def end(self, reason: str = "") -> None:
        """Make sure that a worker that is ending has ended, and close the connection; ``reason``: why, if known."""
        ...

    def close(self) -> None:
        """Close the connection, whose worker is killed if it is still running. Idempotent."""
        ...

    def close_in_child(self) -> None:
        """Close the copies of the parent's ends in a forked child."""
        ...


class Transport(Protocol):
    """Starts the workers of one backend, and waits for them."""

    def prepare(self, job: Job) -> None:
        """Decide how workers are started, for their first job; raises if they cannot be."""
        ...

    def connect(self, worker: int) -> RunningWorker:
        """Return a worker that is not started yet."""
        ...

    def wait(self, workers: Sequence[RunningWorker], timeout_s: float) -> list[int]:
        """Wait until something happens to one of ``workers``, ``timeout_s`` at most.

        Returns
        -------
        list of int
            Positions of workers that can be received from or sent to, or have ended.
        """
        ...

    def refresh(self, workers: Sequence[RunningWorker]) -> None:
        """Read the status of ``workers`` anew, where :attr:`RunningWorker.status` is a copy; waits a second at most."""
        ...

    def collect_stacks(self, workers: Sequence[RunningWorker]) -> list[str]:
        """Return what each worker is doing: its stack, or why there is none."""
        ...

    def stop(self, workers: Sequence[RunningWorker]) -> None:
        """End ``workers``, two seconds at most."""
        ...
