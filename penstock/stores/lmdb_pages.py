"""The pages of an LMDB file, read with plain ``pread``: is it whole, which record lies where.

::

    data.mdb    ┌ page 0 ┬ page 1 ┬ page 2 ┬ ...
                │  meta  │  meta  │ branch, leaf, overflow

LMDB maps its file and trusts it: a truncated one kills the process, a damaged one answers wrongly. So this module
reads the file on its own terms, bounds-checked and without a map: before it is opened (:func:`measure`), to find the
records' places (:meth:`PageFile.leaf`), and to verify it (:meth:`PageFile.leaves`). It writes nothing. Pages are
compared with their hashes by :mod:`penstock.stores.lmdb_seals`.

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
from penstock.stores.regular import open_regular

__all__ = [
    "Extent",
    "MetaPage",
    "Node",
    "PageFile",
    "PageSeals",
    "Tree",
    "fsync_path",
    "is_page_size",
    "looks_like_lmdb",
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

_MAGIC, _DATA_VERSION = 0xBEEFC0DE, 1
_BRANCH, _LEAF, _OVERFLOW = 0x01, 0x02, 0x04
_BIGDATA, _SUBDATA, _DUPDATA = 0x01, 0x02, 0x04
_NO_PAGE: Final = 0xFFFFFFFFFFFFFFFF
_MAX_DEPTH: Final = 32  # LMDB's CURSOR_STACK


@dataclass(frozen=True, slots=True)
class Tree:
    """One database's B-tree: where its root is, how many entries it should have."""

    root: int
    depth: int
    entries: int

    @classmethod
    def empty(cls) -> Tree:
        """A tree without a page."""
        return cls(_NO_PAGE, 0, 0)

    @classmethod
    def parse(cls, content: bytes | memoryview, at: int = 0) -> Tree:
        """From an MDB_db structure."""
        _, _, depth, _, _, _, entries, root = _TREE.unpack_from(content, at)
        return cls(root, depth, entries)


@dataclass(frozen=True, slots=True)
class MetaPage:
    """The newest of a file's two meta pages."""

    page_nbytes: int
    last_page: int
    transaction: int
    map_nbytes: int
    free: Tree
    main: Tree

    @property
    def nbytes(self) -> int:
        """Bytes the file must have."""
        return (self.last_page + 1) * self.page_nbytes


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a value lies: byte offset and length in the file, first page and number of pages.

    ``inline``: whether it lies inside a leaf page, and not in pages of its own.
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


def looks_like_lmdb(path: str | Path) -> bool:
    """Whether the file begins with an LMDB meta page."""
    try:
        with _opened(Path(path)) as file:
            head = file.read(16 + 4)
    except OSError:
        return False
    return len(head) == 16 + 4 and int.from_bytes(head[16:], "little") == _MAGIC


def measure(path: Path, url: str) -> MetaPage:
    """Read the meta pages and compare what they promise with the file's size, before anyone maps it.

    Raises
    ------
    StoreNotFoundError
        If there is no such file.
    StoreFormatError
        If it is no LMDB file, or shorter than it says; both sizes are named.
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
    """The newer meta page, whatever the file's size; errors as :func:`measure`."""
    head_nbytes = 16 + _META.size + 2 * _TREE.size + _TAIL.size
    try:
        with _opened(path) as file:
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


def _opened(path: Path) -> BinaryIO:
    return os.fdopen(open_regular(path), "rb")


def _page_nbytes(head: bytes) -> int | None:
    if len(head) < 16 + _META.size + 4 or _META.unpack_from(head, 16)[:2] != (_MAGIC, _DATA_VERSION):
        return None
    size: int = struct.unpack_from("<I", head, 16 + _META.size)[0]  # md_pad of the free tree holds the page size
    return size if is_page_size(size) else None


def is_page_size(nbytes: int) -> bool:
    """Whether LMDB makes files of such pages."""
    return 512 <= nbytes <= 1 << 16 and nbytes & (nbytes - 1) == 0


def _parse_meta(page: bytes, page_nbytes: int) -> MetaPage | None:
    if _page_nbytes(page) != page_nbytes or len(page) < 16 + _META.size + 2 * _TREE.size + _TAIL.size:
        return None
    at = 16 + _META.size
    last_page, transaction = _TAIL.unpack_from(page, at + 2 * _TREE.size)
    map_nbytes = _META.unpack_from(page, 16)[3]
    return MetaPage(
        page_nbytes, last_page, transaction, map_nbytes, Tree.parse(page, at), Tree.parse(page, at + _TREE.size)
    )


class PageSeals(Protocol):
    """What :class:`PageFile` asks about each page that it reads."""

    def fits(self, number: int, page: bytes) -> bool:
        """Whether a page is the one that was sealed."""
        ...


