"""Writes LMDB environments in the layouts of other programs, so that their old readers go on working.

::

    set.lmdb.partial/data.mdb    transactions of bounded size; each also puts the journal, under a key of its own
    set.lmdb.partial/finished    what was written, just before the transaction that deletes the journal
    finish ──> set.lmdb/.layout (the options with which it is read), .source (its origin), then set.lmdb/data.mdb

A kill loses the pending records at most, and a new writer continues after the journal. A finished environment has no
key that the layout does not have. :class:`LmdbLayoutWriter` is what the layouts share; :mod:`.lmdb.written_entries` has
the layouts.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import lmdb

from penstock.errors import PackError, StoreFormatError
from penstock.sample import Schema
from penstock.stores.common.journal import Journal, open_locked, refuse_existing
from penstock.stores.common.lmdb.environment_writer import CommitLimits, EnvironmentWriter
from penstock.stores.common.lmdb.pages import FILE, HASHES, LOCK, fsync_path, looks_like_lmdb, newest_meta
from penstock.stores.common.mapped_files import MappedFiles
from penstock.stores.common.regular_file import read_json, replace_json
from penstock.stores.common.seek_table_file import seek_table_path
from penstock.stores.container import fingerprint_files
from penstock.stores.lmdb.entries import scan_entries
from penstock.stores.location import Location
from penstock.stores.origin import ORIGIN_FILE, Origin, write_origin
from penstock.stores.writing import BESIDE, LAYOUT_FILE, Skipped

__all__ = ["EncodedEntries", "LmdbLayoutWriter"]

_logger = logging.getLogger(__name__)
_JOURNAL: Final = b"\xff\xffpenstock journal"
_FINISHED: Final = "finished"
_LOCK_OF_LMDB: Final = "lock.mdb"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class EncodedEntries:
    """The entries of one record: ends of keys and values, and the bytes of the image."""

    entries: tuple[tuple[bytes, bytes], ...]
    nbytes: int


class LmdbLayoutWriter(EnvironmentWriter[EncodedEntries]):
    """Writes one environment, as a folder.

    Parameters
    ----------
    location : Location
        The folder.
    schema : Schema
        Fields of the records; only those that :meth:`choose` returns are written.
    source : str
        The text of the origin; only an environment of the same origin is resumed.
    overwrite : bool
        Whether to replace an environment that is there.
    options : mapping of str to object, optional
        What else decides which bytes are written.
    limits : CommitLimits, optional
        For tests.

    Raises
    ------
    ArgumentError
        If the layout has no place for such images, or something is there that is not to be replaced.
    StoreFormatError
        If something else than an LMDB environment is there; it is never removed.
    StoreError
        If another process writes here, or an unfinished environment of another origin is here.
    """

    layout: ClassVar[str]
    is_numbered: ClassVar[bool] = True
    """Whether the keys of a record begin with its number."""

    def __init__(
        self,
        location: Location,
        schema: Schema,
        source: str,
        *,
        overwrite: bool = False,
        options: Mapping[str, object] | None = None,
        limits: CommitLimits | None = None,
    ) -> None:
        self.location, self.schema = location, self.choose(schema)
        self._url, self._path = str(location), location.local_path
        fixed = {"version": _VERSION, "layout": self.layout, "written with": dict(options or {})}
        journal = Journal(self._url, "environment", source, self.schema, fixed)
        super().__init__(Path(f"{self._path}.partial"), journal, limits)
        self._pending: list[tuple[bytes, bytes]] = []
        self._pending_nbytes = self._pending_records = 0
        self._is_complete = False
        sidecars = {ORIGIN_FILE, f".{LAYOUT_FILE}", f"{ORIGIN_FILE}.new", f".{LAYOUT_FILE}.new"}
        self._beside = sidecars | {_LOCK_OF_LMDB, LOCK, HASHES, seek_table_path(location, "image").name}
        self._refuse_existing(overwrite=overwrite)
        self.lock = open_locked(self.folder / LOCK, self._url)
        try:
            if overwrite:
                self._remove_partial()
            self._resume()
        except BaseException:
            self.close()
            raise

    @classmethod
    @abstractmethod
    def choose(cls, schema: Schema) -> Schema:
        """The fields that the layout has a place for, as they are read back.

        Raises ArgumentError if it has no place for the image.
        """

    @abstractmethod
    def describe_reading(self) -> dict[str, object]:
        """The options with which the environment is read, as JSON can hold them."""

    def list_last_entries(self) -> list[tuple[bytes, bytes]]:
        """What is put behind the last record; by default nothing."""
        return []

    def append(self, prepared: EncodedEntries) -> None:
        """Add the next record; commit if enough is pending."""
        number = b"%d" % self.records if self.is_numbered else b""
        for end, value in prepared.entries:
            self._pending.append((number + end, value))
            self._pending_nbytes += len(value)
        self.journal.append(prepared.nbytes)
        self._pending_records += 1
        if self.limits.is_due(self._pending_records, self._pending_nbytes, self.committed.nbytes):
            self._commit()

    def finish(self, problems: Sequence[Skipped] = ()) -> None:
        """Commit what is pending and move the environment to its place."""
        with self.journal.writing():
            if not self._is_complete:
                self.journal.skipped += problems
                replace_json(self.folder / _FINISHED, self.journal.to_json())
                self._pending += self.list_last_entries()
                self._commit(is_last=True)
            self._move()
        self.close()

    def discard(self) -> None:
        """Remove what was written."""
        try:
            self._remove_partial()
            (self.folder / LOCK).unlink(missing_ok=True)
            self.folder.rmdir()
        except OSError as error:
            _logger.warning("%s: what was written cannot be removed: %s", self._url, error)
        finally:
            self.close()

    def _refuse_existing(self, *, overwrite: bool) -> None:
        path = self._path
        names = {entry.name for entry in path.iterdir()} - BESIDE if path.is_dir() else set()
        if not os.path.lexists(path) or (path.is_dir() and not path.is_symlink() and names <= self._beside):
            return
        refuse_existing(self.location, overwrite=overwrite)
        if path.is_symlink() or not (names <= {FILE, *self._beside} if path.is_dir() else looks_like_lmdb(path)):
            others = ", ".join(sorted(names - self._beside - {FILE})[:5]) or "a file that is no LMDB environment"
            raise StoreFormatError(f"this path has other content ({others}); nothing was changed", store=self._url)

    def _resume(self) -> None:
        """Continue after the last commit of an earlier run, if there is one."""
        file = self.folder / FILE
        is_whole = file.exists() and file.stat().st_size >= 2 * mmap.PAGESIZE  # LMDB makes it with two meta pages
        if not is_whole or not newest_meta(file, self._url).transaction:
            self._remove_partial()
            return
        entries = scan_entries(file, MappedFiles([file]).whole(0), self._url)
        row = entries.find(_JOURNAL)
        name = f"the journal in {self.folder.name}"
        with self.journal.reading(name):
            entry = read_json(self.folder / _FINISHED) if row is None else json.loads(bytes(entries.value(row)))
        self.journal.resume(entry, name)
        self.map_nbytes = max(self.map_nbytes, newest_meta(file, self._url).map_nbytes)
        self._is_complete = row is None

    def _commit(self, *, is_last: bool = False) -> None:
        """Commit what is pending, and the journal, which the last commit deletes."""

        def put(_: lmdb.Environment, transaction: lmdb.Transaction) -> None:
            for key, value in self._pending:
                if not transaction.put(key, value, overwrite=False):
                    raise PackError("two records have this key; keys must be unique", key=key.decode(errors="replace"))
            if is_last:
                transaction.delete(_JOURNAL)
            else:
                transaction.put(_JOURNAL, json.dumps(self.journal.to_json()).encode())

        self.transact(put, self._pending_nbytes)
        self.journal.commit()
        self._pending.clear()
        self._pending_nbytes = self._pending_records = 0

    def _move(self) -> None:
        """Move the file to its place, and write what belongs beside it."""
        with self.open_complete() as file:
            os.fsync(file.fileno())
        if self._path.is_file():
            self._path.unlink()
        self._path.mkdir(parents=True, exist_ok=True)
        for name in sorted(self._beside):
            (self._path / name).unlink(missing_ok=True)
        content = fingerprint_files([self.folder / FILE])
        described = self.journal.to_json() | {"content": content, "options": self.describe_reading()}
        replace_json(self.location.sidecar(LAYOUT_FILE), described)
        write_origin(self.location, content, Origin.from_text(self.journal.source))
        self.announce_visible(self.location)
        (self.folder / FILE).replace(self._path / FILE)
        fsync_path(self._path)
        self._remove_partial()
        (self.folder / LOCK).unlink(missing_ok=True)
        self.folder.rmdir()
        self.journal.commit()

    def _remove_partial(self) -> None:
        for name in (FILE, _LOCK_OF_LMDB, _FINISHED):
            (self.folder / name).unlink(missing_ok=True)
