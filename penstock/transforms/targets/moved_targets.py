"""Values that follow an image through ops, moved by the numbers that the image's ops drew: boxes, keypoints, masks.

::

    program.fill(images, ..., steps=steps)      the pixels; what each op drew is noted, sample by sample
    Moves(steps[i], boxes).move(name, ...)      the same ops, applied to a value of sample i, and its removed objects
    move(kind, value, steps[i])                 the same, where nothing is removed

The result equals what :class:`~penstock.transforms.Pipeline` makes of the whole sample. Nothing here draws a number.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, overload

import numpy as np
from numpy.typing import NDArray

from penstock.sample import Array, Index, Sample
from penstock.transforms.base import Lambda, Op, Params, Sizes
from penstock.transforms.inputs import as_mask
from penstock.transforms.targets.object_masks import ObjectMasks
from penstock.transforms.targets.objects import Objects, is_of_objects, keep_rows
from penstock.transforms.targets.target_forms import (
    apply_to_rows,
    as_boxes,
    as_collatable,
    as_keypoints,
    refuse_other_size,
)

__all__ = [
    "FOLLOWERS",
    "ChunkSteps",
    "Drawn",
    "Moves",
    "Step",
    "append_steps",
    "leaves_targets",
    "move",
    "warn_of_left_sizes",
    "warn_of_left_targets",
]

FOLLOWERS: Final = frozenset({"boxes", "keypoints", "mask", "instances"})
"""Kinds of values that follow the image."""

Drawn = tuple[Op, Params, Sizes]
"""An op, what it drew for each image of a chunk, and their sizes before it."""


@dataclass(frozen=True, slots=True)
class Step:
    """An op that was applied to an image.

    Parameters
    ----------
    op : Op
        The op.
    params : ndarray
        What it drew for the image.
    size : (int, int)
        Width and height of the image before the op; (0, 0) before it is decoded.
    """

    op: Op
    params: Params
    size: tuple[int, int]

    def move(self, kind: str, value: Sample) -> Sample:
        """Return a value of a kind that follows the image, after the op; instances as :class:`ObjectMasks`."""
        op, params, size = self.op, self.params, self.size
        if kind == "mask":
            return op.mask(value, params)
        if kind == "instances":
            return value.move(op, params)
        if kind == "boxes":
            return apply_to_rows(lambda boxes: op.boxes(boxes, params, size), as_boxes(value))
        return op.reorder(apply_to_rows(lambda points: op.keypoints(points, params, size), as_keypoints(value)), params)


class ChunkSteps(Sequence[list[Step]]):
    """The ops that were applied to each image of a chunk: a list for each, which is made when it is asked for.

    ``count``: images.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._first: Op | None = None
        self._drawn: Sequence[Drawn] | None = None
        self._lists: list[list[Step]] | None = None

    def note(self, first: Op | None, drawn: Sequence[Drawn]) -> None:
        """Add the ops of a plan: ``first`` decodes, the others have drawn for each image of the chunk."""
        if self._lists is None:
            self._first, self._drawn = first, drawn
        else:
            append_steps(self._lists, first, drawn)

    def shared(self) -> Sequence[Drawn] | None:
        """Return the ops that move targets, if they are those of one plan for all images; else None."""
        if self._drawn is None or self._lists is None:
            return self._drawn
        begun = len(self._drawn) + (self._first is not None)
        later = {type(step.op) for steps in self._lists for step in steps[begun:]}
        return None if any(_moves_targets(op) for op in later) else self._drawn

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> list[Step]: ...
    @overload
    def __getitem__(self, index: slice) -> list[list[Step]]: ...
    def __getitem__(self, index: int | slice) -> list[Step] | list[list[Step]]:
        """The list of an image, which may be appended to; a slice, those of images that leave the common plan."""
        if self._lists is None:
            self._lists = [[] for _ in range(self._count)]
            if self._drawn is not None:
                append_steps(self._lists, self._first, self._drawn)
        if isinstance(index, slice):
            self._drawn = None
        return self._lists[index]


def append_steps(steps: Sequence[list[Step]], first: Op | None, drawn: Sequence[Drawn]) -> None:
    """Append the ops of a plan to the list of each image: ``first`` decodes, the others have drawn for each."""
    for i, of_image in enumerate(steps):
        if first is not None:
            of_image.append(Step(first, np.empty(0), (0, 0)))
        for op, params, sizes in drawn:
            of_image.append(Step(op, params[i], (int(sizes[i, 0]), int(sizes[i, 1]))))


def leaves_targets(op: Op) -> bool:
    """Return whether a user's op, or a callable, leaves targets where they are; penstock's ops move what they must."""
    is_own = isinstance(op, Lambda) or not type(op).__module__.startswith("penstock.")
    return is_own and not _moves_targets(type(op))


def warn_of_left_sizes(ops: Iterable[Op], kinds: Collection[str | None]) -> None:
    """Warn of ops of :func:`leaves_targets` that say that they change the size of images, before any is read."""
    for op in ops:
        if leaves_targets(op) and type(op).size is not Op.size:
            warn_of_left_targets(op, kinds)


