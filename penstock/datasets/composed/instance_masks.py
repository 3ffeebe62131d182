"""Masks of objects in samples that are mixed.

A mask of numbers is HW, whose value ``k`` above 0 is the object of row ``k - 1`` of boxes, and 0 the background.

A store holds such a mask as a field of kind ``mask``, a PNG of 8 or 16 bits. Renumbered masks are int32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.composed.merged_fields import FieldRoles
from penstock.errors import ArgumentError
from penstock.sample import Array, Sample
from penstock.transforms.targets.object_masks import ObjectMasks

__all__ = ["open_instances", "renumber"]


def renumber(masks: Sequence[Array], kept: Sequence[NDArray[np.bool_]]) -> list[NDArray[np.int32]]:
    """Number the objects of several masks in one sequence, without those that are left out.

    Parameters
    ----------
    masks : sequence of ndarray of int
        One for each sample.
    kept : sequence of ndarray of bool
        For each sample, which of its objects stay, as :func:`~penstock.datasets.composed.merged_fields.merge_fields`
        gives them.

    Returns
    -------
    list of ndarray of int32
        New masks; objects that are left out are background.

    Raises
    ------
    ArgumentError
        If a mask has a number beyond its boxes, or no integers.
    """
    found = []
    last = 0
    for mask, stays in zip(masks, kept, strict=True):
        if mask.dtype.kind not in "biu":
            raise ArgumentError(f"a mask of objects must have integers, got {mask.dtype}")
        if mask.size and not 0 <= int(mask.min()) <= int(mask.max()) <= len(stays):
            raise ArgumentError(
                f"a mask of objects must have values from 0 to the number of boxes, {len(stays)}, got "
                f"{mask.min()} to {mask.max()}"
            )
        numbers = np.zeros(len(stays) + 1, np.int32)
        numbers[1:][stays] = np.arange(last + 1, last + 1 + np.count_nonzero(stays))
        last += int(np.count_nonzero(stays))
        found.append(numbers[mask])
    return found


def open_instances(roles: FieldRoles, sample: Sample, size: tuple[int, int], count: int) -> ObjectMasks:
    """The instances of a sample whose picture has this width and height, and which has ``count`` boxes.

    Raises ArgumentError if they are no masks, of another size, or not one for each box.
    """
    assert roles.instances is not None, "asked where there are some"
    masks = ObjectMasks.of(sample[roles.instances], size)
    if roles.boxes is not None and len(masks) != count:
        raise ArgumentError(
            f"the field {roles.instances!r} must have one mask for each of {count} boxes, got {len(masks)}"
        )
    return masks
