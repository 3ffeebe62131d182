"""Writes packs. A pack that was interrupted and resumed has the same bytes as one that was not.

::

    append, append, ... ──due──> commit: records, description     one transaction, one sync (none for the first few)
    finish ──────────────────> commit: last records, columns, keys, "complete"  ──> page hashes, origin ──> unlock

Commits are made at fixed counts of records and bytes; :mod:`.common.lmdb.environment_writer` makes them.
"""

from __future__ import annotations

import fnmatch
import functools
import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import xxhash

from penstock.errors import ArgumentError, StoreError, StoreFormatError
from penstock.sample import Schema
from penstock.stores.common.journal import Journal, open_locked
from penstock.stores.common.lmdb.environment_writer import CommitLimits, EnvironmentWriter
from penstock.stores.common.lmdb.pages import FILE, HASHES, LOCK, PageFile, fsync_path
from penstock.stores.common.seek_table_file import seek_table_path
from penstock.stores.lmdb_pack.entries import make_entries
from penstock.stores.lmdb_pack.format import COLUMNS, KEYS, RECORDS, make_record_key
from penstock.stores.lmdb_pack.mapping import read_meta
from penstock.stores.lmdb_pack.meta import META, META_ENTRY, META_HASH, PackMeta
from penstock.stores.lmdb_pack.page_hashes import PageHashFile
from penstock.stores.location import Location
from penstock.stores.origin import ORIGIN_FILE, Origin, read_origin, write_origin
from penstock.stores.writing import FieldValues, Skipped
from penstock.wording import counted

if TYPE_CHECKING:
    import lmdb

__all__ = ["LmdbWriter"]

_logger = logging.getLogger(__name__)

_SIDECARS: Final = (ORIGIN_FILE, f"{ORIGIN_FILE}.new", ".convert.json", ".convert.json.new")
_OURS: Final = (FILE, "lock.mdb", HASHES, f"{HASHES}.tmp", *_SIDECARS, LOCK)
_EMPTY_NBYTES: Final = 1 << 17  # two of the largest pages: a file of this size may come from a kill while LMDB made it
_MAX_SOURCE_NBYTES: Final = 1024

_HEAP_END_NBYTES: Final = 100_000  # larger than what is free between other blocks, and too small for a map of its own


