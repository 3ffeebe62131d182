"""Reads the predictions of a model: COCO's results, or a table with a row for each prediction.

::

    results.json         [{"image_id": 139, "category_id": 1, "bbox": [x, y, width, height], "score": 0.9}, ...]
    labels.csv           key,label,score                 or a column of probabilities for each class
    boxes.parquet        key, class, score, x0, y0, x1, y1

A prediction is found by the columns that its row has. Images are tried as values of the field ``image_id``, as keys, as
names of files with and without folder and ending, as the number in such a name, as indices; the first way that finds
all of them is taken, or else the one that finds most. Called when a viewer starts; a wrong file is refused in one
sentence.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.annotations import rle
from penstock.errors import AnnotationError, ArgumentError, StoreError
from penstock.sample import Value
from penstock.stores.base import Store
from penstock.stores.common.table_files import TABLE_SUFFIXES, Table
from penstock.wording import counted

__all__ = ["PredictedObjects", "find_classes", "find_records", "read_predictions"]

_NAMES: Final = ("image_id", "key", "__key__", "image", "file_name", "filename", "file", "path", "id", "index")
_CLASSES: Final = ("category_id", "label", "class", "category", "prediction", "predicted", "pred", "class_id", "name")
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
    """The predictions of a file, and the column that names their images; an error says in which row it is."""
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
    """A prediction; ``columns`` has the names of columns by their small letters."""
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
    """A value, or that of a cell of a CSV file that is written as JSON."""
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
    """How images may be named, and the name of each record."""
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
