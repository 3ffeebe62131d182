"""The predictions of a viewer: what a file says of its records, drawn beside the annotations and compared with them.

::

    file ──> rows of the store's records ──> layers of each record
                │                              thread: annotations of all records, overlaps
                └──────────────────────────────────> evaluate(iou, score) ──> counts; sets of records
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from collections.abc import Collection as Names
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.ragged import Ragged
from penstock.sample import Field, Schema
from penstock.stores.fields.columns import join_values, refuse_fixed
from penstock.view.annotated import Annotated
from penstock.viewer.browse.collection import Collection
from penstock.viewer.browse.layers import make_layers
from penstock.viewer.browse.pictures import find_size
from penstock.viewer.compare import matching
from penstock.viewer.compare.matching import (
    CORRECT,
    DUPLICATE,
    MISSED,
    SPURIOUS,
    WRONG_CLASS,
    Boxes,
    Events,
    make_boxes,
)
from penstock.viewer.compare.prediction_files import PredictedObjects, find_classes, find_records, read_predictions
from penstock.viewer.session import Background, Layer

__all__ = ["SETS", "Predictions"]

SETS: Final = {
    "false-positives": {WRONG_CLASS, DUPLICATE, SPURIOUS},
    "wrong-class": {WRONG_CLASS},
    "duplicates": {DUPLICATE},
    "nothing-there": {SPURIOUS},
    "missed": {MISSED},
    "correct": {CORRECT},
    "confused": {CORRECT, WRONG_CLASS, DUPLICATE, SPURIOUS, MISSED},
}
"""Names of sets of records, and the events that put a record into each."""
_LAYERS: Final[dict[str, Callable[[PredictedObjects], object]]] = {
    "boxes": lambda row: row.box,
    "keypoints": lambda row: np.reshape(row.keypoints, (-1, 3)) if row.keypoints else None,
    "instances": lambda row: row.instance if isinstance(row.instance, Mapping) else None,
}
_CLASS_FIELDS: Final = ("labels", "label", "classes", "class", "category", "categories", "category_id", "class_id")
_WHOLE: Final = [0.0, 0.0, 1.0, 1.0]
"""The box of what is said of a whole picture."""
_CROWDS: Final = ("crowd", "iscrowd", "is_crowd")
_KEPT: Final = 8
Indices = NDArray[np.int64]


class Predictions(Background):
    """The predictions of a file for the records of a viewer, and a source of layers; refuses a wrong file."""

    def __init__(self, collection: Collection, path: Path) -> None:
        super().__init__()
        self._collection, self.path = collection, path
        rows, column = read_predictions(path)
        self.has_boxes = any(row.box is not None or row.keypoints for row in rows)
        records, found = find_records(collection.store, column, (row.image for row in rows))
        names = _find_class_names(collection.schema, of_objects=self.has_boxes)
        classes, self.names, note = find_classes((row.label for row in rows), names)
        self.notes = [found, note]
        known = [row for row in rows if row.image in records and row.label in classes]
        if lost := len(rows) - len(known):
            self.notes.append(f"{lost:,} of {len(rows):,} predictions are left out: their image or class is unknown")
        known.sort(key=lambda row: (records[row.image], -row.score))
        if not self.has_boxes:  # the most confident class of each record
            known = list({records[row.image]: row for row in reversed(known)}.values())[::-1]
        counts = np.bincount([records[row.image] for row in known], minlength=collection.total)
        no_box = [np.nan] * 4 if self.has_boxes else _WHOLE
        corners = np.array([row.box or no_box for row in known], np.float64).reshape(-1, 4)
        scores = np.array([row.score for row in known])
        self.boxes = make_boxes(counts, corners, np.array([classes[row.label] for row in known]), scores=scores)
        self._rows = known
        self.shown_score = 0.3
        """Predictions with a lower score are not drawn; the last one for which an evaluation was asked."""
        self._match = functools.lru_cache(_KEPT)(self._match_boxes)
        self._judge = functools.lru_cache(_KEPT)(self._judge_rows)

    def work(self) -> None:
        """Read the annotations."""
        self._objects = (_read_objects if self.has_boxes else _read_labels)(self._collection)
        if not self.has_boxes:
            self.boxes.scores[np.diff(self._objects.offsets)[self.boxes.records] == 0] = -1  # not counted
        self._overlaps = matching.find_overlaps(self.boxes, self._objects)

    def evaluate(self, iou: float, score: float) -> Events:
        """Compare with the annotations; waits until these are read. The last results are kept."""
        self.start()
        if self.error:
            raise ArgumentError(self.error)
        return self._judge(round(iou, 4), round(score, 4))

    def _match_boxes(self, iou: float) -> Indices:
        return matching.match_boxes(self.boxes, self._objects, self._overlaps, iou)

    def _judge_rows(self, iou: float, score: float) -> Events:
        found = self._match(iou)
        return matching.judge_boxes(self.boxes, self._objects, self._overlaps, found, iou=iou, score=score)

    def find_set(self, name: str) -> tuple[Events, Indices, Indices]:
        """The records of a set, the most confident first, and the event of each.

        A set is one of :data:`SETS`, then ``@iou,score``: ``missed@0.5,0.3``; ``confused`` has the classes, by number,
        of the object and of the prediction, -1 for none: ``confused:3>5@0.5,0.3``.
        """
        kind, _, at = name.partition("@")
        kind, _, classes = kind.partition(":")
        try:
            iou, score = map(float, at.split(","))
            truth, guess = map(int, classes.split(">")) if kind == "confused" else (-1, -1)
        except ValueError:
            iou, score, truth, guess = -1, -1, -1, -1
        if kind not in SETS or not (0 <= iou <= 1 and 0 <= score <= 1):
            raise ArgumentError(
                f"set must be one of {', '.join(SETS)} with @iou,score, such as missed@0.5,0.3, got {name!r:.100}"
            )
        events = self.evaluate(max(iou, 0.1), score)
        cell = (truth, guess) if kind == "confused" else None
        return events, *matching.select_records(events, SETS[kind], cell)

    def layers(self, index: int) -> list[Layer]:
        """The predicted objects of a record, of at least the shown score."""
        first, last = self.boxes.offsets[index : index + 2].tolist()
        chosen = [at for at in range(first, last) if self.boxes.scores[at] >= self.shown_score]
        if not chosen or not self.has_boxes or not self._collection.image_field:
            return []
        size = find_size(self._collection.image(index))
        layers: list[Layer] = []
        for name, read in _LAYERS.items():
            values = {at: value for at in chosen if (value := read(self._rows[at])) is not None}
            if values:
                rows = list(values)
                found = Annotated(numbers=self.boxes.classes[rows], object_classes=self.names)
                setattr(found, name, list(values.values()))
                layers += make_layers(found, {"scores": self.boxes.scores[rows]}, size)
        changed = (("id", "predicted-{}"), ("name", "predicted {}"), ("source", "predictions"))
        return [layer | {key: form.format(layer["name"]) for key, form in changed} for layer in layers]


def _find_label(schema: Schema) -> str:
    """The field that has the class of a record; empty without one."""
    fields = schema.fields
    named = [name for name, field in fields.items() if field.kind == "label"]
    return next(iter([*named, *(name for name in _CLASS_FIELDS if name in fields and fields[name].kind == "int")]), "")


def _find_list(schema: Schema, names: Names[str]) -> str:
    """The field that has a number for each object: one of classes, or of a name; empty without one."""

    def is_list(name: str, field: Field) -> bool:
        if field.array is None or field.array.axes != (None,) or field.array.dtype.kind not in "biu":
            return False
        return name in names or (names is _CLASS_FIELDS and bool(field.classes))

    return next((name for name, field in schema.fields.items() if is_list(name, field)), "")


def _find_class_names(schema: Schema, *, of_objects: bool) -> tuple[str, ...]:
    """Names of the classes of objects, or of whole records."""
    name = _find_list(schema, _CLASS_FIELDS) if of_objects else _find_label(schema)
    return schema[name].classes if name else ()


def _read_labels(collection: Collection) -> Boxes:
    """An object for each record with a class; :class:`ArgumentError` if the records have no label."""
    name = _find_label(collection.store.schema)
    if not name:
        raise ArgumentError("the store has no labels to compare predictions with; they are shown alone")
    labels = collection.store.column(name).astype(np.int64)
    is_known = labels >= 0
    return make_boxes(is_known, np.broadcast_to(np.array(_WHOLE), (int(is_known.sum()), 4)), labels[is_known])


def _read_objects(collection: Collection) -> Boxes:
    """The boxes of each record; :class:`ArgumentError` if the records have none with classes."""
    schema = collection.schema
    name = next((name for name, field in schema.fields.items() if field.kind == "boxes"), "")
    classes = _find_list(schema, _CLASS_FIELDS)
    if not name or not classes:
        raise ArgumentError("the store has no boxes with classes to compare predictions with; they are shown alone")
    boxes, numbers = _read_lists(collection, name), _read_lists(collection, classes)
    if not np.array_equal(boxes.offsets, numbers.offsets):
        raise ArgumentError(f"{name} and {classes} must have as many values in a record; predictions are shown alone")
    given = _find_list(schema, _CROWDS)
    crowds = _read_lists(collection, given).values if given else None
    return make_boxes(np.diff(boxes.offsets), boxes.values.reshape(-1, 4), numbers.values, crowds=crowds)


def _read_lists(collection: Collection, name: str) -> Ragged:
    if name in collection.store.schema:
        return collection.store.ragged_column(name)
    values = (each[name] for each in collection.iter_beside())
    return join_values(name, refuse_fixed(name, collection.schema[name]), values, collection.store.url)
