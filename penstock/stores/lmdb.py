"""The ``lmdb`` store: packs read through a memory map, checked record by record.

::

    LmdbStore ──(per process)──> _Environment, one per file ──> LMDB's map ──> value ──check──> views

The file is measured before it is mapped (a truncated one would kill the process), opened read-only without a lock, and
mapped once per process however many stores look at it. Views of its bytes keep the map alive by themselves: one that
outlives its store stays valid. Never used across a fork, never unpickles, writes nothing; :mod:`.lmdb_write` writes.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, overload

import lmdb
import numpy as np
import xxhash
from numpy.typing import NDArray

from penstock.errors import (
    ArgumentError,
    CorruptRecordError,
    IncompleteStoreError,
    StoreError,
    StoreFormatError,
    StoreNotFoundError,
)
from penstock.sample import Record, Schema
from penstock.stores.base import Problem, Skipped, Store, Writer
from penstock.stores.lmdb_format import (
    COLUMNS,
    DAMAGED_META,
    KEYS,
    META,
    META_ENTRY,
    META_HASH,
    RECORDS,
    Layout,
    PackMeta,
    column_dtype,
    parse_column,
    record_key,
)
from penstock.stores.lmdb_pages import SEALS, PageFile, Seals, looks_like_lmdb

__all__ = ["FILE", "LmdbStore", "read_meta"]

FILE: Final = "data.mdb"
_MAX_DATABASES: Final = 8


class LmdbStore(Store):
    """A finished pack.

    Parameters
    ----------
    path : str or path
        The environment's folder.
    check : bool
        Whether each blob's checksum is verified whenever it is read (xxh3, some 25 GB/s). Lengths, and the checksum of
        the small fields, always are.

    Raises
    ------
    StoreNotFoundError
        If nothing is there.
    StoreFormatError
        If it is truncated, not a pack, or of an unknown version.
    IncompleteStoreError
        If it was never finished.

    Notes
    -----
    Reading costs about 4 microseconds a record beside its checksum. Layout of the file: :mod:`.lmdb_format`.
    """

    kind: ClassVar[str] = "lmdb"
    suffixes: ClassVar[tuple[str, ...]] = (".lmdb", ".mdb")

    def __init__(self, path: str | os.PathLike[str], *, check: bool = True) -> None:
        super().__init__(path, check=check)
        self._check = check
        self._opened: _Opened | None = None
        meta = self._open().environment.meta
        self._meta = meta
        self._layout = Layout(meta.schema)
        self._columns: dict[str, NDArray[Any]] = {}

    @property
    def schema(self) -> Schema:
        """Fields of the records, in order."""
        return self._meta.schema

    @property
    def meta(self) -> PackMeta:
        """What the pack says of itself: counts, columns, what was skipped when it was written."""
        return self._meta

    def __len__(self) -> int:
        return self._meta.count

    def read(self, indices: Iterable[int] | NDArray[np.int64]) -> list[Record]:
        """The records at ``indices``; blobs are views of the map. See :meth:`Store.read`."""
        opened = self._open()
        opened.environment.refuse_changed(self.url)
        decode, check, locate = self._layout.decode, self._check, opened.environment.locate
        records = []
        with opened.environment.begin() as get:
            for index in indices:
                number = int(index)
                try:
                    value = opened.window[locate(get, number)]
                    key, fields = decode(value, number, check=check)
                except (KeyError, ValueError, lmdb.Error) as error:
                    raise self._unreadable(number, error) from error
                records.append(Record(number, key, fields))
        return records

    def column(self, field: str) -> NDArray[Any]:
        """A small field of all records, from its column; text is gathered record by record at the first call."""
        self._refuse_closed()
        if field not in self._columns:
            kind = self.schema[field]
            if column_dtype(kind) is not None:
                self._columns[field] = self._stored_column(field)
            elif kind.kind == "text":
                column = np.array([self.read([index])[0].fields[field] for index in range(len(self))], np.str_)
                column.flags.writeable = False
                self._columns[field] = column
            else:
                raise ArgumentError(f"field {field!r} is {kind.kind}, which varies in size; read the records instead")
        return self._columns[field]

    def keys(self) -> Sequence[str]:
        """The records' names; each is read when it is asked for, iterating reads all at once."""
        self._refuse_closed()
        return _Keys(self)

    def digest(self) -> str:
        """The hash over all records that the pack carries."""
        self._refuse_closed()
        return self._meta.content

    @classmethod
    def recognises(cls, path: str) -> bool:
        """A folder with an LMDB data file in it, or such a file."""
        return os.path.lexists(f"{path}/{FILE}") or (Path(path).is_file() and looks_like_lmdb(path))

    @classmethod
    def check(cls, path: str, progress: Callable[[int, int], None] | None = None) -> Iterator[Problem]:
        """Everything wrong with the pack's files, page by page and record by record, without mapping them."""
        from penstock.stores.lmdb_check import check  # it imports this module

        return check(path, progress)

    @classmethod
    def writer(cls, path: str, schema: Schema, source: str, *, overwrite: bool = False) -> Writer:
        """Begin or resume a pack; see :class:`.lmdb_write.LmdbWriter`."""
        from penstock.stores.lmdb_write import LmdbWriter  # readers need not load it

        return LmdbWriter(path, schema, source, overwrite=overwrite)

    @property
    def problems(self) -> tuple[Skipped, ...]:
        """What was skipped when the pack was written is not in it; so, nothing."""
        return ()

    def close(self) -> None:
        """Let go of the map; it is unmapped when the last store and the last view of it are gone."""
        super().close()
        self._opened = None

    def _open(self) -> _Opened:
        self._refuse_closed()
        opened = self._opened
        if opened is None or opened.process != os.getpid():
            environment = _Environment.of(self._path, self.url)
            self._opened = opened = _Opened(os.getpid(), environment, environment.window())
            known = getattr(self, "_meta", None)
            if known is not None and known.content != environment.meta.content:
                raise StoreError("this store was replaced by another; open it again", store=self.url)
        return opened

    def _unreadable(self, index: int, error: Exception) -> StoreError:
        try:
            self._refuse_outside(index)
        except IndexError as outside:
            return outside  # type: ignore[return-value]  # a RecordIndexError: raised in the same way
        if isinstance(error, KeyError):
            reason = f"record {index} of {len(self)} is missing: the file's structure is damaged"
        else:
            reason = f"record {index} is damaged: {error}"
        key = self._key_elsewhere(index)
        return CorruptRecordError(
            f"{reason}; `penstock verify` lists all that is", store=self.url, key=key, index=index
        )

    def _key_elsewhere(self, index: int) -> str | None:
        """The key of a record that cannot be decoded, from the database of keys."""
        try:
            return next((key for key, at in self._open().environment.key_entries() if at == index), None)
        except (lmdb.Error, ValueError):
            return None  # that database is damaged as well; the index names the record

    def _stored_column(self, field: str) -> NDArray[Any]:
        content = self._open().environment.column(field)
        hashed = (self._meta.columns or {}).get(field)
        if content is None:
            raise CorruptRecordError(f"the column of field {field!r} is missing", store=self.url)
        try:
            if xxhash.xxh3_64_hexdigest(content) != hashed:
                raise ValueError("its checksum does not hold")  # noqa: TRY301  # one end for all that is wrong with it
            return parse_column(content, len(self), self.schema[field])
        except ValueError as error:
            raise CorruptRecordError(f"the column of field {field!r} is damaged: {error}", store=self.url) from error


