"""Boxes of a chunk of images, moved together: one call of NumPy for each op, not one for each op and image.

::

    boxes, owners ──op 1, op 2, ...──> boxes        the arithmetic of ``Op.boxes`` and ``Op.keep``, to the bit
          └──────── kept by SanitizeBoundingBoxes ──> labels and other rows of the same objects

Only ops of exactly the types below have a function here; a chunk with any other op is moved image by image
(:mod:`.targets.moved_targets`), so that a new op, or a subclass of one, needs nothing in this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.sample import Array, Index
from penstock.transforms.base import Op, Params, Sizes
from penstock.transforms.ops.crop import CenterCrop, RandomCrop, RandomResizedCrop
from penstock.transforms.ops.flip import HorizontalFlip, VerticalFlip
from penstock.transforms.ops.pad import Letterbox
from penstock.transforms.ops.resize import RandomShortestSize, Resize, ScaleJitter
from penstock.transforms.ops.sanitize import ClampBoundingBoxes, SanitizeBoundingBoxes
from penstock.transforms.ops.zoom_out import RandomZoomOut
from penstock.transforms.targets.boxes import box_areas, visible_shares
from penstock.transforms.targets.objects import is_of_objects

__all__ = ["Column", "Drawn", "move_columns", "moves_together"]

Drawn = tuple[Op, Params, Sizes]
"""An op, what it drew for each image of a chunk, and their sizes before it."""

Boxes = NDArray[np.float32]
Owners = NDArray[np.int64]


class Column(NamedTuple):
    """The arrays of a field of a chunk's records, concatenated, and the length of each."""

    values: Array
    lengths: NDArray[np.int64]


class _Moved(NamedTuple):
    """Boxes after an op, and, of an op that clips them, before they were clipped."""

    boxes: Boxes
    placed: Boxes | None = None


def moves_together(drawn: Sequence[Drawn]) -> bool:
    """Whether :func:`move_columns` knows all of these ops."""
    return all(type(op) in _MOVES or type(op) is SanitizeBoundingBoxes or not _concerns_boxes(op) for op, _, _ in drawn)


def move_columns(
    columns: Mapping[Index, Column],
    kinds: Mapping[Index, str | None],
    moved: Sequence[Index],
    objects: Index | None,
    drawn: Sequence[Drawn],
) -> dict[Index, Column] | None:
    """The fields of a chunk after ops that :func:`moves_together` knows.

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
        if columns[name].values.shape[1:] != (4,):
            return None
        chunk = _Chunk.start(columns[name])
        for op, params, sizes in drawn:
            if type(op) is not SanitizeBoundingBoxes:
                chunk.move(op, params, sizes)
            elif name == objects:
                others = [other for other in results if other != name and _is_of(other, kinds, results, op)]
                if any((results[other].lengths != chunk.lengths).any() for other in others):
                    return None
                kept, lengths = chunk.remove(op, sizes)
                results |= {other: Column(results[other].values[kept], lengths) for other in others}
        results[name] = Column(chunk.boxes, chunk.lengths)
    return results


@dataclass(slots=True)
class _Chunk:
    """Boxes of several images on their way through ops, as :class:`.targets.objects.Objects` has those of one image."""

    boxes: Boxes
    lengths: NDArray[np.int64]
    owners: Owners
    visible: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        self.visible = np.ones(len(self.boxes))

    @classmethod
    def start(cls, column: Column) -> _Chunk:
        owners = np.repeat(np.arange(len(column.lengths)), column.lengths)
        return cls(np.asarray(column.values, np.float32), column.lengths, owners)

    def move(self, op: Op, params: Params, sizes: Sizes) -> None:
        if not _concerns_boxes(op):
            return
        moved = _MOVES[type(op)](op, self.boxes, params, sizes, self.owners)
        if moved.placed is not None:
            self.visible = self.visible * visible_shares(moved.boxes, moved.placed)
        self.boxes = moved.boxes

    def remove(self, op: SanitizeBoundingBoxes, sizes: Sizes) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Which objects stay, and how many of each image."""
        boxes = self.boxes
        room = np.tile(np.asarray(sizes, np.int64), 2)[self.owners]
        inside = np.all((boxes >= 0) & (boxes <= room), axis=1)
        large = np.all(boxes[:, 2:] - boxes[:, :2] >= op.min_size, axis=1) & (box_areas(boxes) >= op.min_area)
        kept: NDArray[np.bool_] = inside & large & (self.visible >= op.min_visible)
        self.boxes, self.visible, self.owners = boxes[kept], self.visible[kept], self.owners[kept]
        self.lengths = np.bincount(self.owners, minlength=len(self.lengths))
        return kept, self.lengths


