"""Batches of samples that are built one by one and collated: the general path."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from penstock.datasets.base import fetch, fetch_one, takes_many
from penstock.loader.faults import LeftOut, Rules
from penstock.loader.jobs.base import (
    LoaderJob,
    Reading,
    asked_by,
    collated,
    is_stateful,
    note_length,
    snapshot,
    snapshot_before,
)
from penstock.loader.jobs.singly import Singly
from penstock.sample import SampleKeys
from penstock.trace import Trace
from penstock.workers.base import NOTHING, Build, EpochStart, Task

__all__ = ["SampleJob"]


class SampleJob(LoaderJob):
    """Batches of samples that are built one by one and collated.

    Parameters
    ----------
    dataset : dataset
        Any map-style dataset.
    collate : callable
        From the list of samples to the batch; from the one sample without auto-batching.
    batched : bool
        Whether samples come in batches.
    deliver, epoch_starts, rules
        As for all jobs.
    stateful : bool
        Whether the dataset's own ``state_dict`` is kept with each batch, if it has one.
    as_given : bool
        Whether what ``__getitems__`` returns is collated as it is, as with torch's loader; it may be a batch that is
        finished already. False: it has to be one sample for each index.
    """

    def __init__(
        self,
        trace: Trace,
        worker_init_fn: Any,
        dataset: Any,
        collate: Callable[[Any], Any],
        *,
        batched: bool,
        deliver: Callable[[Any], Any] | None = None,
        epoch_starts: Mapping[int, EpochStart] | None = None,
        stateful: bool = False,
        rules: Rules | None = None,
        as_given: bool = False,
    ) -> None:
        super().__init__(trace, worker_init_fn, deliver, epoch_starts, rules)
        self.dataset, self.collate, self.batched, self.as_given = dataset, collate, batched, as_given
        self._stateful = stateful and is_stateful(dataset)

    def start_epoch(self, start: EpochStart) -> Any:
        """See :class:`~penstock.workers.base.Job`."""
        super().start_epoch(start)
        if self._stateful and start.state is not None and start.state["dataset"] is not None:
            self.dataset.load_state_dict(copy.deepcopy(start.state["dataset"]))
        return snapshot_before(self.dataset) if self._stateful else None

    def snapshot(self) -> Any:
        """What the dataset says of itself; None if it does not."""
        return snapshot(self.dataset, None, ended=False) if self._stateful else None

    def begin(self, task: Task) -> _SampleBuild:
        """See :class:`~penstock.workers.base.Job`."""
        return _SampleBuild(self, task)


class _SampleBuild(Build):
    whole = True  # to a worker that builds alone: a dataset's __getitems__ is asked for the batch at once
    __slots__ = ("_job", "_samples", "_singly", "_task", "rows", "seq", "state")

    def __init__(self, job: SampleJob, task: Task) -> None:
        self._job, self._task = job, task
        self.seq, self.rows, self.state = task.seq, len(task.indices), None
        self._samples: Any = [None] * self.rows
        self._singly = Singly(job, task, self._build_one) if job.tolerant else None

    @property
    def left_out(self) -> list[LeftOut]:
        return [] if self._singly is None else self._singly.left_out

    def run(self, start: int, stop: int) -> None:
        job = self._job
        with Reading(job.trace, stop - start), job.seeding():
            if self._singly is None:
                self._build_many(start, stop)
            elif self._task.fatal is not None or not (job.batched and takes_many(job.dataset)):
                self._singly.run(start, stop)
            else:
                try:
                    self._build_many(start, stop)
                except Exception:  # noqa: BLE001  # raised again by the sample that it belongs to
                    self._singly.run(start, stop)

    def _build_many(self, start: int, stop: int) -> None:
        job, task = self._job, self._task
        whole = job.as_given and stop - start == self.rows
        indices, keys = task.indices if whole else task.indices[start:stop], task.keys[start:stop]
        if isinstance(indices, np.ndarray):
            indices = indices.tolist()
        try:
            if not job.batched:
                self._samples = [self._fetch_one(indices[0], keys)]
            elif whole:
                self._samples = fetch(job.dataset, indices, keys, job.watch, as_given=True)
            else:
                self._samples[start:stop] = fetch(job.dataset, indices, keys, job.watch)
        except IndexError as error:
            note_length(error, job.dataset)
            raise

    def _build_one(self, row: int, index: Any) -> None:
        dataset, keys = self._job.dataset, self._task.keys[row : row + 1]
        index = index.item() if isinstance(index, np.integer) else index
        if self._job.batched:
            [self._samples[row]] = fetch(dataset, [index], keys)
        else:
            self._samples[row] = self._fetch_one(index, keys)

    def _fetch_one(self, index: Any, keys: SampleKeys) -> Any:
        if self._job.watch is not None:
            self._job.watch(0, asked_by(index))
        return fetch_one(self._job.dataset, index, keys)

    def finish(self) -> Any:
        if not self.rows:
            self.run(0, 0)  # a dataset may have something to say to no indices, and collate_fn to no samples
        samples, self._samples = self._samples, []
        if self._task.snapshot:
            self.state = self._job.snapshot()
        missing = self._singly.missing() if self._singly is not None else ()
        if missing:
            samples = [sample for row, sample in enumerate(samples) if row not in missing]
            if not samples:
                return NOTHING
        return collated(self._job, samples, self._task, self.seq)