class LmdbWriter(EnvironmentWriter[object]):
    """Writes one pack.

    Parameters
    ----------
    path : str, path or Location
        The folder of the LMDB environment; made if it does not exist.
    schema : Schema
        Fields of the records.
    source : str
        The origin, as :meth:`~penstock.stores.origin.Origin.to_text` returns it; only a pack of the same origin is
        resumed.
    overwrite : bool
        Whether to remove an existing pack first, finished or not.
    limits : CommitLimits, optional
        For tests.

    Raises
    ------
    ArgumentError
        If a finished pack is there.
    StoreFormatError
        If the folder contains something else; it is never removed.
    StoreError
        If another process writes the pack, or the existing pack is unfinished and has another source or options.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Schema,
        source: str,
        *,
        overwrite: bool = False,
        limits: CommitLimits | None = None,
    ) -> None:
        self._location = path if isinstance(path, Location) else Location.from_path("lmdb", path)
        self._path, self._url = self._location.local_path, str(self._location)
        super().__init__(self._path, Journal(self._url, "pack", source, schema), limits)
        self._entries = make_entries(schema)
        self._most_pending_nbytes = 0
        self._heap_ends: list[bytes] = []
        self._meta = PackMeta(schema, source=source, block_records=self._entries.block_records)
        self._origin = Origin.from_text(source)
        self._is_new = not self._location.exists()
        self.lock = open_locked(self._path / LOCK, self._url)
        self._locked_source = os.pread(self.lock, _MAX_SOURCE_NBYTES, 0).decode(errors="replace")
        try:
            self._begin_file(overwrite=overwrite)
            if self._locked_source != source:  # a writer that is killed here must not lose the source of what is there
                with self.journal.writing():
                    os.ftruncate(self.lock, os.pwrite(self.lock, source.encode(), 0))
        except BaseException:
            self._undo_opening()
            raise

    @property
    def records(self) -> int:
        """Number of records appended so far, by earlier runs too."""
        return self._entries.added

    def prepare(self, key: str, fields: Mapping[str, object]) -> object:
        """Encode and hash a record; thread-safe."""
        return self.prepare_batch([key], {name: [value] for name, value in fields.items()})

    def append(self, prepared: object) -> None:
        """Add the next record; commit if enough records are pending."""
        self.append_batch(prepared)

    def prepare_batch(self, keys: Sequence[str], fields: FieldValues) -> object:
        """Encode and hash some records, from arrays by field; thread-safe."""
        return self._entries.prepare(keys, fields)

    def append_batch(self, prepared: object) -> None:
        """Add the next records; commit where :meth:`append` would."""
        for _ in self._entries.add(prepared):
            self._commit_if_due()

    def append_until(self, prepared: object, nbytes: int) -> object | None:
        """Add the next records until the entries of the pack have ``nbytes``; returns those that are left, or None."""
        before = self._entries.added
        for _ in self._entries.add(prepared):
            self._commit_if_due()
            if self._entries.stored_nbytes >= nbytes:
                return self._entries.drop(prepared, self._entries.added - before)
        return None

    def has_reached(self, nbytes: int) -> bool:
        """Return whether the entries of the pack have ``nbytes``."""
        return self._entries.stored_nbytes >= nbytes

    def repeats_last(self, prepared: object) -> bool:
        """Return whether a prepared record equals the last one that is committed."""
        return self._entries.repeats_last(prepared)

    def finish(self, problems: Sequence[Skipped] = ()) -> None:
        """Commit the remaining records, columns, keys and the mark of completion; write the page hashes; sync."""
        if not self._meta.complete:
            self._entries.complete()
            columns = self._entries.columns()
            meta = replace(
                self._describe_pack(),
                columns={name: xxhash.xxh3_64_hexdigest(content) for name, content in columns.items()},
                skipped=(*self.skipped, *problems),
                complete=True,
                source="",
            )
            self._commit(meta, columns)
        self._complete()

    def close(self) -> None:
        """Release the lock. What was committed stays, and the lock file, which contains the origin."""
        super().close()
        self._heap_ends.clear()

    def discard(self) -> None:
        """Remove the files that were written, and the folder if it is empty.

        A file that cannot be removed is logged, not raised: a pack is discarded because of another error.
        """
        self._clear(*_OURS, folder=True)

    def _undo_opening(self) -> None:
        """Remove what opening made."""
        self._clear(*([] if self._locked_source else [LOCK]), folder=self._is_new)

    def _clear(self, *names: str, folder: bool) -> None:
        try:
            self._remove(*names)
            if folder and self._path.is_dir() and not any(self._path.iterdir()):
                self._path.rmdir()
        except OSError as error:  # a StoreError is one
            _logger.warning("%s: what was written cannot be removed: %s", self._url, error)
        finally:
            self.close()

    def _commit_if_due(self) -> None:
        entries = self._entries
        if self.limits.is_due(len(entries.pending), entries.pending_nbytes, self._meta.nbytes):
            self._commit(self._describe_pack())

    def _describe_pack(self) -> PackMeta:
        return replace(
            self._meta,
            count=self._entries.count,
            nbytes=self._entries.nbytes,
            content=self._entries.content.hex(),
            skipped=tuple(self.skipped),
            has_none=self._entries.has_none,
        )

    def _begin_file(self, *, overwrite: bool) -> None:
        names = {entry.name for entry in self._path.iterdir()}
        tables = {seek_table_path(self._location, field).name for field in self._meta.schema.blobs} & names
        if overwrite or FILE in names:  # the pack that is here may have other fields
            tables |= set(fnmatch.filter(names, ".*.index"))
        links = sorted(name for name in set(_OURS) & names if (self._path / name).is_symlink())
        if links and not overwrite:
            raise StoreFormatError(
                f"this folder contains a symbolic link ({links[0]}), which is not followed to write. Nothing was "
                "changed; overwrite=True (--overwrite) removes the link",
                store=self._url,
            )
        others = sorted(names - tables - set(_OURS))
        if others:
            named = ", ".join(others[:5])
            raise StoreFormatError(f"this folder contains other files ({named}); nothing was changed", store=self._url)
        meta = self._read_existing(overwrite=overwrite)
        if meta is None or overwrite:
            self._remove(*tables, *(name for name in _OURS if name != LOCK))
        else:  # complete and locked: its writer was killed before `_complete` ended
            begun = self._locked_source if meta.complete else meta.source
            if not begun:
                raise self._make_finished_error(meta)
            if begun != self._meta.source or meta.schema != self._meta.schema:
                raise self.journal.make_other_error(meta.count, begun, meta.schema)
            self._resume(meta)

    def _make_finished_error(self, meta: PackMeta) -> ArgumentError:
        """The error for a finished pack that must not be replaced."""
        origin, now = read_origin(self._location, meta.content), self._origin
        held = f"{self._url} is a finished pack of {counted(meta.count, 'record')}"
        if origin is None:
            return ArgumentError(
                f"{held} without the file {ORIGIN_FILE}, which says its source; use it as it is, or replace it with "
                "overwrite=True (--overwrite)"
            )
        if origin == now and meta.schema == self._meta.schema:
            return ArgumentError(f"{held}; overwrite=True (--overwrite) replaces it")
        difference = origin.describe_difference(meta.schema, now, self._meta.schema)
        return ArgumentError(f"{held}, and {difference}; overwrite=True (--overwrite) replaces it")

    def _read_existing(self, *, overwrite: bool) -> PackMeta | None:
        """The description of the existing pack; None if there is none, or it is to be removed without reading it."""
        path = self._path / FILE
        if not path.exists():
            return None
        try:
            with PageFile(path, self._url) as pages:
                if pages.meta.transaction == 0 and self._locked_source:
                    return None
                return read_meta(pages, self._url, unfinished_ok=True)
        except ValueError as error:
            ours = bool(self._locked_source) or (self._path / HASHES).exists()
            if ours and (overwrite or (self._locked_source and path.stat().st_size <= _EMPTY_NBYTES)):
                return None
            reason = error.message if isinstance(error, StoreError) else f"the pack here is damaged: {error}"
            advice = "pack with overwrite=True (--overwrite) to start anew" if ours else "nothing was changed"
            raise StoreFormatError(f"{reason}; {advice}", store=self._url) from error

    def _resume(self, meta: PackMeta) -> None:
        try:
            with PageFile(self._path / FILE, self._url) as pages:
                self.map_nbytes = max(self.map_nbytes, pages.meta.map_nbytes)  # as it was when the last commit ended
                for _, node in pages.nodes(pages.trees().get(RECORDS)):
                    self._entries.restore(pages.value(node), meta.count)
            held = self._entries.count
            if held != meta.count or self._entries.content.hex() != meta.content:
                raise ValueError(f"it has {held} records of {meta.count}, or other records")  # noqa: TRY301  # one handler
        except ValueError as error:
            raise self.journal.make_damage_error(f"the unfinished pack here is damaged ({error})") from error
        self._note_commit(meta)

    def _commit(self, meta: PackMeta, columns: Mapping[str, bytes] | None = None) -> None:
        # `_complete` syncs the last commit
        must_sync = self.limits.must_sync(meta.nbytes) and not meta.complete
        put = functools.partial(self._put, meta=meta, columns=columns)
        self.transact(put, self._entries.pending_nbytes, must_sync=must_sync)
        self._note_commit(meta)
        self._entries.clear_pending()

    def _note_commit(self, meta: PackMeta) -> None:
        self._meta = meta
        self.journal.restore(meta.committed)

    def _put(
        self,
        environment: lmdb.Environment,
        transaction: lmdb.Transaction,
        *,
        meta: PackMeta,
        columns: Mapping[str, bytes] | None,
    ) -> None:
        """Put the pending entries and the description; with the last of them, columns and keys."""
        databases = {name: environment.open_db(name, transaction) for name in (RECORDS, COLUMNS, KEYS, META)}
        for index, (begin, blobs) in enumerate(self._entries.pending, self._entries.first):
            value = b"".join((begin, *blobs)) if blobs else begin
            transaction.put(make_record_key(index), value, append=True, db=databases[RECORDS])
        self._keep_memory()
        for name, content in (columns or {}).items():
            transaction.put(name.encode(), content, db=databases[COLUMNS])
        if columns is not None:
            for key, number in self._entries.key_entries():
                transaction.put(key, number, append=True, db=databases[KEYS])
        description = meta.to_bytes()
        transaction.put(META_ENTRY, description, db=databases[META])
        transaction.put(META_HASH, xxhash.xxh3_64_digest(description), db=databases[META])

    def _keep_memory(self) -> None:
        """Make the pages that LMDB allocated for this commit be used again for the next one.

        C libraries return freed memory at the end of the heap to the system, and to get it anew, page by page, takes
        as long as to write it to a file. A small block behind it prevents that until the writer is closed.
        """
        if self._entries.pending_nbytes > self._most_pending_nbytes:
            self._most_pending_nbytes = self._entries.pending_nbytes
            self._heap_ends.append(bytes(_HEAP_END_NBYTES))

    def _complete(self) -> None:
        with self.journal.writing():
            with self.open_complete() as file, ThreadPoolExecutor(1, thread_name_prefix="penstock-sync") as pool:
                synced = pool.submit(os.fsync, file.fileno())
                hashes = PageHashFile.write(self._path, FILE)  # while the disk writes
                synced.result()
            hashes.replace(self._path / HASHES)
            write_origin(self._location, self._meta.content, self._origin)
            self._remove("lock.mdb", f"{ORIGIN_FILE}.new", LOCK)
            fsync_path(self._path)
        self.close()

    def _remove(self, *names: str) -> None:
        for name in names:
            try:
                (self._path / name).unlink(missing_ok=True)
            except OSError as error:
                raise StoreError(f"{name} cannot be removed: {error.strerror}", store=self._url) from error