def _concerns_boxes(op: Op) -> bool:
    return op.removes_objects or op.reads_boxes or type(op).boxes is not Op.boxes


def _is_of(name: Index, kinds: Mapping[Index, Any], columns: Mapping[Index, Column], op: Op) -> bool:
    return is_of_objects(name, kinds.get(name), columns[name].values, op)


def _clip(boxes: Boxes, sizes: Array, owners: Owners) -> Boxes:
    """As :func:`.targets.boxes.clip_boxes`, with a size for each image."""
    clipped: Boxes = np.clip(boxes, np.float32(0), np.tile(sizes.astype(np.float32), 2)[owners])
    return clipped


def _scale(boxes: Boxes, new: Array, old: Array, owners: Owners) -> Boxes:
    """As :meth:`.ops.resize.Resize.boxes`."""
    ratio = np.asarray(new, np.float64) / old
    return np.asarray(boxes * np.tile(ratio, 2)[owners], np.float32)


def _shifts(params: Params, owners: Owners) -> Boxes:
    """The first two numbers of each image's params, for both corners of each of its boxes."""
    return np.tile(params[:, :2], 2).astype(np.float32)[owners]


def _crop(op: Any, boxes: Boxes, params: Params, sizes: Sizes, owners: Owners) -> _Moved:  # noqa: ARG001  # as the others
    placed = boxes - _shifts(params, owners)
    return _Moved(_clip(placed, params[:, 2:4], owners), placed)


def _random_crop(op: RandomCrop, boxes: Boxes, params: Params, sizes: Sizes, owners: Owners) -> _Moved:
    moved = _crop(op, boxes, params, sizes, owners)
    if op.min_visible and moved.placed is not None:
        moved.boxes[visible_shares(moved.boxes, moved.placed) < op.min_visible] = 0
    return moved


def _resized_crop(op: RandomResizedCrop, boxes: Boxes, params: Params, sizes: Sizes, owners: Owners) -> _Moved:
    cropped = _crop(op, boxes, params, sizes, owners)
    assert cropped.placed is not None
    new, old = np.array(op.size_[::-1]), params[:, 2:4]
    return _Moved(_scale(cropped.boxes, new, old, owners), _scale(cropped.placed, new, old, owners))


def _flip(op: Any, boxes: Boxes, params: Params, sizes: Sizes, owners: Owners) -> _Moved:
    low, high = 1 - op.axis, 3 - op.axis
    chosen = np.asarray(params, np.bool_)[owners]
    sides = sizes[:, low].astype(np.float32)[owners][chosen]
    moved = boxes.copy()
    moved[chosen, low], moved[chosen, high] = sides - boxes[chosen, high], sides - boxes[chosen, low]
    return _Moved(moved)


def _resize(op: Any, boxes: Boxes, params: Params, sizes: Sizes, owners: Owners) -> _Moved:  # noqa: ARG001
    return _Moved(_scale(boxes, params, sizes, owners))


def _letterbox(op: Any, boxes: Boxes, params: Params, sizes: Sizes, owners: Owners) -> _Moved:  # noqa: ARG001
    return _Moved(_scale(boxes, params[:, 2:4], sizes, owners) + _shifts(params, owners))


def _clamp(op: Any, boxes: Boxes, params: Params, sizes: Sizes, owners: Owners) -> _Moved:  # noqa: ARG001
    return _Moved(_clip(boxes, sizes, owners), boxes)


def _zoom_out(op: Any, boxes: Boxes, params: Params, sizes: Sizes, owners: Owners) -> _Moved:  # noqa: ARG001
    return _Moved(boxes + _shifts(params, owners))


_Move = Callable[[Any, Boxes, Params, Sizes, Owners], _Moved]
_MOVES: Final[Mapping[type[Op], _Move]] = {
    CenterCrop: _crop,
    ClampBoundingBoxes: _clamp,
    HorizontalFlip: _flip,
    Letterbox: _letterbox,
    RandomCrop: _random_crop,
    RandomResizedCrop: _resized_crop,
    RandomShortestSize: _resize,
    RandomZoomOut: _zoom_out,
    Resize: _resize,
    ScaleJitter: _resize,
    VerticalFlip: _flip,
}
