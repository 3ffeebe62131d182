"""The objects that a dataset holds, each with its attribute path, found breadth first within limits.

No code of their classes runs: instances are read by their ``__dict__`` and slots, containers by methods of the
built-in types. Of a large container, :data:`SAMPLED` elements are visited. Numbers, text, arrays of numbers, tensors,
modules and classes are not entered; nor are loggers and penstock's stores, which can be pickled.
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
from penstock.frameworks import array_types
from penstock.sample import Index, Sample
from penstock.stores.base import Store

__all__ = ["ATOMS", "SAMPLED", "HeldObject", "ObjectGraph", "find_objects", "sampled"]

SAMPLED: Final = 64
"""Most elements of a container that are visited."""

_MOST_PLACES: Final = 20_000
_DEEPEST: Final = 40
ATOMS: Final = (type(None), bool, int, float, complex, str, bytes, bytearray, range, slice, np.generic)
"""Types that hold no other object."""
_CONTAINERS: Final = (dict, list, tuple, set, frozenset, deque)
_LEAVES: Final = (types.ModuleType, type, types.BuiltinFunctionType, logging.Logger, logging.Handler, Store)


@dataclass(frozen=True, slots=True)
class HeldObject:
    """An object, its attribute path, and the instance that holds it, also through containers (None for a root)."""

    path: str
    value: Sample
    owner: object
    depth: int = 0

    @property
    def kind(self) -> type:
        """Its type; unlike ``__class__``, a proxy cannot change it."""
        return type(self.value)


@dataclass(frozen=True, slots=True)
class ObjectGraph:
    """The objects found; ``complete`` unless a limit was reached (other than that of :data:`SAMPLED`)."""

    objects: Sequence[HeldObject]
    complete: bool

    def path_of(self, value: object) -> str | None:
        """Return the path of this object; of a class, also that of its first instance."""
        found = next((held.path for held in self.objects if held.value is value), None)
        if found is None and isinstance(value, type):
            found = next((held.path for held in self.objects if held.kind is value), None)
        return found


def find_objects(
    roots: Iterable[tuple[str, Sample]],
    most: int = _MOST_PLACES,
    *,
    code: bool = False,
    enter: Callable[[HeldObject], bool] | None = None,
) -> ObjectGraph:
    """Return the objects that ``roots`` (path, object) hold, at most ``most`` of them, each once.

    Parameters
    ----------
    roots : iterable of (str, object)
        Where the search begins.
    most : int
        Most objects to find.
    code : bool
        Whether functions of the user, and methods of the user's classes, hold the global variables in their code.
    enter : callable, optional
        Whether to search inside an object; by default always.
    """
    waiting = deque(HeldObject(path, value, None) for path, value in roots)
    seen: set[int] = set()
    found: list[HeldObject] = []
    complete = True
    while waiting and len(found) < most:
        held = waiting.popleft()
        if id(held.value) in seen or issubclass(held.kind, ATOMS):
            continue
        seen.add(id(held.value))
        found.append(held)
        if enter is not None and not enter(held):
            continue
        owner = held.owner if issubclass(held.kind, _CONTAINERS) else held.value
        inner = [
            HeldObject(held.path + step, child, owner, held.depth + 1)
            for step, child in chain(_find_children(held.value), _find_globals(held.value) if code else ())
            if not issubclass(type(child), ATOMS)
        ]
        if held.depth < _DEEPEST:
            waiting.extend(inner)
        elif inner:
            complete = False
    return ObjectGraph(found, complete=complete and not waiting)


def sampled(count: int) -> Iterator[int]:
    """Return at most :data:`SAMPLED` of ``count`` positions, evenly spread, the first among them."""
    step = max(1, -(-count // SAMPLED))
    return iter(range(0, count, step))


def _find_children(value: Sample) -> Iterator[tuple[str, Sample]]:
    kind = type(value)
    if issubclass(kind, _LEAVES) or _is_tensor(kind):
        return
    if issubclass(kind, np.ndarray):
        if value.dtype.hasobject and not value.dtype.names:
            yield from ((f".flat[{i}]", value.flat[i]) for i in sampled(value.size))
        return
    if issubclass(kind, types.FunctionType):
        yield from _find_captured(value)
    elif issubclass(kind, types.MethodType):
        yield ".__self__", value.__self__
        yield ".__func__", value.__func__
    elif issubclass(kind, functools.partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    elif _is_frame(value):
        yield from ((f"[{name!r}]", value[name].to_numpy()) for name in _object_columns(value))
        return
    yield from _find_elements(value)
    yield from _find_attributes(value)


def _find_elements(value: Sample) -> Iterator[tuple[str, Sample]]:
    kind = type(value)
    if issubclass(kind, dict):
        yield from ((f"[{_shown(key)}]", child) for key, child in islice(dict.items(value), SAMPLED))
    elif issubclass(kind, (list, tuple)):
        builtin = list if issubclass(kind, list) else tuple
        yield from ((f"[{i}]", builtin.__getitem__(value, i)) for i in sampled(builtin.__len__(value)))
    elif issubclass(kind, (set, frozenset, deque)):
        builtins = next(each for each in (set, frozenset, deque) if issubclass(kind, each))
        yield from (("{...}", child) for child in islice(builtins.__iter__(value), SAMPLED))


def _find_attributes(value: Sample) -> Iterator[tuple[str, Sample]]:
    if not issubclass(type(value), types.FunctionType):
        try:
            attributes = object.__getattribute__(value, "__dict__")
        except AttributeError:
            attributes = {}
        yield from ((f".{name}", child) for name, child in islice(dict.items(attributes), 256))
    for cls in type(value).__mro__:
        for name in _get_slots(cls):
            slot = cls.__dict__.get(name)
            if isinstance(slot, types.MemberDescriptorType):
                try:
                    yield f".{name}", slot.__get__(value)
                except AttributeError:  # an empty slot
                    continue


def _get_slots(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _find_captured(function: types.FunctionType) -> Iterator[tuple[str, Sample]]:
    """Return the variables that a function captures from enclosing functions, and its defaults."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f".__closure__[{name!r}]", cell.cell_contents
        except ValueError:  # an unset variable
            continue
    yield from ((f".__defaults__[{i}]", value) for i, value in enumerate(function.__defaults__ or ()))


def _find_globals(value: Sample) -> Iterator[tuple[str, Sample]]:
    """Return global variables in the code of a user's function; of an object of a user's class, its methods."""
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
    """Names in the code of a function and of the functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _is_tensor(kind: type) -> bool:
    return issubclass(kind, array_types())


def _is_frame(value: object) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and issubclass(type(value), pandas.DataFrame)


def _object_columns(frame: Sample) -> list[Index]:
    """Names of the columns of Python objects, which can be read without a copy."""
    return [name for name, dtype in islice(frame.dtypes.items(), SAMPLED) if dtype == np.dtype(object)]


def _shown(key: object) -> str:
    text = repr(key) if type(key) in {str, int, bool, float} else f"<{type(key).__name__}>"
    return text if len(text) <= 60 else text[:57] + "..."
