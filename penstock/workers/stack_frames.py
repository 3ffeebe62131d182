"""The stacks of this process's threads, without a deadlock of CPython 3.11.

``sys._current_frames()`` allocates while it holds the interpreter's lock on the list of threads. An allocation can
start the garbage collector, and the garbage may contain a ``threading.local``, whose deallocation takes that lock
again: the process then waits for ever with the GIL. Later versions of CPython disable the collector during the call.

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
    """The innermost frame of each thread, by the thread's ``ident``."""
    read = sys._current_frames  # noqa: SLF001  # there is no public way
    # a loop in C: no other thread runs, or forks, while the collector is disabled
    _, frames, _ = map(operator.call, (gc.disable, read, gc.enable if gc.isenabled() else gc.disable))
    return cast("dict[int, FrameType]", frames)
