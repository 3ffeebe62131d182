"""Writes a folder of Parquet files, as repositories of datasets have them: ``train-00000-of-00012.parquet``, ...

::

    photos.partial/00000.parquet           finished shards, in order
    photos.partial/00001.parquet.partial   the shard that is being written, with its journal
    finish ──> photos/train-00000-of-00002.parquet, photos/train-00001-of-00002.parquet

Each shard has a fixed number of records and is written by a :class:`.arrow.parquet_writer.ParquetWriter`. A killed
writer continues with the shard that was not finished.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.errors import ArgumentError, StoreError
from penstock.sample import Schema
from penstock.stores.arrow.parquet_writer import SHARD_PREFIX, ParquetWriter, Prepared, list_written, read_written
from penstock.stores.common.journal import refuse_existing, writing_at
from penstock.stores.common.regular_file import refuse_links, remove_tree
from penstock.stores.container import fingerprint_files
from penstock.stores.fields.record_names import quote_names
from penstock.stores.location import Location
from penstock.stores.origin import ORIGIN_FILE, Origin, write_origin
from penstock.stores.writing import BESIDE, CommittedRecords, Skipped, Writer

__all__ = ["ParquetShardsWriter"]


class ParquetShardsWriter(Writer[Prepared]):
    """Writes records to shards of one number of records.

    Parameters
    ----------
    location : Location
        The folder.
    schema, source, overwrite
        As for :class:`~penstock.stores.common.file_writer.FileWriter`.
    shard_records : int
        Number of records of a shard; the last one has the rest.
    row_group_records : int
        As for :class:`.arrow.parquet_writer.ParquetWriter`.

    Raises
    ------
    ArgumentError
        If something is at the location that is not to be replaced, or a number is not positive.
    StoreError
        If unfinished shards of another origin are there, or files cannot be written.
    """

    def __init__(
        self,
        location: Location,
        schema: Schema,
        source: str,
        *,
        overwrite: bool = False,
        shard_records: int,
        row_group_records: int = 100,
    ) -> None:
        if shard_records < 1:
            raise ArgumentError(f"shard_records must be at least 1, got {shard_records}")
        refuse_existing(location, overwrite=overwrite)
        self._location, self._schema, self._source = location, schema, source
        if location.exists():
            _refuse_other_files(location.local_path)
        # The size of a shard decides where records are: shards of another size are not continued.
        self._shard_source = f"{source} shard_records={shard_records}"
        self._shard_records, self._group_records = shard_records, row_group_records
        self._folder = Path(f"{location.local_path}.partial")
        with writing_at("the store cannot be written", str(location)):
            if overwrite:
                remove_tree(self._folder)
            refuse_links(self._folder.parent, self._folder)
            self._folder.mkdir(parents=True, exist_ok=True)
        for path in self._folder.glob(f"{SHARD_PREFIX}-*-of-*.parquet"):  # a writer was killed while it gave them names
            path.rename(self._shard_path(int(path.name.split("-")[1])))
        self._done = self._find_done()
        self._writer = self._open_shard()

    @property
    def committed(self) -> CommittedRecords:
        """What is on disk: finished shards, and what is committed of the current one."""
        return sum(self._done, CommittedRecords()) + self._writer.committed

    def prepare(self, key: str, fields: Mapping[str, object]) -> Prepared:
        """Check the values of a record; thread-safe."""
        return self._writer.prepare(key, fields)

    def append(self, prepared: Prepared) -> None:
        """Add the next record; the shard is finished before it if it is complete."""
        if self._writer.records == self._shard_records:
            self._writer.finish()
            self._done.append(self._writer.committed)
            self._writer = self._open_shard()
        self._writer.append(prepared)

    def skip(self, skipped: Skipped) -> None:
        """Note a record that is left out."""
        self._writer.skip(skipped)

    def finish(self, problems: Sequence[Skipped] = ()) -> None:
        """Finish the last shard, and give all of them their names."""
        del problems  # they are in the report; the format has no place for them
        is_empty = bool(self._done) and not self._writer.journal.written.consumed  # a kill came behind the last shard
        end = self._writer.discard if is_empty else self._writer.finish
        end()
        count = len(self._done) + (not is_empty)
        folder = self._location.local_path
        try:
            for number in range(count):
                self._shard_path(number).rename(self._folder / f"{SHARD_PREFIX}-{number:05d}-of-{count:05d}.parquet")
            content = fingerprint_files(list_written(self._folder))
            complete = Location.from_path("parquet", self._folder)  # which gets the name of the store
            write_origin(complete, content, Origin.from_text(self._source))
            self.announce_visible(complete)
            if folder.exists():
                _refuse_other_files(folder)
            remove_tree(folder)
            self._folder.rename(folder)
            for sidecar in folder.glob("*.parquet.source"):
                sidecar.unlink()
        except OSError as error:
            raise StoreError(
                f"the store cannot be written: {error.strerror or error}", store=str(self._location)
            ) from error

    def close(self) -> None:
        """Stop writing; what is committed is resumed by a writer of the same origin."""
        self._writer.close()

    def discard(self) -> None:
        """Remove what was written."""
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)  # gone, if it is finished

    def _find_done(self) -> list[CommittedRecords]:
        """Return what the shards hold that an earlier writer finished."""
        done: list[CommittedRecords] = []
        while (path := self._shard_path(len(done))).exists():
            found = read_written(Location.from_path("parquet", path), self._schema, self._shard_source)
            if found is None:
                raise StoreError(
                    "unfinished shards of another source, or of another size, are here; write as before to resume "
                    "them, or with overwrite=True (--overwrite) to start anew",
                    store=str(self._location),
                )
            Path(f"{path}.partial.json").unlink(missing_ok=True)  # its writer was killed behind the last step
            done.append(found)
        return done

    def _open_shard(self) -> ParquetWriter:
        location = Location.from_path("parquet", self._shard_path(len(self._done)))
        return ParquetWriter(location, self._schema, self._shard_source, row_group_records=self._group_records)

    def _shard_path(self, number: int) -> Path:
        return self._folder / f"{number:05d}.parquet"


def _refuse_other_files(folder: Path) -> None:
    """Raise ArgumentError unless what is to be replaced is a folder with nothing but shards."""
    others = [path.name for path in folder.iterdir() if not _is_shard(path)] if folder.is_dir() else [folder.name]
    if others:
        raise ArgumentError(
            f"a folder of shards replaces only a folder of shards; {folder} has also {quote_names(sorted(others))}"
        )


def _is_shard(path: Path) -> bool:
    return path.name in BESIDE or (path.is_file() and (path.suffix == ".parquet" or path.name == ORIGIN_FILE))
