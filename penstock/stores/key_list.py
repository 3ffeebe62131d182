"""A list of the names of records that takes little memory; used by the listing of a folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np

from penstock.plurals import counted

__all__ = ["KeyList"]


class KeyList(Sequence[str]):
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

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        begins = self._begins
        number = index if index >= 0 else index + len(begins) - 1
        if not 0 <= number < len(begins) - 1:
            raise IndexError(f"index {index} is outside this list of {counted(len(self), 'name')}")
        return self.joined[begins[number] : begins[number + 1] - 1].decode()

    def __iter__(self) -> Iterator[str]:
        return iter(self.joined.decode().split("\0")[:-1])

    def __reduce__(self) -> tuple[object, ...]:
        return KeyList, (self.joined,)

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'name')}>"
