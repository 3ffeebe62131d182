"""Small arrays of records in rows of a batch: as stored, or moved with the image, without objects that ops removed.

::

    records ──read_boxes──> boxes ──program.fill──> pixels, steps ──find_moves──> Moves
        ├──────────────────────── fill_arrays(..., moves) ──> rows of the batch    record by record
        └──────────────────────── fill_columns(..., steps) ──> rows of the batch    the chunk at once, if it can be

Called by :mod:`penstock.datasets.store.dataset` with the plan of a sample. Nothing here reads a store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.store.sample_plan import SamplePlan
from penstock.ragged import RaggedRows
from penstock.sample import Array, DType, Index, Record

if TYPE_CHECKING:
    from penstock.transforms.program.program import Failure
    from penstock.transforms.targets.chunk_targets import Column
    from penstock.transforms.targets.moved_targets import ChunkSteps, Removal, Step

__all__ = ["Moves", "fill_arrays", "fill_columns", "find_moves", "make_steps", "read_boxes"]


@dataclass(frozen=True, slots=True)
class Moves:
    """What was applied to the image of a record, and the objects that were removed."""

    steps: Sequence[Step]
    removals: Sequence[Removal] = field(default=())


def read_boxes(plan: SamplePlan, records: Sequence[Record], failures: list[Failure]) -> list[Array] | None:
    """The boxes of each record, if ops need them; a record whose boxes cannot be read is added to ``failures``."""
    if plan.boxes is None:
        return None
    boxes: list[Array] = []
    for position, record in enumerate(records):
        try:
            boxes.append(plan.array(plan.boxes, record))
        except Exception as error:  # noqa: BLE001  # raised by the caller: the first one of all fields
            _add_failure(failures, position, error)
            boxes.append(np.empty((0, 4), np.float32))
    return boxes


def make_steps(count: int) -> ChunkSteps:
    """Where the ops of a chunk are noted, whose images other values follow."""
    from penstock.transforms.targets.moved_targets import ChunkSteps  # imported with the pipeline

    return ChunkSteps(count)


def fill_columns(
    plan: SamplePlan,
    names: Sequence[Index],
    parts: Mapping[Index, RaggedRows],
    records: Sequence[Record],
    rows: NDArray[np.int64],
    steps: ChunkSteps | None,
) -> list[Index]:
    """Write the ragged arrays of all records to their rows, a field at once: the same as :func:`fill_arrays`.

    Returns
    -------
    list
        The names of the fields for which this is not possible; of those, nothing was written.
    """
    read = {name: _read_arrays(plan, name, records) for name in names if name in plan.forms}
    moves_all = plan.boxes is not None  # the rows of all fields of objects, where some are removed
    columns: dict[Index, Column] = {}
    done: set[Index] = set()
    for name, arrays in read.items():
        if arrays is None or plan.moved.get(name, "boxes") != "boxes":
            continue
        if moves_all or name in plan.moved:
            columns[name] = _join(arrays)
        else:
            parts[name].write_each(rows, arrays)
            done.add(name)
    for name, (values, lengths) in (_move_columns(plan, columns, steps) if columns else {}).items():
        parts[name].write(rows, values, lengths)
        done.add(name)
    return [name for name in names if name not in done]


def _read_arrays(plan: SamplePlan, name: Index, records: Sequence[Record]) -> list[Array] | None:
    """The arrays of a field; None if one is missing, or is not what the schema says."""
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
    """The columns after the ops of the image; none where these, or the objects, are not moved together."""
    from penstock.transforms.targets.chunk_targets import move_columns, moves_together  # imported with the pipeline

    drawn = None if steps is None else steps.shared()
    if drawn is None or not moves_together(drawn) or (plan.boxes is not None and plan.boxes not in columns):
        return {}
    moved = [name for name in plan.moved if name in columns]
    return move_columns(columns, plan.selection.kind_of, moved, plan.boxes, drawn) or {}


def find_moves(
    steps: Sequence[Sequence[Step]], boxes: Sequence[Array] | None, failures: Sequence[Failure]
) -> list[Moves]:
    """What moved the values of each record, from the steps of its image; those that have failed move nothing."""
    if boxes is None:
        return [Moves(own) for own in steps]
    from penstock.transforms.targets.moved_targets import follow_objects  # imported with the pipeline

    failed = {failure.position for failure in failures}
    return [
        Moves(()) if position in failed else Moves(own, follow_objects(boxes[position], own)[1])
        for position, own in enumerate(steps)
    ]


def fill_arrays(
    plan: SamplePlan,
    name: Index,
    out: Array | RaggedRows,
    records: Sequence[Record],
    rows: NDArray[np.int64],
    moves: Sequence[Moves],
    failures: list[Failure],
) -> None:
    """Write a small array of each record to its row of a batch.

    Parameters
    ----------
    plan : SamplePlan
        With this name in :attr:`~SamplePlan.arrays`.
    name : object
        Of the array in the sample.
    out : ndarray or RaggedRows
        The batch.
    records : sequence of Record
        The records.
    rows : ndarray of int64
        Where each of them goes.
    moves : sequence of Moves
        What moved each image; empty where nothing follows.
    failures : list of Failure
        Records that have failed, which are left out; those that fail here are added.
    """
    failed = {failure.position for failure in failures}
    arrays: list[Array] = []
    for position, record in enumerate(records):
        if position in failed:
            continue
        try:
            array = plan.array(name, record)
            if moves:
                array = _move(plan, name, array, moves[position])
            if isinstance(out, RaggedRows) and not len(array):  # masks of no objects, which have the size of no image
                array = array.reshape(0, *out.spec.shape)
            if isinstance(out, RaggedRows):
                arrays.append(array)
            else:
                out[rows[position]] = array
        except Exception as error:  # noqa: BLE001  # raised by the caller: the first one of all fields
            _add_failure(failures, position, error)
    if isinstance(out, RaggedRows) and arrays and not failures:
        out.write(rows, np.concatenate(arrays), np.array([len(array) for array in arrays], np.int64))


def _move(plan: SamplePlan, name: Index, array: Array, moves: Moves) -> Array:
    from penstock.transforms.targets.moved_targets import move, move_objects  # imported with the pipeline

    if moves.removals:
        return move_objects(name, plan.selection.kind_of[name], array, moves.steps, moves.removals)
    return move(plan.moved[name], array, moves.steps) if name in plan.moved else array


def _add_failure(failures: list[Failure], position: int, error: Exception) -> None:
    from penstock.transforms.program.program import Failure  # imported with the pipeline

    failures.append(Failure(position, error))
