"""Calls of CUDA in one thread while another thread captures a CUDA graph.

::

    the training loop    with torch.cuda.graph(graph): step()       in CUDA's mode "global", torch's default
    another thread       cudaMalloc, cudaHostRegister, cudaEventQuery ...    an error, and the graph is invalid
    another thread       with beside_captures(): the same                    allowed, and the graph is what it was

In the mode "global", CUDA refuses calls of *all* threads that a graph could not repeat. A thread whose work no graph
contains says so by changing its own mode to "relaxed". torch has no function for this: the driver's is called. Used by
the threads that decode on a device, and by page-locked memory, which any thread may give back.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Final

__all__ = ["beside_captures"]

_GLOBAL: Final = 0
"""CU_STREAM_CAPTURE_MODE_GLOBAL: of each thread at first."""

_RELAXED: Final = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED"""

Exchange = Callable[[int], int]
"""Sets the calling thread's mode; returns the one of before."""


@contextlib.contextmanager
def beside_captures() -> Iterator[None]:
    """Allow the calling thread what a capture in another thread forbids, in a ``with`` statement.

    What it does is not part of any graph. Calls that concern a capturing stream itself remain errors. Without CUDA's
    driver this does nothing.
    """
    exchange = _find_exchange()
    before = exchange(_RELAXED)
    try:
        yield
    finally:
        exchange(before)


@functools.cache
def _find_exchange() -> Exchange:
    """Return the driver's function; one that does nothing where there is no driver."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        exchange = ctypes.CDLL(name).cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):
        return _keep_mode

    def call(mode: int) -> int:
        value = ctypes.c_int(mode)
        failed = exchange(ctypes.byref(value)) != 0  # before CUDA is initialised in this process
        return _GLOBAL if failed else value.value

    return call


def _keep_mode(mode: int) -> int:
    return mode
