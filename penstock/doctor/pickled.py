"""A trial of what the start methods spawn and forkserver do: pickling, into nowhere, within bounds.

The objects' own ``__getstate__`` and ``__reduce__`` run, as they will when workers start; that is how a handle that
its class leaves behind is told from one that it does not. Arrays and tensors are counted, not copied; of a large
container a few elements are tried.
"""

from __future__ import annotations

import ctypes
import io
import socket
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final

import numpy as np
import torch

from penstock.datasets.walk import ATOMS, SAMPLED, sampled

__all__ = ["Failure", "Pickled", "try_pickling"]

_MOST_OBJECTS: Final = 100_000
_MOST_FAILURES: Final = 8
# What travels by other means when processes start, and only then.
_BY_OTHER_MEANS: Final = (
    torch.Tensor, torch.UntypedStorage, torch.TypedStorage, socket.socket, ctypes.Array, ctypes.Structure,
    ctypes._SimpleCData,  # noqa: SLF001  # what multiprocessing.Value gives out has no public base
)  # fmt: skip
_INHERITED: Final = {
    f"multiprocessing.{name}" for name in ("synchronize", "queues", "connection", "sharedctypes", "heap")
}


@dataclass(frozen=True, slots=True)
class Failure:
    """An object that does not pickle: it, what pickle said, and under which root it lies."""

    value: Any
    text: str
    root: str


@dataclass(slots=True)
class Pickled:
    """What came out.

    Parameters
    ----------
    failures : list of Failure
        The first few.
    reached : dict of int to object
        By ``id``, all that pickling touched.
    """

    failures: list[Failure] = field(default_factory=list)
    reached: dict[int, Any] = field(default_factory=dict)

    @property
    def arrays(self) -> list[Any]:
        """The arrays that are copied into the pickle, each once."""
        return [value for value in self.reached.values() if issubclass(type(value), np.ndarray)]


class _EnoughError(Exception):
    """The bound on objects is reached."""


class _Nowhere(io.RawIOBase):
    """A file that forgets."""

    def writable(self) -> bool:
        return True

    def write(self, part: Any) -> int:
        return len(part)


class _Trial(ForkingPickler):
    """Pickler that notes what it is given, and passes over what would cost or what has failed before."""

    def __init__(self, reached: dict[int, Any], failed: set[int], waiting: deque[Any]) -> None:
        super().__init__(_Nowhere())
        self._reached, self._failed, self._waiting = reached, failed, waiting
        self.last: Any = None

    def persistent_id(self, obj: Any) -> str | None:  # pickle's own parameter name
        """A token for what is not to be pickled; None for the rest. Called for every object."""
        kind = type(obj)
        if issubclass(kind, ATOMS):
            return None
        self.last = obj
        if id(obj) in self._failed:
            return "failed before"
        is_new = id(obj) not in self._reached
        if is_new:
            if len(self._reached) >= _MOST_OBJECTS:
                raise _EnoughError
            self._reached[id(obj)] = obj  # also keeps it alive: its id is not given away
        if issubclass(kind, _BY_OTHER_MEANS) or kind.__module__ in _INHERITED:
            return "travels by other means"
        parts = _apart(obj, kind)
        if parts is None:
            return None
        if is_new and parts:
            self._waiting.append(parts)
        return "elements of it are tried apart"


def _apart(obj: Any, kind: type) -> list[Any] | None:
    """Some elements of what is too large to be pickled for a trial; None if it is not."""
    if issubclass(kind, np.ndarray):
        return [obj.flat[i] for i in sampled(obj.size)] if obj.dtype.hasobject and not obj.dtype.names else []
    if kind not in {list, tuple, dict, set, frozenset, deque} or len(obj) <= SAMPLED:
        return None
    if kind in {list, tuple}:
        return [obj[i] for i in sampled(len(obj))]
    return list(islice(obj.items() if kind is dict else obj, SAMPLED))


def try_pickling(roots: Iterable[tuple[str, Any]]) -> Pickled:
    """Pickle ``roots`` (path, object) as far as the bounds go."""
    found, failed = Pickled(), set[int]()
    for path, root in roots:
        waiting = deque([root])
        while waiting and len(found.failures) < _MOST_FAILURES:
            value = waiting[0]
            trial = _Trial(found.reached, failed, waiting)
            try:
                trial.dump(value)
                waiting.popleft()
            except _EnoughError:
                return found
            except Exception as error:  # noqa: BLE001  # the user's own __reduce__ may raise anything: that is the result
                if id(trial.last) in failed:
                    waiting.popleft()
                failed.add(id(trial.last))
                found.failures.append(Failure(trial.last, f"{type(error).__name__}: {error}", path))
    return found
