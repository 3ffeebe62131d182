"""Objects in memory up to a number of bytes, such as unpacked pages of a file, or pictures that were made.

Called by :mod:`penstock.stores.arrow.parquet_reader` and by the viewer.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar, cast

__all__ = ["KeptObjects"]

T_value = TypeVar("T_value")


class KeptObjects:
    """Objects by key, up to a number of bytes: those that were used last. The last one is kept, however large it is.

    Every method may be called by several threads; two that ask for the same object at once may both make it.

    Parameters
    ----------
    nbytes : int
        Of all objects, at most.
    """

    def __init__(self, nbytes: int) -> None:
        self._limit = nbytes
        self._nbytes = 0
        self._entries: OrderedDict[object, tuple[object, int]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: object) -> object:
        """Return the object under a key; None where it is not kept."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            return None if entry is None else entry[0]

    def get(self, key: object, make: Callable[[], tuple[T_value, int]]) -> T_value:
        """Return the object under a key, never None; ``make`` gives it, and its bytes, where it is not kept."""
        kept = self.find(key)
        if kept is not None:
            return cast("T_value", kept)
        value, nbytes = make()
        with self._lock:
            _, before = self._entries.pop(key, (None, 0))
            self._entries[key] = value, nbytes
            self._nbytes += nbytes - before
            while self._nbytes > self._limit and len(self._entries) > 1:
                _, (_, dropped) = self._entries.popitem(last=False)
                self._nbytes -= dropped
        return value

    def clear(self) -> None:
        """Forget all objects."""
        with self._lock:
            self._entries.clear()
            self._nbytes = 0
