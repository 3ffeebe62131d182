"""The pages of an LMDB file, read with ``pread``: is the file complete, and at which offset is each record.

::

    data.mdb    ┌ page 0 ┬ page 1 ┬ page 2 ┬ ...
                │  meta  │  meta  │ branch, leaf, overflow

LMDB's library maps its file and trusts it: a truncated file kills the process, a damaged one gives wrong records. This
module therefore reads the file itself, without a map, and checks all bounds: before the file is opened
(:func:`measure`), to find the offsets of records (:meth:`PageFile.leaf`), and to verify it (:meth:`PageFile.leaves`).
It writes nothing. :mod:`penstock.stores.pack.page_hashes` compares pages with their hashes.

The format is that of LMDB 0.9 on little-endian 64-bit machines: ``mdb.c``, structures MDB_page, MDB_meta, MDB_db,
MDB_node (openldap.org/software/repo/openldap.git, libraries/liblmdb).
"""

from __future__ import annotations

import mmap
import os
import struct
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol, Self

from penstock.errors import StoreError, StoreFormatError, StoreNotFoundError
from penstock.stores.common.regular_file import open_regular
from penstock.stores.lmdb.files import MAGIC

__all__ = [
    "BTree",
    "Extent",
    "MetaPage",
    "Node",
    "PageChecker",
    "PageFile",
    "fsync_path",
    "is_page_size",
    "measure",
    "newest_meta",
]

_PAGE = struct.Struct("<QHHHH")  # number, pad, flags, lower, upper
_META = struct.Struct("<IIQQ")  # magic, version, address, map size; then two trees, last page, transaction
_TREE = struct.Struct("<IHHQQQQQ")  # pad, flags, depth, branch pages, leaf pages, overflow pages, entries, root
_TAIL = struct.Struct("<QQ")
_NODE = struct.Struct("<HHHH")  # low, high, flags, key size
_PAGE_NUMBER = struct.Struct("<Q")
_OVERFLOW_COUNT = struct.Struct("<I")

_DATA_VERSION = 1
_BRANCH, _LEAF, _OVERFLOW = 0x01, 0x02, 0x04
_BIGDATA, _SUBDATA, _DUPDATA = 0x01, 0x02, 0x04
_NO_PAGE: Final = 0xFFFFFFFFFFFFFFFF
_MAX_DEPTH: Final = 32  # LMDB's CURSOR_STACK


@dataclass(frozen=True, slots=True)
class BTree:
    """The B-tree of one database: the page of its root, its depth, and its number of entries."""

    root: int
    depth: int
    entries: int

    @classmethod
    def empty(cls) -> BTree:
        """A tree without pages."""
        return cls(_NO_PAGE, 0, 0)

    @classmethod
    def parse(cls, content: bytes | memoryview, at: int = 0) -> BTree:
        """Parse an MDB_db structure."""
        _, _, depth, _, _, _, entries, root = _TREE.unpack_from(content, at)
        return cls(root, depth, entries)


@dataclass(frozen=True, slots=True)
class MetaPage:
    """The newest of a file's two meta pages."""

    page_nbytes: int
    last_page: int
    transaction: int
    map_nbytes: int
    free: BTree
    main: BTree

    @property
    def nbytes(self) -> int:
        """Number of bytes that the file must have."""
        return (self.last_page + 1) * self.page_nbytes


@dataclass(frozen=True, slots=True)
class Extent:
    """The position of a value: byte offset and length in the file, first page and number of pages.

    ``inline``: whether the value is inside a leaf page, and not in overflow pages.
    """

    offset: int
    nbytes: int
    page: int
    pages: int
    inline: bool


@dataclass(frozen=True, slots=True)
class Node:
    """One entry of a leaf page."""

    key: bytes
    extent: Extent
    is_tree: bool


def measure(path: Path, url: str) -> MetaPage:
    """Read the meta pages and compare the size that they require with the size of the file, before it is mapped.

    Raises
    ------
    StoreNotFoundError
        If there is no such file.
    StoreFormatError
        If it is no LMDB file, or shorter than its meta page requires; the message has both sizes.
    StoreError
        If it cannot be read.
    """
    newest = newest_meta(path, url)
    have = path.stat().st_size
    if have < newest.nbytes:
        raise StoreFormatError(
            f"{path} is truncated: it has {have} bytes of {newest.nbytes} ({newest.nbytes - have} are missing); "
            "copy it again, or pack the source again",
            store=url,
        )
    return newest


