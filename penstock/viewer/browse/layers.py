"""Annotations of a record as layers that a page draws: boxes, points, masks, tracks, as JSON.

::

    Annotated ──> [{"id": "boxes", "name": "boxes", "kind": "boxes", "source": "store", "items": [{"box": ...}, ...]}]

Coordinates are pixels of the picture as it is shown. A mask is reduced to some 256 rows, and its rows become runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, DecodeError
from penstock.sample import Value
from penstock.sheets.annotated import Annotated
from penstock.sheets.shown_pixels import as_array
from penstock.sheets.tiles import decode_instance
from penstock.transforms.decoding.decode import Decode
from penstock.transforms.inputs import is_encoded
from penstock.transforms.targets.target_forms import as_boxes

__all__ = ["MAX_OBJECTS", "JsonObject", "make_layers"]

MAX_OBJECTS: Final = 1000
"""Objects of a record that are drawn; the others are counted."""
_MASK_ROWS: Final = 256
_MAX_RUNS: Final = 20_000
_SCORES: Final = ("scores", "score", "confidence")
_TRACKS: Final = ("tracks", "track", "track_ids", "track_id")

JsonObject = dict[str, Value]
"""Names and values that JSON can hold."""


def make_layers(found: Annotated, fields: Mapping[str, Value], size: tuple[int, int]) -> list[JsonObject]:
    """A layer for each kind of annotation of a record; what cannot be drawn is said by its ``"problem"``.

    Scores and numbers of tracks are taken from ``fields``, all of the record; ``size`` is the width and the height of
    its picture as it is shown.
    """
    makers: dict[str, Callable[[], tuple[list[JsonObject], str]]] = {
        "boxes": lambda: _make_boxes(found, fields),
        "points": lambda: _make_points(found),
        "masks": lambda: _make_masks(found, size),
    }
    layers = []
    for kind, make in makers.items():
        try:
            items, note = make()
        except (ArgumentError, DecodeError) as error:
            items, note = [], str(error)[:500]
        if not items and not note:
            continue
        is_tracked = any(item.get("track") is not None for item in items)
        name = "tracks" if is_tracked else "keypoints" if kind == "points" else kind
        layer = {"id": name, "name": name, "kind": "tracks" if is_tracked else kind, "source": "store", "items": items}
        layers.append({**layer, "problem": note} if note else layer)
    return layers


def _make_boxes(found: Annotated, fields: Mapping[str, Value]) -> tuple[list[JsonObject], str]:
    if found.boxes is None:
        return [], ""
    boxes = as_boxes(as_array(found.boxes)).reshape(-1, 4)
    scores, tracks = _find_numbers(fields, _SCORES, len(boxes)), _find_numbers(fields, _TRACKS, len(boxes))
    rows = np.flatnonzero(np.isfinite(boxes).all(axis=1))[:MAX_OBJECTS].tolist()
    rounded = np.round(boxes.astype(np.float64), 2).tolist()
    items = [
        {"box": rounded[row], **_name_object(found, row), "score": scores[row], "track": tracks[row]} for row in rows
    ]
    return items, _say_left(len(boxes), len(items), "boxes")


def _make_points(found: Annotated) -> tuple[list[JsonObject], str]:
    points = as_array([] if found.keypoints is None else found.keypoints)
    if points.size == 0:
        return [], ""
    if points.ndim not in {1, 2, 3} or points.shape[-1] not in {2, 3} or points.dtype.kind not in "iuf":
        raise ArgumentError(f"keypoints must have the shape (n, 2), (n, 3), (n, k, 2) or (n, k, 3), got {points.shape}")
    objects = points.reshape(-1, *np.atleast_2d(points).shape[-2:]).astype(np.float64)
    items = []
    for row, own in enumerate(objects[:MAX_OBJECTS]):
        visible = own[:, 2] if own.shape[1] == 3 else np.ones(len(own))
        places = np.round(np.nan_to_num(own[:, :2]), 2)
        shown = np.where(np.isfinite(own).all(axis=1), visible, 0)
        items.append({"points": np.column_stack([places, shown]).tolist(), **_name_object(found, row)})
    return items, _say_left(len(objects), len(items), "objects with keypoints")


def _make_masks(found: Annotated, size: tuple[int, int]) -> tuple[list[JsonObject], str]:
    width, height = size
    scale = max(1, -(-height // _MASK_ROWS), -(-width // (2 * _MASK_ROWS)))
    items: list[JsonObject] = []
    notes: list[str] = []
    runs_left = _MAX_RUNS
    for inside, named in _iterate_masks(found, size, scale, notes):
        runs = _find_runs(inside)
        runs_left -= len(runs)
        if runs_left < 0:
            notes.append("the masks have too many parts; the first are drawn")
            break
        items.append({"runs": runs, "scale": scale, **named})
    return items, "; ".join(notes)


def _iterate_masks(
    found: Annotated, size: tuple[int, int], scale: int, notes: list[str]
) -> Iterator[tuple[NDArray[np.bool_], JsonObject]]:
    """Yield the reduced mask of each class or object, and its name; ``notes`` get what cannot be drawn."""
    step = slice((scale - 1) // 2, None, scale)  # the middle of each square of pixels
    names = dict(enumerate(found.mask_classes))
    for given in found.masks:
        values = as_array(Decode().mask(given, np.empty(0)) if is_encoded(given) else given)
        if values.ndim == 3 and values.shape[2] == 1 and values.shape[0] != 1:
            values = values[:, :, 0]
        if values.ndim not in {2, 3} or values.shape[-2:] != size[::-1]:
            notes.append(f"a mask of shape {values.shape} is not drawn over a picture of {size[0]} x {size[1]}")
            continue
        small = np.nan_to_num(values[..., step, step])
        if values.ndim == 3:
            yield from ((own != 0, _name_object(found, row)) for row, own in enumerate(small[:MAX_OBJECTS]))
            continue
        numbers = np.unique(small)
        for number in numbers[numbers != 0][:MAX_OBJECTS].tolist():
            yield small == number, {"class": int(number), "name": names.get(int(number), str(int(number)))}
    missing = 0
    for row, instance in enumerate((found.instances or ())[:MAX_OBJECTS]):
        own = decode_instance(instance, *size)
        if own is not None:
            yield own[step, step], _name_object(found, row)
        missing += own is None and instance is not None
    if missing:
        notes.append(f"masks of another size than the picture are not drawn: {missing}")


def _find_runs(inside: NDArray[np.bool_]) -> list[list[int]]:
    """``[row, from, to]`` of each run of pixels; ``to`` is outside."""
    edges = np.diff(np.pad(inside.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    rows, begins = np.nonzero(edges == 1)
    runs: list[list[int]] = np.column_stack([rows, begins, np.nonzero(edges == -1)[1]]).tolist()
    return runs


def _name_object(found: Annotated, row: int) -> JsonObject:
    """Return the class of an object: its number, or None, and its name."""
    number = int(found.numbers[row]) if found.numbers is not None and row < len(found.numbers) else None
    name = found.object_names[row] if row < len(found.object_names) else "" if number is None else str(number)
    if number is not None and 0 <= number < len(found.object_classes):
        name = found.object_classes[number]
    return {"class": number, "name": name}


def _find_numbers(fields: Mapping[str, Value], names: Sequence[str], count: int) -> list[float | None]:
    """Return a field with a number for each object, under one of its usual names; else None for each."""
    for name in names:
        try:
            numbers = as_array(fields.get(name))
        except ArgumentError:
            continue
        if numbers.shape == (count,) and numbers.dtype.kind in "iuf":
            found: list[float | None] = numbers.tolist()
            return found
    return [None] * count


def _say_left(count: int, drawn: int, what: str) -> str:
    return f"{count - drawn:,} of {count:,} {what} are not drawn" if drawn < count else ""
