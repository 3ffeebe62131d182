"""Opens packs for reading: their size is checked before they are mapped, and their structure when it is read.

::

    branch pages ──> first number of each leaf                   when the pack is opened
    leaf page ──hash? bounds?──> offsets of its records          once, when one of its records is first read
    offset ──> window[begin : begin + nbytes]                    a view of the map; the record's checksums are compared

LMDB's library writes packs and could read them. It trusts the file that it maps: a flipped bit in a page of a tree
makes it access memory outside the map, which kills the process. This module detects such a page (decision 0005).
A finished pack does not change: offsets are kept, and views stay valid as long as they are referenced.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock import _native
from penstock.errors import CorruptRecordError, IncompleteStoreError, StoreError, StoreFormatError, StoreNotFoundError
from penstock.pixel_rows import EncodedRows
from penstock.registry import Registry
from penstock.stores.common.lmdb.pages import FILE, HASHES, LOCK, BTree, PageFile
from penstock.stores.common.mirrors import MirrorFile
from penstock.stores.common.regular_file import FileIdentity, identify
from penstock.stores.lmdb_pack.format import COLUMNS, KEYS, RECORDS
from penstock.stores.lmdb_pack.meta import DAMAGED_META, META, META_ENTRY, META_HASH, PackMeta
from penstock.stores.lmdb_pack.page_hashes import PageHashFile
from penstock.wording import counted

__all__ = ["READ_AHEAD_NBYTES", "PackMap", "load_page_hashes", "make_missing_error", "read_meta"]

_DESCRIBERS = Registry("description of what is no pack")
_DESCRIBERS.register("lmdb", "penstock.stores.lmdb.layout:describe_environment")
READ_AHEAD_NBYTES: Final = 256 << 20
"""Bytes of a batch that are read ahead, at most: they are in memory until the batch is built."""

_MAX_LEAVES_AT_ONCE: Final = 64
"""Leaf pages of a remote pack that are all fetched when it is opened: those of some 6,000 records."""
_LEAST_NBYTES: Final = 2 + 8 + 8 + 8  # the entry of a record in a leaf: its offset in the page, head, number, page


class PackMap:
    """The file of one pack, mapped in this process and shared by all stores on it; use :meth:`open`.

    Thread-safe. After a fork, the child maps the file again (:attr:`process`).
    """

    def __init__(self, folder: Path, url: str) -> None:
        self.process = os.getpid()
        self._path = folder / FILE
        self._path_text = str(self._path)
        hashes = load_page_hashes(folder, url)
        self._pages = PageFile(self._path, url, None if hashes is None else hashes.matches)
        self.meta = read_meta(self._pages, url)
        self._trees = self._pages.trees()
        records = self._trees.get(RECORDS, BTree.empty())
        entries = self.meta.entries
        if records.entries != entries:
            what = "block" if self.meta.block_records else "record"
            raise CorruptRecordError(f"it must have {counted(entries, what)}, got {records.entries}", store=url)
        if entries * _LEAST_NBYTES > self._pages.nbytes:
            raise StoreFormatError(
                f"its {self._pages.nbytes} bytes are too few for {counted(self.meta.count, 'record')}", store=url
            )
        leaves = list(self._pages.leaf_numbers(records))
        self._firsts = [int.from_bytes(key, "big") for key, _ in leaves]
        self._leaves = [number for _, number in leaves]
        self._places = np.zeros(entries, np.int64), np.zeros(entries, np.int64)
        self._begins, self._sizes = (values.data for values in self._places)
        self._identity = identify(self._path)
        self.window = self._pages.map()
        self._mirror = self._pages.mirror
        self._lock = threading.Lock()
        """Of threads that read leaf pages: each page is parsed once."""
        if len(self._leaves) <= _MAX_LEAVES_AT_ONCE:
            self._pages.announce(self._leaves)

    @classmethod
    def open(cls, folder: Path, url: str) -> PackMap:
        """The map of the pack in ``folder``; the file is mapped if this process has no map of it."""
        try:
            identity = identify(folder / FILE)
        except FileNotFoundError as error:
            raise make_missing_error(folder, url) from error
        except NotADirectoryError as error:
            raise StoreFormatError(
                f"a pack must be a folder with data.mdb in it, got an LMDB file; {_DESCRIBERS.get('lmdb')(folder)}",
                store=url,
            ) from error
        except OSError as error:
            raise StoreError(f"{folder / FILE} cannot be read: {error.strerror}", store=url) from error
        found = _maps.get(identity)
        if found is None or found.process != os.getpid():
            try:
                found = _maps[identity] = cls(folder, url)
            except StoreFormatError:
                if (folder / LOCK).exists():
                    raise make_missing_error(folder, url) from None
                raise
            except StoreError:
                raise
            except ValueError as error:
                raise StoreFormatError(f"its structure is damaged: {error}", store=url) from error
        return found

    def record(self, index: int) -> memoryview:
        """The value of record ``index``, or block ``index``; ValueError if its leaf page is damaged."""
        begin = self._begins[index]
        if not begin:
            self._load_leaf(index)
            begin = self._begins[index]
        if self._mirror is not None:
            return self._mirror.read(begin, self._sizes[index])
        return self.window[begin : begin + self._sizes[index]]

    def offset(self, index: int) -> int:
        """Return the offset in the file of a value that :meth:`record` has returned."""
        if self._mirror is not None:
            self._mirror.require(self._begins[index], self._sizes[index])
        return self._begins[index]

    def read_ahead(self, numbers: NDArray[np.int64]) -> int:
        """Have the system read these records, if they are not in its page cache; does not wait for the disk.

        Returns the bytes that it is asked for, at most :data:`READ_AHEAD_NBYTES`. Damaged pages are left out.
        """
        if self._mirror is not None:
            if self._places[0][numbers].all():
                return self._announce_values(numbers, self._mirror)
            leaves = self._announce_leaves(numbers)  # which say where the values are
            self._mirror.submit(functools.partial(self._announce_values, numbers, self._mirror))
            return leaves or self._pages.page_nbytes
        nbytes: int = _native.read_ahead(self.window, *self._locate(numbers), most_nbytes=READ_AHEAD_NBYTES)
        return nbytes

    def find_blobs(self, numbers: NDArray[np.int64], blobs: int, part: int, *, check: bool) -> EncodedRows | None:
        """Blob ``part``, 1 to ``blobs``, of some records.

        None if a record is not in the pack, or is damaged, or if the file was changed.
        """
        file = (self._path_text, self._identity) if self._mirror is None else None
        for _ in range(2 if self._mirror is None else self._hold(numbers, self._mirror)):
            places, sizes, is_complete = _native.find_blobs(
                self.window, *self._places, numbers, blobs=blobs, part=part, check=check, file=file
            )
            if is_complete:
                return EncodedRows(self.window, places, sizes)
            if numbers.min() < 0 or numbers.max() >= len(self._begins) or not self._load_leaves(numbers):
                break
        return None

    def fetch(self, numbers: Sequence[int] | NDArray[np.int64]) -> None:
        """Ask for records that are read now, all at once; does nothing for a file of this machine."""
        if self._mirror is not None and len(numbers) > 1:
            wanted = np.asarray(numbers, np.int64)
            self._mirror.hold(())  # this process reads, so that what it announces is sent
            self._announce_leaves(wanted)
            self._announce_values(wanted, self._mirror)

    def _hold(self, numbers: NDArray[np.int64], mirror: MirrorFile) -> bool:
        """Return whether records of a remote pack are in the file, after they were fetched."""
        if numbers.min() < 0 or numbers.max() >= len(self._begins):
            return False
        self._announce_leaves(numbers)
        try:
            return mirror.hold(zip(*(values.tolist() for values in self._locate(numbers)), strict=True))
        except StoreError:  # raised again for the record that cannot be read
            return False

    def _announce_leaves(self, numbers: NDArray[np.int64]) -> int:
        unknown = numbers[self._places[0][numbers] == 0].tolist()
        return self._pages.announce({self._leaves[bisect.bisect_right(self._firsts, each) - 1] for each in unknown})

    def _announce_values(self, numbers: NDArray[np.int64], mirror: MirrorFile) -> int:
        return mirror.announce(zip(*(values.tolist() for values in self._locate(numbers)), strict=True))

    def _locate(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Offsets and sizes of the values of records; 0 for those in damaged pages."""
        self._load_leaves(numbers)
        begins, sizes = (values[numbers] for values in self._places)
        return begins, sizes

    def _load_leaves(self, numbers: NDArray[np.int64]) -> bool:
        """Read the leaf pages of records that were not read yet; whether there were any. Damage is left to `record`."""
        unknown = numbers[self._places[0][numbers] == 0].tolist()
        with self._lock if unknown else contextlib.nullcontext():
            for number in unknown:
                if not self._begins[number]:
                    with contextlib.suppress(ValueError):
                        self._load_leaf(number)
        return bool(unknown)

    def column(self, field: str) -> bytes | None:
        """Return the stored bytes of a column; None if there is none."""
        nodes = (node for _, node in self._pages.nodes(self._trees.get(COLUMNS)) if node.key == field.encode())
        return next(map(self._pages.value, nodes), None)

    def key_entries(self) -> Iterator[tuple[str, int]]:
        """Yield all (key, index) pairs, in order of the bytes of the keys; ValueError if that database is damaged."""
        for _, node in self._pages.nodes(self._trees.get(KEYS)):
            for number in self._pages.numbers(node):
                yield node.key.decode(), number

    def _load_leaf(self, index: int) -> None:
        """Store the offsets of all records in the leaf page of one record."""
        if not self._leaves:
            raise ValueError("the tree of records is empty")
        number = self._leaves[bisect.bisect_right(self._firsts, index) - 1]
        for node in self._pages.leaf(number):
            at = int.from_bytes(node.key, "big")
            if len(node.key) == 8 and at < len(self._begins):
                self._sizes[at] = node.nbytes  # before the offset: a thread that sees the offset reads both
                self._begins[at] = node.offset
        if not self._begins[index]:
            raise ValueError(f"it is missing from page {number}")