def newest_meta(path: Path, url: str) -> MetaPage:
    """The newer meta page, without a check of the size of the file; raises as :func:`measure`."""
    head_nbytes = 16 + _META.size + 2 * _TREE.size + _TAIL.size
    try:
        with _open_file(path) as file:
            have = os.fstat(file.fileno()).st_size
            head = file.read(head_nbytes)
            page_nbytes = _page_nbytes(head)
            if page_nbytes is None:
                raise StoreFormatError(f"{path} ({have} bytes) does not begin with an LMDB meta page", store=url)
            file.seek(page_nbytes)
            second = file.read(head_nbytes)
    except FileNotFoundError as error:
        raise StoreNotFoundError(f"there is no file {path}", store=url) from error
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}", store=url) from error
    first, other = _parse_meta(head, page_nbytes), _parse_meta(second, page_nbytes)
    if first is None or other is None:
        raise StoreFormatError(
            f"{path} ({have} bytes) is truncated or damaged: it ends before, or within, its second meta page", store=url
        )
    return max(first, other, key=lambda meta: meta.transaction)


def _open_file(path: Path) -> BinaryIO:
    return os.fdopen(open_regular(path), "rb")


def _page_nbytes(head: bytes) -> int | None:
    if len(head) < 16 + _META.size + 4 or _META.unpack_from(head, 16)[:2] != (MAGIC, _DATA_VERSION):
        return None
    size: int = struct.unpack_from("<I", head, 16 + _META.size)[0]  # md_pad of the free tree holds the page size
    return size if is_page_size(size) else None


def is_page_size(nbytes: int) -> bool:
    """Whether LMDB writes files with pages of this size."""
    return 512 <= nbytes <= 1 << 16 and nbytes & (nbytes - 1) == 0


def _parse_meta(page: bytes, page_nbytes: int) -> MetaPage | None:
    if _page_nbytes(page) != page_nbytes or len(page) < 16 + _META.size + 2 * _TREE.size + _TAIL.size:
        return None
    at = 16 + _META.size
    last_page, transaction = _TAIL.unpack_from(page, at + 2 * _TREE.size)
    map_nbytes = _META.unpack_from(page, 16)[3]
    return MetaPage(
        page_nbytes, last_page, transaction, map_nbytes, BTree.parse(page, at), BTree.parse(page, at + _TREE.size)
    )


class PageChecker(Protocol):
    """What :class:`PageFile` calls for each branch and leaf page that it reads."""

    def matches(self, number: int, page: bytes) -> bool:
        """Whether page ``number`` is the one that was written."""
        ...


