"""The entries of an LMDB environment of another program: where each key and value lies in the file.

::

    data.mdb ──branch pages──> numbers of the leaf pages ──in blocks, by NumPy──> LmdbEntries
                                                                                    key_offsets, value_offsets, ...

LMDB's library trusts the file that it maps, and a damaged or truncated file kills the process. This module visits every
leaf page once, when an environment is opened; afterwards records are ranges of bytes. It uses the file's main database
alone, and nothing here knows what is in the values. :mod:`.common.lmdb.nodes` parses the pages.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import StoreFormatError
from penstock.stores.common.lmdb.nodes import OVERFLOW_HEAD_NBYTES, LeafEntries, PageBlock, count_pages, is_value_page
from penstock.stores.common.lmdb.pages import FILE, PageFile, looks_like_lmdb
from penstock.stores.common.mapped_files import open_source
from penstock.stores.common.mirrors import ByteRanges
from penstock.wording import counted

__all__ = ["MAX_KEY_NBYTES", "LmdbEntries", "ValuePlaces", "find_environment_file", "peek_entries", "scan_entries"]

MAX_KEY_NBYTES: Final = 511

Rows = NDArray[np.int64]

_BLOCK_PAGES: Final = 1 << 14


def find_environment_file(path: str | os.PathLike[str]) -> Path:
    """Return the data file of an environment: ``data.mdb`` of a folder, or the file itself (``subdir=False``)."""
    given = Path(path)
    return given / FILE if given.is_dir() else given


class LmdbEntries:
    """Keys and values of an environment, in order of the bytes of the keys, as places in its file.

    ``whole``: the file; of a remote one, a copy that has the leaf pages. ``blocks``: the entries, in order. Their
    columns are the attributes of this object. ``source``: what values are read from; by default ``whole``.
    """

    def __init__(self, whole: memoryview, blocks: Sequence[LeafEntries] = (), source: ByteRanges | None = None) -> None:
        columns = zip(LeafEntries.empty(), *blocks, strict=True)
        joined = LeafEntries(*(np.concatenate(column, dtype=column[0].dtype) for column in columns))
        if joined.are_trees.any():
            raise ValueError("it contains named databases or several values for a key, which no known layout has")
        self.whole, self._source = whole, whole if source is None else source
        self.key_offsets, self.key_sizes = joined.key_offsets, joined.key_sizes
        self.value_offsets, self.value_sizes = joined.value_offsets, joined.value_sizes
        self.overflow_pages = joined.overflow_pages

    def __len__(self) -> int:
        return len(self.key_offsets)

    def key(self, row: int) -> bytes:
        """Return the key of one entry."""
        begin = int(self.key_offsets[row])
        return bytes(self.whole[begin : begin + int(self.key_sizes[row])])

    def iterate_keys(self) -> Iterator[bytes]:
        """Yield all keys."""
        whole = self.whole
        for begin, size in zip(self.key_offsets.tolist(), self.key_sizes.tolist(), strict=True):
            yield bytes(whole[begin : begin + size])

    def value(self, row: int) -> memoryview:
        """Return the value of one entry: a view of the file; ValueError if its pages are not those of a value."""
        return ValuePlaces(self, np.array([row])).read(self._source, 0)

    def find(self, key: bytes) -> int | None:
        """Return the row of a key, by bisection; None if it is not there."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.key(middle) < key:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self) and self.key(low) == key else None

    def last_bytes(self) -> NDArray[np.uint8]:
        """Return the last byte of each key; 0 for an empty key."""
        whole = np.frombuffer(self.whole, np.uint8)
        at = self.key_offsets + self.key_sizes - 1
        return np.where(self.key_sizes > 0, whole[at], 0).astype(np.uint8)

    def parse_numbers(self, endings: int | NDArray[np.int64] = 0, begins: int = 0) -> tuple[Rows, Rows]:
        """Return the number that each key is in decimal, and its count of digits.

        ``endings``, ``begins``: how many bytes at the end and at the beginning of each key are left out. Returns (n,)
        int64: number and count of digits, leading zeros included; -1 and 0 where a key is no number of 1 to 18 digits.
        """
        whole = np.frombuffer(self.whole, np.uint8)
        digits, firsts = self.key_sizes.astype(np.int64) - endings - begins, self.key_offsets + begins
        numbers = np.zeros(len(self), np.int64)
        valid = (digits >= 1) & (digits <= 18)
        longest = int(digits[valid].max(initial=0))
        for position in range(longest):
            has = valid & (position < digits)
            characters = whole[np.where(has, firsts + position, 0)].astype(np.int64) - ord("0")
            valid &= ~has | ((characters >= 0) & (characters <= 9))
            numbers = np.where(has, numbers * 10 + characters, numbers)
        return np.where(valid, numbers, -1), np.where(valid, digits, 0)


