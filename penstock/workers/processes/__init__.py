"""Worker processes: batches built in shared memory, workers that may die, a parent that may too.

Read in this order: :mod:`~penstock.workers.processes.backend` (what the loader sees), ``pool`` and ``seat`` (the
parent's side), ``worker`` (the child's side), ``channel`` and ``memory`` (what lies between them).
"""

from __future__ import annotations

from penstock.workers.processes.backend import ProcessBackend

__all__ = ["ProcessBackend"]
