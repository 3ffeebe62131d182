"""Small arrays of records in rows of a batch: as stored, or moved with the image, without objects that ops removed.

::

    records ──ChunkTargets──> boxes ──program.fill──> pixels, steps
        ├── columns() ──> rows of the batch    the chunk at once, if it can be
        └── arrays() ──> rows of the batch     record by record

Called by :mod:`penstock.datasets.store.dataset` with the plan of a sample. Nothing here reads a store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.store.sample_plan import SamplePlan
from penstock.ragged import RaggedRows
from penstock.sample import Array, DType, Index, Record

if TYPE_CHECKING:
    from penstock.transforms.program.program import Failure
    from penstock.transforms.targets.chunk_targets import Column
    from penstock.transforms.targets.moved_targets import ChunkSteps, Moves

__all__ = ["ChunkTargets"]


class ChunkTargets:
    """The small arrays of a chunk's records, and the ops that were applied to their images.

    Parameters
    ----------
    plan : SamplePlan
        How a sample is made.
    records : sequence of Record
        The records.
    failures : list of Failure
        Records that have failed, which are left out; those that fail here are added.

    Attributes
    ----------
    steps : ChunkSteps or None
        Where the program notes the ops of images that arrays follow.
    """

    def __init__(self, plan: SamplePlan, records: Sequence[Record], failures: list[Failure]) -> None:
        self._plan, self._records, self._failures = plan, records, failures
        self.steps: ChunkSteps | None = None
        if plan.moved:
            from penstock.transforms.targets.moved_targets import ChunkSteps  # imported with the pipeline

            self.steps = ChunkSteps(len(records))

    @cached_property
    def boxes(self) -> list[Array] | None:
        """The boxes of each record, if ops need them; those that cannot be read are none, and a failure."""
        plan = self._plan
        if plan.boxes is None:
            return None
        boxes: list[Array] = []
        for position, record in enumerate(self._records):
            try:
                boxes.append(plan.array(plan.boxes, record))
            except Exception as error:  # noqa: BLE001  # raised by the caller: the first one of all fields
                self._add_failure(position, error)
                boxes.append(np.empty((0, 4), np.float32))
        return boxes

    def columns(
        self, names: Sequence[Index], parts: Mapping[Index, RaggedRows], rows: NDArray[np.int64]
    ) -> list[Index]:
        """Write the ragged arrays of all records to their rows, a field at once: the same as :meth:`arrays`.

        Returns
        -------
        list
            The names of the fields for which this is not possible; of those, nothing was written.
        """
        plan = self._plan
        moves_all = plan.boxes is not None  # the rows of all fields of objects, where some are removed
        columns: dict[Index, Column] = {}
        done: set[Index] = set()
        for name in names:
            if name not in plan.forms or plan.moved.get(name, "boxes") != "boxes":
                continue
            arrays = _read_arrays(plan, name, self._records)
            if arrays is None:
                continue
            if moves_all or name in plan.moved:
                columns[name] = _join(arrays)
            else:
                parts[name].write_each(rows, arrays)
                done.add(name)
        for name, (values, lengths) in (_move_columns(plan, columns, self.steps) if columns else {}).items():
            parts[name].write(rows, values, lengths)
            done.add(name)
        return [name for name in names if name not in done]

    def arrays(
        self, names: Sequence[Index], parts: Mapping[Index, Array | RaggedRows], rows: NDArray[np.int64]
    ) -> None:
        """Write small arrays, by their names in the sample, record by record to rows of a batch."""
        moves = self._find_moves()
        for name in names:
            self._write(name, parts[name], rows, moves)

    def _find_moves(self) -> list[Moves]:
        """Return what moves the values of each record; those that have failed move nothing."""
        boxes = self.boxes
        if self.steps is None:
            return []
        from penstock.transforms.targets.moved_targets import Moves  # imported with the pipeline

        failed = {failure.position for failure in self._failures}
        return [
            Moves(()) if position in failed else Moves(own, None if boxes is None else boxes[position])
            for position, own in enumerate(self.steps)
        ]

    def _write(self, name: Index, out: Array | RaggedRows, rows: NDArray[np.int64], moves: Sequence[Moves]) -> None:
        plan, failed = self._plan, {failure.position for failure in self._failures}
        arrays: list[Array] = []
        for position, record in enumerate(self._records):
            if position in failed:
                continue
            try:
                array = plan.array(name, record)
                if moves:
                    array = moves[position].move(name, plan.selection.kind_of[name], array)
                if isinstance(out, RaggedRows) and not len(array):  # masks of no objects have the size of no image
                    array = array.reshape(0, *out.spec.shape)
                if isinstance(out, RaggedRows):
                    arrays.append(array)
                else:
                    out[rows[position]] = array
            except Exception as error:  # noqa: BLE001  # raised by the caller: the first one of all fields
                self._add_failure(position, error)
        if isinstance(out, RaggedRows) and arrays and not self._failures:
            out.write(rows, np.concatenate(arrays), np.array([len(array) for array in arrays], np.int64))

    def _add_failure(self, position: int, error: Exception) -> None:
        from penstock.transforms.program.program import Failure  # imported with the pipeline

        self._failures.append(Failure(position, error))


def _read_arrays(plan: SamplePlan, name: Index, records: Sequence[Record]) -> list[Array] | None:
    """Return the arrays of a field; None if one is missing, or is not what the schema says."""
    field, kind = plan.arrays[name], plan.selection.array_kinds.get(name)
    if kind is None:  # the shapes of instances, which are no arrays
        return None
    arrays = [record.fields[field] for record in records]
    shapes, dtype = {getattr(array, "shape", ())[1:] for array in arrays}, kind.dtype
    if len(shapes) != 1 or not kind.allows((0, *next(iter(shapes)))) or not all(_has(array, dtype) for array in arrays):
        return None
    return arrays


def _join(arrays: Sequence[Array]) -> Column:
    from penstock.transforms.targets.chunk_targets import Column  # imported with the pipeline

    return Column(np.concatenate(arrays), np.fromiter(map(len, arrays), np.int64, len(arrays)))


def _has(array: object, dtype: DType) -> bool:
    return type(array) is np.ndarray and array.ndim > 0 and array.dtype == dtype


def _move_columns(plan: SamplePlan, columns: Mapping[Index, Column], steps: ChunkSteps | None) -> dict[Index, Column]:
    """Return the columns after the ops of the image; none where these, or the objects, are not moved together."""
    from penstock.transforms.targets.chunk_targets import move_columns, moves_together  # imported with the pipeline

    drawn = None if steps is None else steps.shared()
    if drawn is None or not moves_together(drawn) or (plan.boxes is not None and plan.boxes not in columns):
        return {}
    moved = [name for name in plan.moved if name in columns]
    return move_columns(columns, plan.selection.kind_of, moved, plan.boxes, drawn) or {}
