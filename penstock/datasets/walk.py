"""The objects that a dataset holds, each with its attribute path, visited breadth first and within bounds.

Nothing of the visited classes runs: instances are read by their ``__dict__`` and slots, containers by the built-in's
own methods. Of a large container :data:`SAMPLED` elements stand for all. Numbers, text, arrays of numbers, tensors,
modules and classes are not entered; nor are loggers and penstock's stores, which know how to come into another process.
"""

from __future__ import annotations

import functools
import logging
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

import numpy as np

from penstock.datasets.user_code import is_user_code, unwrap_function
from penstock.sample import Index, Sample
from penstock.stores.base import Store

__all__ = ["ATOMS", "SAMPLED", "Graph", "Place", "sampled", "walk"]

SAMPLED: Final = 64
"""Elements of a container that are looked at."""

_MOST_PLACES: Final = 20_000
_DEEPEST: Final = 40
ATOMS: Final = (type(None), bool, int, float, complex, str, bytes, bytearray, range, slice, np.generic)
"""Types that hold no other object."""
_CONTAINERS: Final = (dict, list, tuple, set, frozenset, deque)
_LEAVES: Final = (types.ModuleType, type, types.BuiltinFunctionType, logging.Logger, logging.Handler, Store)


@dataclass(frozen=True, slots=True)
class Place:
    """An object, how it is reached, and the instance that it belongs to (None: a root; containers do not count)."""

    path: str
    value: Sample
    owner: object
    depth: int = 0

    @property
    def kind(self) -> type:
        """Its class, as the interpreter sees it: a proxy is not asked what it would like to be."""
        return type(self.value)


@dataclass(frozen=True, slots=True)
class Graph:
    """What was visited; ``complete`` unless a bound was reached (elements left out by sampling do not count)."""

    places: Sequence[Place]
    complete: bool

    def path_of(self, value: object) -> str | None:
        """The path of this very object, or of the first of its instances if it is a class."""
        found = next((place.path for place in self.places if place.value is value), None)
        if found is None and isinstance(value, type):
            found = next((place.path for place in self.places if place.kind is value), None)
        return found


def walk(
    roots: Iterable[tuple[str, Sample]],
    most: int = _MOST_PLACES,
    *,
    code: bool = False,
    enter: Callable[[Place], bool] | None = None,
) -> Graph:
    """Visit what ``roots`` (path, object) hold, ``most`` objects at most, each once.

    Parameters
    ----------
    roots : iterable of (str, object)
        Where to begin.
    most : int
        Objects to visit.
    code : bool
        Whether the user's functions, and methods of the user's classes, hold the global variables that they name.
    enter : callable, optional
        Whether to look inside of a place; by default inside of every one.
    """
    waiting = deque(Place(path, value, None) for path, value in roots)
    seen: set[int] = set()
    places: list[Place] = []
    complete = True
    while waiting and len(places) < most:
        place = waiting.popleft()
        if id(place.value) in seen or issubclass(place.kind, ATOMS):
            continue
        seen.add(id(place.value))
        places.append(place)
        if enter is not None and not enter(place):
            continue
        owner = place.owner if issubclass(place.kind, _CONTAINERS) else place.value
        inner = [
            Place(place.path + step, child, owner, place.depth + 1)
            for step, child in chain(_children(place.value), _named_in_code(place.value) if code else ())
            if not issubclass(type(child), ATOMS)
        ]
        if place.depth < _DEEPEST:
            waiting.extend(inner)
        elif inner:
            complete = False
    return Graph(places, complete=complete and not waiting)


def sampled(count: int) -> Iterator[int]:
    """At most :data:`SAMPLED` of ``count`` positions, evenly spread, the first among them."""
    step = max(1, -(-count // SAMPLED))
    return iter(range(0, count, step))


def _children(value: Sample) -> Iterator[tuple[str, Sample]]:
    kind = type(value)
    if issubclass(kind, _LEAVES) or _is_tensor(kind):
        return
    if issubclass(kind, np.ndarray):
        if value.dtype.hasobject and not value.dtype.names:
            yield from ((f".flat[{i}]", value.flat[i]) for i in sampled(value.size))
        return
    if issubclass(kind, types.FunctionType):
        yield from _captured(value)
    elif issubclass(kind, types.MethodType):
        yield ".__self__", value.__self__
        yield ".__func__", value.__func__
    elif issubclass(kind, functools.partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    elif _is_frame(value):
        yield from ((f"[{name!r}]", value[name].to_numpy()) for name in _object_columns(value))
        return
    yield from _elements(value)
    yield from _attributes(value)


def _elements(value: Sample) -> Iterator[tuple[str, Sample]]:
    kind = type(value)
    if issubclass(kind, dict):
        yield from ((f"[{_shown(key)}]", child) for key, child in islice(dict.items(value), SAMPLED))
    elif issubclass(kind, (list, tuple)):
        builtin = list if issubclass(kind, list) else tuple
        yield from ((f"[{i}]", builtin.__getitem__(value, i)) for i in sampled(builtin.__len__(value)))
    elif issubclass(kind, (set, frozenset, deque)):
        builtins = next(each for each in (set, frozenset, deque) if issubclass(kind, each))
        yield from (("{...}", child) for child in islice(builtins.__iter__(value), SAMPLED))


def _attributes(value: Sample) -> Iterator[tuple[str, Sample]]:
    if not issubclass(type(value), types.FunctionType):
        try:
            attributes = object.__getattribute__(value, "__dict__")
        except AttributeError:
            attributes = {}
        yield from ((f".{name}", child) for name, child in islice(dict.items(attributes), 256))
    for cls in type(value).__mro__:
        for name in _slots(cls):
            slot = cls.__dict__.get(name)
            if isinstance(slot, types.MemberDescriptorType):
                try:
                    yield f".{name}", slot.__get__(value)
                except AttributeError:  # a slot that nothing was put into
                    continue


def _slots(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _captured(function: types.FunctionType) -> Iterator[tuple[str, Sample]]:
    """What a function takes along: variables of the functions around it, and defaults."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f".__closure__[{name!r}]", cell.cell_contents
        except ValueError:  # a variable that was never set
            continue
    yield from ((f".__defaults__[{i}]", value) for i, value in enumerate(function.__defaults__ or ()))


def _named_in_code(value: Sample) -> Iterator[tuple[str, Sample]]:
    """Global variables that a function of the user's names; the methods of an object whose class is the user's."""
    kind = type(value)
    if issubclass(kind, types.FunctionType):
        if is_user_code(value):
            for name in _names(value.__code__):
                if name in value.__globals__:
                    yield f".__globals__[{name!r}]", value.__globals__[name]
        return
    for cls in kind.__mro__:
        if cls is not object and is_user_code(cls):
            for name, method in vars(cls).items():
                if isinstance(function := unwrap_function(method), types.FunctionType):
                    yield f".{name}", function


def _names(code: types.CodeType) -> Iterator[str]:
    """Names that a function's code looks up, and the code of functions inside of it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _is_tensor(kind: type) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and issubclass(kind, torch.Tensor)


def _is_frame(value: object) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and issubclass(type(value), pandas.DataFrame)


def _object_columns(frame: Sample) -> list[Index]:
    """Columns of Python objects; only theirs can be had without a copy, and only theirs matter."""
    return [name for name, dtype in islice(frame.dtypes.items(), SAMPLED) if dtype == np.dtype(object)]


def _shown(key: object) -> str:
    text = repr(key) if type(key) in {str, int, bool, float} else f"<{type(key).__name__}>"
    return text if len(text) <= 60 else text[:57] + "..."
