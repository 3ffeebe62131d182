"""Writes tar shards of bounded size: ``train.tar`` becomes ``train-000000.tar``, ``train-000001.tar``, ...

::

    train.tar.partial ──full──> journal: 1 closed, the next is empty ──> train-000000.tar.partial
    finish ───────────────────> train-000000.tar, train-000001.tar, ...              then train-000000.tar.source, its
                                                                                     origin; the journal is removed last

A writer that was killed between two of these steps does the next one when it is resumed.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from penstock.errors import ArgumentError
from penstock.sample import Schema
from penstock.stores.common.regular_file import open_regular
from penstock.stores.location import Location
from penstock.stores.origin import Origin, write_origin
from penstock.stores.tar.format import BLOCK_NBYTES
from penstock.stores.tar.writer import PreparedFiles, TarWriter
from penstock.stores.writing import CommittedRecords, Skipped

__all__ = ["ShardedTarWriter", "list_written_shards"]


def list_written_shards(location: Location) -> list[Path]:
    """The finished shards of a store that was written at ``location``, in order."""
    stem = location.local_path.with_suffix("")
    return sorted(stem.parent.glob(f"{glob.escape(stem.name)}-{'[0-9]' * 6}.tar"))


class ShardedTarWriter(TarWriter):
    """Writes tar shards.

    Parameters
    ----------
    location : Location
        ``train.tar``: the shards are ``train-000000.tar`` and so on.
    schema, source, overwrite
        As for :class:`TarWriter`.
    shard_nbytes : int, optional
        Most bytes of a shard, if more than one record fits into it.
    shard_records : int, optional
        Most records of a shard.

    Raises
    ------
    ArgumentError
        If a limit is not positive, or shards are there and ``overwrite`` is False.
    """

    def __init__(
        self,
        location: Location,
        schema: Schema,
        source: str,
        *,
        overwrite: bool = False,
        shard_nbytes: int | None = None,
        shard_records: int | None = None,
    ) -> None:
        limits = {"shard_nbytes": shard_nbytes, "shard_records": shard_records}
        for name, value in limits.items():
            if value is not None and value < 1:
                raise ArgumentError(f"{name} must be at least 1, got {value}")
        self._shard_nbytes, self._shard_records = shard_nbytes, shard_records
        self._stem = location.local_path.with_suffix("")
        shards = list_written_shards(location)
        if shards and not overwrite and not Path(f"{location.local_path}.partial.json").exists():
            raise ArgumentError(f"{shards[0]} exists; it is replaced with overwrite=True (--overwrite)")
        super().__init__(location, schema, source, overwrite=overwrite, **limits)
        self.state.setdefault("closed", 0)
        self.state.setdefault("first", 0)

    def write_record(self, prepared: PreparedFiles) -> int:
        """Append the files of a record, to the next shard if this one is full."""
        if self.files[0].tell() and self._is_full(prepared):
            self._close_shard()
        return super().write_record(prepared)

    def finish(self, problems: Sequence[Skipped] = ()) -> None:
        """Write the end of the last shard, and move all shards to their places."""
        del problems  # they are in the report; the format has no place for them
        try:
            if self.files[0].tell():
                self._close_shard()
            self.close()
            count = self.state["closed"]
            for number in range(count):
                partial = self._partial_of(number)
                if partial.exists():
                    partial.replace(self._path_of(number))
            for path in list_written_shards(self.location):
                if path not in {self._path_of(number) for number in range(count)}:
                    path.unlink()
            self._committed = CommittedRecords(self.records, self._nbytes, tuple(self._skipped))
            if count:
                self._write_origin([self._path_of(number) for number in range(count)])
            self._partials[0].unlink(missing_ok=True)
            self._journal.unlink(missing_ok=True)
        except OSError as error:
            raise self._make_write_error(error) from error
        self._is_done = True

    def discard(self) -> None:
        """Remove the files that were written."""
        super().discard()
        for number in range(0 if self._is_done else self.state["closed"]):
            self._partial_of(number).unlink(missing_ok=True)

    def _is_full(self, prepared: PreparedFiles) -> bool:
        if self._shard_records is not None and self.records - self.state["first"] >= self._shard_records:
            return True
        sizes = (2 * BLOCK_NBYTES + len(content) for _, content in prepared.files)  # about
        return self._shard_nbytes is not None and (
            self.files[0].tell() + sum(sizes) + 2 * BLOCK_NBYTES > self._shard_nbytes
        )

    def _close_shard(self) -> None:
        """End this shard, and begin another one: the journal says so before the file gets its name."""
        self.write_end()
        self._sync()
        nbytes = self.files[0].tell()
        self.files[0].close()
        following = Path(f"{self._partials[0]}.next")
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        self._files[0] = os.fdopen(open_regular(following, flags), "r+b", buffering=1 << 20)
        number = self.state["closed"]
        self.state.update(closed=number + 1, first=self.records)
        self._commit()
        self._uncommitted = nbytes  # the caller counts from the bytes of the shard before
        self._partials[0].replace(self._partial_of(number))
        following.replace(self._partials[0])

    def _open_files(self, entry: Mapping[str, Any] | None) -> list[BinaryIO]:
        if entry is None:
            for path in self._stem.parent.glob(f"{self._stem.name}-[0-9]*.tar.partial"):
                path.unlink()
        elif closed := int(entry["state"].get("closed", 0)):
            last = self._partial_of(closed - 1)
            if not last.exists() and not self._path_of(closed - 1).exists() and self._partials[0].exists():
                self._partials[0].replace(last)  # it was killed between journal and renaming
        Path(f"{self._partials[0]}.next").unlink(missing_ok=True)
        return super()._open_files(entry)

    def _path_of(self, number: int) -> Path:
        return self._stem.with_name(f"{self._stem.name}-{number:06d}.tar")

    def _partial_of(self, number: int) -> Path:
        return Path(f"{self._path_of(number)}.partial")

    def _write_origin(self, shards: Sequence[Path]) -> None:
        from penstock.stores.container import fingerprint_files

        written = Location.from_paths(self.location.scheme, shards)
        write_origin(written, fingerprint_files(shards), Origin.from_text(self._source), self._committed)
