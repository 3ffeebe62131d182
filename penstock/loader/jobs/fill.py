"""Batches that a dataset fills by itself, in the memory where they end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.base import Filler, IndexBatch, add_location
from penstock.loader.faults import LeftOut, Rules
from penstock.loader.jobs.base import LoaderJob, chunk_location, note_length
from penstock.loader.jobs.single_rows import SingleRowBuilder
from penstock.loader.memory import lease
from penstock.sample import SampleKeys, Tree, Watch, tree_map
from penstock.slots import Layout, SlotPool
from penstock.trace import Trace
from penstock.workers.base import NOTHING, Build, Task

__all__ = ["FillJob"]


class FillJob(LoaderJob):
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
    rules : Rules, optional
        As for all jobs.
    """

    def __init__(
        self,
        trace: Trace,
        worker_init_fn: Any,
        dataset: Filler,
        layout: Layout,
        pool: SlotPool,
        deliver: Callable[[Tree], Any],
        rules: Rules | None = None,
    ) -> None:
        super().__init__(trace, worker_init_fn, deliver, rules=rules)
        self.dataset, self.layout, self.pool = dataset, layout, pool
        self.rows = np.arange(layout.rows, dtype=np.int64)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "pool": None}

    def attach(self, memory: Any, trace: Trace, watch: Watch) -> None:
        """See :class:`~penstock.workers.base.Job`."""
        super().attach(memory, trace, watch)
        self.pool = memory

    def begin(self, task: Task) -> _FillBuild:
        """Lease a slot; see :class:`~penstock.workers.base.Job`."""
        return _FillBuild(self, task)


class _FillBuild(Build):
    __slots__ = ("_arrays", "_job", "_rows", "_singly", "_task", "rows", "seq", "state")

    def __init__(self, job: FillJob, task: Task) -> None:
        self._job, self._task = job, task
        self.seq, self.rows, self.state = task.seq, len(task.indices), None
        if isinstance(task.indices, IndexBatch):
            task.indices.check()
        layout, self._rows = job.layout, job.rows
        if self.rows > layout.rows:
            layout, self._rows = layout.resized(self.rows), np.arange(self.rows, dtype=np.int64)
        self._arrays: Tree = layout.arrays(lease(job.pool, layout), self.rows)
        self._singly = SingleRowBuilder(job, task, self._fill_one) if job.tolerant else None

    @property
    def left_out(self) -> list[LeftOut]:
        return [] if self._singly is None else self._singly.left_out

    def run(self, start: int, stop: int) -> None:
        job = self._job
        job.trace.activate()
        try:
            with job.seeding():
                if self._singly is None:
                    self._fill(self._task.indices[start:stop], start, stop)
                elif self._task.fatal is not None:
                    self._singly.run(start, stop)
                else:
                    try:
                        self._fill(self._task.indices[start:stop], start, stop)
                    except Exception:  # noqa: BLE001  # raised again by the row that it belongs to
                        self._singly.run(start, stop)
        finally:
            job.trace.deactivate()

    def _fill(self, indices: NDArray[np.int64], start: int, stop: int) -> None:
        job, task = self._job, self._task
        keys = SampleKeys(task.keys.seed, task.keys.epoch, task.keys.indices[start:stop])
        try:
            job.dataset.fill(indices, self._arrays, keys, self._rows[start:stop])
        except BaseException as error:  # noqa: BLE001  # raised again, with its place
            if isinstance(error, IndexError):
                note_length(error, job.dataset)
            raise add_location(error, **chunk_location(error, task, start, stop))  # noqa: B904  # the same object, or one that is chained

    def _fill_one(self, row: int, index: Any) -> None:
        self._fill(np.array([index], np.int64), row, row + 1)

    def finish(self) -> Any:
        arrays, self._arrays = self._arrays, None
        missing = self._singly.missing() if self._singly is not None else ()
        if missing:
            kept = np.setdiff1d(self._rows[: self.rows], list(missing))
            if not len(kept):
                return NOTHING
            arrays = tree_map(lambda array: _compacted(array, kept), arrays)
        return self._job.deliver(arrays)


def _compacted(array: NDArray[Any], kept: NDArray[np.int64]) -> NDArray[Any]:
    """The rows ``kept``, moved to the front of ``array``."""
    array[: len(kept)] = array[kept]
    return array[: len(kept)]
