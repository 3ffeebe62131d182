"""Boxes of a chunk of images, moved together: one call of NumPy for each op, not one for each op and image.

::

    boxes, owners ──op 1, op 2, ...──> boxes        the arithmetic of ``Op.boxes`` and ``Op.keep``, to the bit
          └──────── kept by SanitizeBoundingBoxes ──> labels and other rows of the same objects

The methods of some ops take a row of params and of sizes for each box, too. A chunk with an op of any other type is
moved image by image (:mod:`.targets.moved_targets`), so that a new op, or a subclass of one, needs nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from penstock.sample import Array, Index
from penstock.transforms.base import Op
from penstock.transforms.ops.crop import CenterCrop, RandomCrop, RandomResizedCrop
from penstock.transforms.ops.flip import HorizontalFlip, VerticalFlip
from penstock.transforms.ops.pad import Letterbox, Pad
from penstock.transforms.ops.resize import RandomShortestSize, Resize, ScaleJitter
from penstock.transforms.ops.sanitize import ClampBoundingBoxes, SanitizeBoundingBoxes
from penstock.transforms.ops.zoom_out import RandomZoomOut
from penstock.transforms.targets.moved_targets import Drawn
from penstock.transforms.targets.objects import Objects, is_of_objects

__all__ = ["Column", "move_columns", "moves_together"]


class Column(NamedTuple):
    """The arrays of a field of a chunk's records, concatenated, and the length of each."""

    values: Array
    lengths: NDArray[np.int64]


def moves_together(drawn: Sequence[Drawn]) -> bool:
    """Return whether :func:`move_columns` knows all of these ops."""
    return all(type(op) in _BY_ROWS or not _concerns_boxes(op) for op, _, _ in drawn)


def move_columns(
    columns: Mapping[Index, Column],
    kinds: Mapping[Index, str | None],
    moved: Sequence[Index],
    objects: Index | None,
    drawn: Sequence[Drawn],
) -> dict[Index, Column] | None:
    """Return the fields of a chunk after ops that :func:`moves_together` knows.

    Parameters
    ----------
    columns : mapping of Column
        The fields, by name.
    kinds : mapping
        Their kinds.
    moved : sequence
        Names of the boxes.
    objects : object, optional
        The name of the boxes whose objects ops remove.
    drawn : sequence of (Op, ndarray, ndarray)
        The ops.

    Returns
    -------
    dict of Column, or None
        The results; None where a field has another number of rows than there are objects, or boxes have another shape
        than (n, 4): then :mod:`.targets.moved_targets` says which, or finds that it is right.
    """
    results = dict(columns)
    for name in moved:
        values, lengths = columns[name]
        if values.shape[1:] != (4,):
            return None
        owners = np.repeat(np.arange(len(lengths)), lengths)
        chunk = Objects.start(values)
        for op, params, sizes in drawn:
            if type(op) not in _BY_ROWS or (op.removes_objects and name != objects):
                continue
            size = cast("tuple[int, int]", sizes[owners])  # a row for each box, which these ops take
            if not op.removes_objects:
                chunk.move(op, params[owners], size)
                continue
            others = [other for other in results if other != name and _is_of(other, kinds, results, op)]
            if any((results[other].lengths != lengths).any() for other in others):
                return None
            kept = chunk.remove(op, size)
            owners = owners[kept]
            lengths = np.bincount(owners, minlength=len(lengths))
            results |= {other: Column(results[other].values[kept], lengths) for other in others}
        results[name] = Column(chunk.boxes, lengths)
    return results


def _concerns_boxes(op: Op) -> bool:
    return op.removes_objects or op.reads_boxes or type(op).boxes is not Op.boxes


def _is_of(name: Index, kinds: Mapping[Index, str | None], columns: Mapping[Index, Column], op: Op) -> bool:
    return is_of_objects(name, kinds.get(name), columns[name].values, op)


_BY_ROWS: Final = frozenset(
    {
        CenterCrop,
        ClampBoundingBoxes,
        HorizontalFlip,
        Letterbox,
        Pad,
        RandomCrop,
        RandomResizedCrop,
        RandomShortestSize,
        RandomZoomOut,
        Resize,
        SanitizeBoundingBoxes,
        ScaleJitter,
        VerticalFlip,
    }
)
"""Ops that move boxes, or choose among them, by a row of params and sizes for each box."""
