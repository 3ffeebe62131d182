"""Which records and classes of a store the ids of a file of predictions mean. Called by :mod:`.predictions`.

Images are tried as values of the field ``image_id``, as keys, as names of files with and without folder and ending, as
the number in such a name, as indices; the first way that finds all of them is taken, or else the one that finds most.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from penstock.errors import ArgumentError
from penstock.stores.base import Store
from penstock.wording import counted

__all__ = ["Name", "find_classes", "find_records"]

Name = int | str
_COCO_IDS: Final = sorted(set(range(1, 91)) - {12, 26, 29, 30, 45, 66, 68, 69, 71, 83})
"""Ids of the 80 categories of COCO 2017."""
_MOST_UNNAMED: Final = 10_000


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
    """The record of each image that is known, and how they were found; ``column`` is where the file has them.

    Raises
    ------
    ArgumentError
        If no image is found.
    """
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
