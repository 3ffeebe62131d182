"""The predictions of a viewer: what a file says of its records, drawn beside the annotations and compared with them.

::

    file ──> rows of the store's records ──> layers of each record
                │                              thread: annotations of all records, overlaps
                └──────────────────────────────────> evaluate(iou, score) ──> counts; sets of records

    results.json         [{"image_id": 139, "category_id": 1, "bbox": [x, y, width, height], "score": 0.9}, ...]
    labels.csv           key,label,score                 or a column of probabilities for each class
    boxes.parquet        key, class, score, x0, y0, x1, y1

A prediction is found by the columns that its row has. Images are tried as values of the field ``image_id``, as keys, as
names of files with and without folder and ending, as the number in such a name, as indices; the first way that finds
all of them is taken, or else the one that finds most. A file is read when a viewer starts; a wrong one is refused in
one sentence.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Collection as Names
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.annotations import rle
from penstock.errors import AnnotationError, ArgumentError, StoreError
from penstock.fields.names import CLASS_NAMES, KEY_NAMES, LABEL_NAMES
from penstock.ragged import Ragged
from penstock.sample import Field, Schema, Value
from penstock.sheets.annotated import Annotated
from penstock.stores.base import Store
from penstock.stores.common.table_files import TABLE_SUFFIXES, Table
from penstock.stores.fields.columns import join_values, refuse_fixed
from penstock.viewer.browse.collection import Collection
from penstock.viewer.browse.details import shorten_text
from penstock.viewer.browse.layers import JsonObject, make_layers
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
from penstock.viewer.session import Background, Layer
from penstock.wording import counted

__all__ = ["SETS", "Predictions"]

_NAMES: Final = ("image_id", "image", *(name for name in KEY_NAMES if name not in {"image_id", "name"}), "index")
_TRUTHS: Final = frozenset({"target", "targets", "y"})  # beside predictions they are what was to be predicted
_CLASSES: Final = (
    "category_id", "prediction", "predicted", "pred", *(name for name in LABEL_NAMES if name not in _TRUTHS), "name",
)  # fmt: skip
_SCORES: Final = ("score", "confidence", "probability", "prob", "conf")
_LISTS: Final = ("probabilities", "probs", "scores", "confidences")
_CORNERS: Final = (("x0", "y0", "x1", "y1"), ("x1", "y1", "x2", "y2"), ("xmin", "ymin", "xmax", "ymax"))
_MAX_NUMBER: Final = float(1 << 24)
_COCO_IDS: Final = sorted(set(range(1, 91)) - {12, 26, 29, 30, 45, 66, 68, 69, 71, 83})
"""Ids of the 80 categories of COCO 2017."""
_MOST_UNNAMED: Final = 10_000
_EXPECTED: Final = (
    "expected COCO's results, a list of {image_id, category_id, bbox, score}, or a table with the columns key, label "
    "and score, or key and a probability for each class"
)
Name = int | str
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
_WHOLE: Final = [0.0, 0.0, 1.0, 1.0]
"""The box of what is said of a whole picture."""
_CROWDS: Final = ("crowd", "iscrowd", "is_crowd")
_KEPT: Final = 8
_WAIT_S: Final = 2.0
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
        self._shown = (0.5, 0.3)
        """The IoU and the score for which an evaluation was asked last. Lower scores are not drawn."""
        self._match = functools.lru_cache(_KEPT)(self._match_boxes)
        self._judge = functools.lru_cache(_KEPT)(self._judge_rows)

    def work(self) -> None:
        """Read the annotations, and find how boxes overlap with them."""
        self._objects = (_read_objects if self.has_boxes else _read_labels)(self._collection)
        if not self.has_boxes:
            self.boxes.scores[np.diff(self._objects.offsets)[self.boxes.records] == 0] = -1  # not counted
        self._overlaps = matching.find_overlaps(self.boxes, self._objects)

    def evaluate(self, iou: float, score: float) -> Events:
        """Compare with the annotations; waits until these are read. The last results are kept."""
        self.start()
        if self.error:
            raise ArgumentError(self.error)
        self._shown = (round(iou, 4), round(score, 4))
        return self._judge(*self._shown)

    def say(self, events: Events, at: int) -> str:
        """Return what is wrong with the prediction of an event, or the object that was missed.

        It is empty if it is correct.
        """
        truth = int(events.truths[at])
        named = self.names[truth] if 0 <= truth < len(self.names) else f"class {truth}"
        return ("", f"is {named}", "again", "not there", "not found")[events.kinds[at]]

    def _find_faults(self, index: int, wait_s: float) -> tuple[dict[int, str], list[int]]:
        """Find what is wrong with predictions of a record, by their place; and the places of missed objects.

        Nothing while the annotations are read; that is begun, and waited for.
        """
        self.start(wait_s)
        if self.error or not self.is_ready.is_set():
            return {}, []
        events = self._judge(*self._shown)
        own = np.flatnonzero(events.records == index).tolist()
        missed = [at for at in own if events.kinds[at] == MISSED]
        faults = {int(events.numbers[at]): self.say(events, at) for at in own if events.kinds[at] != MISSED}
        return faults, events.numbers[missed].tolist()

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

    def facts(self, index: int) -> list[JsonObject]:
        """Return the class that is predicted for a whole picture, as a field of its record."""
        at = int(self.boxes.offsets[index])
        if self.has_boxes or at == self.boxes.offsets[index + 1]:
            return []
        wrong = self._find_faults(index, _WAIT_S)[0].get(at, "")
        text = f"{self._rows[at].score:.2f} {self.names[self.boxes.classes[at]]}{wrong and ', '}{wrong}"
        return [{"name": "predicted", "kind": "text", **shorten_text(text), "is_bad": bool(wrong)}]

    def layers(self, index: int) -> list[Layer]:
        """The predicted objects of a record, of at least the shown score, and the objects that they missed."""
        if not self.has_boxes or not self._collection.image_field:
            return []
        first, last = self.boxes.offsets[index : index + 2].tolist()
        chosen = [at for at in range(first, last) if self.boxes.scores[at] >= self._shown[1]]
        faults, missed = self._find_faults(index, 0)
        size = find_size(self._collection.image(index)) if chosen or missed else (0, 0)
        layers: list[Layer] = []
        for name, read in _LAYERS.items():
            values = {at: value for at in chosen if (value := read(self._rows[at])) is not None}
            if values:
                rows = list(values)
                found = Annotated(numbers=self.boxes.classes[rows], object_classes=self.names)
                setattr(found, name, list(values.values()))
                made = make_layers(found, {"scores": self.boxes.scores[rows]}, size)
                for item, at in zip(made[0]["items"] if name == "boxes" and made else (), rows, strict=False):
                    item["wrong"] = faults.get(at, "")
                layers += made
        changed = (("id", "predicted-{}"), ("name", "predicted {}"), ("source", "predictions"))
        layers = [layer | {key: form.format(layer["name"]) for key, form in changed} for layer in layers]
        if missed:
            found = Annotated(numbers=self._objects.classes[missed], object_classes=self.names)
            found.boxes = self._objects.boxes[missed]
            for layer in make_layers(found, {}, size):
                items = [{**item, "wrong": "not found"} for item in layer["items"]]
                layers.append({**layer, "id": "missed", "name": "missed", "source": "predictions", "items": items})
        return layers


def _find_label(schema: Schema) -> str:
    """Return the field that has the class of a record; empty without one."""
    fields = schema.fields
    named = [name for name, field in fields.items() if field.kind == "label"]
    return next(iter([*named, *(name for name in CLASS_NAMES if name in fields and fields[name].kind == "int")]), "")


def _find_list(schema: Schema, names: Names[str]) -> str:
    """Return the field that has a number for each object: one of classes, or of a name; empty without one."""

    def is_list(name: str, field: Field) -> bool:
        if field.array is None or field.array.axes != (None,) or field.array.dtype.kind not in "biu":
            return False
        return name in names or (names is CLASS_NAMES and bool(field.classes))

    return next((name for name, field in schema.fields.items() if is_list(name, field)), "")


def _find_class_names(schema: Schema, *, of_objects: bool) -> tuple[str, ...]:
    """Names of the classes of objects, or of whole records."""
    name = _find_list(schema, CLASS_NAMES) if of_objects else _find_label(schema)
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
    classes = _find_list(schema, CLASS_NAMES)
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


@dataclass(frozen=True, slots=True)
class PredictedObjects:
    """One prediction as the file has it."""

    image: Name  # an id, a key, the name of a file, or a number
    label: Name
    score: float  # 1 if the file has none
    box: list[float] | None  # x0, y0, x1, y1
    instance: Value  # a mask in COCO's encoding; other ones are not drawn
    keypoints: list[float]  # x, y, visibility of each point


def read_predictions(path: Path) -> tuple[list[PredictedObjects], str]:
    """Return the predictions of a file, and the column that names their images; an error says in which row it is."""
    if path.suffix.lower() not in TABLE_SUFFIXES:
        raise ArgumentError(f"predictions must be a file named {', '.join(TABLE_SUFFIXES)}, got {path.name!r:.200}")
    found: list[PredictedObjects] = []
    column = ""
    table = Table(path)
    try:
        for row in table.rows():
            try:
                columns = {str(name).lower(): str(name) for name in row.values}
                column = _find(columns, _NAMES)
                found.append(_parse(row.values, columns, columns.get(column, "")))
            except (ValueError, AnnotationError) as error:
                where = f"{table.describe(row)} of {path.name}"
                raise ArgumentError(f"{where} is no prediction: {error!s:.500}; {_EXPECTED}") from error
    except StoreError as error:
        raise ArgumentError(f"the predictions {path.name} cannot be read: {error}; {_EXPECTED}") from error
    if not found:
        raise ArgumentError(f"the predictions {path.name} must have at least one prediction; {_EXPECTED}")
    return found, column


def _find(columns: Mapping[str, str], names: Iterable[str]) -> str:
    return next((name for name in names if name in columns), "")


def _parse(row: Mapping[str, Value], columns: Mapping[str, str], image: str) -> PredictedObjects:
    """Return a prediction; ``columns`` has the names of columns by their small letters."""
    if not image:
        raise ValueError(f"it has none of the columns {', '.join(_NAMES)}, got {', '.join(columns)[:200]}")
    label, score = _parse_class(row, columns, image)
    keypoints = _read_numbers(row.get("keypoints") or [], "keypoints")
    if len(keypoints) % 3:
        raise ValueError(f"its keypoints must have three numbers each, got {len(keypoints)}")
    instance, box = _load(row.get("segmentation")), None
    corners = next((names for names in _CORNERS if columns.keys() >= set(names)), None)
    if corners is not None:
        box = [_read_number(row[columns[name]], name) for name in corners]
    elif row.get("bbox") is not None:
        given = _read_numbers(row["bbox"], "bbox")
        if len(given) != 4:
            raise ValueError(f"its bbox must have four numbers, x, y, width and height, got {given!r:.100}")
        box = [given[0], given[1], given[0] + given[2], given[1] + given[3]]
    elif isinstance(instance, Mapping):
        box = [float(edge) for edge in rle.box(instance)]
    return PredictedObjects(_read_name(row[image], image), label, score, box, instance, keypoints)


def _parse_class(row: Mapping[str, Value], columns: Mapping[str, str], image: str) -> tuple[Name, float]:
    others = {name: given for name, given in columns.items() if given != image}
    if label := others.get(_find(others, _CLASSES)):
        score = others.get(_find(others, _SCORES))
        return _read_name(row[label], label), 1.0 if score is None else _read_number(row[score], score)
    listed = _find(others, _LISTS)
    if listed:
        given: dict[Name, float] = dict(enumerate(_read_numbers(row[others[listed]], listed)))
    else:
        given = {name: _read_number(row[name], name) for name in others.values() if _is_number(row[name])}
    if len(given) < (1 if listed else 2):  # a class is chosen of two or more columns
        raise ValueError(f"it has no class, got the columns {', '.join(columns.values())[:200]}")
    best = max(given, key=given.__getitem__)
    return best, given[best]


def _is_number(value: Value) -> bool:
    try:
        return not isinstance(value, bool) and math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def _read_number(value: Value, name: str) -> float:
    if not _is_number(value) or abs(float(value)) > _MAX_NUMBER:
        raise ValueError(f"its {name} must be a number of at most 2**24, got {value!r:.100}")
    return float(value)


def _read_name(value: Value, name: str) -> Name:
    """An id or a name; a float that is whole is an id, as tables with gaps write them."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        raise ValueError(f"its {name} must be a whole number or a text, got {value!r:.100}")
    is_number = isinstance(value, str) and value.isascii() and value.isdigit() and value == str(int(value[:15]))
    return int(value) if is_number else value


