"""What a process may take of the machine: its cores, and the memory of its worker processes and their batches."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Final

from penstock.system.control_group import count_usable_cores, find_control_group
from penstock.system.system_files import SystemFiles

__all__ = ["MemoryBudget", "find_cores"]

_MEASURE_S: Final = 10.0
"""Seconds between two looks at the memory of a worker process."""


def find_cores(files: SystemFiles) -> int:
    """Return the cores for the workers of this process, as of now: its share of the machine's, if others train too."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, count_usable_cores(files) // max(1, int(ranks) if ranks.isdecimal() else 1))


class MemoryBudget:
    """The memory that worker processes and batches may take, and take.

    ``fraction``: of the memory of the machine, or of the control group. ``files``: of the kernel.
    """

    def __init__(self, fraction: float, files: SystemFiles) -> None:
        self._fraction, self._files = fraction, files
        self._worker_nbytes, self._measured_s = 0, -_MEASURE_S

    def count_fitting(
        self, workers: int, batches_each: int, pids: Sequence[int], batch_nbytes: float
    ) -> tuple[int, int]:
        """Return how many workers fit, with ``batches_each`` batches of one, and how many batches with ``workers``.

        ``pids``: of worker processes, the first of which is measured.
        """
        now = time.monotonic()
        if pids and now - self._measured_s >= _MEASURE_S:
            self._measured_s = now
            nbytes = self._files.read_pairs(f"/proc/{pids[0]}/smaps_rollup").get("Pss", 0)
            self._worker_nbytes = max(self._worker_nbytes, nbytes)
        group = find_control_group(self._files).memory_limit()
        total = self._files.read_pairs("/proc/meminfo").get("MemTotal", 1 << 62)
        allowed = self._fraction * min(total, group or total)
        worker_nbytes, batch_nbytes = max(self._worker_nbytes, 1), max(batch_nbytes, 1.0)
        fitting = (allowed - batches_each * batch_nbytes) // (worker_nbytes + batch_nbytes)
        batches = (allowed - workers * self._worker_nbytes) // batch_nbytes
        return max(1, int(fitting)), max(1, int(min(batches, 1 << 30)))
