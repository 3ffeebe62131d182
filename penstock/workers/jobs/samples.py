"""The job of the general path: builds samples one by one and collates them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import numpy as np

from penstock.datasets.base import fetch, fetch_one, takes_many
from penstock.sample import Batch, DatasetLike, Index, Sample, SampleKeys, State
from penstock.trace import Trace
from penstock.workers.base import NOTHING, Task, WorkerStart
from penstock.workers.jobs.base import (
    LoaderJob,
    ReadTimer,
    collate_samples,
    count_requested,
    is_stateful,
    note_length,
    take_snapshot,
    take_snapshot_at_start,
)
from penstock.workers.jobs.single_rows import RowsBuild
from penstock.workers.left_out import SampleRules

__all__ = ["SampleJob"]


class SampleJob(LoaderJob):
    """Builds samples one by one and collates them.

    Parameters
    ----------
    dataset : dataset
        Any map-style dataset.
    collate : callable
        From the list of samples to the batch; from the one sample without auto-batching.
    batched : bool
        Whether samples come in batches.
    deliver, worker_starts, rules
        As for all jobs.
    stateful : bool
        Whether the dataset's own ``state_dict`` is kept with each batch, if it has one.
    as_given : bool
        Whether what ``__getitems__`` returns is collated unchanged, as with torch's loader, even if it is a finished
        batch. False: it must be one sample for each index.
    """

    def __init__(
        self,
        trace: Trace,
        worker_init_fn: Callable[[int], None] | None,
        dataset: DatasetLike,
        collate: Callable[[Sample], Batch],
        *,
        batched: bool,
        deliver: Callable[[Batch], Batch] | None = None,
        worker_starts: Mapping[int, WorkerStart] | None = None,
        stateful: bool = False,
        rules: SampleRules | None = None,
        as_given: bool = False,
    ) -> None:
        super().__init__(trace, worker_init_fn, deliver, worker_starts, rules)
        self.dataset, self.collate, self.batched, self.as_given = dataset, collate, batched, as_given
        self._stateful = stateful and is_stateful(dataset)

    @property
    def is_movable(self) -> bool:
        """Whether each sample or batch seeds the generators, and no state is kept."""
        return self.seeds_globals and not self._stateful

    def start_epoch(self, start: WorkerStart) -> State:
        """Restore the state of a stateful dataset, and return it."""
        super().start_epoch(start)
        if self._stateful and start.state is not None and start.state["dataset"] is not None:
            self.dataset.load_state_dict(copy.deepcopy(start.state["dataset"]))
        return take_snapshot_at_start(self.dataset) if self._stateful else None

    def take_snapshot(self) -> State:
        """The dataset's own state; None if it has none, or it is not kept."""
        return take_snapshot(self.dataset, None, ended=False) if self._stateful else None

    def make_build(self, task: Task) -> _SampleBuild:
        """Begin a batch of samples that are built one by one."""
        return _SampleBuild(self, task)


class _SampleBuild(RowsBuild):
    whole = True  # so that a worker that builds alone calls the dataset's __getitems__ once for the batch
    __slots__ = ("_samples",)
    _job: SampleJob

    def __init__(self, job: SampleJob, task: Task) -> None:
        super().__init__(job, task)
        self._samples: list[Sample] = [None] * self.rows

    def run(self, start: int, stop: int) -> None:
        job = self._job
        singly = job.tolerant and (self._task.fatal is not None or not (job.batched and takes_many(job.dataset)))
        with ReadTimer(job.trace, stop - start), job.seeding():
            self.build_rows(start, stop, singly=singly)

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
                self._samples = fetch(job.dataset, indices, keys, self.watch, as_given=True)
            else:
                self._samples[start:stop] = fetch(job.dataset, indices, keys, self.watch)
        except IndexError as error:
            note_length(error, job.dataset)
            raise

    def _build_one(self, row: int, index: Index) -> None:
        dataset, keys = self._job.dataset, self._task.keys[row : row + 1]
        index = index.item() if isinstance(index, np.integer) else index
        if self._job.batched:
            [self._samples[row]] = fetch(dataset, [index], keys)
        else:
            self._samples[row] = self._fetch_one(index, keys)

    def _fetch_one(self, index: Index, keys: SampleKeys) -> Sample:
        if self.watch is not None:
            self.watch(0, count_requested(index))
        return fetch_one(self._job.dataset, index, keys)

    def finish(self) -> Batch:
        if not self.rows:
            self.run(0, 0)  # dataset and collate_fn are called without indices and samples, too
        samples, self._samples = self._samples, []
        if self._task.snapshot:
            self.state = self._job.take_snapshot()
        if missing := self.missing():
            samples = [sample for row, sample in enumerate(samples) if row not in missing]
            if not samples:
                return NOTHING
        return collate_samples(self._job, samples, self._task, self.seq)
