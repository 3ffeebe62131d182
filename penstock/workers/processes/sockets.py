"""How a backend and its worker processes exchange messages: a socket pair, memory files and a pipe for each worker.

::

    parent                                                     worker
    SocketConnection ──── socket pair: messages, fds ──────── WorkerSocket
      ParentSlots <────── memory files: batches ────────────── WorkerMemory
      WorkerStatus <───── memory file: status ──────────────── WorkerStatus
      write end ───────── pipe (lifeline) ───────────────────> read end: the kernel kills the worker when it closes

    message = u32 length of head | u64 length of body | head (pickle) | body (bytes)

Every worker has a socket pair of its own, so that one that is killed in the middle of a message does not damage the
messages of others. The worker's end blocks. The parent's end does not: what a full socket does not take is kept and
sent by :meth:`Channel.flush`. Pickles come only from the other end of a socket pair of this program.
"""

from __future__ import annotations

import fcntl
import multiprocessing.reduction
import os
import pickle
import select
import signal
import socket
import struct
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from penstock.sample import Batch
from penstock.workers.processes.batch_encoding import dumps, pack, unpack_payload
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

__all__ = ["Channel", "SocketConnection", "SocketRemoteEnd", "WorkerSocket"]

_SET_SIGNAL: Final = 10  # F_SETSIG of Linux's fcntl.h, which Python's fcntl does not name
_LENGTHS: Final = struct.Struct("=IQ")
_READ: Final = 1 << 18
_FDS: Final = 64
"""Most descriptors with one message (a batch has a few); Linux allows 253."""

RawMessage = tuple[Any, bytes, list[int]]
"""Head, body, descriptors (to be closed by the receiver)."""


class Channel:
    """One end of a socket pair.

    ``end``: connected, of type stream; closed by :meth:`close`. ``blocking``: whether sending and receiving wait.
    """

    def __init__(self, end: socket.socket, *, blocking: bool) -> None:
        self._socket = end
        end.setblocking(blocking)
        self._unsent: deque[tuple[memoryview, list[int]]] = deque()
        self._received = bytearray()
        self._fds: deque[list[int]] = deque()  # one list for each message that has some, in order
        self.ended = False

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._socket.fileno()

    @property
    def unsent(self) -> bool:
        """Whether something is queued to be sent."""
        return bool(self._unsent)

    def send(self, head: object, body: bytes = b"", fds: list[int] | None = None) -> None:
        """Queue one message and send as much as the socket takes now; :meth:`flush` sends the rest."""
        pickled = pickle.dumps((head, len(fds or ())), pickle.HIGHEST_PROTOCOL)
        self._unsent.append((memoryview(b"".join((_LENGTHS.pack(len(pickled), len(body)), pickled, body))), fds or []))
        self.flush()

    def flush(self) -> None:
        """Send what is queued, as far as the socket takes it."""
        while self._unsent and not self.ended:
            left, fds = self._unsent.popleft()
            try:
                sent = socket.send_fds(self._socket, [left], fds) if fds else self._socket.send(left)
            except BlockingIOError:
                self._unsent.appendleft((left, fds))
                return
            except OSError as error:
                self._end_on(error)
                return
            if sent < len(left):
                self._unsent.appendleft((left[sent:], []))

    def receive(self, *, wait: bool = True) -> RawMessage | None:
        """Return the next whole message; None at the end, and None if there is none yet and the channel does not wait.

        ``wait``: false: do not wait, even if the channel is blocking.
        """
        while (message := self._take_whole()) is None:
            if self.ended or not (wait or self._is_readable()) or not self._read():
                return None
        return message

    def close(self) -> None:
        """Close the socket, and the descriptors that came with an incomplete message. Idempotent.

        The other end then reads an end of file; so does a thread that is inside :meth:`receive` or :meth:`flush`.
        """
        self.ended = True
        self._socket.close()
        while self._fds:
            for fd in self._fds.popleft():
                os.close(fd)

    def _is_readable(self) -> bool:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def _read(self) -> bool:
        """Read what is there; False if there is nothing yet, or no more."""
        try:
            data, fds, flags, _ = socket.recv_fds(self._socket, _READ, _FDS)
        except BlockingIOError:
            return False
        except OSError as error:
            self._end_on(error)
            return False
        if fds or flags & socket.MSG_CTRUNC:  # truncated by too many open files: an entry for this message all the same
            self._fds.append(list(fds))
        self.ended = self.ended or not data
        self._received += data
        return bool(data)

    def _end_on(self, error: OSError) -> None:
        """Record the end if ``error`` says that either side has closed its socket; else raise it."""
        if not self.ended and not isinstance(error, (BrokenPipeError, ConnectionResetError)):
            raise error
        self.ended = True

    def _take_whole(self) -> RawMessage | None:
        received = self._received
        if len(received) < _LENGTHS.size:
            return None
        head_size, body_size = _LENGTHS.unpack_from(received)
        start = _LENGTHS.size + head_size
        if len(received) < start + body_size:
            return None
        with memoryview(received) as view:
            head, fds = pickle.loads(view[_LENGTHS.size : start])  # noqa: S301  # from the other end of our own socket pair
            body = bytes(view[start : start + body_size])
        del received[: start + body_size]
        return head, body, self._fds.popleft() if fds and self._fds else []


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
        """Return the next message; None if there is none yet, or no more."""
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
        """Return the batch of a payload; its memory goes back to the worker when its last array is deleted."""
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
        """Close, in a forked child, the copies of the parent's end, which would keep the worker alive. Idempotent.

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
        """Return the next message.

        It is None if the parent has closed the connection, or nothing is there and ``wait`` is False.
        """
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
        """Pickle ``value``; raises what that raises."""
        return dumps(value)

    def pack(self, batch: Batch) -> SlotPayload:
        """Return ``batch`` as the payload of a message; raises what pickling it raises."""
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
