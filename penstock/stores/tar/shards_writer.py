"""Writes tar shards of bounded size: ``train.tar`` becomes ``train-000000.tar``, ``train-000001.tar``, ...

::

    train.tar.partial ──full──> journal: 1 closed, the next is empty ──> train-000000.tar.partial
    finish ───────────────────> train-000000.tar.source, its origin, then train-000000.tar, train-000001.tar, ...
                                                                                     the journal is removed last

A writer that was killed between two of these steps does the next one when it is resumed.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

from penstock.errors import ArgumentError
from penstock.sample import Schema
from penstock.stores.common.file_writer import open_partial
from penstock.stores.common.regular_file import fingerprint_files
from penstock.stores.location import Location
from penstock.stores.tar.format import BLOCK_NBYTES
from penstock.stores.tar.writer import PreparedFiles, TarWriter

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
        if not self.state:
            for path in self._stem.parent.glob(f"{self._stem.name}-[0-9]*.tar.partial"):
                path.unlink()  # of a writer whose journal is gone, or that is overwritten
        self.state.setdefault("closed", 0)
        self.state.setdefault("first", 0)

    def write_record(self, prepared: PreparedFiles) -> int:
        """Append the files of a record, to the next shard if this one is full."""
        if self.files[0].tell() and self._is_full(prepared):
            self._close_shard()
        return super().write_record(prepared)

    @property
    def finished_location(self) -> Location | None:
        """The shards."""
        shards = [self._path_of(number) for number in range(self.state["closed"])]
        return Location.from_paths(self.location.scheme, shards) if shards else None

    def fingerprint(self) -> str:
        """Return that of all shards, some of which may be in their places."""
        paths = [(self._partial_of(number), self._path_of(number)) for number in range(self.state["closed"])]
        return fingerprint_files(partial if partial.exists() else path for partial, path in paths)

    def write_end(self) -> None:
        """Close the last shard."""
        if self.files[0].tell():
            self._close_shard()

    def place_files(self, partials: Sequence[Path], finals: Sequence[Path]) -> None:
        """Move all shards to their places, and remove those of a store that is replaced."""
        del partials, finals  # the file behind the last shard is empty
        for number in range(self.state["closed"]):
            partial = self._partial_of(number)
            if partial.exists():
                partial.replace(self._path_of(number))
        for path in list_written_shards(self.location)[self.state["closed"] :]:
            path.unlink()

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
        super().write_end()
        self._sync()
        nbytes = self.files[0].tell()
        self.files[0].close()
        following = Path(f"{self._partials[0]}.next")
        following.unlink(missing_ok=True)
        self._files[0] = open_partial(following, str(self.location))
        number = self.state["closed"]
        self.state.update(closed=number + 1, first=self.records)
        self._commit()
        self._uncommitted = nbytes  # the caller counts from the bytes of the shard before
        self._partials[0].replace(self._partial_of(number))
        following.replace(self._partials[0])

    def _read_journal(self, *, overwrite: bool) -> list[int] | None:
        lengths = super()._read_journal(overwrite=overwrite)
        Path(f"{self._partials[0]}.next").unlink(missing_ok=True)
        if lengths is None:
            return None
        closed = int(self.state.get("closed", 0))
        last = self._partial_of(closed - 1)
        if closed and not last.exists() and not self._path_of(closed - 1).exists():
            self._partials[0].replace(last)  # it was killed between journal and renaming
            self._files[0].close()
            self._files[0] = open_partial(self._partials[0], str(self.location))
        return lengths

    def _path_of(self, number: int) -> Path:
        return self._stem.with_name(f"{self._stem.name}-{number:06d}.tar")

    def _partial_of(self, number: int) -> Path:
        return Path(f"{self._path_of(number)}.partial")