@dataclass(frozen=True, slots=True)
class _Opened:
    """What a store holds in one process."""

    process: int
    environment: _Environment
    window: memoryview


class _Environment:
    """One data file's map in this process, shared by every store on it.

    LMDB must not open a file twice in a process, and unmapping it under a view would crash. Hence :data:`_environments`
    finds the open one by the file's identity, and each window's memory object refers to the environment: it closes when
    the last store and the last view are gone, and not before.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self._path = folder / FILE
        with PageFile(self._path, url) as pages:
            _refuse_short(folder, pages, url)
            trees = pages.trees()
            self.meta = read_meta(pages, url)
            first = pages.locate(trees[RECORDS]) if RECORDS in trees else None
            self._nbytes = pages.nbytes
            if RECORDS not in trees or trees[RECORDS].entries != self.meta.count:
                have = trees[RECORDS].entries if RECORDS in trees else 0
                raise CorruptRecordError(f"it holds {have} records and should have {self.meta.count}", store=url)
        self._identity = _identity(self._path)
        self._env = lmdb.open(
            str(folder),
            readonly=True,
            lock=False,
            create=False,
            max_dbs=_MAX_DATABASES,
            readahead=_readahead(self._nbytes),
        )
        self._records = self._env.open_db(RECORDS, create=False)
        self._base = 0
        if first is not None:
            with self._env.begin(db=self._records, buffers=True) as transaction:
                self._base = _address(transaction.get(record_key(0))) - first.offset

    @classmethod
    def of(cls, folder: Path, url: str) -> _Environment:
        """The environment of ``folder``, opened if no one in this process has it open."""
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
            identity = (os.getpid(), seen.st_dev, seen.st_ino)
            environment = _environments.get(identity)
            if environment is None:
                try:
                    environment = _environments[identity] = cls(folder, url)
                except (ValueError, lmdb.Error) as error:
                    if isinstance(error, StoreError):
                        raise
                    raise StoreFormatError(f"its structure is damaged: {error}", store=url) from error
            return environment

    def window(self) -> memoryview:
        """The whole file as read-only bytes; slices of it keep this environment open."""
        if not self._base:
            return memoryview(b"")
        memory = (ctypes.c_ubyte * self._nbytes).from_address(self._base)
        memory.environment = self  # type: ignore[attr-defined]  # an attribute made here, to keep the map
        return memoryview(memory).cast("B").toreadonly()

    def begin(self) -> _Reading:
        """A read transaction for one call, in any thread."""
        return _Reading(self._env.begin(db=self._records, buffers=True))

    def locate(self, get: Callable[[bytes], memoryview | None], index: int) -> slice:
        """Where in the window record ``index`` lies; KeyError if the tree has none."""
        value = get(record_key(index)) if index >= 0 else None
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


class _Keys(Sequence[str]):
    """The keys of a store, read as they are needed."""

    def __init__(self, store: LmdbStore) -> None:
        self._store = store
        self._all: list[str] | None = None

    def __len__(self) -> int:
        return len(self._store)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return self._gather()[index]
        if self._all is not None:
            return self._all[index]
        return self._store.read([index + len(self) if index < 0 else index])[0].key

    def __iter__(self) -> Iterator[str]:
        return iter(self._gather())

    def __repr__(self) -> str:
        return f"<{len(self)} keys of {self._store.url!r}>"

    def _gather(self) -> list[str]:
        if self._all is None:
            found: list[str | None] = [None] * len(self)
            for key, index in self._store._open().environment.key_entries():  # noqa: SLF001  # the store's own part
                if index < len(found):
                    found[index] = key
            if None in found:
                raise CorruptRecordError("the database of keys is damaged", store=self._store.url)
            self._all = found  # type: ignore[assignment]  # None was refused above
        return self._all  # type: ignore[return-value]  # as above


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


_environments: weakref.WeakValueDictionary[tuple[int, int, int], _Environment] = weakref.WeakValueDictionary()
_opening = threading.Lock()


def _renew_lock() -> None:
    global _opening  # noqa: PLW0603  # a forked child may inherit it held, by a thread it does not have
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
