"""Batches that a dataset fills by itself, in the memory where they end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.datasets.base import Filler, located
from penstock.loader.jobs.base import Job, note_length, place
from penstock.sample import SampleKeys, Tree
from penstock.slots import Layout, SlotPool
from penstock.trace import Trace
from penstock.workers.base import Task

__all__ = ["FillJob"]


class FillJob(Job):
    """Batches that a dataset fills by itself.

    Parameters
    ----------
    dataset : Filler
        Fills chunks, from several threads at once.
    layout : Layout
        Of a full batch; a longer one (from a batch sampler) gets its own.
    pool : SlotPool
        Where slots come from.
    deliver : callable
        From the arrays, in the sample's structure, to what the user gets.
    """

    def __init__(
        self,
        trace: Trace,
        worker_init_fn: Any,
        dataset: Filler,
        layout: Layout,
        pool: SlotPool,
        deliver: Callable[[Tree], Any],
    ) -> None:
        super().__init__(trace, worker_init_fn, deliver)
        self.dataset, self.layout, self.pool = dataset, layout, pool
        self.rows = np.arange(layout.rows, dtype=np.int64)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "pool": None}

    def move_in(self, memory: Any, trace: Trace, watch: Callable[[int], None]) -> None:
        """See :class:`~penstock.workers.base.Job`."""
        super().move_in(memory, trace, watch)
        self.pool = memory

    def begin(self, task: Task) -> _FillBuild:
        """Lease a slot; see :class:`~penstock.workers.base.Job`."""
        return _FillBuild(self, task)


class _FillBuild:
    __slots__ = ("_arrays", "_job", "_rows", "_task", "rows", "seq", "state")

    def __init__(self, job: FillJob, task: Task) -> None:
        self._job, self._task = job, task
        self.seq, self.rows, self.state = task.seq, len(task.indices), None
        layout, self._rows = job.layout, job.rows
        if self.rows > layout.rows:
            layout, self._rows = layout.resized(self.rows), np.arange(self.rows, dtype=np.int64)
        self._arrays: Tree = layout.arrays(job.pool.take(layout.nbytes), self.rows)

    def run(self, start: int, stop: int) -> None:
        job, task = self._job, self._task
        job.trace.activate()
        try:
            job.dataset.fill(
                task.indices[start:stop],
                self._arrays,
                SampleKeys(task.keys.seed, task.keys.epoch, task.keys.indices[start:stop]),
                self._rows[start:stop],
            )
        except BaseException as error:  # noqa: BLE001  # raised again, with its place
            if isinstance(error, IndexError):
                note_length(error, job.dataset)
            raise located(error, **place(error, task, start, stop))  # noqa: B904  # the same object, or one that is chained
        finally:
            job.trace.deactivate()

    def finish(self) -> Any:
        arrays, self._arrays = self._arrays, None
        return self._job.deliver(arrays)
