"""Reads the predictions of a model: COCO's results, or a table with a row for each prediction.

::

    results.json         [{"image_id": 139, "category_id": 1, "bbox": [x, y, width, height], "score": 0.9}, ...]
    labels.csv           key,label,score                 or a column of probabilities for each class
    boxes.parquet        key, class, score, x0, y0, x1, y1

A prediction is found by the columns that its row has. What a file says of classes and images becomes numbers of the
store in :mod:`.prediction_names`. Called when a viewer starts; a wrong file is refused in one sentence.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.annotations import rle
from penstock.errors import AnnotationError, ArgumentError, StoreError
from penstock.sample import Value
from penstock.stores.common.table_files import TABLE_SUFFIXES, Table

__all__ = ["PredictionFile", "ReadPrediction", "read_predictions"]

_NAMES: Final = ("image_id", "key", "__key__", "image", "file_name", "filename", "file", "path", "id", "index")
_CLASSES: Final = ("category_id", "label", "class", "category", "prediction", "predicted", "pred", "class_id", "name")
_SCORES: Final = ("score", "confidence", "probability", "prob", "conf")
_LISTS: Final = ("probabilities", "probs", "scores", "confidences")
_CORNERS: Final = (("x0", "y0", "x1", "y1"), ("x1", "y1", "x2", "y2"), ("xmin", "ymin", "xmax", "ymax"))
_MAX_COORDINATE: Final = float(1 << 24)
_BOX: Final = 4
_EXPECTED: Final = (
    "expected COCO's results, a list of {image_id, category_id, bbox, score}, or a table with the columns key, label "
    "and score, or key and a probability for each class"
)


@dataclass(frozen=True, slots=True)
class ReadPrediction:
    """One prediction as the file has it."""

    image: int | str  # an id, a key, the name of a file, or a number
    label: int | str
    score: float  # 1 if the file has none
    box: tuple[float, float, float, float] | None = None  # x0, y0, x1, y1
    instance: Value = None  # a mask in COCO's encoding; other ones are not drawn
    keypoints: list[float] | None = None  # x, y, visibility of each point


@dataclass(slots=True)
class PredictionFile:
    """The predictions of a file, in its order."""

    path: Path
    rows: list[ReadPrediction]
    categories: dict[int | str, str] = field(default_factory=dict)  # names of classes by id, where the file has them
    images: dict[int | str, str] = field(default_factory=dict)  # names of files of images by id, likewise
    has_indices: bool = False  # whether images are named by the column "index": by their places in the store

    @property
    def has_boxes(self) -> bool:
        """Whether there are objects, not classes of whole images."""
        return any(row.box is not None or row.keypoints is not None for row in self.rows)


def read_predictions(path: Path) -> PredictionFile:
    """Read a file.

    Raises
    ------
    ArgumentError
        If it cannot be read, or is no such file; says in which row.
    """
    if path.suffix.lower() not in TABLE_SUFFIXES:
        raise ArgumentError(f"predictions must be a file named {', '.join(TABLE_SUFFIXES)}, got {path.name!r:.200}")
    try:
        content = _read_object(path) if path.suffix.lower() == ".json" else None
        if content is None:
            table = Table(path)
            rows = ((table.describe(row), row.values) for row in table.rows())
            found = PredictionFile(path, _parse_rows(rows, path.name))
            first = next(table.rows(), None)
            found.has_indices = first is not None and _Columns.of(first.values).image.lower() == "index"
        else:
            listed = enumerate(content["annotations"])
            found = PredictionFile(path, _parse_rows(((f"annotation {at}", row) for at, row in listed), path.name))
            found.categories = _read_names(content.get("categories"), "name")
            found.images = _read_names(content.get("images"), "file_name")
    except (OSError, StoreError) as error:
        raise ArgumentError(f"the predictions {path.name} cannot be read: {error}") from error
    if not found.rows:
        raise ArgumentError(f"the predictions {path.name} must have at least one prediction; {_EXPECTED}")
    return found


def _read_object(path: Path) -> Mapping[str, Value] | None:
    """The content of a file that is one object with annotations; None for a list."""
    with path.open(encoding="utf-8-sig") as file:
        if not file.read(1024).lstrip().startswith("{"):
            return None
        file.seek(0)
        try:
            content = json.load(file)
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"the predictions {path.name} must be JSON: {str(error)[:200]}") from error
    if not isinstance(content.get("annotations"), list):
        raise ArgumentError(f"the predictions {path.name} must have a list of annotations; {_EXPECTED}")
    found: Mapping[str, Value] = content
    return found


def _read_names(given: Value, key: str) -> dict[int | str, str]:
    """Names by id; entries that have none are left out, and their ids are then unknown."""
    rows = given if isinstance(given, list) else []
    pairs = ((row.get("id"), row.get(key)) for row in rows if isinstance(row, dict))
    return {number: name for number, name in pairs if isinstance(number, int | str) and isinstance(name, str)}


def _parse_rows(rows: Iterable[tuple[str, Value]], name: str) -> list[ReadPrediction]:
    found: list[ReadPrediction] = []
    columns: _Columns | None = None
    for where, row in rows:
        try:
            if not isinstance(row, Mapping):
                raise ValueError(f"it must be an object, got {row!r:.100}")  # noqa: TRY004, TRY301  # one handler
            if columns is None or not columns.fits(row):
                columns = _Columns.of(row)
            found.append(columns.parse(row))
        except ValueError as error:
            raise ArgumentError(f"{where} of {name} is no prediction: {error}; {_EXPECTED}") from error
    return found


@dataclass(frozen=True, slots=True)
class _Columns:
    """Which columns of a table have the image, the class, the score, the box."""

    names: frozenset[str]
    image: str
    label: str
    score: str
    corners: tuple[str, ...]
    probabilities: tuple[str, ...]

    @classmethod
    def of(cls, row: Mapping[str, Value]) -> _Columns:
        lower = {str(name).lower(): str(name) for name in row}

        def find(names: Sequence[str]) -> str:
            return next((lower[name] for name in names if name in lower), "")

        image = find(_NAMES)
        if not image:
            raise ValueError(f"it has none of the columns {', '.join(_NAMES)}, got {', '.join(map(str, row))[:200]}")
        corners = next((tuple(lower[each] for each in names) for names in _CORNERS if lower.keys() >= set(names)), ())
        label = find([each for each in _CLASSES if lower.get(each) != image])
        others = tuple(str(name) for name in row if str(name) not in {image, label})
        probabilities = () if label else tuple(name for name in others if _is_number(row[name]))
        if not label and not find(_LISTS) and len(probabilities) < 2:  # a class is chosen of two or more
            raise ValueError(f"it has no class, got the columns {', '.join(map(str, row))[:200]}")
        return cls(frozenset(map(str, row)), image, label, find(_SCORES), corners, probabilities)

    def fits(self, row: Mapping[str, Value]) -> bool:
        return self.names == row.keys()

    def parse(self, row: Mapping[str, Value]) -> ReadPrediction:
        image = _parse_name(row[self.image], self.image)
        label, score = self._parse_class(row)
        keypoints = row.get("keypoints") or None
        if keypoints is not None:
            keypoints = [_parse_number(each, "keypoints") for each in _list(keypoints, "keypoints")]
            if len(keypoints) % 3:
                raise ValueError(f"its keypoints must have three numbers each, got {len(keypoints)}")
        instance = row.get("segmentation")
        if isinstance(instance, str):
            instance = _load(instance)
        box = self._parse_box(row)
        if box is None and isinstance(instance, Mapping):
            box = _find_box(instance)
        return ReadPrediction(image, label, score, box, instance, keypoints)

    def _parse_class(self, row: Mapping[str, Value]) -> tuple[int | str, float]:
        if self.label:
            score = 1.0 if not self.score else _parse_number(row[self.score], self.score)
            return _parse_name(row[self.label], self.label), score
        if self.probabilities:
            values = [_parse_number(row[name], name) for name in self.probabilities]
            best = max(range(len(values)), key=values.__getitem__)
            return self.probabilities[best], values[best]
        given = next(row[name] for name in row if str(name).lower() in _LISTS)
        values = [_parse_number(each, "probabilities") for each in _list(given, "probabilities")]
        best = max(range(len(values)), key=values.__getitem__) if values else 0
        return best, values[best] if values else 0.0

    def _parse_box(self, row: Mapping[str, Value]) -> tuple[float, float, float, float] | None:
        if self.corners:
            x0, y0, x1, y1 = (_parse_number(row[name], name) for name in self.corners)
            return x0, y0, x1, y1
        if row.get("bbox") is None:
            return None
        given = _list(row["bbox"], "bbox")
        if len(given) != _BOX:
            raise ValueError(f"its bbox must have four numbers, x, y, width and height, got {given!r:.100}")
        x, y, width, height = (_parse_number(each, "bbox") for each in given)
        return x, y, x + width, y + height


def _find_box(instance: Mapping[str, Value]) -> tuple[float, float, float, float] | None:
    try:
        x0, y0, x1, y1 = rle.box(instance)
    except AnnotationError as error:
        raise ValueError(str(error)[:200]) from error
    return float(x0), float(y0), float(x1), float(y1)


def _is_number(value: Value) -> bool:
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def _parse_number(value: Value, name: str) -> float:
    if isinstance(value, bool) or not _is_number(value) or abs(float(value)) > _MAX_COORDINATE:
        raise ValueError(f"its {name} must be a number of at most 2**24, got {value!r:.100}")
    return float(value)


def _parse_name(value: Value, name: str) -> int | str:
    """An id or a name; a float that is whole is an id, as tables with gaps write them."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        raise ValueError(f"its {name} must be a whole number or a text, got {value!r:.100}")
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16 and str(int(value)) == value:
        return int(value)
    return value


def _list(value: Value, name: str) -> list[Value]:
    given = _load(value) if isinstance(value, str) else value
    if not isinstance(given, list | tuple):
        raise ValueError(f"its {name} must be a list of numbers, got {value!r:.100}")  # noqa: TRY004  # one handler
    return list(given)


def _load(text: str) -> Value:
    """The value of a cell of a CSV file that is written as JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{text!r:.100} is no JSON") from error
