"""The entries of branch and leaf pages of an LMDB file: one page, or with NumPy many pages at once.

::

    page    number │ flags │ lower, upper │ offsets of the entries ... free ... entry │ entry
    entry   size, or page of a child │ flags │ size of the key │ key │ value, or the page where it begins

Nothing is trusted: every bound is checked before it is used. :mod:`.lmdb.pages` reads pages one by one,
:mod:`.lmdb.entries` all leaf pages of a mapped file.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["OVERFLOW_HEAD_NBYTES", "LeafEntries", "PageBlock", "count_pages", "is_value_page"]

Rows = NDArray[np.int64]

_HEAD_NBYTES: Final = 16  # of a page: number (8 bytes), pad, flags, lower, upper
_NODE_NBYTES: Final = 8  # head of an entry: low, high, flags, key size
_OVERFLOW_HEAD: Final = struct.Struct("<Q2xH")  # number, flags
OVERFLOW_HEAD_NBYTES: Final = _HEAD_NBYTES
"""Bytes of the first page of a value before the value."""
_BRANCH, _LEAF, _OVERFLOW = 0x01, 0x02, 0x04
_BIGDATA, _SUBDATA, _DUPDATA = 0x01, 0x02, 0x04


class LeafEntries(NamedTuple):
    """The entries of some leaf pages, as columns: places in the file, and sizes in bytes."""

    key_offsets: Rows
    key_sizes: NDArray[np.uint16]
    value_offsets: Rows
    value_sizes: NDArray[np.uint32]
    overflow_pages: Rows
    """The first page of a value that has pages of its own; 0 for one that is inside a leaf page."""
    are_trees: NDArray[np.bool_]
    """Whether the value is the description of a named database, or the values of a key that has several."""

    @classmethod
    def empty(cls) -> LeafEntries:
        """Make a list without entries."""
        return cls(*(np.empty(0, dtype) for dtype in ("i8", "u2", "i8", "u4", "i8", "?")))


class PageBlock:
    """Pages in memory, of which nothing is trusted; damage is a ValueError that names the page.

    Parameters
    ----------
    content : bytes or memoryview
        Whole pages.
    page_nbytes : int
        Bytes of a page.
    pages : int
        Pages of the file.
    first : int, optional
        The number of the first page in ``content``.
    """

    def __init__(self, content: bytes | memoryview, page_nbytes: int, pages: int, first: int = 0) -> None:
        self._content = content
        self._halves = np.frombuffer(content, "<u2", len(content) // 2)
        self._page_nbytes, self._pages = page_nbytes, pages
        self._begin = first * page_nbytes

    def find_children(self, number: int) -> list[tuple[int, bytes]]:
        """Return the pages that a branch page points to, each with the first key that may be in it (empty: any key)."""
        _, nodes = self._find_nodes(np.array([number]), _BRANCH)
        low, high, top, sizes = (self._halves[nodes // 2 + at].astype(np.int64) for at in range(4))
        children = low | high << 16 | top << 32
        self._refuse_outside(children, 1)
        keys = nodes + _NODE_NBYTES
        places = zip(children.tolist(), keys.tolist(), (keys + sizes).tolist(), strict=True)
        return [(child, bytes(self._content[begin:end])) for child, begin, end in places]

    def parse_leaves(self, numbers: Rows) -> LeafEntries:
        """Return the entries of some leaf pages, in order."""
        owners, nodes = self._find_nodes(numbers, _LEAF)
        low, high, flags, key_sizes = (self._halves[nodes // 2 + at] for at in range(4))
        if (flags & _DUPDATA).any():
            raise ValueError("it contains several values for a key, which no known layout has")
        sizes = low.astype(np.int64) | high.astype(np.int64) << 16
        keys = nodes + _NODE_NBYTES
        values = keys + key_sizes
        is_big = (flags & _BIGDATA).astype(bool)
        inside = values + np.where(is_big, 8, sizes) <= (owners + 1) * self._page_nbytes - self._begin
        if not inside.all():
            raise ValueError(f"page {owners[~inside][0]}: an entry is outside its page")
        firsts = np.zeros(len(nodes), np.int64)
        places = values + self._begin
        if is_big.any():
            content = np.frombuffer(self._content, np.uint8)
            pages = content[values[is_big][:, None] + np.arange(8)].view("<u8")[:, 0]
            firsts[is_big] = np.minimum(pages, 2**62)
            self._refuse_outside(firsts[is_big], count_pages(sizes[is_big], self._page_nbytes))
            places = np.where(is_big, firsts * self._page_nbytes + _HEAD_NBYTES, places)
        are_trees = (flags & _SUBDATA).astype(bool)
        return LeafEntries(keys + self._begin, key_sizes, places, sizes.astype(np.uint32), firsts, are_trees)

    def _find_nodes(self, numbers: Rows, flag: int) -> tuple[Rows, Rows]:
        """Page and offset in the content of each entry of some pages, after the heads of the pages were checked."""
        self._refuse_outside(numbers, 1)
        bases = numbers * self._page_nbytes - self._begin
        heads = self._halves[bases[:, None] // 2 + np.arange(8)]
        stored = np.ascontiguousarray(heads[:, :4]).view("<u8")[:, 0]
        flags, lower, upper = (heads[:, at].astype(np.int64) for at in (5, 6, 7))
        right = (stored == numbers) & (flags & (_BRANCH | _LEAF) == flag) & (lower >= _HEAD_NBYTES) & (lower <= upper)
        right &= upper <= self._page_nbytes
        counts = (lower - _HEAD_NBYTES) // 2
        right &= counts * _NODE_NBYTES <= self._page_nbytes - upper  # bounds the memory for the entries
        if not right.all():
            name = "branch" if flag == _BRANCH else "leaf"
            raise ValueError(f"page {numbers[~right][0]}: must be a {name} page of its own")
        owners = np.repeat(np.arange(len(numbers)), counts)
        places = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        offsets = self._halves[bases[owners] // 2 + _HEAD_NBYTES // 2 + places].astype(np.int64)
        inside = (offsets >= lower[owners]) & (offsets <= self._page_nbytes - _NODE_NBYTES) & (offsets & 1 == 0)
        if not inside.all():
            raise ValueError(f"page {numbers[owners[~inside][0]]}: an entry is outside its page")
        return numbers[owners], bases[owners] + offsets

    def _refuse_outside(self, firsts: Rows, counts: int | Rows) -> None:
        """Refuse pages that are not completely in the file, or are meta pages."""
        wrong = (firsts < 2) | (firsts > self._pages - counts)
        if wrong.any():
            raise ValueError(f"page {firsts[wrong][0]} is outside the file of {self._pages} pages")


def count_pages(value_sizes: NDArray[np.integer], page_nbytes: int) -> Rows:
    """Return how many pages of their own values of these sizes have."""
    return (_HEAD_NBYTES + value_sizes.astype(np.int64) - 1) // page_nbytes + 1


def is_value_page(head: memoryview, page: int) -> bool:
    """Return whether some bytes begin as ``page`` does, the first page of a value that has pages of its own."""
    number, flags = _OVERFLOW_HEAD.unpack_from(head)
    return bool(number == page and flags & _OVERFLOW)
