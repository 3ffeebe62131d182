"""Rule copied-objects: large lists and dicts of Python objects, which every worker copies.

A forked worker shares its parent's memory until one of them writes to a page. Reading a Python object writes its
reference count, so each worker copies the pages of a large list of objects, one by one. Of an object larger than a
page, only the first page is copied. Sizes are estimated from some of the elements.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np

from penstock.datasets.object_graph import HeldObject
from penstock.doctor.checks.findings import Finding, Severity
from penstock.doctor.checks.subject import Subject
from penstock.wording import counted, format_bytes

__all__ = ["estimate_nbytes", "find"]

_NOTE_NBYTES: Final = 16 << 20  # in all workers together
_WARNING_NBYTES: Final = 256 << 20
_PAGE_NBYTES: Final = 4096
_EXAMINED: Final = (1024, 32, 16, 8)  # elements of a container, of a container in it, and so on
_ADVICE: Final = (
    "Store numbers in one np.ndarray or tensor, text in one np.ndarray of bytes or str (np.array(names)), and records "
    "in a packed store (penstock.pack), which all workers share."
)


def find(subject: Subject) -> Iterator[Finding]:
    """Find containers whose elements take much memory in all workers together."""
    settings = subject.settings
    if settings.kind != "processes":
        return
    workers = settings.num_workers or 1
    found: list[HeldObject] = []
    for place in subject.graph.objects:
        if any(place.path.startswith((f"{outer.path}[", f"{outer.path}.")) for outer in found):
            continue
        nbytes = estimate_nbytes(place.value, most=_PAGE_NBYTES if settings.uses_fork else None)
        if nbytes * workers < _NOTE_NBYTES:
            continue
        found.append(place)
        severity: Severity = "warning" if nbytes * workers >= _WARNING_NBYTES else "note"
        effect = (
            "copies them page by page, because reading an object writes its reference count"
            if settings.uses_fork
            else f"receives a pickled copy (start method {settings.start_method})"
        )
        total = f": {format_bytes(nbytes * workers)} in all" if workers > 1 else ""
        text = (
            f"This {place.kind.__name__} has {counted(len(place.value), 'element')}, about {format_bytes(nbytes)} of "
            f"Python objects. {settings.each_worker.capitalize()} {effect}{total}."
        )
        yield Finding("copied-objects", severity, place.path, text, _ADVICE)


def estimate_nbytes(value: object, most: int | None = None) -> int:
    """Estimate the bytes of the Python objects that a container holds.

    ``value``: a container. Its own array of pointers is not counted. Another object counts 0 bytes. ``most``: the most
    bytes that one object counts.
    """
    return _estimate_nested(value, 0, sys.maxsize if most is None else most)


def _estimate_nested(value: Any, depth: int, limit: int) -> int:
    if depth == len(_EXAMINED):
        return 0
    most, kind = _EXAMINED[depth], type(value)
    if issubclass(kind, (list, tuple)):
        return _estimate_column([value[i] for i in _pairs(len(value), most)], len(value), depth, limit)
    if issubclass(kind, dict):
        keys, values = list(islice(dict.keys(value), most)), list(islice(dict.values(value), most))
        return _estimate_column(keys, len(value), depth, limit) + _estimate_column(values, len(value), depth, limit)
    if issubclass(kind, (set, frozenset, deque)):
        return _estimate_column(list(islice(iter(value), most)), len(value), depth, limit)
    if issubclass(kind, np.ndarray) and value.dtype.hasobject and not value.dtype.names:
        return _estimate_column([value.flat[i] for i in _pairs(value.size, most)], value.size, depth, limit)
    return 0


def _pairs(count: int, most: int) -> Iterator[int]:
    """Pairs of neighbours, evenly spread over ``count`` positions: equal neighbours in sorted labels are one object."""
    step = max(2, 2 * -(-count // most))
    return (i for start in range(0, count, step) for i in (start, start + 1) if i < count)


def _estimate_column(examined: Sequence[object], count: int, depth: int, limit: int) -> int:
    """The bytes of ``count`` elements, estimated from some of them. An object that occurs often counts once."""
    counted = [value for value in examined if _is_counted(value)]
    distinct = list({id(value): value for value in counted}.values())
    if not distinct:
        return 0
    measured = distinct[:: max(1, len(distinct) // 64)]
    total = sum(min(sys.getsizeof(value, 64), limit) + _estimate_nested(value, depth + 1, limit) for value in measured)
    shared = len(distinct) < 0.9 * len(counted)
    number = len(distinct) if shared else count * len(counted) // len(examined)
    return total * number // len(measured)


def _is_counted(value: object) -> bool:
    """Return whether it is an object of its own on the heap.

    Small ints, None and bools are shared by the interpreter.
    """
    kind = type(value)
    if isinstance(value, int) and kind is int:
        return not -5 <= value <= 256
    return kind not in {type(None), bool} and not issubclass(kind, (type, np.ndarray))
