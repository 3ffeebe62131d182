"""How a backend and its worker processes exchange messages: a socket pair, memory files and a pipe for each worker.

::

    parent                                                     worker
    SocketConnection ──── socket pair: messages, fds ──────── WorkerSocket
      ParentSlots <────── memory files: batches ────────────── WorkerMemory
      WorkerStatus <───── memory file: status ──────────────── WorkerStatus
      write end ───────── pipe (lifeline) ───────────────────> read end: the kernel kills the worker when it closes
"""

from __future__ import annotations

import fcntl
import multiprocessing.reduction
import os
import signal
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Protocol, cast

from penstock.sample import Batch
from penstock.workers.processes.batch_encoding import dumps, pack, unpack_payload
from penstock.workers.processes.channel import Channel
from penstock.workers.processes.memory import ParentSlot, ParentSlots, WorkerMemory
from penstock.workers.processes.messages import (
    BatchBuilt,
    BufferSpan,
    FromWorker,
    SlotPayload,
    SlotReport,
    SlotReturn,
    ToWorker,
    decode,
    encode,
)
from penstock.workers.processes.status import WorkerStatus
from penstock.workers.slots import PageLock, Quarantine

__all__ = ["SocketConnection", "SocketRemoteEnd", "WorkerSocket"]

_SET_SIGNAL: Final = 10  # F_SETSIG of Linux's fcntl.h, which Python's fcntl does not name


class SocketConnection:
    """The parent's end of the connection to one worker process. No method waits.

    If the constructor raises, no descriptor stays open.

    Attributes
    ----------
    remote : SocketRemoteEnd
        What the worker opens.
    status : WorkerStatus
        What the worker is doing.
    memory_error : str
        Why the worker gets no shared memory; empty if it does. Batches are then sent with their messages.
    """

    def __init__(self, page_lock: PageLock | None, quarantine: Quarantine[ParentSlot] | None) -> None:
        with ExitStack() as undo:
            ours, theirs = socket.socketpair()
            undo.callback(theirs.close)
            self.channel = Channel(ours, blocking=False)
            undo.callback(self.channel.close)
            life_read, self._lifeline = os.pipe()
            undo.callback(os.close, life_read)
            undo.callback(self.close_in_child)
            self.status = WorkerStatus()
            undo.pop_all()
        self._theirs, self._life_read = theirs, life_read
        self.remote = SocketRemoteEnd(theirs.fileno(), life_read, self.status.fd)
        self._slots = ParentSlots(page_lock, quarantine)
        self.memory_error = ""

    @property
    def ended(self) -> bool:
        """Whether either side has closed the connection, and every message before that was received."""
        return self.channel.ended

    def send(self, message: ToWorker) -> None:
        """Queue a message, and send what can be sent now; raises if it cannot be pickled. Slots go back with it."""
        returned = self._slots.take_returned()
        try:
            self.channel.send((encode(message), encode(returned) if returned.freed or returned.lost else None))
        except BaseException:
            self._slots.put_back(returned)
            raise

    def flush(self) -> None:
        """Send more of what is queued, as far as it can be sent now."""
        self.channel.flush()

    def receive(self) -> FromWorker | None:
        """The next message; None if there is none yet, or no more."""
        received = self.channel.receive()
        if received is None:
            return None
        (values, of_slots), body, fds = received
        message = cast("FromWorker", decode(values))
        if isinstance(message, BatchBuilt):
            if of_slots is None:
                message.payload = SlotPayload(body, fds=fds)
                return message
            report = cast("SlotReport", decode(of_slots))
            self._slots.drop(report.dropped)
            self.memory_error = report.refused
            spans = [BufferSpan(*span) for span in report.spans]
            message.payload = SlotPayload(body, spans, report.new, fds)
        return message

    def unpack(self, payload: SlotPayload) -> Batch:
        """The batch of a payload; its memory goes back to the worker when its last array is deleted."""
        return unpack_payload(payload, self._slots)

    def close_remote(self) -> None:
        """Close the parent's copy of :attr:`remote`, once the worker has its own. Idempotent."""
        self._theirs.close()
        if self._life_read >= 0:
            os.close(self._life_read)
            self._life_read = -1

    def disconnect(self) -> None:
        """End the exchange of messages. The worker, when it waits for one, finds the end and exits. Idempotent."""
        self.channel.close()

    def close_in_child(self) -> None:
        """In a forked child: close the copies of the parent's end, which would keep the worker alive. Idempotent.

        The child may be the worker itself: what it has of :attr:`remote` stays open.
        """
        self.channel.close()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def close(self) -> None:
        """Disconnect and release everything; the worker is killed if it is still running. Idempotent."""
        self.status.close()
        self.close_in_child()


class _Duplicate(Protocol):
    """A descriptor for the process that unpickles it."""

    def detach(self) -> int: ...


@dataclass(slots=True)
class SocketRemoteEnd:
    """The worker's descriptors: can be inherited by a fork, and pickled while a process is started."""

    socket: int
    lifeline: int
    status: int

    def __getstate__(self) -> tuple[_Duplicate, ...]:
        duplicate = multiprocessing.reduction.DupFd
        return tuple(duplicate(fd) for fd in (self.socket, self.lifeline, self.status))

    def __setstate__(self, state: tuple[_Duplicate, ...]) -> None:
        self.socket, self.lifeline, self.status = (fd.detach() for fd in state)

    def open(self) -> WorkerSocket:
        """Open the connection in the worker process, which from now on ends when the parent does."""
        _exit_with_parent(self.lifeline)
        status = WorkerStatus(self.status)
        status.enable_stack_dumps()
        return WorkerSocket(Channel(socket.socket(fileno=self.socket), blocking=True), status)


def _exit_with_parent(lifeline: int) -> None:
    """Have the kernel kill this process when the other end of the pipe closes, as it does when the parent exits."""
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, _SET_SIGNAL, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    try:
        is_closed = os.read(lifeline, 1) == b""
    except BlockingIOError:
        is_closed = False
    if is_closed:  # before the signal was requested
        os._exit(1)


class WorkerSocket:
    """The worker's end of a connection; used by one thread."""

    def __init__(self, channel: Channel, status: WorkerStatus) -> None:
        self._channel, self.status, self.memory = channel, status, WorkerMemory()

    def receive(self, *, wait: bool = True) -> ToWorker | None:
        """The next message; None if the parent has closed the connection, or nothing is there and ``wait`` is False."""
        received = self._channel.receive(wait=wait)
        if received is None:
            return None
        (values, returned), _, _ = received
        if returned is not None:
            self.memory.accept_returned(cast("SlotReturn", decode(returned)))
        return cast("ToWorker", decode(values))

    def close(self) -> None:
        """Close the connection; the parent receives no more."""
        self._channel.close()

    def dumps(self, value: object) -> bytes:
        """``value`` pickled; raises what that raises."""
        return dumps(value)

    def pack(self, batch: Batch) -> SlotPayload:
        """``batch`` as the payload of a message; raises what pickling it raises."""
        return SlotPayload(*pack(batch, self.memory))

    def send(self, message: FromWorker) -> None:
        """Send a message with its payload; waits until it is sent.

        If the message cannot be pickled, nothing is sent and the error is raised.
        """
        if not isinstance(message, BatchBuilt):
            self._channel.send((encode(message), None))
            return
        report, fds = self.memory.finish(message.payload.spans)
        is_empty = not (report.spans or report.dropped or report.refused)
        self._channel.send((encode(message), None if is_empty else encode(report)), message.payload.pickled, fds)
        self.memory.record_sent()
