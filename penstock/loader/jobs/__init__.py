"""What workers do with a task: fill rows, or build samples and collate, or pull from a stream.

::

    FillJob     dataset.fill(indices, slot's arrays, keys, rows)          the fast path: no samples, no collation
    SampleJob   samples[i] = dataset[index]; collate_fn(samples)          the general path
    StreamJob   next(iterator) under one lock; collate_fn(samples)        iterable datasets

Jobs are shared by threads; a build's rows never overlap. Every job works under its own trace. A worker process has a
copy of the job, which leaves trace, slots and delivery behind and finds its own there (:meth:`Job.attach`).
"""

from __future__ import annotations

from penstock.loader.jobs.fill import FillJob
from penstock.loader.jobs.samples import SampleJob
from penstock.loader.jobs.stream import StreamJob
from penstock.workers.base import EpochStart

__all__ = ["EpochStart", "FillJob", "SampleJob", "StreamJob"]
