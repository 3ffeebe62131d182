"""The DataLoader: from a dataset and a sampler to batches in order, and to a state that resumes them.

Where to find what:

- order of delivery, prefetch, waits: ``iteration.py``, ``plan.py``; why both loaders share them:
  ``docs/decisions/0020-*``
- what a state holds, and how it is resumed: ``position.py``, ``state.py``
- what becomes of samples that cannot be built: ``faults.py``; in a worker: ``penstock/workers/left_out.py``
- what ``stats()``, ``progress()`` and ``report_to()`` count, show and write: ``stats.py``, ``counters.py``,
  ``statistics.py``, ``progress.py``, ``metrics/``
- what becomes of an interrupted cell of a notebook: ``interrupts.py``
- what a loader with ``view=True`` tells viewers: ``live/``
"""

from __future__ import annotations

from penstock.loader.loader import DataLoader
from penstock.loader.state import merge_states
from penstock.loader.stats import StageStats, Stats
from penstock.workers.left_out import LeftOut

__all__ = ["DataLoader", "LeftOut", "StageStats", "Stats", "merge_states"]
