"""Writes sharded packs: one pack after the other in a folder, and the manifest that names them, last.

::

    append ──> LmdbWriter of 00000.lmdb ──full──> finish ──> send ──> journal ──> 00001.lmdb ...
    finish ──> last shard ──> manifest.json ──> send ──> unlock

The limits of shards depend on the records alone, so that a pack that was interrupted and resumed has the same bytes as
one that was not. A shard that is in the journal is never written, nor sent, again. :mod:`.lmdb_pack.writer` writes a
shard.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from penstock.errors import ArgumentError, StoreFormatError
from penstock.sample import Schema
from penstock.stores.common.journal import Journal, open_locked
from penstock.stores.common.lmdb.pages import LOCK, fsync_path
from penstock.stores.common.regular_file import read_json, replace_json
from penstock.stores.lmdb_pack.entries import make_entries
from penstock.stores.lmdb_pack.manifest import PackManifest, ShardColumns
from penstock.stores.lmdb_pack.store import LmdbStore
from penstock.stores.lmdb_pack.writer import LmdbWriter
from penstock.stores.location import Location
from penstock.stores.origin import Origin
from penstock.stores.writing import MANIFEST, UNFINISHED, CommittedRecords, FieldValues, Skipped, Writer
from penstock.wording import counted

__all__ = ["ShardedWriter", "name_shard"]

_SHARD: Final = re.compile(r"[0-9]{5,}\.lmdb")
_JOURNAL: Final = (f"{UNFINISHED}.new", LOCK, UNFINISHED)  # removed in this order: the last one says that more is left
_SIDECARS: Final = (MANIFEST, f"{MANIFEST}.new", ".convert.json")
_IN_SHARD: Final = re.compile(r"data\.mdb|lock\.mdb|pack\.lock|pages\.xxh3.*|\.source(\.new)?|\..+\.index")
"""Names of the files of a shard, of those that a kill leaves, and of its seek tables."""


class ShardedWriter(Writer[object]):
    """Writes one sharded pack.

    Parameters
    ----------
    location : Location
        The folder, on this machine; made if it does not exist.
    schema : Schema
        Fields of the records.
    source : str
        The origin, as :meth:`~penstock.stores.origin.Origin.to_text` returns it; only a pack of the same origin is
        resumed.
    shard_nbytes : int
        A shard ends with the record with which its records take so many bytes.
    overwrite : bool
        Whether to remove an existing sharded pack first, finished or not.
    send : callable, optional
        Called with the folder of each finished shard, and its name below the pack; then the folder is removed. It is
        called again if the writer is killed in between. At the end it is called with the path and the name of the
        manifest.
    finds_shards : bool
        Whether shards that an earlier run has finished are looked for, and the one that it was writing; otherwise
        other processes write them, and :meth:`adopt` gets all of them.

    Raises
    ------
    ArgumentError
        If a finished sharded pack is there.
    StoreFormatError
        If the folder contains something else; it is never removed.
    StoreError
        If another process writes the pack, or the existing pack is unfinished and has another source or options.
    """

    def __init__(
        self,
        location: Location,
        schema: Schema,
        source: str,
        *,
        shard_nbytes: int,
        overwrite: bool = False,
        send: Callable[[Path, str], None] | None = None,
        finds_shards: bool = True,
    ) -> None:
        self._root, self._url = location.local_path, str(location)
        self._schema, self._source, self._shard_nbytes = schema, source, shard_nbytes
        self._send, self._finds_shards = send, finds_shards
        self._journal = Journal(self._url, "pack", source, schema, {"shard_nbytes": shard_nbytes})
        self._entries = make_entries(schema)  # encodes; the records are in those of the shard
        self._shards = ShardColumns()
        self._writer: LmdbWriter | None = None
        is_new = not self._root.exists()
        had_lock = (self._root / LOCK).exists()
        self._lock = open_locked(self._root / LOCK, self._url)
        try:
            with self._journal.writing():
                self._begin_folder(overwrite=overwrite)
        except BaseException:
            if not had_lock and not (self._root / UNFINISHED).exists():
                (self._root / LOCK).unlink(missing_ok=True)
            if is_new and not any(self._root.iterdir()):
                self._root.rmdir()
            self.close()
            raise

    @property
    def committed(self) -> CommittedRecords:
        """What is safe: finished shards, and what is committed of the one that is being written."""
        return self._journal.committed + (CommittedRecords() if self._writer is None else self._writer.committed)

    def prepare(self, key: str, fields: Mapping[str, object]) -> object:
        """Encode and hash a record; thread-safe."""
        return self.prepare_batch([key], {name: [value] for name, value in fields.items()})

    def append(self, prepared: object) -> None:
        """Add the next record."""
        self.append_batch(prepared)

    def prepare_batch(self, keys: Sequence[str], fields: FieldValues) -> object:
        """Encode and hash some records, from arrays by field; thread-safe."""
        return self._entries.prepare(keys, fields)

    def append_batch(self, prepared: object) -> None:
        """Add the next records; finish each shard that becomes full."""
        left: object | None = prepared
        while left is not None:
            writer = self._get_writer()
            left = writer.append_until(left, self._shard_nbytes)
            if writer.has_reached(self._shard_nbytes):
                self._end_shard(writer)

    def skip(self, skipped: Skipped) -> None:
        """Note a record that is left out, in the shard of the next one."""
        self._get_writer().skip(skipped)

    def repeats_last(self, prepared: object) -> bool:
        """Return whether a prepared record equals the last one that is committed; True where a shard ends with that."""
        return self._writer is None or not self._writer.committed.records or self._writer.repeats_last(prepared)

    def adopt(self, shards: ShardColumns, held: CommittedRecords) -> None:
        """Take finished shards that other processes wrote below the folder, in order, as those of this pack.

        ``held`` says what they hold, and the entries of the source that are in none of them.
        """
        self._shards = shards
        self._journal.restore(held)

    def finish(self, problems: Sequence[Skipped] = ()) -> None:
        """Finish the last shard, and write the manifest."""
        last: Sequence[Skipped] = ()
        if self._writer is not None and not self._writer.records:
            last = tuple(self._writer.skipped)
            self._writer.discard()
            self._writer = None
        if self._writer is not None:
            self._end_shard(self._writer)
        skipped = (*self._journal.skipped, *last, *problems)
        with self._journal.writing():
            PackManifest(self._schema, self._shards, self._source, skipped).write(self._root / MANIFEST)
            fsync_path(self._root)
            if self._send is not None:
                self._send(self._root / MANIFEST, MANIFEST)
            self._remove(*_JOURNAL)
            fsync_path(self._root)
        self.close()

    def close(self) -> None:
        """Release the lock. What is committed stays."""
        if self._writer is not None:
            self._writer.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def discard(self) -> None:
        """Remove the shards that were written, and the folder if it is empty."""
        if self._writer is not None:
            self._writer.discard()
        for name in self._shards.names:
            shutil.rmtree(self._root / name, ignore_errors=True)
        self._remove(*_SIDECARS, *_JOURNAL)
        if not any(self._root.iterdir()):
            self._root.rmdir()
        self.close()

    def _begin_folder(self, *, overwrite: bool) -> None:
        names = {entry.name for entry in self._root.iterdir()}
        shards = sorted(name for name in names if _SHARD.fullmatch(name) and _is_shard(self._root / name))
        others = sorted(names - set(shards) - {*_JOURNAL, *_SIDECARS})
        if others:
            named = ", ".join(others[:5])
            raise StoreFormatError(f"this folder contains other files ({named}); nothing was changed", store=self._url)
        if overwrite:
            self._remove(MANIFEST, *_SIDECARS, UNFINISHED)
            for name in reversed(shards):  # those that a kill leaves begin with the first one, which is found at once
                shutil.rmtree(self._root / name)
        elif UNFINISHED in names:
            self._resume()
            return
        elif MANIFEST in names:
            raise self._make_finished_error()
        self._write_journal()
        self._find_shards()

    def _resume(self) -> None:
        path = self._root / UNFINISHED
        with self._journal.reading(UNFINISHED):
            entry = read_json(path)
            self._shards = ShardColumns.from_json(entry["shards"])
        self._journal.resume(entry, UNFINISHED)
        if self._send is not None:
            for name in self._shards.names:  # sent
                shutil.rmtree(self._root / name, ignore_errors=True)
        self._find_shards()

    def _find_shards(self) -> None:
        """Take over what was written after the last entry of the journal: finished shards, and one that is not."""
        while self._finds_shards and (self._root / self._next_name).exists():
            location = self._locate(self._next_name)
            is_locked = (location.local_path / LOCK).exists()  # its writer was killed before it ended
            if not is_locked and LmdbStore.finished(location, self._schema, self._source) is not None:
                self._note(location)
                continue
            writer = self._get_writer()
            if not writer.has_reached(self._shard_nbytes):
                break
            self._end_shard(writer)

    @property
    def _next_name(self) -> str:
        return name_shard(len(self._shards.names))

    def _locate(self, name: str) -> Location:
        return Location.from_path(LmdbStore.kind, self._root / name)

    def _get_writer(self) -> LmdbWriter:
        """Return the writer of the shard that is not full."""
        if self._writer is None:
            self._writer = LmdbWriter(self._root / self._next_name, self._schema, self._source)
        return self._writer

    def _end_shard(self, writer: LmdbWriter) -> None:
        writer.finish()
        self._writer = None
        self._note(self._locate(self._next_name))

    def _note(self, location: Location) -> None:
        """Send a finished shard, and add it to the journal."""
        with LmdbStore(location) as shard:
            meta = shard.meta
        path, name = location.local_path, self._next_name
        if self._send is not None:
            self._send(path, name)
        self._shards.append(name, meta.count, meta.content, meta.nbytes)
        self._journal.restore(self._journal.committed + meta.committed)
        self._write_journal()
        if self._send is not None:
            shutil.rmtree(path, ignore_errors=True)

    def _write_journal(self) -> None:
        with self._journal.writing():
            replace_json(self._root / UNFINISHED, {**self._journal.to_json(), "shards": self._shards.to_json()})

    def _make_finished_error(self) -> ArgumentError:
        """The error for a finished pack that must not be replaced."""
        found = PackManifest.read(self._root / MANIFEST, self._url)
        held = f"{self._url} is a finished pack of {counted(found.committed.records, 'record')}"
        if (found.source, found.schema) == (self._source, self._schema):
            return ArgumentError(f"{held}; overwrite=True (--overwrite) replaces it")
        now = Origin.from_text(self._source)
        difference = Origin.from_text(found.source).describe_difference(found.schema, now, self._schema)
        return ArgumentError(f"{held}, and {difference}; overwrite=True (--overwrite) replaces it")

    def _remove(self, *names: str) -> None:
        for name in names:
            (self._root / name).unlink(missing_ok=True)


def name_shard(number: int) -> str:
    """The name of a shard below the folder of its pack."""
    return f"{number:05d}.lmdb"


def _is_shard(folder: Path) -> bool:
    """Return whether a folder has nothing but the files of a pack."""
    return (
        folder.is_dir() and not folder.is_symlink() and all(_IN_SHARD.fullmatch(each.name) for each in folder.iterdir())
    )
