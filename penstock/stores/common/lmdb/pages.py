"""The pages of an LMDB file: is the file complete, and at which offset is each entry.

::

    data.mdb    ┌ page 0 ┬ page 1 ┬ page 2 ┬ ...
                │  meta  │  meta  │ branch, leaf, overflow

LMDB's library maps its file and trusts it: a truncated file kills the process, a damaged one gives wrong records. This
module therefore reads the file itself and checks all bounds: when the file is opened, to find the offsets of records
(:meth:`PageFile.leaf`), and to verify it (:meth:`PageFile.nodes`). :mod:`.lmdb.nodes` parses each page. Nothing is
written. :mod:`penstock.stores.lmdb_pack.page_hashes` compares pages with their hashes.

The format is that of LMDB 0.9 on little-endian 64-bit machines: ``mdb.c``, structures MDB_page, MDB_meta, MDB_db,
MDB_node (openldap.org/software/repo/openldap.git, libraries/liblmdb).
"""

from __future__ import annotations

import bisect
import functools
import os
import struct
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Self

import numpy as np

from penstock.errors import StoreError, StoreFormatError, StoreNotFoundError
from penstock.stores.common.lmdb.nodes import PageBlock, count_pages
from penstock.stores.common.mirrors import find_mirror
from penstock.stores.common.regular_file import has_magic, open_regular
from penstock.stores.kinds import FILE, HASHES, LOCK
from penstock.system.mapping import map_file

__all__ = [
    "FILE",
    "HASHES",
    "LOCK",
    "BTree",
    "MetaPage",
    "Node",
    "PageFile",
    "fsync_path",
    "is_page_size",
    "looks_like_lmdb",
]

_MAGIC: Final = 0xBEEFC0DE
"""The number in the first bytes of a meta page, after the header of the page."""
_MAGIC_OFFSET: Final = 16
_META = struct.Struct("<16xII8xQ I92x QQ")
"""Magic, version, map size; the page size, in the tree of free pages; last page, transaction."""
_MAIN_AT: Final = 88
_METAS_NBYTES: Final = 2 << 16
"""Two pages of any size."""
_TREE = struct.Struct("<IHHQQQQQ")  # pad, flags, depth, branch pages, leaf pages, overflow pages, entries, root

_DATA_VERSION = 1
_AROUND_NBYTES: Final = 1 << 16
"""Bytes around the root of the databases of a remote object: as a rule, their own roots are there."""
_AHEAD: Final = 256
"""Leaf pages of a remote object that are fetched while the same number is read."""
_NO_PAGE: Final = 0xFFFFFFFFFFFFFFFF
_MAX_DEPTH: Final = 32  # LMDB's CURSOR_STACK
_JOINED_PAGES: Final = 16
_REQUEST_PAGES: Final = 1 << 10


@dataclass(frozen=True, slots=True)
class BTree:
    """The B-tree of one database: the page of its root, its depth, and its number of entries."""

    root: int
    depth: int
    entries: int

    @classmethod
    def empty(cls) -> BTree:
        """Return a tree without pages."""
        return cls(_NO_PAGE, 0, 0)

    @classmethod
    def parse(cls, content: bytes | memoryview, at: int = 0) -> BTree:
        """Parse an MDB_db structure."""
        _, _, depth, _, _, _, entries, root = _TREE.unpack_from(content, at)
        return cls(root, depth, entries)


class MetaPage(NamedTuple):
    """What a meta page says."""

    page_nbytes: int
    last_page: int
    transaction: int
    map_nbytes: int
    main: BTree

    @classmethod
    def parse(cls, page: bytes) -> MetaPage | None:
        """Parse a meta page; None if it is none, or incomplete."""
        if len(page) < _META.size:
            return None
        magic, version, map_nbytes, page_nbytes, last_page, transaction = _META.unpack_from(page)
        if (magic, version) != (_MAGIC, _DATA_VERSION) or not is_page_size(page_nbytes):
            return None
        return cls(page_nbytes, last_page, transaction, map_nbytes, BTree.parse(page, _MAIN_AT))

    @classmethod
    def find_newest(cls, head: bytes, what: str, url: str) -> MetaPage:
        """The newer meta page of a file that begins with ``head``, without a check of the size of the file.

        Raises StoreFormatError if it is no LMDB file, or ends before the end of its second meta page.
        """
        if not head.startswith(_MAGIC.to_bytes(4, "little"), _MAGIC_OFFSET):
            raise StoreFormatError(f"{what} does not begin with an LMDB meta page", store=url)
        first = cls.parse(head)
        other = cls.parse(head[first.page_nbytes :]) if first else None
        if first is None or other is None or first.page_nbytes != other.page_nbytes:
            raise StoreFormatError(
                f"{what} is truncated or damaged: it ends before, or within, its second meta page", store=url
            )
        return max(first, other, key=lambda meta: meta.transaction)

    @property
    def nbytes(self) -> int:
        """Number of bytes that the file must have."""
        return (self.last_page + 1) * self.page_nbytes