def read_meta(pages: PageFile, url: str, *, unfinished_ok: bool = False) -> PackMeta:
    """The description of a pack, from its database ``meta``.

    Raises StoreFormatError if it is not a pack, or of an unknown version, or the entry is damaged. Raises
    IncompleteStoreError if the pack was never finished, unless ``unfinished_ok``.
    """
    trees = pages.trees()
    nodes = (node for _, node in pages.nodes(trees.get(META)))
    entries = {node.key: pages.value(node) for node in nodes if node.key in {META_ENTRY, META_HASH}}
    if META_ENTRY not in entries:
        if META in trees and RECORDS in trees:
            raise StoreFormatError(DAMAGED_META, store=url)
        raise StoreFormatError(
            f"this LMDB environment is not a pack, and {_DESCRIBERS.get('lmdb')(pages.path)}", store=url
        )
    try:
        meta = PackMeta.from_bytes(entries[META_ENTRY], entries.get(META_HASH))
    except StoreFormatError as error:
        error.locate(store=url)
        raise
    if not meta.complete and not unfinished_ok:
        raise IncompleteStoreError(
            f"this pack was never finished ({counted(meta.count, 'record')} so far); pack the same source again to "
            "resume",
            store=url,
        )
    return meta


def make_missing_error(folder: Path, url: str) -> StoreError:
    """Return the error for a folder without a data file: a pack killed before its first commit, or no pack."""
    if (folder / LOCK).exists():
        return IncompleteStoreError(
            "this pack was never finished (it has no record yet); pack the same source again", store=url
        )
    if folder.is_dir():
        return StoreNotFoundError(
            f"{FILE} is missing from this folder; copy the pack again, or pack the source again", store=url
        )
    return StoreNotFoundError("there is no pack at this path", store=url)


def load_page_hashes(folder: Path, url: str) -> PageHashFile | None:
    """The page hashes beside the file; None if they are missing or damaged, which `penstock verify` reports."""
    try:
        hashes = PageHashFile(folder / HASHES)
    except (FileNotFoundError, ValueError):
        return None
    have, want = (folder / FILE).stat().st_size, hashes.count * hashes.page_nbytes
    if have < want:
        raise StoreFormatError(
            f"{folder / FILE} is truncated: it has {have} bytes of {want} ({want - have} are missing); copy it again, "
            "or pack the source again",
            store=url,
        )
    return hashes


_maps: weakref.WeakValueDictionary[FileIdentity, PackMap] = weakref.WeakValueDictionary()
"""Two threads that open a pack at once may each map it."""
