"""The interface between a pool and its worker processes: messages, memory of batches, and the end of either side.

::

    Pool ── ParentEnd ─────────── messages, payloads ────────── WorkerEnd ── worker
              parent's end, never waits                           worker's end, waits for messages
              status  <──────── what the worker is doing ──────── status

The one implementation is :mod:`penstock.workers.processes.sockets`: socket pairs and memory files, on one machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from numpy.typing import DTypeLike

from penstock.sample import Array, Batch
from penstock.workers.processes.messages import BatchBuilt, BuildBatch, EpochStarted, StartEpoch
from penstock.workers.processes.status import WorkerStatus

__all__ = ["BatchMemory", "FromWorker", "ParentEnd", "ToWorker", "Transport", "WorkerEnd", "WorkerEndParts"]

ToWorker = StartEpoch | BuildBatch
FromWorker = EpochStarted | BatchBuilt


class BatchMemory(Protocol):
    """Memory of one worker, in which its batches are built so that they need not be copied to be sent."""

    def begin(self) -> None:
        """Start a batch. Memory of a batch that was not sent is free again."""
        ...

    def allocate(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """An array with arbitrary content, like ``numpy.empty``."""
        ...

    def take(self, nbytes: int) -> object:
        """Memory for a job that fills rows; see :meth:`penstock.workers.slots.SlotPool.take`."""
        ...


class WorkerEnd(Protocol):
    """The worker's end of a connection; used by one thread."""

    status: WorkerStatus
    memory: BatchMemory

    def receive(self, *, wait: bool = True) -> ToWorker | None:
        """The next message; None if the parent has closed the connection, or nothing is there and ``wait`` is False."""
        ...

    def pack(self, batch: Batch) -> object:
        """``batch`` as the payload of a message; raises what pickling it raises."""
        ...

    def send(self, message: FromWorker) -> None:
        """Send a message with its payload; waits until it is sent.

        If the message cannot be pickled, nothing is sent and the error is raised.
        """
        ...


class WorkerEndParts(Protocol):
    """The worker's end before it is opened: can be inherited by a fork, and pickled while a process is started."""

    def open(self) -> WorkerEnd:
        """Open the connection in the worker process, which from now on ends when the parent does."""
        ...


class ParentEnd(Protocol):
    """The parent's end of the connection to one worker process. No method waits."""

    remote: WorkerEndParts
    status: WorkerStatus
    memory_error: str
    """Why the worker gets no shared memory; empty if it does. Batches are then sent with their messages."""

    @property
    def ended(self) -> bool:
        """Whether either side has closed the connection, and every message before that was received."""
        ...

    def send(self, message: ToWorker) -> None:
        """Queue a message, and send what can be sent now; raises if it cannot be pickled."""
        ...

    def flush(self) -> None:
        """Send more of what is queued, as far as it can be sent now."""
        ...

    def receive(self) -> FromWorker | None:
        """The next message; None if there is none yet, or no more."""
        ...

    def unpack(self, payload: object) -> Batch:
        """The batch of a payload; its memory goes back to the worker when its last array is deleted.

        Raises
        ------
        OSError
            If the memory cannot be mapped.
        Exception
            What unpickling raises.
        """
        ...

    def close_remote(self) -> None:
        """Close the parent's copy of :attr:`remote`, once the worker has its own. Idempotent."""
        ...

    def disconnect(self) -> None:
        """End the exchange of messages. The worker, when it waits for one, finds the end and exits. Idempotent."""
        ...

    def close_in_child(self) -> None:
        """In a forked child: close the copies of the parent's end, which would keep the worker alive. Idempotent."""
        ...

    def close(self) -> None:
        """Disconnect and release everything; the worker is killed if it is still running. Idempotent."""
        ...


class Transport(Protocol):
    """Makes connections, for one pool."""

    def connect(self) -> ParentEnd:
        """A new connection, for a worker process that is to be started."""
        ...

    def wait(self, workers: Sequence[tuple[ParentEnd, int]], timeout_s: float) -> list[int]:
        """Wait until something happens to one of ``workers``, ``timeout_s`` at most.

        Parameters
        ----------
        workers : sequence of (ParentEnd, int)
            Connections, each with the sentinel of its process (``multiprocessing.Process.sentinel``).
        timeout_s : float
            Seconds.

        Returns
        -------
        list of int
            Positions of workers that can be received from or sent to, have ended, or have closed their connection.
        """
        ...
