"""Whole messages over a socket pair, with file descriptors.

::

    message = u32 length of head | u64 length of body | head (pickle) | body (bytes)

Every worker has a socket pair of its own, so that one that is killed in the middle of a message does not damage the
messages of others. The worker's end blocks. The parent's end does not: what a full socket does not take is kept and
sent by :meth:`Channel.flush`. Pickles come only from the other end of a socket pair of this program.
"""

from __future__ import annotations

import os
import pickle
import select
import socket
import struct
from collections import deque
from typing import Any, Final

__all__ = ["Channel", "RawMessage"]

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
        """The socket's descriptor."""
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
        """The next whole message; None at the end, and None if there is none yet and the channel does not wait.

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