def warn_of_left_targets(op: Op, kinds: Iterable[str | None]) -> None:
    """Warn that an op of :func:`leaves_targets` changes the size of images, where ``kinds`` have targets."""
    if left := sorted(FOLLOWERS.intersection(kinds)):
        warnings.warn(
            f"{type(op).__name__} changes the size of an image, and leaves its {', '.join(left)} where they were: "
            f"{op!r:.200}. Write it as a penstock.transforms.Op that defines boxes, keypoints and mask, or move them "
            'with T.Lambda(function, on="sample")',
            stacklevel=2,
        )


def _moves_targets(op: type[Op]) -> bool:
    moves = op.boxes, op.keypoints, op.mask, op.reorder
    return op.removes_objects or moves != (Op.boxes, Op.keypoints, Op.mask, Op.reorder)


class Moves:
    """The ops that were applied to an image, and the objects that they left.

    Parameters
    ----------
    steps : sequence of Step
        The ops.
    boxes : array_like, optional
        The boxes of the sample, where ops remove objects by them.

    Attributes
    ----------
    boxes : ndarray, optional
        The boxes after the ops, of the objects that are left.
    """

    __slots__ = ("_removals", "_steps", "boxes")

    def __init__(self, steps: Sequence[Step], boxes: object = None) -> None:
        self._steps = steps
        self._removals: list[tuple[int, NDArray[np.bool_]]] = []  # places of ops, and which objects each left
        self.boxes: NDArray[np.float32] | None = None
        if boxes is None:
            return
        objects = Objects.start(boxes)
        for position, step in enumerate(steps):
            kept = objects.apply(step.op, step.params, step.size)
            if kept is not None:
                self._removals.append((position, kept))
        self.boxes = objects.boxes

    def move(self, name: Index, kind: str | None, value: Sample) -> Sample:
        """:func:`move` for a field of any kind: values that do not follow the image keep the rows of objects left.

        Parameters
        ----------
        name : object
            The name of the field in the sample.
        kind : str, optional
            Its kind: boxes, keypoints, masks and instances move; other values stay where they are.
        value : ndarray, or list of run-length encodings
            The value.
        """
        steps, begun = self._steps, 0
        if self._removals and kind == "instances":
            value = _open_instances(value, steps)
        for position, kept in self._removals:
            op = steps[position].op
            if is_of_objects(name, kind, value, op):
                value = _move(kind, value, steps[begun:position]) if kind in FOLLOWERS else value
                value, begun = keep_rows(name, value, kept, op, kind), position
        return move(kind, value, steps[begun:]) if kind in FOLLOWERS else value


def move(kind: str, value: object, steps: Sequence[Step]) -> Array:
    """Apply to ``value`` the ops that were applied to its image.

    Parameters
    ----------
    kind : {"boxes", "keypoints", "mask", "instances"}
        What the value is.
    value : array_like or bytes
        Boxes (n, 4) or (4,); keypoints (n, 2), (n, 3), (2,) or (3,); a mask (H, W), or encoded where the first op is
        Decode; instances: a list of run-length encodings, or an array (n, H, W).
    steps : sequence of Step
        All ops of the pipeline, in order; those that leave targets in place may be left out.

    Returns
    -------
    ndarray
        Boxes and keypoints are float32; a mask keeps its dtype; instances are uint8, (n, H, W).

    Raises
    ------
    ArgumentError
        If the value has another shape than its kind, or a mask another size than its image.
    """
    moved = _move(kind, value, steps)
    return moved.dense() if isinstance(moved, ObjectMasks) else as_collatable(moved)


def _move(kind: str, value: Sample, steps: Sequence[Step]) -> Sample:
    if kind == "mask":
        return _move_mask(value, steps)
    if kind == "instances":
        value = _open_instances(value, steps)
    else:
        value = as_boxes(value) if kind == "boxes" else as_keypoints(value)
    for step in steps:
        value = step.move(kind, value)
    return value


def _open_instances(value: object, steps: Sequence[Step]) -> ObjectMasks:
    """Return the masks of objects, in the size of the image before the first op on pixels."""
    if isinstance(value, ObjectMasks):
        return value
    size = next((step.size for step in steps if step.op.takes_pixels), None)
    return ObjectMasks.of(value, size or _own_size(value))


def _own_size(value: Sample) -> tuple[int, int]:
    """Width and height of masks that nothing moves; without any it does not matter."""
    if getattr(value, "ndim", 0) == 3:
        return value.shape[2], value.shape[1]
    sizes = [each["size"] for each in value or () if isinstance(each, Mapping) and "size" in each]
    return tuple(sizes[0][::-1]) if sizes else (0, 0)


def _move_mask(mask: object, steps: Sequence[Step]) -> Array:
    compared = False
    for step in steps:
        if step.op.takes_pixels:
            mask = as_mask(mask, step.op)
            if not compared or type(step.op).mask is not Op.mask:
                refuse_other_size(mask, step.size)
                compared = True
        mask = step.op.mask(mask, step.params)
    moved: Array = as_collatable(mask)
    return moved
