"""Batches that a dataset writes itself, into the memory in which they are delivered."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.base import Filler, IndexBatch, rows_per_fill
from penstock.datasets.error_location import add_location
from penstock.errors import BatchMemoryError
from penstock.ragged import Padded, Ragged, RaggedRows, RaggedSpec
from penstock.sample import Array, ArraySpec, Batch, DType, Index, SampleKeys, Tree, Watch, tree_leaves, tree_map
from penstock.trace import Trace
from penstock.wording import format_bytes
from penstock.workers.base import NOTHING, Task
from penstock.workers.jobs.base import LoaderJob, chunk_location, note_length
from penstock.workers.jobs.single_rows import RowsBuild
from penstock.workers.left_out import SampleRules
from penstock.workers.slots import BatchLayout, Lease, SpareMemory

__all__ = ["FillBuild", "FillJob"]


class SlotSource(Protocol):
    """Where slots come from: a :class:`~penstock.workers.slots.SlotPool`, or the memory of a worker process."""

    def take(self, nbytes: int) -> Lease:
        """Return a lease on a slot of at least ``nbytes``."""
        ...


class FillJob(LoaderJob):
    """Batches that a dataset fills by itself.

    Parameters
    ----------
    dataset : Filler
        Fills chunks, from several threads at once.
    layout : BatchLayout
        Of a full batch; a longer one (from a batch sampler) gets its own.
    pool : SlotSource
        Where slots come from.
    deliver : callable
        From the arrays, in the sample's structure, to what the user gets.
    rules : SampleRules, optional
        As for all jobs.
    """

    def __init__(
        self,
        trace: Trace,
        worker_init_fn: Callable[[int], None] | None,
        dataset: Filler,
        layout: BatchLayout,
        pool: SlotSource | None,
        deliver: Callable[[Tree], Batch],
        rules: SampleRules | None = None,
    ) -> None:
        if layout.is_ragged:
            deliver = _DeliverLists(layout.spec, deliver)
        super().__init__(trace, worker_init_fn, deliver, rules=rules)
        self.dataset: Filler = dataset
        self.layout, self.pool = layout, pool
        self.rows = np.arange(layout.rows, dtype=np.int64)
        self.most_rows = rows_per_fill(dataset)
        self.spare_nbytes = 0
        """Bytes for ragged arrays behind each batch: as many as a batch has needed, and a quarter more."""

    is_movable = True

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "pool": None}

    def attach(self, memory: object, trace: Trace, watch: Watch) -> None:
        """Use the resources of a worker process; the memory is the source of slots."""
        super().attach(memory, trace, watch)
        self.pool = cast("SlotSource", memory)

    def make_build(self, task: Task) -> FillBuild:
        """Begin a batch: lease a slot for it."""
        return FillBuild(self, task)


class _DeliverLists:
    """Splits what is ragged where the consumer is, if it is to be a list, before it is delivered.

    Between processes, one array is sent faster than one for each sample.
    """

    def __init__(self, spec: Tree, deliver: Callable[[Tree], Batch]) -> None:
        self._spec, self._deliver = spec, deliver

    def __call__(self, arrays: Tree) -> Batch:
        return self._deliver(tree_map(_as_form, self._spec, arrays))


def _as_form(spec: ArraySpec | RaggedSpec, value: Array | Ragged | Padded) -> object:
    return value.list() if isinstance(spec, RaggedSpec) and isinstance(value, Ragged) and spec.form == "list" else value


class FillBuild(RowsBuild):
    """One batch of a :class:`FillJob`."""

    __slots__ = ("_arrays", "_rows", "_spare", "most_rows")
    _job: FillJob

    def __init__(self, job: FillJob, task: Task) -> None:
        super().__init__(job, task)
        if isinstance(task.indices, IndexBatch):
            task.indices.check()
        layout, self._rows, self.most_rows = job.layout, job.rows, job.most_rows
        if self.rows > layout.rows:
            layout, self._rows = layout.resized(self.rows), np.arange(self.rows, dtype=np.int64)
        assert job.pool is not None, "in this process, or given by attach"
        slot = _lease(job.pool, layout, job.spare_nbytes)
        self._arrays: Tree = layout.arrays(slot, self.rows)
        self._spare = SpareMemory(slot.bytes()[layout.nbytes :]) if layout.is_ragged else None

    def run(self, start: int, stop: int) -> None:
        """Fill rows ``start..stop``, with the trace active and the generators seeded."""
        job = self._job
        job.trace.activate()
        try:
            with job.seeding():
                self.build_rows(start, stop, singly=self._task.fatal is not None)
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

    def _build_many(self, start: int, stop: int) -> None:
        self._fill(self._task.indices[start:stop], start, stop)

    def _build_one(self, row: int, index: Index) -> None:
        self._fill(np.array([index], np.int64), row, row + 1)

    def finish(self) -> Batch:
        """Deliver the arrays of the rows that are kept, or NOTHING."""
        kept = self.kept_rows()
        return self._job.deliver(self.take_arrays(kept)) if len(kept) else NOTHING

    def kept_rows(self) -> NDArray[np.int64]:
        """Return the rows that have a sample."""
        missing = self.missing()
        rows = self._rows[: self.rows]
        return np.setdiff1d(rows, list(missing)) if missing else rows

    def take_arrays(self, kept: NDArray[np.int64], replaced: Callable[[RaggedRows], object] | None = None) -> Tree:
        """Return the arrays of the rows ``kept``; the build holds them no longer.

        ``replaced``: called with each ragged leaf; what it returns, if that is not None, stands in its place.
        """
        arrays, self._arrays = self._arrays, None
        spare, self._spare = self._spare, None
        if len(kept) < self.rows:
            arrays = tree_map(lambda array: _compacted(array, kept), arrays)
        if spare is not None:
            arrays = tree_map(lambda array: _joined(array, kept, spare, replaced), arrays)
            if spare.nbytes > self._job.spare_nbytes:
                self._job.spare_nbytes = spare.nbytes + spare.nbytes // 4
        return arrays

    def _allocate(self, shape: tuple[int, ...], dtype: DType) -> Array:
        """Return the memory behind the arrays of the batch."""
        assert self._spare is not None, "a batch with ragged leaves"
        return self._spare.allocate(shape, dtype)


def _compacted(array: Array | RaggedRows, kept: NDArray[np.int64]) -> Array | RaggedRows:
    """Return the rows ``kept``, moved to the front of ``array``.

    Those of a ragged leaf are chosen when they are joined.
    """
    if isinstance(array, RaggedRows):
        return array
    array[: len(kept)] = array[kept]
    return array[: len(kept)]


def _joined(
    array: Array | RaggedRows,
    kept: NDArray[np.int64],
    spare: SpareMemory,
    replaced: Callable[[RaggedRows], object] | None,
) -> object:
    if not isinstance(array, RaggedRows):
        return array
    other = None if replaced is None else replaced(array)
    return array.batch(kept, spare.allocate) if other is None else other


def _lease(pool: SlotSource, layout: BatchLayout, spare_nbytes: int = 0) -> Lease:
    """Return a slot of ``pool`` for a batch of this layout, with ``spare_nbytes`` behind its arrays.

    A batch larger than the machine's memory is refused before it is allocated: Linux promises more memory than it has,
    and would kill the process later without an error.

    Raises BatchMemoryError if there is not enough memory.
    """
    nbytes = layout.nbytes + spare_nbytes
    if nbytes > _physical_nbytes():
        raise _too_large(layout, nbytes, f"this machine has {format_bytes(_physical_nbytes())} of memory")
    try:
        return pool.take(nbytes)
    except (OSError, MemoryError, OverflowError, ValueError) as error:
        raise _too_large(layout, nbytes, f"the system refuses so much memory ({error})") from error


@functools.cache
def _physical_nbytes() -> int:
    """Bytes of memory that the machine has; 2**62 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 62


def _too_large(layout: BatchLayout, nbytes: int, why: str) -> BatchMemoryError:
    sample = ", ".join(f"{leaf.shape} {leaf.dtype}" for leaf in tree_leaves(layout.spec))
    return BatchMemoryError(
        f"a batch of {layout.rows} samples takes {format_bytes(nbytes)}, and {why}; a sample is {sample}. Lower "
        "batch_size, or have the transform give smaller samples"
    )
