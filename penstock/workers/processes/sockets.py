"""The transport of worker processes on one machine: a socket pair, memory files and a pipe for each worker.

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
import select
import signal
import socket
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, cast

from penstock.sample import Batch
from penstock.workers.processes.batch_encoding import pack, unpack
from penstock.workers.processes.channel import Channel
from penstock.workers.processes.memory import ParentSlots, WorkerMemory
from penstock.workers.processes.messages import BatchBuilt, BufferSpan, SlotReport, SlotReturn, decode, encode
from penstock.workers.processes.status import WorkerStatus
from penstock.workers.processes.transport import FromWorker, ParentEnd, ToWorker, WorkerEndParts
from penstock.workers.slots import PageLock, Quarantine

__all__ = ["SocketTransport"]

_SET_SIGNAL: Final = 10  # F_SETSIG of Linux's fcntl.h, which Python's fcntl does not name


class SocketTransport:
    """Makes connections; see :class:`~penstock.workers.processes.transport.Transport`.

    Parameters
    ----------
    page_lock : PageLock, optional
        Page-locks the memory of batches, for a device's copies.
    """

    def __init__(self, page_lock: PageLock | None = None) -> None:
        self._page_lock = page_lock
        self._quarantine = None if page_lock is None else Quarantine(page_lock.fence)

    def connect(self) -> SocketConnection:
        """See :class:`~penstock.workers.processes.transport.Transport`."""
        return SocketConnection(self._page_lock, self._quarantine)

    def wait(self, workers: Sequence[tuple[ParentEnd, int]], timeout_s: float) -> list[int]:
        """See :class:`~penstock.workers.processes.transport.Transport`."""
        poll, positions = select.poll(), {}
        for position, (connection, sentinel) in enumerate(workers):
            channel = cast("SocketConnection", connection).channel
            fd = channel.fileno()
            if fd >= 0:  # else another thread is closing them all
                poll.register(fd, select.POLLIN | (select.POLLOUT if channel.unsent else 0))
                poll.register(sentinel, select.POLLIN)
                positions[fd] = positions[sentinel] = position
        return sorted({positions[fd] for fd, _ in poll.poll(timeout_s * 1000)})


@dataclass(slots=True)
class SlotPayload:
    """A batch in slots: what is left of it in the pickle, and where its buffers are.

    ``new`` and ``fds`` are the slots that the parent has not mapped yet (number, size) and their descriptors.
    """

    pickled: bytes
    spans: list[BufferSpan]
    new: Sequence[tuple[int, int]] = ()
    fds: Sequence[int] = ()


class SocketConnection:
    """The parent's end; see :class:`~penstock.workers.processes.transport.ParentEnd`.

    If the constructor raises, no descriptor stays open.
    """

    def __init__(self, page_lock: PageLock | None, quarantine: Quarantine | None) -> None:
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
        self.remote: WorkerEndParts = SocketRemoteEnd(theirs.fileno(), life_read, self.status.fd)
        self._slots = ParentSlots(page_lock, quarantine)
        self.memory_error = ""

    @property
    def ended(self) -> bool:
        """See :class:`~penstock.workers.processes.transport.ParentEnd`."""
        return self.channel.ended

    def send(self, message: ToWorker) -> None:
        """See :class:`~penstock.workers.processes.transport.ParentEnd`. Slots go back to the worker with it."""
        returned = self._slots.take_returned()
        try:
            self.channel.send((encode(message), encode(returned) if returned.freed or returned.lost else None))
        except BaseException:
            self._slots.put_back(returned)
            raise

    def flush(self) -> None:
        """See :class:`~penstock.workers.processes.transport.ParentEnd`."""
        self.channel.flush()

    def receive(self) -> FromWorker | None:
        """See :class:`~penstock.workers.processes.transport.ParentEnd`."""
        received = self.channel.receive()
        if received is None:
            return None
        (values, of_slots), body, fds = received
        message = cast("FromWorker", decode(values))
        if isinstance(message, BatchBuilt):
            if of_slots is None:
                message.payload = SlotPayload(body, [], [], fds)
                return message
            report = cast("SlotReport", decode(of_slots))
            self._slots.drop(report.dropped)
            self.memory_error = report.refused
            spans = [BufferSpan(*span) for span in report.spans]
            message.payload = SlotPayload(body, spans, report.new, fds)
        return message

    def unpack(self, payload: object) -> Batch:
        """See :class:`~penstock.workers.processes.transport.ParentEnd`."""
        assert isinstance(payload, SlotPayload), "of a message of this transport"
        try:
            self._slots.add(payload.new, payload.fds)
        except OSError:
            self._slots.free(payload.spans)
            raise
        return unpack(payload.pickled, payload.spans, self._slots)

    def close_remote(self) -> None:
        """See :class:`~penstock.workers.processes.transport.ParentEnd`."""
        self._theirs.close()
        if self._life_read >= 0:
            os.close(self._life_read)
            self._life_read = -1

    def disconnect(self) -> None:
        """See :class:`~penstock.workers.processes.transport.ParentEnd`."""
        self.channel.close()

    def close_in_child(self) -> None:
        """See :class:`~penstock.workers.processes.transport.ParentEnd`.

        The child may be the worker itself: what it has of :attr:`remote` stays open.
        """
        self.channel.close()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def close(self) -> None:
        """See :class:`~penstock.workers.processes.transport.ParentEnd`."""
        self.status.close()
        self.close_in_child()


@dataclass(slots=True)
class SocketRemoteEnd:
    """The worker's descriptors; see :class:`~penstock.workers.processes.transport.WorkerEndParts`."""

    socket: int
    lifeline: int
    status: int

    def __getstate__(self) -> tuple[Any, ...]:
        duplicate = multiprocessing.reduction.DupFd
        return tuple(duplicate(fd) for fd in (self.socket, self.lifeline, self.status))

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.socket, self.lifeline, self.status = (fd.detach() for fd in state)

    def open(self) -> WorkerSocket:
        """See :class:`~penstock.workers.processes.transport.WorkerEndParts`."""
        _exit_with_parent(self.lifeline)
        status = WorkerStatus(self.status)
        status.enable_stack_dumps()
        return WorkerSocket(Channel(socket.socket(fileno=self.socket), blocking=True), status)


