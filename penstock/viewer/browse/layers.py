"""Annotations of a record as layers that a page draws: boxes, points, masks, tracks, as JSON.

::

    Annotated ──> [{"id": "boxes", "name": "boxes", "kind": "boxes", "source": "store", "items": [{"box": ...}, ...]}]

Coordinates are pixels of the picture as it is shown. A mask is reduced to some 256 rows, and its rows become runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, DecodeError
from penstock.sample import Array, Value
from penstock.transforms.decoding.decode import Decode
from penstock.transforms.inputs import is_encoded
from penstock.transforms.targets.target_forms import as_boxes
from penstock.view.annotated import Annotated
from penstock.view.shown_pixels import as_array
from penstock.view.tiles import decode_instance

__all__ = ["MAX_OBJECTS", "JsonObject", "make_layers"]

MAX_OBJECTS: Final = 1000
"""Objects of a record that are drawn; the others are counted."""
_MASK_ROWS: Final = 256
_MAX_RUNS: Final = 20_000
_SCORES: Final = ("scores", "score", "confidence")
_TRACKS: Final = ("tracks", "track", "track_ids", "track_id")

JsonObject = dict[str, Any]
"""Names and values that JSON can hold."""


def make_layers(found: Annotated, fields: Mapping[str, Value], size: tuple[int, int]) -> list[JsonObject]:
    """The layers of a record.

    Parameters
    ----------
    found : Annotated
        Its annotations.
    fields : mapping of str to object
        All its fields, of which scores and numbers of tracks are taken.
    size : (int, int)
        Width and height of its picture as it is shown.

    Returns
    -------
    list of dict
        A layer for each kind that the record has. What cannot be drawn is said by ``"problem"`` of a layer.
    """
    layers = []
    for kind, make in (("boxes", _make_boxes), ("points", _make_points), ("masks", _make_masks)):
        try:
            items, note = make(found, fields, size)
        except (ArgumentError, DecodeError) as error:
            items, note = [], str(error)[:500]
        if not items and not note:
            continue
        is_tracked = kind == "boxes" and any(item.get("track") is not None for item in items)
        name = "tracks" if is_tracked else "keypoints" if kind == "points" else kind
        layer = {"id": name, "name": name, "kind": "tracks" if is_tracked else kind, "source": "store", "items": items}
        layers.append({**layer, "problem": note} if note else layer)
    return layers


def _make_boxes(found: Annotated, fields: Mapping[str, Value], size: tuple[int, int]) -> tuple[list[JsonObject], str]:
    del size
    if found.boxes is None:
        return [], ""
    boxes = as_boxes(as_array(found.boxes)).reshape(-1, 4)
    scores = _find_numbers(fields, _SCORES, len(boxes))
    tracks = _find_numbers(fields, _TRACKS, len(boxes))
    rows = np.flatnonzero(np.isfinite(boxes).all(axis=1))
    items = []
    for row in rows[:MAX_OBJECTS].tolist():
        item = {"box": np.round(boxes[row].astype(np.float64), 2).tolist(), **_name_object(found, row)}
        item["score"] = None if scores is None else scores[row]
        item["track"] = None if tracks is None else tracks[row]
        items.append(item)
    return items, _say_left(len(boxes), len(items), "boxes")


def _make_points(found: Annotated, fields: Mapping[str, Value], size: tuple[int, int]) -> tuple[list[JsonObject], str]:
    del fields, size
    if found.keypoints is None:
        return [], ""
    points = as_array(found.keypoints)
    if points.size == 0:
        return [], ""
    points = points[None] if points.ndim == 1 else points
    if points.ndim not in {2, 3} or points.shape[-1] not in {2, 3} or points.dtype.kind not in "iuf":
        raise ArgumentError(f"keypoints must have the shape (n, 2), (n, 3), (n, k, 2) or (n, k, 3), got {points.shape}")
    objects = (points if points.ndim == 3 else points[None]).astype(np.float64)
    items = []
    for row, own in enumerate(objects[:MAX_OBJECTS]):
        visible = own[:, 2] if own.shape[1] == 3 else np.ones(len(own))
        places = np.round(np.nan_to_num(own[:, :2]), 2)
        shown = np.where(np.isfinite(own).all(axis=1), visible, 0)
        items.append({"points": np.column_stack([places, shown]).tolist(), **_name_object(found, row)})
    return items, _say_left(len(objects), len(items), "objects with keypoints")


def _make_masks(found: Annotated, fields: Mapping[str, Value], size: tuple[int, int]) -> tuple[list[JsonObject], str]:
    del fields
    items: list[JsonObject] = []
    notes: list[str] = []
    runs_left = _MAX_RUNS
    for given in found.masks:
        values = as_array(Decode().mask(given, np.empty(0)) if is_encoded(given) else given)
        if values.ndim == 3 and values.shape[2] == 1 and values.shape[0] != 1:
            values = values[:, :, 0]
        if values.ndim not in {2, 3} or values.shape[-2:] != size[::-1]:
            notes.append(f"a mask of shape {values.shape} is not drawn over a picture of {size[0]} x {size[1]}")
            continue
        small, scale = _reduce(values)
        parts = _split(small) if values.ndim == 2 else list(enumerate(small != 0))
        for number, inside in parts[:MAX_OBJECTS]:
            runs = _find_runs(inside)
            runs_left -= len(runs)
            if runs_left < 0:
                return items, "the masks have too many parts; the first are drawn"
            name = dict(enumerate(found.mask_classes)).get(number, str(number))
            named = {"class": number, "name": name} if values.ndim == 2 else _name_object(found, number)
            items.append({"runs": runs, "scale": scale, **named})
    missing = 0
    for row, instance in enumerate((found.instances or ())[:MAX_OBJECTS]):
        own = decode_instance(instance, *size)
        if own is None:
            missing += instance is not None
            continue
        small, scale = _reduce(own)
        runs = _find_runs(small)
        runs_left -= len(runs)
        if runs_left < 0:
            return items, "the masks have too many parts; the first are drawn"
        items.append({"runs": runs, "scale": scale, **_name_object(found, row)})
    if missing:
        notes.append(f"masks of another size than the picture are not drawn: {missing}")
    return items, "; ".join(notes)


def _reduce(mask: Array) -> tuple[Array, int]:
    """Every n-th row and column from the middle of the first n, so that some 256 rows and 512 columns are left."""
    height, width = mask.shape[-2:]
    scale = max(1, -(-height // _MASK_ROWS), -(-width // (2 * _MASK_ROWS)))
    start = (scale - 1) // 2
    return mask[..., start::scale, start::scale], scale


def _split(mask: Array) -> list[tuple[int, NDArray[np.bool_]]]:
    """The pixels of each value that is not 0."""
    values = np.unique(np.nan_to_num(mask))
    return [(int(value), mask == value) for value in values[values != 0].tolist()[:MAX_OBJECTS]]


def _find_runs(inside: NDArray[np.bool_]) -> list[list[int]]:
    """``[row, from, to]`` of each run of pixels; ``to`` is outside."""
    padded = np.zeros((inside.shape[0], inside.shape[1] + 2), np.int8)
    padded[:, 1:-1] = inside
    edges = np.diff(padded, axis=1)
    rows, begins = np.nonzero(edges == 1)
    ends = np.nonzero(edges == -1)[1]
    runs: list[list[int]] = np.column_stack([rows, begins, ends]).tolist()
    return runs


def _name_object(found: Annotated, row: int) -> JsonObject:
    """The class of an object: its number, or None, and its name."""
    if found.numbers is None or row >= len(found.numbers):
        name = found.object_names[row] if row < len(found.object_names) else ""
        return {"class": None, "name": name}
    number = int(found.numbers[row])
    if 0 <= number < len(found.object_classes):
        return {"class": number, "name": found.object_classes[number]}
    return {"class": number, "name": found.object_names[row] if row < len(found.object_names) else str(number)}


def _find_numbers(fields: Mapping[str, Value], names: Sequence[str], count: int) -> list[float | None] | None:
    """A field with a number for each object, under one of its usual names."""
    for name in names:
        try:
            numbers = as_array(fields.get(name))
        except ArgumentError:
            continue
        if numbers.shape == (count,) and numbers.dtype.kind in "iuf":
            return [float(each) if numbers.dtype.kind == "f" else int(each) for each in numbers.tolist()]
    return None


def _say_left(count: int, drawn: int, what: str) -> str:
    return f"{count - drawn:,} of {count:,} {what} are not drawn" if drawn < count else ""