def _read_numbers(value: Value, name: str) -> list[float]:
    given = _load(value)
    if not isinstance(given, list | tuple):
        raise ValueError(f"its {name} must be a list of numbers, got {value!r:.100}")  # noqa: TRY004  # one handler
    return [_read_number(each, name) for each in given]


def _load(value: Value) -> Value:
    """Return a value, or that of a cell of a CSV file that is written as JSON."""
    try:
        return json.loads(value) if isinstance(value, str) and value else value
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{value!r:.100} is no JSON") from error


def _stem(key: str) -> str:
    name = key.rpartition("/")[2]
    return name.rpartition(".")[0] or name


def _number_of(key: str) -> str:
    found = re.search(r"[0-9]{1,15}$", _stem(key))
    return str(int(found[0])) if found is not None else ""


_NAMES_OF_KEYS: Final[dict[str, Callable[[str], str]]] = {
    "their keys": str,
    "the names of their files": lambda key: key.rpartition("/")[2],
    "the names of their files without ending": _stem,
    "the number in the names of their files": _number_of,
}


def find_records(store: Store, column: str, images: Iterable[Name]) -> tuple[dict[Name, int], str]:
    """The record of each image that is known, and how they were found; ``column`` is where the file has them."""
    wanted = {str(image): image for image in images}
    best: dict[Name, int] = {}
    how = ""
    for title, names in _list_ways(store, column):
        found: dict[Name, int] = {}
        for index, name in enumerate(names):
            if name in wanted:
                found.setdefault(wanted[name], index)
        if len(found) > len(best):
            best, how = found, title
        if len(best) == len(wanted):
            break
    if not best:
        raise ArgumentError(
            f"no image of the predictions is a record of the store; the first is {next(iter(wanted), '')!r:.100}, and "
            f"the first key of the store is {next(iter(store.keys()), '')!r:.100}"
        )
    lost = len(wanted) - len(best)
    return best, f"images are found by {how}" + (f"; {counted(lost, 'image')} of the file not found" if lost else "")