def _exit_with_parent(lifeline: int) -> None:
    """Have the kernel kill this process when the other end of the pipe closes, as it does when the parent exits."""
    if not hasattr(fcntl, "F_SETOWN") or not os.path.exists("/proc/self/fd"):  # noqa: PTH110  # a test for Linux
        threading.Thread(target=_watch_parent, args=(lifeline,), daemon=True).start()
        return
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, _SET_SIGNAL, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    try:
        is_closed = os.read(lifeline, 1) == b""
    except BlockingIOError:
        is_closed = False
    if is_closed:  # before the signal was requested
        os._exit(1)


def _watch_parent(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(1)


class WorkerSocket:
    """The worker's end; see :class:`~penstock.workers.processes.transport.WorkerEnd`."""

    def __init__(self, channel: Channel, status: WorkerStatus) -> None:
        self._channel, self.status, self.memory = channel, status, WorkerMemory()

    def receive(self, *, wait: bool = True) -> ToWorker | None:
        """See :class:`~penstock.workers.processes.transport.WorkerEnd`."""
        received = self._channel.receive(wait=wait)
        if received is None:
            return None
        (values, returned), _, _ = received
        if returned is not None:
            self.memory.accept_returned(cast("SlotReturn", decode(returned)))
        return cast("ToWorker", decode(values))

    def pack(self, batch: Batch) -> SlotPayload:
        """See :class:`~penstock.workers.processes.transport.WorkerEnd`."""
        return SlotPayload(*pack(batch, self.memory))

    def send(self, message: FromWorker) -> None:
        """See :class:`~penstock.workers.processes.transport.WorkerEnd`."""
        if not isinstance(message, BatchBuilt):
            self._channel.send((encode(message), None))
            return
        payload = message.payload
        pickled, spans = (payload.pickled, payload.spans) if isinstance(payload, SlotPayload) else (b"", [])
        report, fds = self.memory.finish(spans)
        is_empty = not (report.spans or report.dropped or report.refused)
        self._channel.send((encode(message), None if is_empty else encode(report)), pickled, fds)
        self.memory.record_sent()
