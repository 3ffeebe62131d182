"""Keys of records that have no names: the numbers of the rows, as text, without a list of them in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from penstock.stores.key_list import KeyList

__all__ = ["RowKeys", "make_keys"]


class RowKeys(Sequence[str]):
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

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [str(row) for row in self._rows[index]]
        return str(self._rows[index])

    def __iter__(self) -> Iterator[str]:
        return map(str, self._rows)

    def __contains__(self, key: object) -> bool:
        is_number = isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 20
        return is_number and key == str(int(str(key))) and int(str(key)) in self._rows

    def __repr__(self) -> str:
        return f"RowKeys({len(self)})"


def make_keys(names: Iterable[str]) -> Sequence[str]:
    """A sequence of names that takes little memory; names with a zero character are kept as a list."""
    listed = list(names)
    return listed if any("\0" in name for name in listed) else KeyList.from_names(listed)
