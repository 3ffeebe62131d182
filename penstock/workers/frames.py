"""The stacks of this process's threads, read without the deadlock that CPython 3.11 has there.

``sys._current_frames()`` allocates while it holds the interpreter's lock on the list of threads. An allocation can
start the garbage collector, and the garbage may hold a ``threading.local``, whose deallocation takes that lock again:
the process then waits for ever, holding the GIL. Later versions of CPython turn the collector off for the call.

Called where workers are started and where a stall is reported.
"""

from __future__ import annotations

import gc
import operator
import sys
from types import FrameType
from typing import cast

__all__ = ["current_frames"]


def current_frames() -> dict[int, FrameType]:
    """The innermost frame of each thread, by the thread's ``ident``; nothing is collected meanwhile."""
    read = sys._current_frames  # noqa: SLF001  # the only way to another thread's stack
    # One loop in C: no other thread runs, and none forks, while the collector is off.
    _, frames, _ = map(operator.call, (gc.disable, read, gc.enable if gc.isenabled() else gc.disable))
    return cast("dict[int, FrameType]", frames)