class PageFile:
    """An LMDB file as pages. Whatever does not hold is a ValueError that names the page; nothing is trusted.

    Parameters
    ----------
    path : Path
        The file ``data.mdb``.
    url : str
        The store, for errors.
    seals : PageSeals, optional
        If given, each branch and leaf page is held against its seal when it is read.

    Notes
    -----
    Thread-safe, also across a fork: it reads with ``pread``. The file is closed with the object.
    """

    def __init__(self, path: Path, url: str, seals: PageSeals | None = None) -> None:
        self.meta = measure(path, url)
        self.page_nbytes = self.meta.page_nbytes
        self._seals = seals
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
        """Pages ``first`` and following, whole; ValueError where the file has none."""
        if first < 0 or first + count > self.pages:
            raise ValueError(f"page {first} is outside the file of {self.pages} pages")
        return os.pread(self._file, count * self.page_nbytes, first * self.page_nbytes)

    def value(self, extent: Extent) -> bytes:
        """The bytes of a value."""
        return os.pread(self._file, extent.nbytes, extent.offset)

    def number(self, node: Node) -> int:
        """A value that is the number of a record; ValueError if it is of another size."""
        if node.extent.nbytes != 8:
            raise ValueError(f"the value of {node.key!r:.200} has {node.extent.nbytes} bytes, a record's number has 8")
        return int.from_bytes(self.value(node.extent), "big")

    def mapped(self) -> memoryview:
        """The whole file, mapped to be read; it stays mapped as long as a view of it is held."""
        return memoryview(mmap.mmap(self._file, 0, access=mmap.ACCESS_READ))

    def trees(self) -> dict[bytes, Tree]:
        """The named databases."""
        found = {}
        for number, nodes in self.leaves(self.meta.main):
            for node in nodes:
                if node.is_tree:
                    if node.extent.nbytes != _TREE.size:
                        raise ValueError(f"page {number}: an entry for a database has {node.extent.nbytes} bytes")
                    found[node.key] = Tree.parse(self.value(node.extent))
        return found

    def leaves(self, tree: Tree, structure: list[int] | None = None) -> Iterator[tuple[int, list[Node]]]:
        """Page number and entries of each leaf, in order of keys.

        Parameters
        ----------
        tree : Tree
            Where to walk.
        structure : list of int, optional
            Gets the number of each branch and leaf page before it is parsed.
        """
        for number, _, page, nodes in self._walk(tree, structure):
            yield number, [self._leaf_node(number, page, at) for at in nodes]

    def leaf_numbers(self, tree: Tree) -> Iterator[tuple[bytes, int]]:
        """First possible key and page number of each leaf, in order, by the branch pages alone."""
        for number, key, _, _ in self._walk(tree, None, branches_only=True):
            yield key, number

    def leaf(self, number: int) -> list[Node]:
        """The entries of one leaf page."""
        page, flags, nodes = self._structure(number)
        if flags & _BRANCH:
            raise ValueError(f"page {number}: a branch page where a leaf must be")
        return [self._leaf_node(number, page, at) for at in nodes]

    def _walk(
        self, tree: Tree, structure: list[int] | None, *, branches_only: bool = False
    ) -> Iterator[tuple[int, bytes, bytes, tuple[int, ...]]]:
        """Leaves in order: number, first possible key; unless ``branches_only``, the page and its entries' places."""
        waiting = [] if tree.root == _NO_PAGE else [(tree.root, 1, b"")]
        met = len(waiting)
        while waiting:
            number, depth, key = waiting.pop()
            if depth > min(tree.depth, _MAX_DEPTH) or met > self.pages:
                raise ValueError(f"page {number}: the tree is deeper than it says, or runs in a circle")
            if branches_only and depth == tree.depth:
                yield number, key, b"", ()
                continue
            if structure is not None:
                structure.append(number)
            page, flags, nodes = self._structure(number)
            if flags & _BRANCH:
                children = [self._child(number, page, at) for at in nodes]
                met += len(children)  # each page is the child of one page: counted before memory is taken for them
                waiting.extend((child, depth + 1, first or key) for child, first in reversed(children))
            else:
                yield number, key, page, nodes

    def _structure(self, number: int) -> tuple[bytes, int, tuple[int, ...]]:
        """A branch or leaf page, its flags, and where in it its entries lie."""
        page = self.read(number)
        if len(page) < self.page_nbytes:
            raise ValueError(f"page {number}: the file ends within it")
        if self._seals is not None and not self._seals.fits(number, page):
            raise ValueError(f"page {number}: not as it was sealed")
        said, _, flags, lower, upper = _PAGE.unpack_from(page)
        if said != number or flags & (_BRANCH | _LEAF) not in {_BRANCH, _LEAF} or not 16 <= lower <= upper <= len(page):
            raise ValueError(f"page {number}: neither a branch nor a leaf page")
        nodes = struct.unpack_from(f"<{(lower - 16) // 2}H", page, 16)
        if any(not lower <= at <= len(page) - _NODE.size for at in nodes):
            raise ValueError(f"page {number}: an entry lies outside its page")
        return page, flags, nodes

    def _child(self, number: int, page: bytes, at: int) -> tuple[int, bytes]:
        """The page that a branch's entry points to, and the first key that may be there (empty: none is too small)."""
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
            raise ValueError(f"page {number}: an entry lies outside its page")
        key = page[at + _NODE.size : start]
        if not flags & _BIGDATA:
            return Node(
                key, Extent(number * self.page_nbytes + start, nbytes, number, 1, inline=True), bool(flags & _SUBDATA)
            )
        first = _PAGE_NUMBER.unpack_from(page, start)[0]
        count = -(-(16 + nbytes) // self.page_nbytes)
        if not 2 <= first <= self.pages - count:
            raise ValueError(f"page {number}: an entry's {count} pages from {first} on lie outside the file")
        return Node(key, Extent(first * self.page_nbytes + 16, nbytes, first, count, inline=False), is_tree=False)


def fsync_path(path: Path) -> None:
    """Make a folder's entries, or a file's bytes, durable."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