class PageFile:
    """An LMDB file as pages. Nothing in it is trusted; damage is a ValueError that names the page.

    Parameters
    ----------
    path : Path
        The file ``data.mdb``.
    url : str
        The store, for errors.
    hashes : PageChecker, optional
        If given, each branch and leaf page is compared with its hash when it is read.

    Notes
    -----
    Thread-safe, and usable after a fork: it reads with ``pread``. The file is closed when the object is deleted.
    """

    def __init__(self, path: Path, url: str, hashes: PageChecker | None = None) -> None:
        self.path = path
        self.meta = measure(path, url)
        self.page_nbytes = self.meta.page_nbytes
        self._hashes = hashes
        try:
            self._file = open_regular(path)
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}", store=url) from error
        self._close = weakref.finalize(self, os.close, self._file)
        self.nbytes = os.fstat(self._file).st_size
        self.pages = -(-self.nbytes // self.page_nbytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._close()

    def read(self, first: int, count: int = 1) -> bytes:
        """The bytes of ``count`` pages from ``first`` on; ValueError if the file does not have them."""
        if first < 0 or first + count > self.pages:
            raise ValueError(f"page {first} is outside the file of {self.pages} pages")
        return os.pread(self._file, count * self.page_nbytes, first * self.page_nbytes)

    def value(self, extent: Extent) -> bytes:
        """The bytes of a value."""
        return os.pread(self._file, extent.nbytes, extent.offset)

    def numbers(self, node: Node) -> list[int]:
        """The value of an entry of numbers of records, 8 bytes each; ValueError if it has another size."""
        if not node.extent.nbytes or node.extent.nbytes % 8:
            raise ValueError(f"the value of {node.key!r:.200} must have 8 bytes a record, got {node.extent.nbytes}")
        return list(struct.unpack(f">{node.extent.nbytes // 8}Q", self.value(node.extent)))

    def map(self) -> memoryview:
        """Map the whole file for reading; it stays mapped as long as a view of it is referenced."""
        return memoryview(mmap.mmap(self._file, 0, access=mmap.ACCESS_READ))

    def trees(self) -> dict[bytes, BTree]:
        """The named databases."""
        found = {}
        for number, nodes in self.leaves(self.meta.main):
            for node in nodes:
                if node.is_tree:
                    if node.extent.nbytes != _TREE.size:
                        raise ValueError(
                            f"page {number}: the entry of a database must have {_TREE.size} bytes, "
                            f"got {node.extent.nbytes}"
                        )
                    found[node.key] = BTree.parse(self.value(node.extent))
        return found

    def leaves(self, tree: BTree, structure: list[int] | None = None) -> Iterator[tuple[int, list[Node]]]:
        """Page number and entries of each leaf, in order of keys.

        Parameters
        ----------
        tree : BTree
            The tree.
        structure : list of int, optional
            The number of each branch and leaf page is appended to it before the page is parsed.
        """
        for number, _, page, nodes in self._visit_leaves(tree, structure):
            yield number, [self._leaf_node(number, page, at) for at in nodes]

    def leaf_numbers(self, tree: BTree) -> Iterator[tuple[bytes, int]]:
        """First possible key and page number of each leaf, in order; reads the branch pages alone."""
        for number, key, _, _ in self._visit_leaves(tree, None, branches_only=True):
            yield key, number

    def leaf(self, number: int) -> list[Node]:
        """The entries of one leaf page."""
        page, flags, nodes = self._read_node_page(number)
        if flags & _BRANCH:
            raise ValueError(f"page {number}: must be a leaf page, got a branch page")
        return [self._leaf_node(number, page, at) for at in nodes]

    def _visit_leaves(
        self, tree: BTree, structure: list[int] | None, *, branches_only: bool = False
    ) -> Iterator[tuple[int, bytes, bytes, tuple[int, ...]]]:
        """Leaves in order: number, first possible key; unless ``branches_only``, page and offsets of entries."""
        pending = [] if tree.root == _NO_PAGE else [(tree.root, 1, b"")]
        visited = len(pending)
        while pending:
            number, depth, key = pending.pop()
            if depth > min(tree.depth, _MAX_DEPTH) or visited > self.pages:
                raise ValueError(f"page {number}: the tree is deeper than its description says, or has a cycle")
            if branches_only and depth == tree.depth:
                yield number, key, b"", ()
                continue
            if structure is not None:
                structure.append(number)
            page, flags, nodes = self._read_node_page(number)
            if flags & _BRANCH:
                children = [self._child(number, page, at) for at in nodes]
                visited += len(children)  # each page has one parent: counted before memory is allocated for them
                pending.extend((child, depth + 1, first or key) for child, first in reversed(children))
            else:
                yield number, key, page, nodes

    def _read_node_page(self, number: int) -> tuple[bytes, int, tuple[int, ...]]:
        """A branch or leaf page, its flags, and the offsets of its entries."""
        page = self.read(number)
        if len(page) < self.page_nbytes:
            raise ValueError(f"page {number}: the file ends within it")
        if self._hashes is not None and not self._hashes.matches(number, page):
            raise ValueError(f"page {number}: its checksum does not match")
        stored, _, flags, lower, upper = _PAGE.unpack_from(page)
        if (
            stored != number
            or flags & (_BRANCH | _LEAF) not in {_BRANCH, _LEAF}
            or not 16 <= lower <= upper <= len(page)
        ):
            raise ValueError(f"page {number}: must be a branch or leaf page")
        nodes = struct.unpack_from(f"<{(lower - 16) // 2}H", page, 16)
        if any(not lower <= at <= len(page) - _NODE.size for at in nodes):
            raise ValueError(f"page {number}: an entry is outside its page")
        return page, flags, nodes

    def _child(self, number: int, page: bytes, at: int) -> tuple[int, bytes]:
        """The page that an entry of a branch points to, and the first key that may be in it (empty: any key)."""
        low, high, flags, key_nbytes = _NODE.unpack_from(page, at)
        child: int = low | high << 16 | flags << 32
        if not 2 <= child < self.pages:
            raise ValueError(f"page {number}: points to page {child}, outside the file of {self.pages} pages")
        return child, page[at + _NODE.size : at + _NODE.size + key_nbytes]

    def _leaf_node(self, number: int, page: bytes, at: int) -> Node:
        low, high, flags, key_nbytes = _NODE.unpack_from(page, at)
        nbytes = low | high << 16
        start = at + _NODE.size + key_nbytes
        inside = _PAGE_NUMBER.size if flags & _BIGDATA else nbytes
        if start + inside > len(page) or flags & _DUPDATA:
            raise ValueError(f"page {number}: an entry is outside its page")
        key = page[at + _NODE.size : start]
        if not flags & _BIGDATA:
            return Node(
                key, Extent(number * self.page_nbytes + start, nbytes, number, 1, inline=True), bool(flags & _SUBDATA)
            )
        first = _PAGE_NUMBER.unpack_from(page, start)[0]
        count = -(-(16 + nbytes) // self.page_nbytes)
        if not 2 <= first <= self.pages - count:
            raise ValueError(f"page {number}: an entry's {count} pages from {first} on are outside the file")
        return Node(key, Extent(first * self.page_nbytes + 16, nbytes, first, count, inline=False), is_tree=False)


def fsync_path(path: Path) -> None:
    """Make the entries of a folder, or the bytes of a file, durable."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