class Node(NamedTuple):
    """One entry of a leaf page.

    Its value is at a byte offset in the file, with a length, in some pages from the first one on; ``inline``: in its
    leaf page, and not in overflow pages.
    """

    key: bytes
    offset: int
    nbytes: int
    page: int
    pages: int
    inline: bool
    is_tree: bool


def looks_like_lmdb(path: str | Path) -> bool:
    """Return whether the file begins with an LMDB meta page."""
    return has_magic(path, _MAGIC.to_bytes(4, "little"), (_MAGIC_OFFSET,))


def is_page_size(nbytes: int) -> bool:
    """Return whether LMDB writes files with pages of this size."""
    return 512 <= nbytes <= 1 << 16 and nbytes & (nbytes - 1) == 0


class PageFile:
    """An LMDB file as pages. Nothing in it is trusted; damage is a ValueError that names the page.

    Parameters
    ----------
    path : Path
        The file ``data.mdb``.
    url : str
        The store, for errors.
    matches : callable, optional
        Whether a branch or leaf page, given by number and bytes, is the one that was written; asked when it is read.
    may_lack_pages : bool, optional
        True: pages at the end that no tree has may be missing from the file.

    Notes
    -----
    Thread-safe, and usable after a fork: it reads with ``pread``. The file is closed when the object is deleted.
    """

    def __init__(
        self, path: Path, url: str, matches: Callable[[int, bytes], bool] | None = None, *, may_lack_pages: bool = False
    ) -> None:
        self.path = path
        self._matches = matches
        self._window: memoryview | None = None
        self.mirror = find_mirror(path)
        self._close: Callable[[], object] = lambda: None
        try:
            if self.mirror is None:
                self._file = open_regular(path)
                self._close = weakref.finalize(self, os.close, self._file)
            self.nbytes = have = os.fstat(self._file).st_size if self.mirror is None else self.mirror.nbytes
            head = self._read_bytes(0, _METAS_NBYTES)
        except StoreError:  # of a remote object
            raise
        except FileNotFoundError as error:
            raise StoreNotFoundError(f"there is no file {path}", store=url) from error
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}", store=url) from error
        self.meta = MetaPage.find_newest(head, f"{path} ({have} bytes)", url)
        self.page_nbytes = self.meta.page_nbytes
        if have < (want := self.meta.nbytes) and not may_lack_pages:
            raise StoreFormatError(
                f"{path} is truncated: it has {have} bytes of {want} ({want - have} are missing); copy it again, or "
                "pack the source again",
                store=url,
            )
        self.pages = -(-self.nbytes // self.page_nbytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._close()

    def read(self, first: int, count: int = 1) -> bytes:
        """The bytes of ``count`` pages from ``first`` on; ValueError if the file does not have them."""
        if first < 0 or first + count > self.pages:
            raise ValueError(f"page {first} is outside the file of {self.pages} pages")
        return self._read_bytes(first * self.page_nbytes, count * self.page_nbytes)

    def value(self, node: Node) -> bytes:
        """Return the bytes of a value."""
        return self._read_bytes(node.offset, node.nbytes)

    def _read_bytes(self, offset: int, nbytes: int) -> bytes:
        if self.mirror is not None:
            return bytes(self.mirror.read(offset, max(min(nbytes, self.nbytes - offset), 0), keep=True))
        if self._window is not None:
            return bytes(self._window[offset : offset + nbytes])
        return os.pread(self._file, nbytes, offset)

    def numbers(self, node: Node) -> list[int]:
        """The value of an entry of numbers of records, 8 bytes each; ValueError if it has another size."""
        if not node.nbytes or node.nbytes % 8:
            raise ValueError(f"the value of {node.key!r:.200} must have 8 bytes a record, got {node.nbytes}")
        return list(struct.unpack(f">{node.nbytes // 8}Q", self.value(node)))

    def map(self) -> memoryview:
        """Map the whole file for reading; it stays mapped as long as a view of it is referenced.

        From then on, pages are read from the map, and the file is closed: a process may have many packs open.
        """
        if self.mirror is not None:
            return self.mirror.window
        self._window = map_file(self._file, self.nbytes, is_writable=False).data
        self._close()
        return self._window

    def map_pages(self, numbers: Sequence[int]) -> memoryview:
        """Map the copy of a remote file, after some of its pages were fetched; the others may be zeros.

        Raises StoreError if they cannot be fetched, or have no place on the disk.
        """
        assert self.mirror is not None, "called for remote files"
        mirror, size, groups = self.mirror, self.page_nbytes, list[list[int]]()
        for number in sorted(numbers):
            if 2 <= number < self.pages:  # those that are not are refused when they are parsed
                if groups and number - groups[-1][1] <= _JOINED_PAGES and number - groups[-1][0] < _REQUEST_PAGES:
                    groups[-1][1] = number
                else:
                    groups.append([number, number])
        places = [(a * size, min((b + 1) * size, self.nbytes) - a * size) for a, b in groups]
        asked = [mirror.submit(functools.partial(mirror.read, *place, keep=True)) for place in places]
        for future, place in zip(asked, places, strict=True):
            future.result()
            mirror.require(*place)
        return self.map()

    def trees(self) -> dict[bytes, BTree]:
        """Return the named databases."""
        found = {}
        if self.mirror is not None and self.meta.main.root < self.pages:
            begin = max(self.meta.main.root * self.page_nbytes - _AROUND_NBYTES // 2, 0)
            self.mirror.read(begin, min(_AROUND_NBYTES, self.nbytes - begin), keep=True)
        for number, node in self.nodes(self.meta.main):
            if node.is_tree:
                if node.nbytes != _TREE.size:
                    raise ValueError(
                        f"page {number}: the entry of a database must have {_TREE.size} bytes, got {node.nbytes}"
                    )
                found[node.key] = BTree.parse(self.value(node))
        self.announce(tree.root for tree in found.values() if 0 <= tree.root < self.pages)
        return found

    def nodes(self, tree: BTree | None) -> Iterator[tuple[int, Node]]:
        """Yield each entry with the number of its leaf page, in order of keys."""
        leaves = [number for _, number in self.leaf_numbers(tree or BTree.empty())]
        for place, number in enumerate(leaves):
            if place % _AHEAD == 0:
                self.announce(leaves[place : place + 2 * _AHEAD])
            for node in self.leaf(number):
                yield number, node

    def announce(self, numbers: Iterable[int]) -> int:
        """Begin to fetch pages of a copy of a remote object; how many bytes are asked for."""
        size = self.page_nbytes
        return self.mirror.announce((number * size, size) for number in numbers) if self.mirror is not None else 0

    def leaf_numbers(self, tree: BTree) -> Iterator[tuple[bytes, int]]:
        """First possible key and page number of each leaf, in order; reads the branch pages alone, level by level."""
        level = [] if tree.root == _NO_PAGE else [(b"", tree.root)]
        visited = len(level)
        if level and not 1 <= tree.depth <= _MAX_DEPTH:
            raise ValueError(f"page {tree.root}: its tree has a depth of {tree.depth}")
        for _ in range(tree.depth - 1 if level else 0):
            self.announce(number for _, number in level)
            below = []
            for key, number in level:
                children = self._children(number)
                visited += len(children)  # each page has one parent: counted before memory is allocated for them
                if visited > self.pages:
                    raise ValueError(f"page {number}: the tree has more pages than the file, or a cycle")
                below += [(first or key, child) for child, first in children]
            level = below
        yield from level

    def find_leaf(self, tree: BTree, key: bytes) -> int:
        """Return the number of the leaf page in which a key would be."""
        number = tree.root
        for _ in range(min(tree.depth, _MAX_DEPTH) - 1):
            children = self._children(number)
            place = bisect.bisect_right(children, key, 1, key=lambda child: child[1])  # the first one has any key
            number = children[place - 1][0]
        return number

    def leaf(self, number: int) -> list[Node]:
        """Return the entries of one leaf page."""
        page = self.read_node_page(number)
        found = PageBlock(page, self.page_nbytes, self.pages, number).parse_leaves(np.array([number]))
        begin = number * self.page_nbytes
        columns = (*found, count_pages(found.value_sizes, self.page_nbytes))
        nodes = []
        for at, key_nbytes, offset, nbytes, first, is_tree, pages in zip(
            *(each.tolist() for each in columns), strict=True
        ):
            key = page[at - begin : at - begin + key_nbytes]
            nodes.append(Node(key, offset, nbytes, first or number, pages if first else 1, not first, is_tree))
        return nodes

    def _children(self, number: int) -> list[tuple[int, bytes]]:
        page = self.read_node_page(number)
        children = PageBlock(page, self.page_nbytes, self.pages, number).find_children(number)
        if not children:
            raise ValueError(f"page {number}: a branch page must have entries")
        return children

    def read_node_page(self, number: int) -> bytes:
        """Return a branch or leaf page, compared with its hash."""
        page = self.read(number)
        if len(page) < self.page_nbytes:
            raise ValueError(f"page {number}: the file ends within it")
        if self._matches is not None and not self._matches(number, page):
            raise ValueError(f"page {number}: its checksum does not match")
        return page


def fsync_path(path: Path) -> None:
    """Make the entries of a folder, or the bytes of a file, durable."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
