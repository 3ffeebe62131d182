"""Opens packs for reading: measured before they are mapped, and read without trusting their structure.

::

    branch pages ──> first number of each leaf                at opening
    leaf page ──sealed? bounds?──> places of its records      once, when one of them is first read
    place ──> window[begin : begin + nbytes]                  a view of the map, held against its record's checksums

LMDB writes packs and its library could read them; but it trusts what it maps: a flipped bit in a page of the tree makes
it touch memory that is not there, which kills the process. Here such a page is noticed, and named (decision 0005).
A finished pack does not change, so places are kept; views stay valid as long as someone holds them. Writes nothing.
"""

from __future__ import annotations

import bisect
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from penstock.errors import CorruptRecordError, IncompleteStoreError, StoreError, StoreFormatError, StoreNotFoundError
from penstock.plurals import counted
from penstock.stores.lmdb_format import (
    COLUMNS,
    DAMAGED_META,
    KEYS,
    META,
    META_ENTRY,
    META_HASH,
    RECORDS,
    PackMeta,
)
from penstock.stores.lmdb_pages import PageFile, Tree
from penstock.stores.lmdb_seals import SEALS, Seals

__all__ = ["FILE", "LOCK", "PackMap", "missing_data", "read_meta", "usable_seals"]

FILE: Final = "data.mdb"
LOCK: Final = "pack.lock"
"""Lies in the folder while a pack is unfinished, and holds the digest of its source."""
_LEAST_NBYTES: Final = 2 + 8 + 8 + 8  # a record's entry in a leaf: its place, its head, its number, where it lies


