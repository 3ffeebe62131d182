"""The stacks of this process's threads, without a deadlock of CPython 3.11.

``sys._current_frames()`` allocates while it holds the interpreter's lock on the list of threads. An allocation can
start the garbage collector, and the garbage may contain a ``threading.local``, whose deallocation takes that lock
again: the process then waits for ever with the GIL. Later versions of CPython disable the collector during the call.

``frame.f_back`` of another thread allocates too. Garbage that the collector then finds may run code that releases the
GIL, so that the other thread leaves the frame that is being looked at: the result refers to memory that is used for
something else, and the process crashes.

Called where workers are started, where a stall is reported, and where stacks are sampled.
"""

from __future__ import annotations

import functools
import gc
import itertools
import operator
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, cast

__all__ = ["current_frames", "walk_stack"]


def current_frames() -> dict[int, FrameType]:
    """Return the innermost frame of each thread, by the thread's ``ident``."""
    read = sys._current_frames  # noqa: SLF001  # there is no public way
    # a loop in C: no other thread runs, or forks, while the collector is disabled
    _, frames, _ = map(operator.call, (gc.disable, read, gc.enable if gc.isenabled() else gc.disable))
    return cast("dict[int, FrameType]", frames)


def walk_stack(frame: FrameType, most: int = sys.maxsize) -> list[FrameType]:
    """Yield ``frame``, its caller, and so on, at most ``most`` frames; the frame may be one of another thread."""
    outer = cast("Callable[[Any, object], Any]", getattr)
    callers = itertools.accumulate(itertools.chain((frame,), itertools.repeat("f_back", most - 1)), outer)
    found: list[FrameType] = []
    walk = functools.partial(found.extend, itertools.takewhile(bool, callers))
    calls: tuple[Callable[[], object], ...] = (gc.disable, walk, gc.enable if gc.isenabled() else gc.disable)
    _, _, _ = map(operator.call, calls)  # in C, as above
    return found
