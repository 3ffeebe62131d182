"""The methods of a store whose library allows one thread at a time: each call holds the lock of the store."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

__all__ = ["lock_methods"]

_LOCKED_METHODS: Final = ("read", "blobs", "pixels", "rows", "column", "ragged_column", "keys")
_P = ParamSpec("_P")
_T = TypeVar("_T")
_StoreT = TypeVar("_StoreT", bound="_HasLock")


class _HasLock(Protocol):
    @property
    def _read_lock(self) -> AbstractContextManager[object]: ...


def lock_methods(cls: type[_HasLock]) -> None:
    """Let one thread at a time call what reads; inherited methods too, whose class may read concurrently."""
    for name in _LOCKED_METHODS:
        setattr(cls, name, _lock_method(getattr(cls, name)))


def _lock_method(method: Callable[Concatenate[_StoreT, _P], _T]) -> Callable[Concatenate[_StoreT, _P], _T]:
    """The method of a store, called by one thread at a time."""

    @functools.wraps(method)
    def locked(self: _StoreT, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with self._read_lock:  # the store's own method
            return method(self, *args, **kwargs)

    return locked
