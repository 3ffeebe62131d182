"""Objects of a sample: how much of each box is visible, and the removal of objects with all their values.

::

    boxes ──op.place──> moved ──clipped by op.boxes──> boxes        visible *= area of the clipped / of the moved
      └──────────────── op.keep(boxes, visible, size) ──> which stay
                                       └──> boxes, keypoints, labels, ... of the same mapping or tuple

The objects of a sample are the rows of its boxes. Called by :mod:`.pipeline` for a sample, and by
:mod:`.targets.moved_targets` for the values of a row of a batch. Nothing here draws a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.sample import Array, Field, Index, Sample, Tree
from penstock.transforms.base import Op, Params
from penstock.transforms.targets.box_geometry import visible_shares
from penstock.transforms.targets.field_kinds import collect_values
from penstock.transforms.targets.target_forms import as_boxes

__all__ = [
    "Objects",
    "find_boxes",
    "is_of_objects",
    "keep_rows",
    "may_be_of_objects",
    "object_fields",
    "remove_objects",
]


@dataclass(slots=True)
class Objects:
    """Boxes on their way through ops."""

    boxes: NDArray[np.float32]  # (n, 4): the boxes
    visible: NDArray[np.float64]  # (n,): the visible share of each: 1 at first

    @classmethod
    def start(cls, boxes: object) -> Objects:
        """The boxes of a sample, none of them cut."""
        rows = as_boxes(boxes).reshape(-1, 4)
        return cls(rows, np.ones(len(rows)))

    def move(self, op: Op, params: Params, size: tuple[int, int]) -> None:
        """Move the objects as an op moves its image."""
        if type(op).boxes is Op.boxes:
            return
        if type(op).place is Op.place:
            self.boxes = op.boxes(self.boxes, params, size)
        else:
            self.boxes, placed = op.move_and_place(self.boxes, params, size)
            self.visible = self.visible * visible_shares(self.boxes, placed)

    def apply(self, op: Op, params: Params, size: tuple[int, int]) -> NDArray[np.bool_] | None:
        """Apply an op that moves boxes, removes objects, or does neither; which stayed, if it removes objects."""
        if op.removes_objects:
            return self.remove(op, size)
        self.move(op, params, size)
        return None

    def remove(self, op: Op, size: tuple[int, int]) -> NDArray[np.bool_]:
        """Apply an op that removes objects; returns which stayed."""
        kept = op.keep(self.boxes, self.visible, size)
        self.boxes, self.visible = self.boxes[kept], self.visible[kept]
        return kept


def find_boxes(kinds: Tree, sample: Sample, op: Op) -> Sample:
    """The boxes of a sample, for an op that needs them: the one value of this kind, (n, 4).

    Raises ArgumentError if there is none, or there are several.
    """
    found = [value for kind, value in collect_values(kinds, sample) if kind == "boxes"]
    if len(found) != 1:
        raise ArgumentError(
            f"{op!r} needs one field of boxes in a sample, got {len(found)} (kinds {kinds!r:.200}); say which it is, "
            "such as kinds={'image': 'image', 'bbox': 'boxes'}"
        )
    if np.ndim(found[0]) == 1 and np.size(found[0]):
        raise ArgumentError(f"{op!r} needs boxes of shape (n, 4), got one box of shape (4,)")
    return found[0]


def remove_objects(kinds: Tree, sample: Sample, op: Op, kept: NDArray[np.bool_]) -> Sample:
    """A copy of ``sample`` without the objects that are not ``kept``: rows of the boxes, and of the fields beside them.

    Raises ArgumentError if a field has another number of values than there are objects.
    """
    if isinstance(kinds, Mapping):
        if "boxes" in kinds.values():
            names = object_fields(sample, kinds, op)
            return {**sample, **{name: keep_rows(name, sample[name], kept, op, kinds.get(name)) for name in names}}
        return {**sample, **{name: remove_objects(kind, sample[name], op, kept) for name, kind in kinds.items()}}
    if not isinstance(kinds, tuple | list):
        return sample
    if "boxes" in kinds:
        named = dict(enumerate(sample))
        of_kind = dict(enumerate(kinds))
        names = object_fields(named, of_kind, op)
        values = [keep_rows(i, own, kept, op, of_kind[i]) if i in names else own for i, own in named.items()]
    else:
        values = [remove_objects(kind, value, op, kept) for kind, value in zip(kinds, sample, strict=True)]
    return type(sample)(*values) if hasattr(sample, "_fields") else type(sample)(values)


def object_fields(values: Mapping[Index, Sample], kinds: Mapping[Index, Tree], op: Op) -> list[Index]:
    """Names of the values of objects, the boxes among them: those that ``op.labels`` names, or all that may be."""
    labels: Sequence[Index] | None = getattr(op, "labels", None)
    for name in labels or ():
        if name not in values:
            raise ArgumentError(
                f"{op!r} must name fields beside the boxes ({', '.join(map(str, values))}), got {name!r}"
            )
    return [name for name, value in values.items() if is_of_objects(name, kinds.get(name), value, op)]


def is_of_objects(name: Index, kind: Tree, value: Sample, op: Op) -> bool:
    """Return whether an op that removes objects removes rows of a field."""
    labels: Sequence[Index] | None = getattr(op, "labels", None)
    return kind in {"boxes", "instances"} or (may_be_of_objects(kind, value) if labels is None else name in labels)


def may_be_of_objects(kind: Tree, value: Sample) -> bool:
    """Whether a value can have a row for each object: a list, or an array whose kind does not fix its first length."""
    if kind == "instances":
        return True
    if isinstance(kind, str) and kind != "json":
        array = Field(kind).array
        return array is not None and array.axes[0] is None and kind != "boxes"
    if isinstance(kind, Mapping | tuple):
        return False
    return isinstance(value, list) or len(getattr(value, "shape", ())) >= 1


def keep_rows(name: Index, value: Sample, kept: NDArray[np.bool_], op: Op, kind: Tree = None) -> Sample:
    """The rows of an array or a list that are kept; keypoints may have several rows for each object."""
    if value is None:
        return None
    count = len(value) if hasattr(value, "__len__") else -1
    if count != len(kept):
        if kind == "keypoints" and np.ndim(value) == 2 and len(kept) and count % len(kept) == 0:
            rows: Array = np.asarray(value)[np.repeat(kept, count // len(kept))]
            return rows
        if kind == "keypoints" and count == 0:
            return value
        raise ArgumentError(
            f"{op!r} needs a value for each of {len(kept)} boxes in the field {name!r}, got {count}; give "
            "labels=(...), the names of the fields that have one"
        )
    if isinstance(value, list | tuple):
        return type(value)(one for one, stays in zip(value, kept.tolist(), strict=True) if stays)
    return value[kept]
