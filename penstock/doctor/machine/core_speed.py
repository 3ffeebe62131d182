"""How fast one core and the memory are: short fixed work, as numbers that can be compared between machines."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from typing import Final

import numpy as np

__all__ = ["measure_speed"]

_LOOPS: Final = 50_000
_REPETITIONS: Final = 5


def measure_speed(copy_bytes: int = 1 << 26) -> dict[str, float]:
    """Measure this machine; takes about 0.2 s.

    Processor time of the calling thread counts, and the best of five runs, so that other programs change little.

    Parameters
    ----------
    copy_bytes : int
        Size of the block that is copied; more than the caches hold.

    Returns
    -------
    dict of str to float
        ``python_loops_per_us``: turns of a loop of Python integers; it depends on the version of Python.
        ``compressed_mb_per_s``: DEFLATE of fixed bytes, native code of branches and small tables, as decoders are.
        ``memory_gb_per_s``: bytes copied by one core from memory to memory.
    """
    words = np.random.default_rng(0).integers(0, 24, 1 << 17).astype(np.uint8).tobytes()
    source = np.ones(copy_bytes, np.uint8)
    target = np.zeros_like(source)
    target[:] = 1  # the pages are there before the first run
    return {
        "python_loops_per_us": 1000 * _LOOPS / _measure(_loop),
        "compressed_mb_per_s": 1000 * len(words) / _measure(lambda: zlib.compress(words, 1)),
        "memory_gb_per_s": copy_bytes / _measure(lambda: np.copyto(target, source)),
    }


def _loop() -> None:
    total = 0
    for number in range(_LOOPS):
        total = (total * 31 + number) & 0xFFFF


def _measure(work: Callable[[], object]) -> float:
    """Nanoseconds of the fastest run."""
    times = []
    for _ in range(_REPETITIONS):
        start = time.thread_time_ns()
        work()
        times.append(time.thread_time_ns() - start)
    return max(1, min(times))
