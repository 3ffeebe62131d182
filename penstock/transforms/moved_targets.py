"""Values that follow an image through ops: boxes, keypoints and masks, moved by the numbers that the image's ops drew.

::

    program.fill(images, ..., steps=steps)      the pixels; what each op drew is noted, sample by sample
    move(kind, value, steps[i])                 the same ops, applied to a value of sample i

The result equals what :class:`~penstock.transforms.Pipeline` makes of the whole sample. Nothing here draws a number.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.sample import Array
from penstock.transforms.base import Op, Params
from penstock.transforms.inputs import as_mask
from penstock.transforms.target_forms import apply_to_rows, as_boxes, as_collatable, as_keypoints, refuse_other_size

__all__ = ["FOLLOWERS", "Step", "move"]

FOLLOWERS: Final = frozenset({"boxes", "keypoints", "mask"})
"""Kinds of values that follow the image."""


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


def move(kind: str, value: object, steps: Sequence[Step]) -> Array:
    """Apply to ``value`` the ops that were applied to its image.

    Parameters
    ----------
    kind : {"boxes", "keypoints", "mask"}
        What the value is.
    value : array_like or bytes
        Boxes (n, 4) or (4,); keypoints (n, 2), (n, 3), (2,) or (3,); a mask (H, W), or encoded where the first op is
        Decode.
    steps : sequence of Step
        All ops of the pipeline, in order; those that leave targets in place may be left out.

    Returns
    -------
    ndarray
        Boxes and keypoints are float32; a mask keeps its dtype.

    Raises
    ------
    ArgumentError
        If the value has another shape than its kind, or a mask another size than its image.
    """
    if kind == "mask":
        return _move_mask(value, steps)
    as_target = as_boxes if kind == "boxes" else as_keypoints
    array = as_target(value)
    for step in steps:
        apply = step.op.boxes if kind == "boxes" else step.op.keypoints
        if getattr(type(step.op), kind) is not getattr(Op, kind):
            array = apply_to_rows(functools.partial(apply, params=step.params, size=step.size), as_target(array))
    moved: Array = as_collatable(array)
    return moved


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
