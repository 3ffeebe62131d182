"""The entries of an LMDB environment of another program: where each key and value lies in the file.

::

    data.mdb ──branch pages──> numbers of the leaf pages ──in blocks, by NumPy──> LmdbEntries
                                                                                    key_offsets, value_offsets, ...

LMDB's library trusts the file that it maps, and a damaged or truncated file kills the process. This module visits every
leaf page once, when an environment is opened, and checks all bounds; afterwards records are ranges of bytes. It uses
the file's main database alone, and nothing here knows what is in the values. Format and single pages:
:mod:`.lmdb.pages`.
"""

from __future__ import annotations

import bisect
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import StoreFormatError
from penstock.plurals import counted
from penstock.stores.common.mapped_files import MappedFiles
from penstock.stores.lmdb.files import FILE, looks_like_lmdb
from penstock.stores.lmdb.pages import BTree, MetaPage, newest_meta

__all__ = ["MAX_KEY_NBYTES", "LmdbEntries", "ValuePlaces", "find_environment_file", "peek_entries", "scan_entries"]

MAX_KEY_NBYTES: Final = 511

Rows = NDArray[np.int64]

_HEAD_NBYTES: Final = 16  # of a page
_NODE_NBYTES: Final = 8  # head of an entry: low, high, flags, key size
_BRANCH, _LEAF, _OVERFLOW = 0x01, 0x02, 0x04
_BIGDATA, _SUBDATA, _DUPDATA = 0x01, 0x02, 0x04
_BLOCK_PAGES: Final = 1 << 14
_MAX_DEPTH: Final = 32
_OVERFLOW_HEAD: Final = struct.Struct("<Q2xH")  # number, flags


def find_environment_file(path: str | os.PathLike[str]) -> Path:
    """The data file of an environment: ``data.mdb`` of a folder, or the file itself (``subdir=False``)."""
    given = Path(path)
    return given / FILE if given.is_dir() else given


