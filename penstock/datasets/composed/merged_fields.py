"""Fields of several samples, joined to those of one picture that shows them all.

::

    boxes, keypoints   scaled, shifted, clipped to the area that shows their picture; concatenated
    objects' fields    concatenated in the same order; rows of boxes without area are left out of all
    other fields       those of the first sample

Coordinates are computed in float64 and rounded to float32 once. Called by
:mod:`penstock.datasets.composed.sample_mixture` and its subclasses. Nothing here touches pixels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.sample import Array, Sample
from penstock.transforms.targets.field_kinds import infer_kinds
from penstock.transforms.targets.target_forms import as_boxes

__all__ = ["FieldRoles", "Placement", "concat_rows", "merge_fields", "take_rows"]

_KINDS: Final = frozenset({"image", "boxes", "mask", "keypoints", "instances"})


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a picture lies in the mixture.

    Parameters
    ----------
    scale : (float, float)
        Factors of width and height.
    left, top : int
        Position of the scaled picture; it may begin outside the mixture.
    area : (int, int, int, int)
        x0, y0, x1, y1 of the part of the mixture that shows it.
    """

    scale: tuple[float, float]
    left: int
    top: int
    area: tuple[int, int, int, int]

    def move(self, points: Array) -> NDArray[np.float64]:
        """Return the positions in the mixture of points (..., 2) of the picture."""
        moved: NDArray[np.float64] = points.astype(np.float64) * self.scale + (self.left, self.top)
        return moved

    def move_boxes(self, boxes: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return boxes in the mixture, clipped to the area; a box outside has no area."""
        moved = self.move(boxes.reshape(-1, 2, 2)).reshape(-1, 4)
        return np.clip(moved, self.area[:2] * 2, self.area[2:] * 2).astype(np.float32)


@dataclass(frozen=True, slots=True)
class FieldRoles:
    """Names of the fields of a sample, by what they are; None and empty where it has none."""

    image: str
    boxes: str | None
    mask: str | None
    keypoints: str | None
    objects: tuple[str, ...]
    instances: str | None = None

    @property
    def names(self) -> list[str]:
        """All fields that have a role."""
        named = (self.image, self.boxes, self.mask, self.keypoints, self.instances, *self.objects)
        return [name for name in named if name is not None]

    @classmethod
    def find(
        cls, sample: Sample, kinds: Mapping[str, str | None] | None, objects: Sequence[str] | None, mixture: object
    ) -> FieldRoles:
        """The roles of the fields of ``sample``, for ``mixture``.

        Raises
        ------
        ArgumentError
            If the sample is no mapping, has no image, two fields of one kind or lacks a field, or a field without a
            kind looks like a target.
        """
        name = type(mixture).__name__
        if not isinstance(sample, Mapping):
            raise ArgumentError(
                f"{name} needs samples that are mappings with an image, got {type(sample).__name__}; give the inner "
                'dataset fields={"image": "image", "boxes": "boxes", ...}'
            )
        found = infer_kinds(sample, name) if kinds is None else kinds
        by_kind: dict[str, str] = {}
        for field, kind in found.items():
            if field not in sample:
                raise ArgumentError(f"kinds must name fields of the sample ({', '.join(sample)}), got {field!r}")
            if kind in _KINDS and by_kind.setdefault(kind, field) != field:
                raise ArgumentError(f"{name} needs one {kind} field, got {by_kind[kind]!r} and {field!r}")
        if "image" not in by_kind:
            raise ArgumentError(f"{name} needs samples with an image, got the fields {', '.join(map(str, sample))}")
        return cls(
            by_kind["image"],
            by_kind.get("boxes"),
            by_kind.get("mask"),
            by_kind.get("keypoints"),
            _find_objects(sample, set(by_kind.values()), objects, "boxes" in by_kind),
            by_kind.get("instances"),
        )


def _find_objects(
    sample: Mapping[str, Sample], targets: set[str], objects: Sequence[str] | None, has_boxes: bool
) -> tuple[str, ...]:
    if objects is None:
        return tuple(name for name, value in sample.items() if name not in targets and has_boxes and _is_rows(value))
    wrong = [name for name in objects if name not in sample or name in targets]
    if wrong or (objects and not has_boxes):
        raise ArgumentError(
            f"objects must name fields with one row for each box, beside boxes, of the sample ({', '.join(sample)}), "
            f"got {list(objects)}"
        )
    return tuple(objects)


def _is_rows(value: object) -> bool:
    return isinstance(value, list) or len(getattr(value, "shape", ())) > 0


def merge_fields(
    roles: FieldRoles,
    samples: Sequence[Sample],
    placements: Sequence[Placement],
    *,
    kept: Sequence[NDArray[np.bool_]] | None = None,
) -> tuple[dict[str, Sample], list[NDArray[np.bool_]]]:
    """Return all fields of the mixture but image, mask and instances, which are those of the first sample.

    Parameters
    ----------
    roles : FieldRoles
        Of all samples.
    samples : sequence of mapping
        Not changed.
    placements : sequence of Placement
        Where each picture lies.
    kept : sequence of ndarray of bool, optional
        For each sample, which of its boxes, and rows of other fields, are in the mixture. Default: those with an area.

    Returns
    -------
    merged : dict
        New arrays: boxes and keypoints float32, others of the dtype that the arrays share.
    kept : list of ndarray of bool
        For each sample, which of its boxes are in the mixture.

    Raises
    ------
    ArgumentError
        If the rows of a field are not as many as the boxes, or have other shapes than those of another sample.
    """
    merged = dict(samples[0])
    moved = [placement.move_boxes(_boxes(roles, sample)) for placement, sample in zip(placements, samples, strict=True)]
    if kept is None:
        kept = [(own[:, 2] > own[:, 0]) & (own[:, 3] > own[:, 1]) for own in moved]
    if roles.boxes is not None:
        merged[roles.boxes] = concat_rows(roles.boxes, [own[keep] for own, keep in zip(moved, kept, strict=True)])
    for name in roles.objects:
        rows = [_object_rows(name, sample[name], len(keep)) for sample, keep in zip(samples, kept, strict=True)]
        merged[name] = concat_rows(name, [own[keep] for own, keep in zip(rows, kept, strict=True)])
    if roles.keypoints is not None:
        points = [
            _keep_points(roles, _move_points(placement, sample[roles.keypoints]), keep)
            for sample, placement, keep in zip(samples, placements, kept, strict=True)
        ]
        merged[roles.keypoints] = concat_rows(roles.keypoints, points)
    return merged, list(kept)


def take_rows(roles: FieldRoles, merged: dict[str, Sample], stays: NDArray[np.bool_]) -> None:
    """Leave the boxes that do not stay, and the rows of their objects, out of ``merged``."""
    for name in (roles.boxes, *roles.objects):
        if name is not None:
            merged[name] = merged[name][stays]
    if roles.keypoints is not None:
        merged[roles.keypoints] = _keep_points(roles, merged[roles.keypoints], stays)


def concat_rows(name: str, arrays: Sequence[Array]) -> Array:
    """Join ``arrays``, one after another; those without rows may have other shapes.

    Raises ArgumentError if their rows have different shapes, with the name of the field.
    """
    filled = [array for array in arrays if len(array)] or arrays[:1]
    shapes = {array.shape[1:] for array in filled}
    if len(shapes) > 1:
        raise ArgumentError(f"rows of {name!r} must have one shape in all samples, got {sorted(shapes)}")
    return np.concatenate(filled)


def _boxes(roles: FieldRoles, sample: Sample) -> NDArray[np.float32]:
    if roles.boxes is None:
        return np.empty((0, 4), np.float32)
    return as_boxes(sample[roles.boxes]).reshape(-1, 4)


def _object_rows(name: str, value: object, count: int) -> Array:
    rows = np.asarray(value)
    if rows.ndim == 0 or len(rows) != count:
        raise ArgumentError(
            f"the field {name!r} must have one row for each of {count} boxes, got shape {rows.shape}; give objects= "
            "with the names of the fields that belong to boxes, and others are those of the first sample"
        )
    return rows


def _move_points(placement: Placement, value: object) -> NDArray[np.float32]:
    points = np.array(value, np.float32)
    if points.size == 0 and points.ndim == 1:
        return points.reshape(0, 2)
    if points.ndim not in {2, 3} or points.shape[-1] not in {2, 3}:
        raise ArgumentError(f"keypoints must have shape (n, 2), (n, 3) or (n, k, 2 or 3), got {points.shape}")
    points[..., :2] = placement.move(points[..., :2])
    return points


def _keep_points(roles: FieldRoles, points: NDArray[np.float32], keep: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return the points of objects that are kept: as many for each object, in the order of boxes."""
    if roles.boxes is None:
        return points
    each, rest = divmod(len(points), len(keep)) if len(keep) else (0, len(points))
    if rest or (points.ndim == 3 and each != 1 and len(keep)):
        raise ArgumentError(
            f"keypoints must have shape (n, k, 2 or 3), or k rows for each of n boxes, in the order of the boxes, got "
            f"shape {points.shape} for {len(keep)} boxes"
        )
    return points[np.repeat(keep, each)]
