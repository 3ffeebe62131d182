"""What is wrong with a store, as checks find it: returned, not raised, so that one check finds everything."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.errors import PenstockError
from penstock.stores.fields.exact_casts import UnfitValueError

__all__ = ["DAMAGE", "Problem", "find_unreadable", "say_wrong"]

_BATCH: Final = 64
DAMAGE: Final = (ValueError, KeyError, IndexError, TypeError, EOFError, OverflowError, RecursionError, struct.error)
"""What a parser raises for wrong bytes; RecursionError for JSON that is nested without end."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a store, as found by :meth:`Store.check`.

    Parameters
    ----------
    reason : str
        What is wrong.
    key, index : str and int, optional
        The record it concerns.
    page : int, optional
        The page of the store's file that it was found in.
    """

    reason: str
    key: str | None = None
    index: int | None = None
    page: int | None = None

    def __str__(self) -> str:
        where = (("record ", self.index), ("", None if self.key is None else repr(self.key)), ("page ", self.page))
        named = ", ".join(f"{what}{value}" for what, value in where if value is not None)
        return f"{named}: {self.reason}" if named else self.reason


def say_wrong(what: str, error: Exception) -> str:
    """Return what is said of something whose reading raised one of :data:`DAMAGE`."""
    return f"{what} {'cannot be read' if isinstance(error, UnfitValueError) else 'is damaged'}: {error}"


class _Readable(Protocol):
    def __len__(self) -> int: ...

    def read(self, indices: Sequence[int], /) -> object: ...


def find_unreadable(store: _Readable, progress: Callable[[int, int], None] | None) -> Iterator[Problem]:
    """Yield what reading each record raises: some are read at once, and one by one where that fails."""
    count = len(store)
    for begin in range(0, count, _BATCH):
        numbers = range(begin, min(begin + _BATCH, count))
        try:
            store.read(numbers)
        except PenstockError:
            for number in numbers:
                try:
                    store.read([number])
                except PenstockError as error:
                    yield Problem(error.message, key=error.where.get("key"), index=number)
        if progress is not None:
            progress(numbers.stop, count)
