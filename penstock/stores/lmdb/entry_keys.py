"""Keys of the entries of LMDB environments: as names of records, and those that layouts of other programs fix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

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
    "decode_key",
    "list_entry_keys",
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
    """Return a key as the name of a record; bytes that are no text are escaped."""
    return key.decode("utf-8", "backslashreplace")


def split_suffix(key: bytes) -> tuple[bytes, bytes]:
    """Return a key without its ending, and the ending in lower case with its dot; empty for a key without one."""
    stem, dot, suffix = key.rpartition(b".")
    if not dot or b"/" in suffix:
        return key, b""
    return stem, b"." + suffix.lower()


def list_entry_keys(entries: LmdbEntries, rows: NDArray[np.int64] | None = None) -> LazyKeys:
    """Return the keys of some entries, by default of all, as names that are decoded when they are asked for."""
    begins, sizes = entries.key_offsets, entries.key_sizes
    if rows is not None:
        begins, sizes = begins[rows], sizes[rows]
    whole, starts, lengths = entries.whole, begins.data, sizes.data
    return LazyKeys(lambda number: decode_key(bytes(whole[starts[number] :][: lengths[number]])), len(begins))


def name_numbers(numbers: NDArray[np.int64], digits: NDArray[np.int64]) -> Sequence[str]:
    """The keys of some records: numbers, of which each is stored with a count of digits."""
    least = np.ones(len(numbers), np.int64)
    for exponent in range(1, 18):
        least += numbers >= 10**exponent
    values = numbers.data
    if (digits == least).all():
        return LazyKeys(lambda row: str(values[row]), len(values))
    if (digits == digits[0]).all():
        name = f"{{:0{digits[0]}d}}".format
        return LazyKeys(lambda row: name(values[row]), len(values))
    return KeyList.from_names(f"{number:0{width}d}" for number, width in zip(numbers, digits, strict=True))
