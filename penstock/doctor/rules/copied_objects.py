"""Rule copied-objects: lists and dicts of so many Python objects that workers come to have copies of them.

A forked worker shares its parent's memory until one of them writes to a page. Reading a Python object writes its
reference count, so the pages of a large list of objects are copied, one by one, into every worker: of a long string the
first page alone. Sizes are estimated from a sample of the elements.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np

from penstock.datasets.walk import Place
from penstock.doctor.findings import Finding, Severity
from penstock.doctor.subject import Subject

__all__ = ["find", "objects_nbytes"]

_LEAST_NBYTES: Final = 16 << 20  # in all workers together: below, nobody notices
_GRAVE_NBYTES: Final = 256 << 20
_PAGE_NBYTES: Final = 4096
_LOOKED_AT: Final = (1024, 32, 16, 8)  # elements of a container, of one in it, of one in that, and so on
_ADVICE: Final = (
    "Hold it as arrays: numbers in one np.ndarray or tensor, text in one np.ndarray of bytes or str (np.array(names)), "
    "records in a packed store (penstock.pack), which all workers map once."
)


def find(subject: Subject) -> Iterator[Finding]:
    """A container whose elements weigh much in all workers together."""
    setting = subject.setting
    if setting.workers != "processes":
        return
    workers = setting.num_workers or 1
    found: list[Place] = []
    for place in subject.graph.places:
        if any(place.path.startswith((f"{outer.path}[", f"{outer.path}.")) for outer in found):
            continue
        nbytes = objects_nbytes(place.value, most=_PAGE_NBYTES if setting.forks else None)
        if nbytes * workers < _LEAST_NBYTES:
            continue
        found.append(place)
        severity: Severity = "warning" if nbytes * workers >= _GRAVE_NBYTES else "note"
        how = (
            "copied, page by page, because reading an object writes its reference count"
            if setting.forks
            else f"pickled and built anew ({setting.start_method})"
        )
        total = f", {_megabytes(nbytes * workers)} in all" if workers > 1 else ""
        text = (
            f"{len(place.value):,} elements of a {place.kind.__name__}, about {_megabytes(nbytes)} of Python objects. "
            f"In {setting.each} they come to be {how}{total}."
        )
        yield Finding("copied-objects", severity, place.path, text, _ADVICE)


def objects_nbytes(value: Any, most: int | None = None) -> int:
    """Bytes of the Python objects that a container holds, estimated.

    Parameters
    ----------
    value : object
        A container; anything else holds nothing. Its own array of pointers is not counted.
    most : int, optional
        Bytes that any one object counts at most.
    """
    return _nested_nbytes(value, 0, sys.maxsize if most is None else most)


def _nested_nbytes(value: Any, depth: int, limit: int) -> int:
    if depth == len(_LOOKED_AT):
        return 0
    most, kind = _LOOKED_AT[depth], type(value)
    if issubclass(kind, (list, tuple)):
        return _column_nbytes([value[i] for i in _pairs(len(value), most)], len(value), depth, limit)
    if issubclass(kind, dict):
        keys, values = list(islice(dict.keys(value), most)), list(islice(dict.values(value), most))
        return _column_nbytes(keys, len(value), depth, limit) + _column_nbytes(values, len(value), depth, limit)
    if issubclass(kind, (set, frozenset, deque)):
        return _column_nbytes(list(islice(iter(value), most)), len(value), depth, limit)
    if issubclass(kind, np.ndarray) and value.dtype.hasobject and not value.dtype.names:
        return _column_nbytes([value.flat[i] for i in _pairs(value.size, most)], value.size, depth, limit)
    return 0


def _pairs(count: int, most: int) -> Iterator[int]:
    """Neighbours, evenly spread over ``count`` positions: in sorted labels it is neighbours that are one object."""
    step = max(2, 2 * -(-count // most))
    return (i for start in range(0, count, step) for i in (start, start + 1) if i < count)


def _column_nbytes(looked_at: Sequence[Any], count: int, depth: int, limit: int) -> int:
    """The weight of ``count`` elements of which some were looked at; one object that comes often is one object."""
    counted = [value for value in looked_at if _is_counted(value)]
    distinct = list({id(value): value for value in counted}.values())
    if not distinct:
        return 0
    weighed = distinct[:: max(1, len(distinct) // 64)]
    total = sum(min(sys.getsizeof(value, 64), limit) + _nested_nbytes(value, depth + 1, limit) for value in weighed)
    shared = len(distinct) < 0.9 * len(counted)
    number = len(distinct) if shared else count * len(counted) // len(looked_at)
    return total * number // len(weighed)


def _is_counted(value: Any) -> bool:
    """Whether it is an object of its own on the heap: small ints, None and bools are everybody's."""
    kind = type(value)
    if kind is int:
        return not -5 <= value <= 256
    return kind not in {type(None), bool} and not issubclass(kind, (type, np.ndarray))


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e9:.1f} GB" if nbytes >= 1e9 else f"{nbytes / 1e6:.0f} MB"
