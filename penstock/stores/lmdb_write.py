"""Writes packs, so that a killed one resumes to the same bytes.

::

    append, append, ... ──full──> commit: records + progress     one transaction, one sync (none for the first few)
    finish ───────────────────> commit: last records, columns, keys, "complete"  ──> seals, note ──> lock removed

Commits fall at fixed counts of records and bytes, and each runs in an environment opened for it alone, so that LMDB
carries nothing from one transaction to the next: what a commit leaves in the file depends on the records alone, and a
pack that was killed and resumed equals one that was not. Never ``writemap``: a full disk would kill the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import lmdb
import numpy as np
import xxhash

from penstock.errors import ArgumentError, PackError, StoreError, StoreFormatError
from penstock.plurals import counted
from penstock.sample import Schema
from penstock.stores.base import Progress, Skipped, Writer
from penstock.stores.index_file import index_path
from penstock.stores.lmdb_format import (
    COLUMNS,
    KEYS,
    META,
    META_ENTRY,
    META_HASH,
    RECORDS,
    Layout,
    PackMeta,
    column_bytes,
    column_dtype,
    record_key,
)
from penstock.stores.lmdb_map import FILE, LOCK, read_meta
from penstock.stores.lmdb_pages import PageFile, Tree, fsync_path, newest_meta
from penstock.stores.lmdb_seals import SEALS, Seals
from penstock.stores.origin import NOTE, Origin, read_note, write_note
from penstock.stores.regular import open_regular

__all__ = ["Limits", "LmdbWriter"]

_logger = logging.getLogger(__name__)

_OURS: Final = (FILE, "lock.mdb", SEALS, f"{SEALS}.tmp", NOTE, LOCK)
_EMPTY_NBYTES: Final = 1 << 17  # a file up to two of the largest pages: killed while LMDB made it
_SLACK_NBYTES: Final = 1 << 20  # what a commit writes beside its records, roughly


@dataclass(frozen=True, slots=True)
class Limits:
    """When a commit is due, and how large the map is at first; part of what determines the file's bytes.

    Parameters
    ----------
    records : int
        Most records of a commit.
    nbytes : int
        Bytes that make one due at first, so that writing begins while the rest is being read. Once eight times as many
        are committed, commits are eight times as large and each is synced: a kill of the process never costs more than
        the records that wait, a power failure never more than that and the first 64 MB.
    map_nbytes : int
        The map's first size.
    """

    records: int = 16384
    nbytes: int = 8 << 20
    map_nbytes: int = 1 << 30

    def due(self, records: int, nbytes: int, committed_nbytes: int) -> bool:
        """Whether waiting records must be committed now."""
        enough = 8 * self.nbytes if self.synced(committed_nbytes) else self.nbytes
        return records >= self.records or nbytes >= enough

    def synced(self, committed_nbytes: int) -> bool:
        """Whether a commit that makes this many bytes must reach the disk before packing goes on."""
        return committed_nbytes >= 8 * self.nbytes


class LmdbWriter(Writer):
    """One pack in the making.

    Parameters
    ----------
    path : str
        The environment's folder; made if it is not there.
    schema : Schema
        Fields of the records.
    source : str
        What it is made from, as :meth:`~penstock.stores.origin.Origin.to_text` has it; only a pack of the same is
        resumed.
    overwrite : bool
        Whether a pack that is there, finished or not, is removed first.
    limits : Limits
        For tests.

    Raises
    ------
    ArgumentError
        If a finished pack is there.
    StoreFormatError
        If something is there that is no pack of ours; that is never removed.
    StoreError
        If another process is writing it, or it is unfinished and of another source, or made with other options.
    """

    def __init__(
        self, path: str, schema: Schema, source: str, *, overwrite: bool = False, limits: Limits | None = None
    ) -> None:
        self._path = Path(path).absolute()
        self._url = f"lmdb://{self._path}"
        self._limits = limits or Limits()
        self._map_nbytes = self._limits.map_nbytes
        self._layout = Layout(schema)
        self._column_fields = [name for name in schema.small if column_dtype(schema[name]) is not None]
        self._columns: dict[str, list[Any]] = {name: [] for name in self._column_fields}
        self._keys: list[bytes] = []
        self._content = b""
        self._pending: list[bytearray] = []
        self._pending_nbytes = 0
        self._skipped: list[Skipped] = []
        self._count = self._nbytes = 0
        self._meta = PackMeta(schema, source=source)
        self._origin = Origin.from_text(source)
        self._made = not os.path.lexists(self._path)
        self._lock, self._locked_source = _lock(self._path, self._url)
        try:
            self._begin(overwrite=overwrite)
        except BaseException:
            self._withdraw()
            raise
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, source.encode(), 0)

    @property
    def committed(self) -> Progress:
        """What is on disk."""
        return Progress(self._meta.count, self._meta.nbytes, tuple(self._meta.skipped))

    def prepare(self, key: str, fields: Mapping[str, Any]) -> tuple[str, bytearray, list[Any]]:
        """Encode and hash a record; thread-safe."""
        return key, self._layout.encode(key, fields), [fields[name] for name in self._column_fields]

    def append(self, prepared: tuple[str, bytearray, list[Any]]) -> None:
        """Add the next record; commits when enough are waiting."""
        key, value, small = prepared
        self._note(key, value, small, self._layout.stamp(value, self._count))
        self._pending.append(value)
        self._pending_nbytes += len(value)
        if self._limits.due(len(self._pending), self._pending_nbytes, self._meta.nbytes):
            self._commit(self._describe())

    def skip(self, skipped: Skipped) -> None:
        """Note a left-out record; on disk with the next commit."""
        self._skipped.append(skipped)

    def finish(self, problems: Sequence[Skipped] = ()) -> None:
        """Commit the rest with columns, keys and the mark of completion; seal the pages; make all of it durable."""
        if not self._meta.complete:
            columns = {
                name: column_bytes(np.array(values, column_dtype(self._meta.schema[name])))
                for name, values in self._columns.items()
            }
            meta = replace(
                self._describe(),
                columns={name: xxhash.xxh3_64_hexdigest(content) for name, content in columns.items()},
                skipped=(*self._skipped, *problems),
                complete=True,
                source="",
            )
            self._commit(meta, columns)
        self._seal()

    def close(self) -> None:
        """Give the lock back; what was committed stays, and the lock's file, which knows the source."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def discard(self) -> None:
        """Remove the files that were written, and the folder if nothing else is in it.

        What cannot be removed is logged, not raised: a pack is discarded because of an error that is to be seen.
        """
        self._clear(*_OURS, folder=True)

    def _withdraw(self) -> None:
        """Leave a place that was refused as it was found."""
        self._clear(*([] if self._locked_source else [LOCK]), folder=self._made)

    def _clear(self, *names: str, folder: bool) -> None:
        try:
            self._remove(*names)
            if folder and not any(self._path.iterdir()):
                self._path.rmdir()
        except OSError as error:  # a StoreError is one
            _logger.warning("%s: what was written cannot be removed: %s", self._url, error)
        finally:
            self.close()

    def _note(self, key: str, value: bytearray, small: Sequence[Any], head: bytes) -> None:
        self._content = xxhash.xxh3_128_digest(self._content + head)
        self._keys.append(key.encode())
        for name, item in zip(self._column_fields, small, strict=True):
            self._columns[name].append(item)
        self._count += 1
        self._nbytes += self._layout.blob_nbytes(value)

    def _describe(self) -> PackMeta:
        return replace(
            self._meta,
            count=self._count,
            nbytes=self._nbytes,
            content=self._content.hex(),
            skipped=tuple(self._skipped),
        )

    def _begin(self, *, overwrite: bool) -> None:
        names = {entry.name for entry in self._path.iterdir()}
        indices = {index_path(self._path, field).name for field in self._meta.schema.blobs} & names
        links = sorted(name for name in set(_OURS) & names if (self._path / name).is_symlink())
        if links and not overwrite:
            raise StoreFormatError(
                f"this folder holds a symbolic link ({links[0]}), which is not followed to write; nothing was touched, "
                "overwrite=True (--overwrite) removes the link",
                store=self._url,
            )
        others = sorted(names - indices - set(_OURS))
        if others:
            listed = ", ".join(others[:5])
            raise StoreFormatError(f"this folder holds other files ({listed}); nothing was touched", store=self._url)
        meta = self._standing(overwrite=overwrite)
        if meta is None or overwrite:
            self._remove(*indices, *(name for name in _OURS if name != LOCK))
        else:  # if it is complete and locked, it was killed before it was sealed
            begun = self._locked_source if meta.complete else meta.source
            if not begun:
                raise self._finished(meta)
            if begun != self._meta.source or meta.schema != self._meta.schema:
                raise self._begun_otherwise(meta, Origin.from_text(begun))
            self._resume(meta)

    def _finished(self, meta: PackMeta) -> ArgumentError:
        """The refusal of a finished pack that is not to be replaced."""
        made, now = read_note(self._path, meta.content), self._origin
        held = f"{self._url} is a finished pack of {counted(meta.count, 'record')}"
        if made is None:
            return ArgumentError(
                f"{held} that does not say what it was made from; use it as it is, or replace it with overwrite=True "
                "(--overwrite)"
            )
        if made == now and meta.schema == self._meta.schema:
            return ArgumentError(f"{held}; overwrite=True (--overwrite) replaces it")
        difference = made.difference(meta.schema, now, self._meta.schema)
        return ArgumentError(f"{held}, and {difference}; overwrite=True (--overwrite) replaces it")

    def _begun_otherwise(self, meta: PackMeta, begun: Origin) -> StoreError:
        """The refusal of an unfinished pack that this one does not continue."""
        difference = begun.difference(meta.schema, self._origin, self._meta.schema)
        return StoreError(
            f"an unfinished pack of {counted(meta.count, 'record')} is here, and {difference}; pack as before to "
            "resume it, or with overwrite=True (--overwrite) to start anew",
            store=self._url,
        )

    def _standing(self, *, overwrite: bool) -> PackMeta | None:
        """What the pack that is there says; None if there is none, or one that is to be removed unread."""
        path = self._path / FILE
        if not path.exists():
            return None
        try:
            if newest_meta(path, self._url).transaction == 0 and self._locked_source:
                return None
            with PageFile(path, self._url) as pages:
                return read_meta(pages, self._url, unfinished_ok=True)
        except ValueError as error:
            ours = bool(self._locked_source) or (self._path / SEALS).exists()
            if ours and (overwrite or (self._locked_source and path.stat().st_size <= _EMPTY_NBYTES)):
                return None
            said = error.message if isinstance(error, StoreError) else f"the pack here is damaged: {error}"
            way = "pack with overwrite=True (--overwrite) to start anew" if ours else "nothing was touched"
            raise StoreFormatError(f"{said}; {way}", store=self._url) from error

    def _resume(self, meta: PackMeta) -> None:
        try:
            with PageFile(self._path / FILE, self._url) as pages:
                self._map_nbytes = max(self._map_nbytes, pages.meta.map_nbytes)  # as it was when the last commit ended
                for _, nodes in pages.leaves(pages.trees().get(RECORDS, Tree.empty())):
                    for node in nodes:
                        self._recall(pages.value(node.extent))
            if self._count != meta.count or self._content.hex() != meta.content:
                raise ValueError(f"it has {self._count} records of {meta.count}, or other ones")  # noqa: TRY301  # one end
        except ValueError as error:
            raise StoreError(
                f"the unfinished pack here is damaged ({error}); pack with overwrite=True (--overwrite) to start anew",
                store=self._url,
            ) from error
        self._skipped = list(meta.skipped)
        self._meta = meta

    def _recall(self, content: bytes) -> None:
        key, fields = self._layout.decode(memoryview(content), self._count)
        small = [fields[name] for name in self._column_fields]
        self._note(key, bytearray(content), small, content[: self._layout.head_nbytes])

    def _commit(self, meta: PackMeta, columns: Mapping[str, bytes] | None = None) -> None:
        self._refuse_full()
        while True:
            try:
                self._transact(meta, columns)
                break
            except lmdb.MapFullError:
                self._map_nbytes *= 2
            except lmdb.Error as error:
                self._refuse_full(error)
                raise StoreError(f"LMDB could not write: {error}", store=self._url) from error
        self._meta = meta
        self._pending.clear()
        self._pending_nbytes = 0

    def _transact(self, meta: PackMeta, columns: Mapping[str, bytes] | None) -> None:
        with (
            lmdb.open(
                str(self._path),
                map_size=self._map_nbytes,
                lock=False,
                max_dbs=8,
                metasync=False,  # the meta page after the data it speaks of, with the next commit or `_seal`
                sync=self._limits.synced(meta.nbytes) and not meta.complete,  # `_seal` syncs the last one
            ) as environment,
            environment.begin(write=True) as transaction,
        ):
            databases = {name: environment.open_db(name, transaction) for name in (RECORDS, COLUMNS, KEYS, META)}
            for index, value in enumerate(self._pending, self._count - len(self._pending)):
                transaction.put(record_key(index), value, append=True, db=databases[RECORDS])
            for name, content in (columns or {}).items():
                transaction.put(name.encode(), content, db=databases[COLUMNS])
            if columns is not None:
                self._put_keys(transaction, databases[KEYS])
            description = meta.to_bytes()
            transaction.put(META_ENTRY, description, db=databases[META])
            transaction.put(META_HASH, xxhash.xxh3_64_digest(description), db=databases[META])

    def _put_keys(self, transaction: Any, database: Any) -> None:
        for key, index in sorted((key, index) for index, key in enumerate(self._keys)):
            if not transaction.put(key, record_key(index), append=True, overwrite=False, db=database):
                raise PackError("two records have this key", key=key.decode(), index=index)

    def _seal(self) -> None:
        path = self._path / FILE
        try:
            want = newest_meta(path, self._url).nbytes
            with path.open("r+b") as file, ThreadPoolExecutor(1, thread_name_prefix="penstock-sync") as beside:
                if os.fstat(file.fileno()).st_size < want:  # LMDB leaves free pages at the end unwritten
                    file.truncate(want)
                synced = beside.submit(os.fsync, file.fileno())
                seals = Seals.write(self._path, FILE)  # hashes what the disk is being given
                synced.result()
            seals.replace(self._path / SEALS)
            write_note(self._path, self._meta.content, self._origin)
            self._remove("lock.mdb", LOCK)
            fsync_path(self._path)
        except StoreError:
            raise
        except OSError as error:
            raise StoreError(f"the pack could not be sealed: {error}; pack again to resume", store=self._url) from error
        self.close()

    def _remove(self, *names: str) -> None:
        for name in names:
            try:
                (self._path / name).unlink(missing_ok=True)
            except OSError as error:
                raise StoreError(f"{name} cannot be removed: {error.strerror}", store=self._url) from error

    def _refuse_full(self, cause: Exception | None = None) -> None:
        need = self._pending_nbytes + _SLACK_NBYTES
        free = shutil.disk_usage(self._path).free
        if free < need:
            raise StoreError(
                f"the disk is full: the next commit needs {need} bytes and {free} are free; "
                f"{counted(self._meta.count, 'record')} so far are safe, make room and pack again to resume",
                store=self._url,
            ) from cause


def _lock(folder: Path, url: str) -> tuple[int, str]:
    """Make the folder and lock it for this process; also what the lock's file says of the pack's source."""
    path = folder / LOCK
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        except OSError as error:
            raise StoreError(f"cannot write here: {error.filename}: {error.strerror}", store=url) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(file)
            raise StoreError(
                "another process is packing into this folder; wait for it, or stop it", store=url
            ) from error
        except OSError as error:
            os.close(file)
            raise StoreError(f"cannot lock {LOCK} here: {error.strerror}", store=url) from error
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), path.stat()):
                return file, os.pread(file, 1024, 0).decode(errors="replace")
        os.close(file)  # whoever held it has finished and removed it
