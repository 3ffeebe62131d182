"""Objects that a store opens once in each process: files, environments, clients. Locks for those of one thread.

A forked child must not use what its parent opened: the library's locks, positions and sockets are shared. The child
opens its own at its first use, and leaves the inherited object alone. Where a library allows one thread at a time, each
method of a store that reads holds the lock of the store.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar

from penstock import system

__all__ = ["PerProcess", "lock_methods"]

T = TypeVar("T")
_LOCKED_METHODS: Final = ("read", "blobs", "pixels", "rows", "column", "ragged_column", "keys")
_P = ParamSpec("_P")
_StoreT = TypeVar("_StoreT", bound="_HasLock")


class PerProcess(Generic[T]):
    """Opens an object when it is first used in this process. Thread-safe.

    ``open``: opens the object; what it raises is raised by :meth:`get`, which opens again when it is called again.
    ``close``: called with the object by :meth:`close`, in the process that opened it.
    """

    def __init__(self, open: Callable[[], T], close: Callable[[T], object] | None = None) -> None:  # noqa: A002
        self._open, self._close = open, close
        self._lock = threading.Lock()
        self._process = -1
        self._held: list[T] = []  # the last one is that of this process; others are inherited, and never closed here
        system.watch(self)

    def get(self) -> T:
        """Return the object of this process."""
        if self._process != os.getpid():
            with self._lock:
                if self._process != os.getpid():
                    self._held.append(self._open())
                    self._process = os.getpid()
        return self._held[-1]

    @property
    def is_open(self) -> bool:
        """Whether this process has opened the object."""
        return self._process == os.getpid()

    def close(self) -> None:
        """Close the object if this process opened it; :meth:`get` opens it again."""
        with self._lock:
            if self._process == os.getpid():
                held = self._held.pop()
                self._process = -1
                if self._close is not None:
                    self._close(held)

    def renew_in_child(self) -> None:
        """Replace the lock in a forked child: a thread of the parent may hold it."""
        self._lock = threading.Lock()


class _HasLock(Protocol):
    @property
    def _read_lock(self) -> AbstractContextManager[object]: ...


def lock_methods(cls: type[_HasLock]) -> None:
    """Let one thread at a time call what reads; inherited methods too, whose class may read concurrently."""
    for name in _LOCKED_METHODS:
        setattr(cls, name, _lock_method(getattr(cls, name)))


def _lock_method(method: Callable[Concatenate[_StoreT, _P], T]) -> Callable[Concatenate[_StoreT, _P], T]:
    """The method of a store, called by one thread at a time."""

    @functools.wraps(method)
    def locked(self: _StoreT, /, *args: _P.args, **kwargs: _P.kwargs) -> T:
        with self._read_lock:  # the store's own method
            return method(self, *args, **kwargs)

    return locked
