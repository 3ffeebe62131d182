"""Which records and classes of a store the ids of a file of predictions mean. Called by :mod:`.predictions`.

Images are tried as values of the field ``image_id``, as keys, as names of files with and without folder and ending, as
the number in such a name, as indices; the first way that finds all of them is taken, or else the one that finds most.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.errors import ArgumentError, PenstockError
from penstock.stores.base import Store
from penstock.viewer.compare.prediction_files import PredictionFile
from penstock.wording import counted

__all__ = ["Resolved", "find_classes", "find_records"]

Name = int | str
_COCO_CLASSES: Final = 80
_NOT_OF_COCO: Final = frozenset({12, 26, 29, 30, 45, 66, 68, 69, 71, 83})
"""Ids below 91 that no category of COCO 2017 has."""
_DIGITS: Final = re.compile(r"[0-9]{1,15}$")


@dataclass(frozen=True, slots=True)
class Resolved:
    """What ids mean: the record, or the class, of each that is known."""

    numbers: Mapping[Name, int]
    note: str  # how they were found, for the page
    names: tuple[str, ...] = ()  # of all classes: those of the store, then those that only the predictions have


def find_records(store: Store, file: PredictionFile) -> Resolved:
    """The record of each image of the predictions.

    Raises
    ------
    ArgumentError
        If no image of them is found.
    """
    wanted = {row.image for row in file.rows}
    names: dict[Name, str] = {image: file.images.get(image, str(image)) for image in wanted}
    best: dict[Name, int] = {}
    how = ""
    for title, make in [_by_index(store)] if file.has_indices else _list_ways(store):
        table = _index(make(), set(names.values()))
        found = {image: table[name] for image, name in names.items() if name in table}
        if len(found) > len(best):
            best, how = found, title
        if len(best) == len(wanted):
            break
    if not best:
        key = next(iter(store.keys()), "")
        raise ArgumentError(
            f"no image of the predictions {file.path.name} is a record of the store; the first is "
            f"{next(iter(names.values()))!r:.100}, and the first key of the store is {key!r:.100}"
        )
    lost = len(wanted) - len(best)
    note = f"images are found by {how}"
    return Resolved(best, f"{note}; {counted(lost, 'image')} of the file not found" if lost else note)


def _list_ways(store: Store) -> Iterator[tuple[str, Callable[[], Iterable[str]]]]:
    """How images may be named, and the name of each record."""
    for field in ("image_id", "id"):
        if field in store.schema and store.schema[field].kind in {"int", "text"}:
            yield f"the field {field}", functools.partial(_read_column, store, field)
    yield "their keys", store.keys
    yield "the names of their files", lambda: map(_file_name, store.keys())
    yield "the names of their files without ending", lambda: map(_stem, store.keys())
    yield "the number in the names of their files", lambda: map(_number_of, store.keys())
    yield _by_index(store)


def _by_index(store: Store) -> tuple[str, Callable[[], Iterable[str]]]:
    return "their indices", lambda: map(str, range(len(store)))


def _read_column(store: Store, field: str) -> list[str]:
    try:
        return list(map(str, store.column(field).tolist()))
    except PenstockError:
        return []


def _index(names: Iterable[str], wanted: set[str]) -> dict[str, int]:
    """The first record of each name that is wanted; the empty name is none."""
    found: dict[str, int] = {}
    for index, name in enumerate(names):
        if name in wanted and name:
            found.setdefault(name, index)
    return found


def _file_name(key: str) -> str:
    return key.rpartition("/")[2]


def _stem(key: str) -> str:
    name = _file_name(key)
    return name.rpartition(".")[0] or name


def _number_of(key: str) -> str:
    found = _DIGITS.search(_stem(key))
    return str(int(found[0])) if found is not None else ""


def find_classes(file: PredictionFile, classes: Sequence[str]) -> Resolved:
    """The class of each category, and the names of all classes; ``classes`` are those of the store."""
    given = dict.fromkeys(row.label for row in file.rows)
    names = list(classes)
    numbers: dict[Name, int] = {name: number for number, name in enumerate(classes)}
    note = "classes by name"
    shift: Callable[[int], int] | None = None
    ids = [label for label in given if isinstance(label, int) and label not in file.categories]
    if ids and not (set(map(str, ids)) <= set(classes)):
        shift, note = _choose_shift(ids, classes)
    found: dict[Name, int] = {}
    for label in given:
        name = file.categories.get(label, str(label))
        if shift is not None and isinstance(label, int) and label not in file.categories:
            found[label] = shift(label)
            continue
        if name not in numbers:
            numbers[name] = len(names)
            names.append(name)
        found[label] = numbers[name]
    most = max(found.values(), default=-1)
    names += [f"class {number}" for number in range(len(names), min(most + 1, len(names) + 10_000))]
    return Resolved({label: number for label, number in found.items() if 0 <= number < len(names)}, note, tuple(names))


def _choose_shift(ids: Sequence[int], classes: Sequence[str]) -> tuple[Callable[[int], int], str]:
    """How category ids become numbers of classes, where the file does not name them."""
    present, count = set(ids), len(classes)
    of_coco = sorted(set(range(1, 91)) - _NOT_OF_COCO)
    if count == _COCO_CLASSES and classes[0] == "person" and present <= set(of_coco):
        places = {number: place for place, number in enumerate(of_coco)}
        return places.__getitem__, "category ids are those of COCO 2017"
    if 0 not in present and count in present and max(present) <= count:
        return lambda number: number - 1, "category ids are numbers of classes, counted from 1"
    return lambda number: number, "category ids are numbers of classes, counted from 0"
