"""Keys of the entries of LMDB environments: as names of records, and those that layouts of other programs fix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.paths import IMAGE_SUFFIXES
from penstock.stores.common.keys import KeyList, LazyKeys
from penstock.stores.lmdb.entries import LmdbEntries

__all__ = [
    "ARRAY_SUFFIX",
    "COUNT",
    "IMAGE_KEY_SUFFIXES",
    "KEYS",
    "EntryKeys",
    "NumberKeys",
    "decode_key",
    "name_numbers",
    "split_suffix",
]

ARRAY_SUFFIX: Final = b".txt"
"""Ending of the key of an array, in the layout ``names``."""
IMAGE_KEY_SUFFIXES: Final = frozenset(suffix.encode() for suffix in IMAGE_SUFFIXES)
KEYS: Final = b"__keys__"
COUNT: Final = b"__len__"
"""The entries of the layout ``pickle-index`` that are no records."""


def decode_key(key: bytes) -> str:
    """A key as the name of a record; bytes that are no text are escaped."""
    return key.decode("utf-8", "backslashreplace")


def split_suffix(key: bytes) -> tuple[bytes, bytes]:
    """A key without its ending, and the ending in lower case with its dot; empty for a key without one."""
    stem, dot, suffix = key.rpartition(b".")
    if not dot or b"/" in suffix:
        return key, b""
    return stem, b"." + suffix.lower()


class EntryKeys(LazyKeys):
    """The keys of some entries as names, decoded when they are asked for."""

    def __init__(self, entries: LmdbEntries, rows: NDArray[np.int64] | None = None) -> None:
        chosen: Any = slice(None) if rows is None else rows
        self._whole = entries.whole
        self._begins, self._sizes = entries.key_offsets[chosen].data, entries.key_sizes[chosen].data

    def __len__(self) -> int:
        return len(self._begins)

    def get(self, number: int) -> str:
        """The key of the entry as text."""
        begin = self._begins[number]
        return decode_key(bytes(self._whole[begin : begin + self._sizes[number]]))


class NumberKeys(LazyKeys):
    """Keys that are numbers in decimal.

    Parameters
    ----------
    numbers : ndarray of int64, (n,)
        The numbers.
    width : int
        Digits to which all are padded with zeros; 0 for none.
    """

    def __init__(self, numbers: NDArray[np.int64], width: int = 0) -> None:
        self._numbers = numbers.data
        self._format: Callable[[int], str] = f"{{:0{width}d}}".format if width else str

    def __len__(self) -> int:
        return len(self._numbers)

    def get(self, number: int) -> str:
        """The number in decimal."""
        return self._format(self._numbers[number])

    def __iter__(self) -> Iterator[str]:
        return map(self._format, self._numbers)


def name_numbers(numbers: NDArray[np.int64], digits: NDArray[np.int64]) -> Sequence[str]:
    """The keys of some records: numbers, of which each is stored with a count of digits."""
    if not len(numbers):
        return NumberKeys(numbers)
    least = np.ones(len(numbers), np.int64)
    for exponent in range(1, 18):
        least += numbers >= 10**exponent
    if (digits == least).all():
        return NumberKeys(numbers)
    if (digits == digits[0]).all():
        return NumberKeys(numbers, int(digits[0]))
    return KeyList.from_names(f"{number:0{width}d}" for number, width in zip(numbers, digits, strict=True))
