"""Opens packs: measured before they are mapped, once per process, never across a fork.

A truncated file kills the process that maps it, so :mod:`.lmdb_pages` looks at it first. What is opened is read-only,
without a lock and without a table of readers: finished packs do not change, and one that does is noticed. Called by
:mod:`.lmdb`; writes nothing.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import lmdb
import numpy as np

from penstock.errors import CorruptRecordError, IncompleteStoreError, StoreError, StoreFormatError, StoreNotFoundError
from penstock.stores.lmdb_format import (
    COLUMNS,
    DAMAGED_META,
    KEYS,
    META,
    META_ENTRY,
    META_HASH,
    RECORDS,
    PackMeta,
    record_key,
)
from penstock.stores.lmdb_pages import SEALS, PageFile, Seals, Tree

__all__ = ["FILE", "Environment", "read_meta"]

FILE: Final = "data.mdb"
_MAX_DATABASES: Final = 8


class Environment:
    """One data file, open in this process and shared by every store on it.

    LMDB must not open a file twice in a process, so :data:`_environments` finds the open one by the file's identity; it
    closes when the last store lets go. Bytes are not handed out from the map of LMDB, which would vanish under them,
    but from :attr:`window`, a second map of the same pages of memory, which Python keeps as long as any view of it.

    Use :meth:`of`.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self.process = os.getpid()
        self._path = folder / FILE
        with PageFile(self._path, url) as pages:
            _refuse_short(folder, pages, url)
            self.meta = read_meta(pages, url)
            records = pages.trees().get(RECORDS, Tree.empty())
            if records.entries != self.meta.count:
                raise CorruptRecordError(
                    f"it holds {records.entries} records and should have {self.meta.count}", store=url
                )
            first = pages.locate(records)
        self._identity = _identity(self._path)
        with self._path.open("rb") as file:
            self.window = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self._env = lmdb.open(
            str(folder),
            readonly=True,
            lock=False,
            create=False,
            max_dbs=_MAX_DATABASES,
            readahead=_readahead(len(self.window)),
        )
        self._records = self._env.open_db(RECORDS, create=False)
        with self.begin() as get:
            self._base = 0 if first is None else _address(get(record_key(0))) - first.offset

    @classmethod
    def of(cls, folder: Path, url: str) -> Environment:
        """The environment of ``folder``, opened if it is not open in this process."""
        with _opening:
            try:
                seen = (folder / FILE).stat()
            except FileNotFoundError as error:
                raise StoreNotFoundError("there is no LMDB environment here", store=url) from error
            except NotADirectoryError as error:
                raise StoreFormatError(
                    "this is an LMDB file, not a pack (a folder with data.mdb in it); converting the layouts of others "
                    "is not there yet",
                    store=url,
                ) from error
            identity = (seen.st_dev, seen.st_ino)
            environment = _environments.get(identity)
            if environment is None or environment.process != os.getpid():
                if environment is not None:
                    environment._abandon()  # noqa: SLF001  # our own class
                try:
                    environment = _environments[identity] = cls(folder, url)
                except StoreError:
                    raise
                except (ValueError, lmdb.Error) as error:
                    raise StoreFormatError(f"its structure is damaged: {error}", store=url) from error
            return environment

    def _abandon(self) -> None:
        """Close what a fork carried into this process, so that LMDB opens the file again; views of it stay valid."""
        self._env.close()

    def begin(self) -> _Reading:
        """A read transaction for one call, in any thread."""
        return _Reading(self._env.begin(db=self._records, buffers=True))

    def locate(self, get: Callable[[bytes], memoryview | None], index: int) -> slice:
        """Where in the window record ``index`` lies; KeyError if the tree has none."""
        value = get(record_key(index))
        if value is None:
            raise KeyError(index)
        begin = _address(value) - self._base
        return slice(begin, begin + len(value))

    def column(self, field: str) -> bytes | None:
        """A column's stored bytes."""
        columns = self._env.open_db(COLUMNS, create=False)
        with self._env.begin(db=columns) as transaction:
            content: bytes | None = transaction.get(field.encode())
        return content

    def key_entries(self) -> Iterator[tuple[str, int]]:
        """All (key, index) pairs, in order of the keys' bytes."""
        with self._env.begin(db=self._env.open_db(KEYS, create=False)) as transaction:
            for key, index in transaction.cursor():
                yield key.decode(), int.from_bytes(index, "big")

    def refuse_changed(self, url: str) -> None:
        """Refuse to go on with a file that was replaced, or written to, under the map."""
        try:
            if _identity(self._path) == self._identity:
                return
        except FileNotFoundError:
            pass
        raise StoreError("this store's file was replaced or changed while it was open; open it again", store=url)


class _Reading:
    """A transaction as a context that gives its ``get``."""

    __slots__ = ("_transaction",)

    def __init__(self, transaction: Any) -> None:
        self._transaction = transaction

    def __enter__(self) -> Callable[[bytes], memoryview | None]:
        return self._transaction.get  # type: ignore[no-any-return]  # lmdb ships no types

    def __exit__(self, *exc: object) -> None:
        self._transaction.abort()


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
    if META in trees:
        entries = {node.key: pages.value(node.extent) for _, nodes in pages.leaves(trees[META]) for node in nodes}
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
            f"this pack was never finished ({meta.count} records are there); pack the same source again to resume",
            store=url,
        )
    return meta


def _refuse_short(folder: Path, pages: PageFile, url: str) -> None:
    try:
        seals = Seals(folder / SEALS)
    except (FileNotFoundError, ValueError):
        return  # without seals, or with damaged ones, a pack can be read; `penstock verify` says so
    want = seals.count * seals.page_nbytes
    if pages.nbytes < want:
        raise StoreFormatError(
            f"{folder / FILE} is truncated: it has {pages.nbytes} bytes of {want}; copy it again", store=url
        )


def _readahead(nbytes: int) -> bool:
    """Whether the kernel should read ahead: only where the file fits in memory beside everything else."""
    return nbytes < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _identity(path: Path) -> tuple[int, int, int, int]:
    seen = path.stat()
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns


def _address(view: memoryview | None) -> int:
    """Where in memory a view begins."""
    if view is None:
        raise ValueError("the first record is missing")
    address: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return address


_environments: weakref.WeakValueDictionary[tuple[int, int], Environment] = weakref.WeakValueDictionary()
_opening = threading.Lock()


def _renew_lock() -> None:
    global _opening  # noqa: PLW0603  # a forked child may inherit it held, by a thread it does not have
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