def _list_ways(store: Store, column: str) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield how images may be named, and the name of each record."""
    if column != "index":
        if "image_id" in store.schema and store.schema["image_id"].kind in {"int", "text"}:
            yield "the field image_id", map(str, store.column("image_id").tolist())
        for title, convert in _NAMES_OF_KEYS.items():
            yield title, map(convert, store.keys())
    yield "their indices", map(str, range(len(store)))


def find_classes(labels: Iterable[Name], classes: Sequence[str]) -> tuple[dict[Name, int], tuple[str, ...], str]:
    """The number of each class, the names of all (those of the store, ``classes``, are first), and how it was found."""
    given = dict.fromkeys(labels)
    ids = [label for label in given if isinstance(label, int)]
    numbers = {name: number for number, name in enumerate(classes)}
    found: dict[Name, int] = {}
    note = "classes by name"
    is_numbered = not set(map(str, ids)) <= numbers.keys()
    if is_numbered:
        if len(classes) == len(_COCO_IDS) and classes[0] == "person" and set(ids) <= set(_COCO_IDS):
            found, note = {each: place for place, each in enumerate(_COCO_IDS)}, "category ids are those of COCO 2017"
        else:
            first = int(0 not in ids and max(ids) == len(classes))
            found = {each: each - first for each in ids if 0 <= each - first < len(classes) + _MOST_UNNAMED}
            note = f"category ids are numbers of classes, counted from {first}"
        for number in range(len(classes), max(found.values(), default=-1) + 1):
            numbers[f"class {number}"] = number
    for label in given:
        if label not in found and not (is_numbered and isinstance(label, int)):
            found[label] = numbers.setdefault(str(label), len(numbers))
    return found, tuple(numbers), note
