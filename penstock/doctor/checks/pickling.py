"""A trial of what the start methods spawn and forkserver do: pickle the dataset, discard the bytes, within bounds.

The objects' own ``__getstate__`` and ``__reduce__`` run, as they do when workers start, so a handle that its class
removes in ``__getstate__`` is not reported. Arrays and tensors are recorded, not copied. Of a large container only a
few elements are pickled.
"""

from __future__ import annotations

import ctypes
import io
import socket
from collections import deque
from collections.abc import Iterable, Sized
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final

import numpy as np
import torch

from penstock.datasets.object_graph import ATOMS, SAMPLED, sampled
from penstock.sample import Array

__all__ = ["PicklingResult", "UnpicklableObject", "try_pickling"]

_MAX_OBJECTS: Final = 100_000
_MAX_UNPICKLABLE: Final = 8
# Objects that multiprocessing sends by other means than bytes, and only while a process starts.
_SENT_BY_OTHER_MEANS: Final = (
    torch.Tensor, torch.UntypedStorage, torch.TypedStorage, socket.socket, ctypes.Array, ctypes.Structure,
    ctypes._SimpleCData,  # noqa: SLF001  # the class of multiprocessing.Value has no public base
)  # fmt: skip
_INHERITED_MODULES: Final = {
    f"multiprocessing.{name}" for name in ("synchronize", "queues", "connection", "sharedctypes", "heap")
}


@dataclass(frozen=True, slots=True)
class UnpicklableObject:
    """An object that does not pickle, the error message, and the root from which it was reached."""

    value: object
    message: str
    root: str


@dataclass(slots=True)
class PicklingResult:
    """The result of :func:`try_pickling`."""

    unpicklable: list[UnpicklableObject] = field(default_factory=list)  # the first few
    reached: dict[int, object] = field(default_factory=dict)  # all objects that pickle visited, by ``id``

    @property
    def arrays(self) -> list[Array]:
        """The arrays that are copied into the pickle, each once."""
        return [value for value in self.reached.values() if isinstance(value, np.ndarray)]


class _TooManyObjectsError(Exception):
    """The bound on visited objects is reached."""


class _NullFile(io.RawIOBase):
    """A file that discards what is written."""

    def writable(self) -> bool:
        return True

    def write(self, part: object) -> int:
        return len(part) if isinstance(part, Sized) else 0


class _RecordingPickler(ForkingPickler):
    """A pickler that records the objects it visits, and skips what is large or has failed before."""

    def __init__(self, reached: dict[int, object], failed: set[int], waiting: deque[object]) -> None:
        super().__init__(_NullFile())
        self._reached, self._failed, self._waiting = reached, failed, waiting
        self.last: object = None

    def persistent_id(self, obj: object) -> str | None:  # pickle's own parameter name
        """Return a token if the object is skipped; None if it is pickled. ``pickle`` calls it for every object."""
        kind = type(obj)
        if issubclass(kind, ATOMS):
            return None
        self.last = obj
        if id(obj) in self._failed:
            return "failed before"
        is_new = id(obj) not in self._reached
        if is_new:
            if len(self._reached) >= _MAX_OBJECTS:
                raise _TooManyObjectsError
            self._reached[id(obj)] = obj  # the reference keeps the object alive, so its id is not reused
        if issubclass(kind, _SENT_BY_OTHER_MEANS) or kind.__module__ in _INHERITED_MODULES:
            return "sent by other means"
        elements = _take_elements(obj, kind)
        if elements is None:
            return None
        if is_new and elements:
            self._waiting.append(elements)
        return "some elements are pickled separately"


def _take_elements(obj: Any, kind: type) -> list[object] | None:
    """Return some elements of a container that is too large to pickle here; None for any other object."""
    if issubclass(kind, np.ndarray):
        return [obj.flat[i] for i in sampled(obj.size)] if obj.dtype.hasobject and not obj.dtype.names else []
    if kind not in {list, tuple, dict, set, frozenset, deque} or len(obj) <= SAMPLED:
        return None
    if kind in {list, tuple}:
        return [obj[i] for i in sampled(len(obj))]
    return list(islice(obj.items() if kind is dict else obj, SAMPLED))


def try_pickling(roots: Iterable[tuple[str, object]]) -> PicklingResult:
    """Pickle ``roots`` (path, object), and record the objects that fail, up to the bounds of this module."""
    result, failed = PicklingResult(), set[int]()
    for path, root in roots:
        waiting = deque([root])
        while waiting and len(result.unpicklable) < _MAX_UNPICKLABLE:
            value = waiting[0]
            pickler = _RecordingPickler(result.reached, failed, waiting)
            try:
                pickler.dump(value)
                waiting.popleft()
            except _TooManyObjectsError:
                return result
            except Exception as error:  # noqa: BLE001  # the user's __reduce__ may raise anything: that is the result
                if id(pickler.last) in failed:
                    waiting.popleft()
                failed.add(id(pickler.last))
                result.unpicklable.append(UnpicklableObject(pickler.last, f"{type(error).__name__}: {error}", path))
    return result
