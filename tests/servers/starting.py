"""How servers for tests get a port that nobody else gets, and how a test waits until they listen."""

from __future__ import annotations

import select
import socket
import subprocess
from typing import Final

__all__ = ["PATIENCE_S", "hold_port", "read_line"]

PATIENCE_S: Final = 120
"""How long a test waits for a server that starts; it takes a fraction of a second on a machine that has time."""


def hold_port() -> socket.socket:
    """A socket at a free port, ``getsockname()[1]``, which belongs to one server until the socket is closed.

    For servers that must be told a port, or that come back at the same one. The system gives the port to nobody else.
    The socket does not listen: a client is refused until the server listens, which it may as both set ``SO_REUSEADDR``
    (Go, libuv and ``socket.create_server`` set it). All addresses are bound, as a connection from another address of
    this machine would be in the way of a server that listens at all of them.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("", 0))
    return held


def read_line(process: subprocess.Popen[bytes]) -> str:
    """The line that a server prints when it listens."""
    assert process.stdout is not None, "a pipe"
    is_there, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
    assert is_there, f"{process.args!r} printed nothing in {PATIENCE_S} s"
    line = process.stdout.readline().decode()
    assert line, f"{process.args!r} ended before it listened, with {process.wait()}"
    return line
