"""Jobs: how a worker builds the batch of a task.

::

    FillJob     dataset.fill(indices, slot's arrays, keys, rows)          the fast path: no samples, no collation
    SampleJob   samples[i] = dataset[index]; collate_fn(samples)          the general path
    StreamJob   next(iterator) under one lock; collate_fn(samples)        iterable datasets

Threads share a job; the rows of a build never overlap. A worker process has a copy of the job, without trace, slots and
delivery, and attaches its own (:meth:`~penstock.workers.base.Job.attach`).
"""

from __future__ import annotations

from penstock.workers.base import EpochStart
from penstock.workers.jobs.fill import FillJob
from penstock.workers.jobs.samples import SampleJob
from penstock.workers.jobs.stream import StreamJob

__all__ = ["EpochStart", "FillJob", "SampleJob", "StreamJob"]
