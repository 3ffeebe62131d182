"""Seek tables of the images of a dataset: read from a file, or made while images are decoded.

::

    file beside the store (`penstock index`) ──┐
    cache file, if a path is given ────────────┼──tables──> fill ──found──> cache file, else memory within a budget
    memory ────────────────────────────────────┘

A seek table says where decoding of a JPEG may begin. Pixels are the same without one, and with a wrong one, which the
decoder detects. Therefore no error here fails a sample: a file that cannot be read, written or locked is logged once,
and images are decoded without it. Only a path that cannot be right is an error, when the dataset is made.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock import system
from penstock.errors import ArgumentError, StoreError, StoreFormatError, StoreNotFoundError
from penstock.stores.base import Store
from penstock.stores.common.seek_table_file import SEEK_TABLE_KINDS, SeekTableFile, TablesInFile, seek_table_path
from penstock.stores.lmdb_pack.sharded import ShardedPack
from penstock.transforms.program.image_chunk import ChunkSeekTables

__all__ = ["MEMORY_NBYTES", "SeekTables"]

MEMORY_NBYTES: Final = 256 << 20
"""Default limit of the memory for seek tables: enough for about 700,000 photographs of 500 x 375."""

_OVERHEAD_NBYTES: Final = 160
"""The memory of a seek table besides its content: its objects and its entry in a dict."""

_WRONG_PATH: Final = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EINVAL,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.EACCES,
        errno.EPERM,
    }
)
"""Errors of the operating system for a path that is the caller's mistake; other errors may be temporary."""

_logger = logging.getLogger(__name__)


class SeekTables:
    """The seek tables of one field of a store.

    Parameters
    ----------
    store : Store
        The store of the images.
    field : str
        The field of images.
    where : {"auto", "rows", "tiles"} or path
        "auto": the file beside the store, if it exists; tables that it lacks are made while images are decoded, and
        kept in memory. A kind: the same, but a file of the other kind is not used ("auto" makes "rows"). A path: a
        cache file, which is made if it does not exist.
    memory : int
        Limit of the memory for tables, in bytes; 0 keeps none.

    Raises
    ------
    ArgumentError
        If the cache file belongs to other records, or there can be no file at its path; if ``where`` is "none". Other
        errors (a full disk, a file system without locks) are logged, and tables are kept in memory.
    """

    def __init__(self, store: Store, field: str, where: str | os.PathLike[str], memory: int = MEMORY_NBYTES) -> None:
        if where == "none":
            raise ArgumentError(
                "index must be 'auto', 'rows', 'tiles', a path or None, got 'none'; index=None uses no decode indices"
            )
        self._store, self._field, self._where, self._budget = store, field, where, memory
        self._open(check=True)

    def __getstate__(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in ("_store", "_field", "_where", "_budget")}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._open(check=False)  # in a worker: an error is logged, since the dataset was valid when it was made

    def renew_in_child(self) -> None:
        """Replace the lock in a forked child: a thread of the parent may hold it."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Number of images that have a seek table."""
        found = set(self._found)
        if self._file is not None:
            found.update(range(len(self._store)))
            found.difference_update(set(self._file.missing().tolist()) - set(self._found))
        return len(found)

    def get(self, indices: NDArray[np.int64] | Sequence[int]) -> ChunkSeekTables:
        """The seek tables of these records, in the form that ``fill`` of a program takes."""
        found, file = self._found, self._file
        has_kept = bool(found)  # another thread may add the first one
        tables: list[bytes | None] | TablesInFile = [None] * len(indices)
        if file is not None:
            try:
                tables = file.get(indices) if has_kept else file.locate(indices)
            except StoreError as error:
                self._stop_reading(file, error)
        if has_kept:
            kept = map(found.get, np.asarray(indices).tolist())
            tables = [old if new is None else new or None for old, new in zip(tables, kept, strict=True)]
        kind = self._kind if self._keeps_new else None
        return ChunkSeekTables(tables, kind, any_kind=self._where == "auto" and not self._writes_file)

    def keep(self, indices: NDArray[np.int64] | Sequence[int], tables: ChunkSeekTables) -> None:
        """Keep the tables that a call of ``fill`` made, in the file or in memory."""
        file = self._file
        if isinstance(file, SeekTableFile) and isinstance(tables.entries, TablesInFile) and tables.entries.errors:
            self._stop_reading(file, file.make_read_error(tables.entries.errors[0]))
        for position, damaged, table in tables.found:
            index = int(indices[position])
            if damaged:
                _logger.warning(
                    "%s: the decode index of record %d is damaged or of another image, and is not used (record "
                    "%r; `penstock index --overwrite` makes all of them again)",
                    self._store.url, index, self._store.keys()[index],
                )  # fmt: skip
            if table is None and not damaged:
                continue
            if not (self._writes_file and table is not None and self._write(index, table)):
                self._keep_in_memory(index, table or b"")

    def _open(self, *, check: bool) -> None:
        """Open the file, if there is one. If ``check``, an error of a cache file is raised, else logged."""
        self._lock = threading.Lock()
        self._found: dict[int, bytes] = {}
        self._nbytes = 0
        named = next((kind for kind in SEEK_TABLE_KINDS if kind == self._where), None)
        self._writes_file = named is None and self._where != "auto"
        self._file = self._open_cache(check=check) if self._writes_file else self._open_sidecar()
        if self._file is not None and named not in (None, self._file.kind):
            self._file = None
        self._kind = self._file.kind if self._file is not None else named or "rows"
        self._keeps_new = self._writes_file or self._budget > 0
        system.watch(self)

    def _open_sidecar(self) -> SeekTableFile | _ShardTables | None:
        if not isinstance(self._store, ShardedPack):
            return _open_beside(self._store, self._field)
        tables = _ShardTables(self._store, self._field)
        return tables if tables.kind else None

    def _open_cache(self, *, check: bool) -> SeekTableFile | None:
        """The cache file: opened to be written, else to be read; None if neither works."""
        identity = Path(os.path.realpath(self._where)), self._store.fingerprint(), len(self._store)
        try:
            return SeekTableFile(*identity, kind="rows")
        except StoreError as error:
            cause = error
        self._writes_file = False
        try:
            if not isinstance(cause, StoreFormatError):
                file = SeekTableFile(*identity)
                _logger.warning("%s; they are read, and new ones are kept in memory", cause)
                return file
        except StoreError:
            pass  # the first error is reported
        if check and (isinstance(cause, StoreFormatError) or getattr(cause.__cause__, "errno", 0) in _WRONG_PATH):
            raise ArgumentError(f"index={os.fsdecode(self._where)!r} cannot be used: {cause.message}") from cause
        _logger.warning("%s; decode indices are kept in memory", cause)
        return None

    def _stop_reading(self, file: SeekTableFile | _ShardTables, error: StoreError) -> None:
        """Stop using a file that can no longer be read; the first of several threads logs it."""
        with self._lock:
            first, self._file = self._file is file, None
            self._writes_file, self._keeps_new = False, self._budget > 0
        if first:
            _logger.warning("%s; images are decoded without, new decode indices are kept in memory", error)

    def _write(self, index: int, table: bytes) -> bool:
        file = self._file
        if not isinstance(file, SeekTableFile):
            return False
        try:
            file.put(index, table)
        except StoreError as error:
            with self._lock:
                first, self._writes_file, self._keeps_new = self._writes_file, False, self._budget > 0
            if first:
                _logger.warning("%s; new decode indices are kept in memory from now on", error)
            return False
        return True

    def _keep_in_memory(self, index: int, table: bytes) -> None:
        with self._lock:
            before = self._found.get(index)
            grown = len(table) + _OVERHEAD_NBYTES if before is None else len(table) - len(before)
            if table and self._nbytes + grown > self._budget:
                if self._keeps_new and not self._writes_file:
                    self._keeps_new = False
                    _logger.info(
                        "%s: decode indices of %d images fill the limit of %d MB (index_memory); those of "
                        "the other images are not kept", self._store.url, len(self._found), self._budget >> 20,
                    )  # fmt: skip
                return
            self._found[index] = table
            self._nbytes += grown


