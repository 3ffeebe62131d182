"""Keys of records as sequences that make a text when it is asked for: no list of a million texts is in memory."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np

from penstock.wording import counted

__all__ = ["KeyList", "LazyKeys", "RowKeys", "make_keys"]


class LazyKeys(Sequence[str]):
    """Keys that are made when they are asked for. A subclass gives ``__len__`` and :meth:`get`."""

    @abstractmethod
    def get(self, number: int) -> str:
        """The key of record ``number``, in [0, len)."""

    def get_several(self, numbers: range) -> list[str]:
        """The keys of a slice of the records."""
        return [self.get(number) for number in numbers]

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return self.get_several(range(*index.indices(len(self))))
        number, count = operator.index(index), len(self)
        if not -count <= number < count:
            raise IndexError(f"index {index} is outside this list of {counted(count, 'name')}")
        return self.get(number if number >= 0 else number + count)

    def __iter__(self) -> Iterator[str]:
        return map(self.get, range(len(self)))

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'name')}>"


class KeyList(LazyKeys):
    """Names of records in one block of memory. A million names take some 30 MB; a list of str takes 90 MB.

    Parameters
    ----------
    joined : bytes
        The names in UTF-8, each followed by a zero byte.
    """

    def __init__(self, joined: bytes) -> None:
        self.joined = joined
        ends = np.flatnonzero(np.frombuffer(joined, np.uint8) == 0)
        self._begins = np.append(0, ends + 1).data  # one more than there are names

    @classmethod
    def from_names(cls, names: Iterable[str]) -> KeyList:
        """A list of these names; none may contain a zero character."""
        return cls("".join(f"{name}\0" for name in names).encode())

    def __len__(self) -> int:
        return len(self._begins) - 1

    def get(self, number: int) -> str:
        """The name of record ``number``."""
        return self.joined[self._begins[number] : self._begins[number + 1] - 1].decode()

    def __iter__(self) -> Iterator[str]:
        return iter(self.joined.decode().split("\0")[:-1])

    def __reduce__(self) -> tuple[object, ...]:
        return KeyList, (self.joined,)


class RowKeys(LazyKeys):
    """The keys ``"0"``, ``"1"``, ... of a store without names.

    Parameters
    ----------
    count : int
        Number of records.
    """

    def __init__(self, count: int) -> None:
        self._rows = range(count)

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, number: int) -> str:
        """The number as text."""
        return str(number)

    def __contains__(self, key: object) -> bool:
        is_number = isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 20
        return is_number and key == str(int(str(key))) and int(str(key)) in self._rows


def make_keys(names: Iterable[str]) -> Sequence[str]:
    """A sequence of names that takes little memory; names with a zero character are kept as a list."""
    listed = list(names)
    return listed if any("\0" in name for name in listed) else KeyList.from_names(listed)