class PackMap:
    """One pack's file, mapped in this process and shared by every store on it; use :meth:`of`.

    Thread-safe. A fork's child maps the file anew (:attr:`process`).
    """

    def __init__(self, folder: Path, url: str) -> None:
        self.process = os.getpid()
        self._path = folder / FILE
        self._pages = PageFile(self._path, url, usable_seals(folder, url))
        self.meta = read_meta(self._pages, url)
        self._trees = self._pages.trees()
        records = self._trees.get(RECORDS, Tree.empty())
        if records.entries != self.meta.count:
            raise CorruptRecordError(
                f"it holds {counted(records.entries, 'record')} and should have {self.meta.count}", store=url
            )
        if self.meta.count * _LEAST_NBYTES > self._pages.nbytes:
            raise StoreFormatError(
                f"its {self._pages.nbytes} bytes cannot hold {counted(self.meta.count, 'record')}", store=url
            )
        leaves = list(self._pages.leaf_numbers(records))
        self._firsts = [int.from_bytes(key, "big") for key, _ in leaves]
        self._leaves = [number for _, number in leaves]
        self._begins = np.zeros(self.meta.count, np.int64).data
        self._sizes = np.zeros(self.meta.count, np.int64).data
        self._identity = _identity(self._path)
        self.window = self._pages.mapped()

    @classmethod
    def of(cls, folder: Path, url: str) -> PackMap:
        """The map of the pack in ``folder``, made if there is none in this process."""
        with _opening:
            try:
                identity = _identity(folder / FILE)
            except FileNotFoundError as error:
                raise missing_data(folder, url) from error
            except NotADirectoryError as error:
                raise StoreFormatError(
                    "this is an LMDB file, not a pack (a folder with data.mdb in it); converting the layouts of others "
                    "is not there yet",
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
                        raise missing_data(folder, url) from None
                    raise
                except StoreError:
                    raise
                except ValueError as error:
                    raise StoreFormatError(f"its structure is damaged: {error}", store=url) from error
            return found

    def record(self, index: int) -> memoryview:
        """The value of record ``index`` (which is one of the pack's); ValueError if the structure there is damaged."""
        begin = self._begins[index]
        if not begin:
            self._load_leaf(index)
            begin = self._begins[index]
        return self.window[begin : begin + self._sizes[index]]

    def column(self, field: str) -> bytes | None:
        """A column's stored bytes."""
        for _, nodes in self._pages.leaves(self._trees.get(COLUMNS, Tree.empty())):
            for node in nodes:
                if node.key == field.encode():
                    return self._pages.value(node.extent)
        return None

    def key_entries(self) -> Iterator[tuple[str, int]]:
        """All (key, index) pairs, in order of the keys' bytes; ValueError where that database is damaged."""
        for _, nodes in self._pages.leaves(self._trees.get(KEYS, Tree.empty())):
            for node in nodes:
                yield node.key.decode(), self._pages.number(node)

    def refuse_changed(self, url: str) -> None:
        """Refuse to go on with a file that was replaced, cut or written to under the map."""
        try:
            if _identity(self._path) == self._identity:
                return
        except OSError:
            pass
        raise StoreError("this store's file was replaced or changed while it was open; open it again", store=url)

    def _load_leaf(self, index: int) -> None:
        """Note the places of all records in the leaf page of one."""
        if not self._leaves:
            raise ValueError("the tree of records is empty")
        number = self._leaves[bisect.bisect_right(self._firsts, index) - 1]
        for node in self._pages.leaf(number):
            at = int.from_bytes(node.key, "big")
            if len(node.key) == 8 and at < len(self._begins):
                self._sizes[at] = node.extent.nbytes  # before the begin: that tells other threads that both are there
                self._begins[at] = node.extent.offset
        if not self._begins[index]:
            raise ValueError(f"it is missing from page {number}, where it must be")


def read_meta(pages: PageFile, url: str, *, unfinished_ok: bool = False) -> PackMeta:
    """What a pack's ``meta`` database says.

    Raises
    ------
    StoreFormatError
        If it is not a pack of ours, or of an unknown version, or the entry is damaged.
    IncompleteStoreError
        If the pack was never finished, unless ``unfinished_ok``.
    """
    trees = pages.trees()
    entries = {}
    for _, nodes in pages.leaves(trees.get(META, Tree.empty())):
        entries.update({node.key: pages.value(node.extent) for node in nodes if node.key in {META_ENTRY, META_HASH}})
    if META_ENTRY not in entries:
        if META in trees and RECORDS in trees:
            raise StoreFormatError(DAMAGED_META, store=url)
        raise StoreFormatError(
            "this LMDB environment is not a pack; converting the layouts of others is not there yet", store=url
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


def missing_data(folder: Path, url: str) -> StoreError:
    """The error for a folder without data that can be opened: a pack killed before its first commit, or none."""
    if (folder / LOCK).exists():
        return IncompleteStoreError(
            "this pack was never finished (no record is there yet); pack the same source again", store=url
        )
    if folder.is_dir():
        return StoreNotFoundError(
            f"{FILE} is missing from this folder; copy the pack again, or pack the source again", store=url
        )
    return StoreNotFoundError("there is no pack at this path", store=url)


def usable_seals(folder: Path, url: str) -> Seals | None:
    """The seals beside the file; none if they are missing or damaged, which `penstock verify` tells."""
    try:
        seals = Seals(folder / SEALS)
    except (FileNotFoundError, ValueError):
        return None
    have, want = (folder / FILE).stat().st_size, seals.count * seals.page_nbytes
    if have < want:
        raise StoreFormatError(
            f"{folder / FILE} is truncated: it has {have} bytes of {want} ({want - have} are missing); copy it again, "
            "or pack the source again",
            store=url,
        )
    return seals


def _identity(path: Path) -> tuple[int, int, int, int]:
    seen = path.stat()
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns


_maps: weakref.WeakValueDictionary[tuple[int, int, int, int], PackMap] = weakref.WeakValueDictionary()
_opening = threading.Lock()


def _renew_lock() -> None:
    global _opening  # noqa: PLW0603  # a forked child may inherit it held, by a thread it does not have
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