class LmdbEntries:
    """Keys and values of an environment, in order of the bytes of the keys, as places in its file.

    Parameters
    ----------
    whole : memoryview
        The file.
    key_offsets, value_offsets : ndarray of int64, (n,)
        Where each key and value begins.
    key_sizes : ndarray of uint16, (n,)
        Bytes of each key.
    value_sizes : ndarray of uint32, (n,)
        Bytes of each value.
    overflow_pages : ndarray of int64, (n,)
        The first page of a value that has pages of its own; 0 for one that is inside a leaf page.
    """

    def __init__(
        self,
        whole: memoryview,
        key_offsets: Rows,
        key_sizes: NDArray[np.uint16],
        value_offsets: Rows,
        value_sizes: NDArray[np.uint32],
        overflow_pages: Rows,
    ) -> None:
        self.whole = whole
        self.key_offsets, self.key_sizes = key_offsets, key_sizes
        self.value_offsets, self.value_sizes = value_offsets, value_sizes
        self.overflow_pages = overflow_pages

    @classmethod
    def empty(cls, whole: memoryview | None = None) -> LmdbEntries:
        """No entries."""
        return cls.join(memoryview(b"") if whole is None else whole, [])

    @classmethod
    def join(cls, whole: memoryview, blocks: Sequence[Sequence[NDArray[Any]]]) -> LmdbEntries:
        """The entries of blocks of columns, in the order of the parameters."""
        first = [np.empty(0, dtype) for dtype in (np.int64, np.uint16, np.int64, np.uint32, np.int64)]
        columns = [np.concatenate(column) for column in zip(first, *blocks, strict=True)]
        return cls(whole, *columns)

    def __len__(self) -> int:
        return len(self.key_offsets)

    def key(self, row: int) -> bytes:
        """The key of one entry."""
        begin = int(self.key_offsets[row])
        return bytes(self.whole[begin : begin + int(self.key_sizes[row])])

    def iterate_keys(self, rows: Rows | None = None) -> Iterator[bytes]:
        """The keys of some entries, by default of all."""
        begins = (self.key_offsets if rows is None else self.key_offsets[rows]).tolist()
        sizes = (self.key_sizes if rows is None else self.key_sizes[rows]).tolist()
        whole = self.whole
        for begin, size in zip(begins, sizes, strict=True):
            yield bytes(whole[begin : begin + size])

    def value(self, row: int) -> memoryview:
        """The value of one entry: a view of the file; ValueError if its pages are not those of a value."""
        return ValuePlaces(self, np.array([row])).read(self.whole, 0)

    def find(self, key: bytes) -> int | None:
        """The row of a key, by bisection; None if it is not there."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.key(middle) < key:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self) and self.key(low) == key else None

    def last_bytes(self) -> NDArray[np.uint8]:
        """The last byte of each key; 0 for an empty key."""
        whole = np.frombuffer(self.whole, np.uint8)
        at = self.key_offsets + self.key_sizes - 1
        return np.where(self.key_sizes > 0, whole[at], 0).astype(np.uint8)

    def parse_numbers(self, endings: int | NDArray[np.int64] = 0) -> tuple[Rows, Rows]:
        """The number that each key is in decimal, and its count of digits.

        Parameters
        ----------
        endings : int or ndarray of int64, (n,)
            How many bytes at the end of each key are left out.

        Returns
        -------
        numbers, digits : ndarray of int64, (n,)
            Number and count of digits, leading zeros included; -1 and 0 where a key is no number of 1 to 18 digits.
        """
        whole = np.frombuffer(self.whole, np.uint8)
        digits = self.key_sizes.astype(np.int64) - endings
        numbers = np.zeros(len(self), np.int64)
        valid = (digits >= 1) & (digits <= 18)
        longest = int(digits[valid].max(initial=0))
        for position in range(longest):
            has = valid & (position < digits)
            characters = whole[np.where(has, self.key_offsets + position, 0)].astype(np.int64) - ord("0")
            valid &= ~has | ((characters >= 0) & (characters <= 9))
            numbers = np.where(has, numbers * 10 + characters, numbers)
        return np.where(valid, numbers, -1), np.where(valid, digits, 0)


class ValuePlaces:
    """Where the values of some entries lie; reads one for each record, so it is kept short.

    Parameters
    ----------
    entries : LmdbEntries
        The entries.
    rows : ndarray of int64, (n,), optional
        Which of them, in order; by default all.
    """

    __slots__ = ("_begins", "_pages", "_sizes")

    def __init__(self, entries: LmdbEntries, rows: Rows | None = None) -> None:
        chosen: Any = slice(None) if rows is None else rows
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

    def read(self, whole: memoryview, index: int) -> memoryview:
        """A value: a view of the file, after its first page was found to be that of a value.

        Raises
        ------
        ValueError
            If the pages of the value are not those of a value.
        """
        begin, page = self._begins[index], self._pages[index]
        if page:
            number, flags = _OVERFLOW_HEAD.unpack_from(whole, begin - _HEAD_NBYTES)
            if number != page or not flags & _OVERFLOW:
                raise ValueError(f"page {page} must be the first page of its value")
        return whole[begin : begin + self._sizes[index]]


def scan_entries(path: Path, whole: memoryview, url: str) -> LmdbEntries:
    """Find every entry of the main database of the environment in the file ``path``, of which ``whole`` is a view.

    Raises
    ------
    StoreNotFoundError
        If there is no such file.
    StoreFormatError
        If it is no LMDB file, is truncated or damaged, or contains named databases or several values for a key.
    StoreError
        If it cannot be read.
    """
    meta = newest_meta(path, url)
    try:
        return _Scan(whole, meta).run()
    except _OutsideError as error:
        raise StoreFormatError(
            f"{path.name} is truncated or damaged: it has {len(whole)} bytes of {meta.nbytes}, and {error}; copy it "
            "again",
            store=url,
        ) from error
    except ValueError as error:
        raise StoreFormatError(f"the structure of {path.name} is damaged: {error}", store=url) from error


def peek_entries(path: str | os.PathLike[str], keys: Sequence[bytes] = ()) -> LmdbEntries | None:
    """The entries of the first and the last leaf page, and of those where some keys would be.

    Returns
    -------
    LmdbEntries or None
        In order. None where there is no LMDB file, or it is damaged there, or contains named databases.
    """
    file = find_environment_file(path)
    if not looks_like_lmdb(file):
        return None
    try:
        scan = _Scan(MappedFiles([file]).whole(0), newest_meta(file, ""))
        return scan.peek(keys)
    except (OSError, ValueError):
        return None


class _OutsideError(ValueError):
    """A page is not in the file."""


class _Scan:
    """Visits the pages of the main database, level by level."""

    def __init__(self, whole: memoryview, meta: MetaPage) -> None:
        self._whole, self._meta = whole, meta
        self._bytes = np.frombuffer(whole, np.uint8)
        self._halves = np.frombuffer(whole[: len(whole) // 2 * 2], "<u2")
        self._page_nbytes = meta.page_nbytes
        self._pages = len(whole) // meta.page_nbytes  # whole pages: a page of which the end is missing is not read

    def run(self) -> LmdbEntries:
        tree = self._meta.main
        entries = LmdbEntries.join(self._whole, [self._parse_leaves(pages) for pages in self._list_leaves(tree)])
        if len(entries) != tree.entries:
            raise ValueError(f"it has {counted(len(entries), 'entry')} of {tree.entries}")
        self._refuse_shared(entries)
        return entries

    def peek(self, keys: Sequence[bytes]) -> LmdbEntries:
        """The entries of a few leaf pages; see :func:`peek_entries`."""
        tree = self._meta.main
        if not tree.depth:
            return LmdbEntries.empty(self._whole)
        leaves = {self._descend(tree, key) for key in (b"", *keys, b"\xff" * (MAX_KEY_NBYTES + 1))}
        return LmdbEntries.join(self._whole, [self._parse_leaves(np.array([page])) for _, page in sorted(leaves)])

    def _descend(self, tree: BTree, key: bytes) -> tuple[tuple[int, ...], int]:
        """The leaf page in which a key would be: its place in the order of leaves, and its number."""
        if tree.depth > _MAX_DEPTH:
            raise ValueError(f"its tree has a depth of {tree.depth}")
        page, places = min(tree.root, 2**62), []
        for _ in range(tree.depth - 1):
            _, nodes = self._find_nodes(np.array([page]), _BRANCH)
            firsts = [self._node_key(int(node)) for node in nodes]
            place = max(bisect.bisect_right(firsts, key, lo=min(1, len(firsts))) - 1, 0)  # the first one has no key
            low, high, top = (int(self._halves[nodes[place] // 2 + at]) for at in range(3))
            page = low | high << 16 | top << 32
            places.append(place)
        return tuple(places), page

    def _node_key(self, node: int) -> bytes:
        nbytes = int(self._halves[node // 2 + 3])
        return bytes(self._whole[node + _NODE_NBYTES : node + _NODE_NBYTES + nbytes])

    def _list_leaves(self, tree: BTree) -> Iterator[Rows]:
        """Blocks of numbers of leaf pages, in order."""
        if tree == BTree(tree.root, 0, 0):
            return
        if not 1 <= tree.depth <= _MAX_DEPTH:
            raise ValueError(f"its tree has a depth of {tree.depth}")
        pages = np.array([min(tree.root, 2**62)], np.int64)
        for _ in range(tree.depth - 1):
            pages = self._parse_branches(pages)
        for begin in range(0, len(pages), _BLOCK_PAGES):
            yield pages[begin : begin + _BLOCK_PAGES]

    def _find_nodes(self, pages: Rows, flag: int) -> tuple[Rows, Rows]:
        """Page and offset in the file of each entry of some pages, after the heads of the pages were checked."""
        self._refuse_outside(pages, 1)
        bases = pages * self._page_nbytes
        heads = self._halves[bases[:, None] // 2 + np.arange(8)]
        stored = np.ascontiguousarray(heads[:, :4]).view("<u8")[:, 0]
        flags, lower, upper = (heads[:, at].astype(np.int64) for at in (5, 6, 7))
        right = (stored == pages) & (flags & (_BRANCH | _LEAF) == flag) & (lower >= _HEAD_NBYTES) & (lower <= upper)
        right &= upper <= self._page_nbytes
        counts = (lower - _HEAD_NBYTES) // 2
        right &= counts * _NODE_NBYTES <= self._page_nbytes - upper  # bounds the memory for the entries
        if not right.all():
            name = "branch" if flag == _BRANCH else "leaf"
            raise ValueError(f"page {pages[~right][0]} must be a {name} page of its own")
        owners = np.repeat(np.arange(len(pages)), counts)
        places = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        offsets = self._halves[bases[owners] // 2 + _HEAD_NBYTES // 2 + places].astype(np.int64)
        inside = (offsets >= lower[owners]) & (offsets <= self._page_nbytes - _NODE_NBYTES) & (offsets & 1 == 0)
        if not inside.all():
            raise ValueError(f"an entry of page {pages[owners[~inside][0]]} is outside its page")
        return pages[owners], bases[owners] + offsets

    def _parse_branches(self, pages: Rows) -> Rows:
        """The children of some branch pages, in order."""
        _, nodes = self._find_nodes(pages, _BRANCH)
        if len(nodes) > self._pages:
            raise ValueError("its tree has more pages than the file, or a cycle")
        low, high, top = (self._halves[nodes // 2 + at].astype(np.int64) for at in range(3))
        return low | high << 16 | top << 32

    def _parse_leaves(self, pages: Rows) -> list[NDArray[Any]]:
        """The columns of :class:`LmdbEntries` for the entries of some leaf pages."""
        owners, nodes = self._find_nodes(pages, _LEAF)
        low, high, flags, key_sizes = (self._halves[nodes // 2 + at] for at in range(4))
        if (flags & _SUBDATA).any():
            raise ValueError("it contains named databases or several values for a key, which no known layout has")
        if (flags & _DUPDATA).any():
            raise ValueError("it contains several values for a key, which no known layout has")
        sizes = low.astype(np.int64) | high.astype(np.int64) << 16
        keys = nodes + _NODE_NBYTES
        values = keys + key_sizes
        is_big = (flags & _BIGDATA).astype(bool)
        ends = values + np.where(is_big, 8, sizes)
        inside = ends <= (owners + 1) * self._page_nbytes
        if not inside.all():
            raise ValueError(f"an entry of page {owners[~inside][0]} is outside its page")
        firsts = np.zeros(len(nodes), np.int64)
        if is_big.any():
            numbers = self._bytes[values[is_big][:, None] + np.arange(8)].view("<u8")[:, 0]
            firsts[is_big] = np.minimum(numbers, 2**62)
            self._refuse_outside(firsts[is_big], (_HEAD_NBYTES + sizes[is_big] - 1) // self._page_nbytes + 1)
            values = np.where(is_big, firsts * self._page_nbytes + _HEAD_NBYTES, values)
        return [keys, key_sizes, values, sizes.astype(np.uint32), firsts]

    def _refuse_outside(self, firsts: Rows, counts: int | Rows) -> None:
        """Refuse pages that are not completely in the file, or are meta pages."""
        wrong = (firsts < 2) | (firsts > self._pages - counts)
        if wrong.any():
            raise _OutsideError(f"page {firsts[wrong][0]} is outside the {counted(self._pages, 'page')} of the file")

    def _refuse_shared(self, entries: LmdbEntries) -> None:
        """Refuse values of which the pages overlap: one of the entries would have the value of another."""
        is_big = entries.overflow_pages > 0
        firsts = entries.overflow_pages[is_big]
        counts = (_HEAD_NBYTES + entries.value_sizes[is_big].astype(np.int64) - 1) // self._page_nbytes + 1
        order = np.argsort(firsts)
        overlaps = firsts[order][:-1] + counts[order][:-1] > firsts[order][1:]
        if overlaps.any():
            raise ValueError(f"two entries have their values in page {firsts[order][1:][overlaps][0]}")
