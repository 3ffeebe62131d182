"""A trainer that does nothing but take time: it holds each batch as long as the script's step, with its processor time.

Threads compute without the interpreter's lock, as a model does. What takes time without a processor (a device, a sleep)
is slept. Work is counted in processor time, so a step takes longer where workers compete for the cores, as in training.
"""

from __future__ import annotations

import math
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

__all__ = ["EmulatedTrainer", "StepShape"]

_CHUNK: Final = bytes(1 << 17)  # some tens of microseconds, in the caches; large enough for zlib to release the lock


@dataclass(frozen=True, slots=True)
class StepShape:
    """What a step of the script takes where it has the cores it wants.

    Parameters
    ----------
    wall_ns, cpu_ns : float
        Its time; its processor time, all threads.
    """

    wall_ns: float = 0.0
    cpu_ns: float = 0.0


class EmulatedTrainer:
    """Takes as long as a step.

    Parameters
    ----------
    shape : StepShape
        Of the step.
    """

    def __init__(self, shape: StepShape) -> None:
        cpu_ns = min(max(shape.cpu_ns, 0.0), 64 * shape.wall_ns)
        self._threads = max(1, math.ceil(cpu_ns / shape.wall_ns - 0.05)) if shape.wall_ns > 0 else 1
        self._cpu_ns = cpu_ns / self._threads
        self._sleep_s = max(shape.wall_ns - self._cpu_ns, 0.0) / 1e9
        self._pool = ThreadPoolExecutor(self._threads - 1) if self._threads > 1 else None

    def hold(self) -> None:
        """Take the time of one step."""
        others = [self._pool.submit(_compute, self._cpu_ns) for _ in range(self._threads - 1)] if self._pool else []
        _compute(self._cpu_ns)
        for other in others:
            other.result()
        if self._sleep_s > 0:
            time.sleep(self._sleep_s)


def _compute(cpu_ns: float) -> None:
    end = time.thread_time_ns() + cpu_ns
    while time.thread_time_ns() < end:
        zlib.crc32(_CHUNK)