class _ShardTables:
    """The seek tables beside the shards of a sharded pack, of one kind: the file of each is opened with its shard."""

    def __init__(self, store: ShardedPack, field: str) -> None:
        self._store, self._field = store, field
        self._files: weakref.WeakKeyDictionary[Store, SeekTableFile | None] = weakref.WeakKeyDictionary()
        first = _open_beside(store.shard(0), field)
        self.kind = "" if first is None else first.kind

    def get(self, indices: NDArray[np.int64] | Sequence[int]) -> list[bytes | None]:
        """Read tables of all shards; also serves as ``locate``, since a batch has tables of several files."""
        found: list[bytes | None] = [None] * len(indices)
        for part in self._store.split(indices):
            file = self._find(self._store.shard(part.number))
            if file is not None:
                for position, table in zip(part.positions.tolist(), file.get(part.indices), strict=True):
                    found[position] = table
        return found

    locate = get

    def missing(self) -> NDArray[np.int64]:
        """Find the records without a table in all shards, which it opens."""
        found, begin = [], 0
        for shard in self._store.shards():
            file = self._find(shard)
            found.append(begin + (np.arange(len(shard)) if file is None else file.missing()))
            begin += len(shard)
        return np.concatenate(found)

    def _find(self, shard: Store) -> SeekTableFile | None:
        if shard not in self._files:
            file = _open_beside(shard, self._field)
            self._files[shard] = file if file is None or file.kind == self.kind else None
        return self._files[shard]


def _open_beside(store: Store, field: str) -> SeekTableFile | None:
    """The file beside a store; None if there is none, or it cannot be used."""
    path = seek_table_path(store.location, field)
    if not os.path.lexists(path):
        return None  # before the fingerprint, which a store may compute when it is first used
    try:
        return SeekTableFile(path, store.fingerprint(), len(store))
    except StoreNotFoundError:
        return None
    except StoreError as error:
        _logger.warning("%s: %s; images are decoded without", path, error.message)
        return None
