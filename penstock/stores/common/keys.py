"""Keys of records as sequences that make a text when it is asked for: no list of a million texts is in memory."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import overload

import numpy as np

from penstock.wording import counted

__all__ = ["KeyList", "LazyKeys", "RowKeys", "make_keys"]


class LazyKeys(Sequence[str]):
    """Keys that are made when they are asked for.

    ``get``: the key of record ``number``, in [0, count). ``count``: number of records. ``list_all``: all keys at once,
    where that is cheaper than one by one; they are kept.
    """

    _list_all: Callable[[], Sequence[str]] | None = None
    _all: Sequence[str] | None = None

    def __init__(
        self, get: Callable[[int], str], count: int, list_all: Callable[[], Sequence[str]] | None = None
    ) -> None:
        self._get, self._count, self._list_all = get, count, list_all

    def __len__(self) -> int:
        return self._count

    def get(self, number: int) -> str:
        """The key of record ``number``, in [0, len)."""
        return self._get(number) if self._all is None else self._all[number]

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            self._load_all()
            return [self.get(number) for number in range(*index.indices(len(self)))]
        number, count = operator.index(index), len(self)
        if not -count <= number < count:
            raise IndexError(f"index {index} is outside this list of {counted(count, 'name')}")
        return self.get(number if number >= 0 else number + count)

    def __iter__(self) -> Iterator[str]:
        self._load_all()
        return map(self.get, range(len(self))) if self._all is None else iter(self._all)

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'name')}>"

    def _load_all(self) -> None:
        if self._all is None and self._list_all is not None:
            self._all = self._list_all()


class KeyList(LazyKeys):
    """Names of records in one block of memory. A million names take some 30 MB; a list of str takes 90 MB.

    ``joined``: the names in UTF-8, each followed by a zero byte.
    """

    def __init__(self, joined: bytes) -> None:
        self.joined = joined
        ends = np.flatnonzero(np.frombuffer(joined, np.uint8) == 0)
        begins = np.append(0, ends + 1).data  # one more than there are names
        super().__init__(lambda number: joined[begins[number] : begins[number + 1] - 1].decode(), len(begins) - 1)

    @classmethod
    def from_names(cls, names: Iterable[str]) -> KeyList:
        """A list of these names; none may contain a zero character."""
        return cls("".join(f"{name}\0" for name in names).encode())

    def __iter__(self) -> Iterator[str]:
        return iter(self.joined.decode().split("\0")[:-1])

    def __reduce__(self) -> tuple[object, ...]:
        return KeyList, (self.joined,)


class RowKeys(LazyKeys):
    """The keys ``"0"``, ``"1"``, ... of a store without names.

    ``count``: number of records.
    """

    def __init__(self, count: int) -> None:
        super().__init__(str, count)

    def __contains__(self, key: object) -> bool:
        is_number = isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 20
        return is_number and key == str(int(str(key))) and int(str(key)) < len(self)


def make_keys(names: Iterable[str]) -> Sequence[str]:
    """A sequence of names that takes little memory; names with a zero character are kept as a list."""
    listed = list(names)
    return listed if any("\0" in name for name in listed) else KeyList.from_names(listed)