class ValuePlaces:
    """Where the values of some entries lie; reads one for each record, so it is kept short.

    ``rows``: (n,) int64: which of them, in order; by default all.
    """

    __slots__ = ("_begins", "_pages", "_sizes")

    def __init__(self, entries: LmdbEntries, rows: Rows | None = None) -> None:
        chosen = np.arange(len(entries)) if rows is None else rows
        self._begins = entries.value_offsets[chosen].data
        self._sizes = entries.value_sizes[chosen].data
        self._pages = entries.overflow_pages[chosen].data

    def __len__(self) -> int:
        return len(self._begins)

    @property
    def begins(self) -> Rows:
        """Where each value begins in the file."""
        return np.asarray(self._begins)

    @property
    def sizes(self) -> Rows:
        """Bytes of each value."""
        return np.asarray(self._sizes).astype(np.int64)

    @property
    def are_inline(self) -> bool:
        """Whether all values are inside leaf pages, which were checked when the environment was opened."""
        return not np.asarray(self._pages).any()

    def range_of(self, index: int) -> tuple[int, int]:
        """Offset and number of bytes of what :meth:`read` reads: of a big value, with the head of its first page."""
        head = OVERFLOW_HEAD_NBYTES if self._pages[index] else 0
        return self._begins[index] - head, self._sizes[index] + head

    def read(self, whole: ByteRanges, index: int) -> memoryview:
        """Return a value: a view of the file, after its first page was found to be that of a value.

        Raises
        ------
        ValueError
            If the pages of the value are not those of a value.
        """
        begin, page = self._begins[index], self._pages[index]
        if not page:
            return whole[begin : begin + self._sizes[index]]
        content = whole[begin - OVERFLOW_HEAD_NBYTES : begin + self._sizes[index]]
        if not is_value_page(content, page):
            raise ValueError(f"page {page} must be the first page of its value")
        return content[OVERFLOW_HEAD_NBYTES:]


def scan_entries(path: Path, source: ByteRanges, url: str) -> LmdbEntries:
    """Find every entry of the main database of the environment in the file ``path``, whose bytes ``source`` gives.

    Raises StoreNotFoundError if there is no such file. Raises StoreFormatError if it is no LMDB file, is truncated or
    damaged, or contains named databases or several values for a key. Raises StoreError if it cannot be read.
    """
    with PageFile(path, url, may_lack_pages=True) as file:
        meta = file.meta
        try:
            numbers = [number for _, number in file.leaf_numbers(meta.main)]
            entries = _parse_leaves(file, source, numbers)
            if len(entries) != meta.main.entries:
                raise ValueError(f"it has {counted(len(entries), 'entry')} of {meta.main.entries}")  # noqa: TRY301  # one handler
            _refuse_shared(entries, meta.page_nbytes)
        except ValueError as error:
            reason = f"the structure of {path.name} is damaged: {error}"
            if len(source) < meta.nbytes:
                reason = (
                    f"{path.name} is truncated or damaged: it has {len(source)} bytes of {meta.nbytes}, and {error}; "
                    "copy it again"
                )
            raise StoreFormatError(reason, store=url) from error
    return entries


def peek_entries(path: str | os.PathLike[str], keys: Sequence[bytes] = ()) -> LmdbEntries | None:
    """Return the entries of the first and the last leaf page, and of those where some keys would be.

    Returns
    -------
    LmdbEntries or None
        In order. None where there is no LMDB file, or it is damaged there, or contains named databases.
    """
    place = find_environment_file(path)
    if not looks_like_lmdb(place):
        return None
    try:
        with PageFile(place, "", may_lack_pages=True) as file:
            tree = file.meta.main
            wanted = (b"", *sorted(keys), b"\xff" * (MAX_KEY_NBYTES + 1)) if tree.depth else ()
            numbers = dict.fromkeys(file.find_leaf(tree, key) for key in wanted)
            return _parse_leaves(file, open_source(place).ranges(), [*numbers])
    except (OSError, ValueError):
        return None


def _parse_leaves(file: PageFile, source: ByteRanges, numbers: Sequence[int]) -> LmdbEntries:
    """Return the entries of some leaf pages, in blocks of pages."""
    page_nbytes = file.page_nbytes
    whole = source if isinstance(source, memoryview) else file.map_pages(numbers)
    block = PageBlock(whole, page_nbytes, len(whole) // page_nbytes)  # a page of which the end is missing is not read
    pages = np.minimum(np.array(numbers, np.uint64), 2**62).astype(np.int64)
    blocks = [pages[begin : begin + _BLOCK_PAGES] for begin in range(0, len(pages), _BLOCK_PAGES)]
    return LmdbEntries(whole, list(map(block.parse_leaves, blocks)), source)


def _refuse_shared(entries: LmdbEntries, page_nbytes: int) -> None:
    """Refuse values of which the pages overlap: one of the entries would have the value of another."""
    is_big = entries.overflow_pages > 0
    firsts = entries.overflow_pages[is_big]
    counts = count_pages(entries.value_sizes[is_big], page_nbytes)
    order = np.argsort(firsts)
    overlaps = firsts[order][:-1] + counts[order][:-1] > firsts[order][1:]
    if overlaps.any():
        raise ValueError(f"two entries have their values in page {firsts[order][1:][overlaps][0]}")
