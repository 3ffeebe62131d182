"""Messages between a parent and one worker: a socket pair, whole messages, file descriptors beside them.

::

    message = u32 length of head | u32 length of body | head (pickle) | body (bytes)

Every worker has a socket of its own: one that is killed in the middle of a message spoils nobody else's. The worker
blocks; the parent never does: what a full socket does not take waits in :class:`Channel` until it does. Pickles come
only from the other end of a socket pair of this program.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
from collections import deque
from typing import Any, Final

__all__ = ["Channel", "Message"]

_LENGTHS: Final = struct.Struct("=IQ")
_READ: Final = 1 << 18
_FDS: Final = 64
"""Most descriptors beside one message (a batch has a few); Linux takes 253."""

Message = tuple[Any, bytes, list[int]]
"""Head, body, descriptors (the receiver's to close)."""


class Channel:
    """One end of a socket pair.

    Parameters
    ----------
    end : socket
        Connected, of type stream; owned from now on.
    blocking : bool
        Whether sending and receiving wait.
    """

    def __init__(self, end: socket.socket, *, blocking: bool) -> None:
        self._socket = end
        end.setblocking(blocking)
        self._unsent: deque[tuple[memoryview, list[int]]] = deque()
        self._received = bytearray()
        self._fds: deque[list[int]] = deque()  # of each message that has some, in their order
        self.ended = False

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    @property
    def unsent(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._unsent)

    def send(self, head: Any, body: bytes = b"", fds: list[int] | None = None) -> None:
        """Send one message, or as much as the socket takes now; the rest by :meth:`flush`."""
        pickled = pickle.dumps((head, len(fds or ())), pickle.HIGHEST_PROTOCOL)
        self._unsent.append((memoryview(b"".join((_LENGTHS.pack(len(pickled), len(body)), pickled, body))), fds or []))
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as the socket takes it."""
        while self._unsent and not self.ended:
            left, fds = self._unsent.popleft()
            try:
                sent = socket.send_fds(self._socket, [left], fds) if fds else self._socket.send(left)
            except BlockingIOError:
                self._unsent.appendleft((left, fds))
                return
            except OSError as error:
                self._end_at(error)
                return
            if sent < len(left):
                self._unsent.appendleft((left[sent:], []))

    def receive(self) -> Message | None:
        """The next whole message; waits for it if blocking, else None if there is none yet. None at the end."""
        while (message := self._whole()) is None:
            if self.ended or not self._read():
                return None
        return message

    def close(self) -> None:
        """Close the socket, whose other end reads an end, and descriptors that came with half a message.

        A thread that is in the middle of :meth:`receive` or :meth:`flush` finds an end, too.
        """
        self.ended = True
        self._socket.close()
        while self._fds:
            for fd in self._fds.popleft():
                os.close(fd)

    def _read(self) -> bool:
        """Take what is there; False if there is nothing yet, or no more."""
        try:
            data, fds, flags, _ = socket.recv_fds(self._socket, _READ, _FDS)
        except BlockingIOError:
            return False
        except OSError as error:
            self._end_at(error)
            return False
        if fds or flags & socket.MSG_CTRUNC:  # with too many open files, none: they are this message's all the same
            self._fds.append(list(fds))
        self.ended = self.ended or not data
        self._received += data
        return bool(data)

    def _end_at(self, error: OSError) -> None:
        """Take an error for the end if it is one: of the other side, or of this one by another thread."""
        if not self.ended and not isinstance(error, (BrokenPipeError, ConnectionResetError)):
            raise error
        self.ended = True

    def _whole(self) -> Message | None:
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
