"""Writers that append to files: what was committed survives a kill, and a new writer continues after it.

::

    photos.tar.partial            the files that grow; committed at fixed numbers of bytes
    photos.tar.partial.json       origin, schema, counts, length of each file: replaced at each commit, in one step
    finish ──> photos.tar, and photos.tar.source (its origin)      the partial files are gone

A subclass says what the bytes of a record are. Used by the kinds of stores whose format is written front to back.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Final, Generic, TypeVar

from penstock.errors import ArgumentError, StoreError
from penstock.plurals import counted
from penstock.sample import Schema
from penstock.stores.common.regular_file import open_regular
from penstock.stores.location import Location
from penstock.stores.origin import Origin, read_finished, write_origin
from penstock.stores.writing import CommittedRecords, Skipped, Writer

__all__ = ["FileWriter", "find_finished"]

T_prepared = TypeVar("T_prepared")
_logger = logging.getLogger(__name__)
_COMMIT_NBYTES: Final = 64 << 20
_COMMIT_RECORDS: Final = 10_000
_SYNC_NBYTES: Final = 1 << 30
"""A commit survives the death of the process; it is synced, to survive that of the machine, after so many bytes."""
_JOURNAL_VERSION: Final = 1
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def find_finished(location: Location, source: str) -> CommittedRecords | None:
    """What the finished files at ``location`` hold, if a :class:`FileWriter` wrote them from this origin; else None."""
    from penstock.stores.container import fingerprint_files

    try:
        return read_finished(location, fingerprint_files(location.paths), Origin.from_text(source))
    except OSError:
        return None  # no file


class FileWriter(Writer[T_prepared], Generic[T_prepared]):
    """Appends records to files, in order.

    Parameters
    ----------
    location : Location
        The store; a path on this machine.
    schema : Schema
        Fields of the records.
    source : str
        The origin, as :meth:`~penstock.stores.origin.Origin.to_text` returns it; only a store of the same origin is
        resumed.
    overwrite : bool
        Whether to replace what is there.
    options : mapping of str to object, optional
        What else decides which bytes are written, as JSON can hold it; another value is not resumed.

    Raises
    ------
    ArgumentError
        If a store is there, and is not to be replaced.
    StoreError
        If an unfinished store of another origin is there, or files cannot be written.
    """

    endings: ClassVar[tuple[str, ...]] = ("",)
    """What is appended to the store's path for each file that is written; the first one is the store itself."""

    def __init__(
        self,
        location: Location,
        schema: Schema,
        source: str,
        *,
        overwrite: bool = False,
        options: Mapping[str, object] | None = None,
    ) -> None:
        self.location, self.schema = location, schema
        self._source, self._options = source, dict(options or {})
        self._path = location.local_path
        self._journal = Path(f"{self._path}.partial.json")
        self._finals = [self.path_of(self._path, ending) for ending in self.endings]
        self._partials = [Path(f"{path}.partial") for path in self._finals]
        self._committed = CommittedRecords()
        self._records = self._nbytes = 0
        self._skipped: list[Skipped] = []
        self._uncommitted = self._unsynced = 0
        self._is_done = False
        self.state: dict[str, Any] = {}
        """What a subclass must know to continue, as JSON can hold it; stored with each commit."""
        if location.exists() and not overwrite:
            raise ArgumentError(
                f"{location} exists; it is replaced with overwrite=True (--overwrite), if that is what you want"
            )
        entry = None if overwrite else self._read_journal()
        self._files = self._open_files(entry)

    @staticmethod
    def path_of(path: Path, ending: str) -> Path:
        """The path of one of the files; by default the ending is appended to the whole name."""
        return Path(f"{path}{ending}")

    @property
    def committed(self) -> CommittedRecords:
        """What is on disk."""
        return self._committed

    @property
    def records(self) -> int:
        """Number of records appended so far, by earlier runs too."""
        return self._records

    @property
    def skipped(self) -> Sequence[Skipped]:
        """The records left out so far, by earlier runs too."""
        return self._skipped

    @property
    def nbytes(self) -> int:
        """Number of bytes of the blobs of :attr:`records`."""
        return self._nbytes

    @property
    def files(self) -> Sequence[BinaryIO]:
        """The open files, in the order of :attr:`endings`."""
        return self._files

    @abstractmethod
    def write_record(self, prepared: T_prepared) -> int:
        """Append a record to :attr:`files`; returns the number of bytes of its blobs."""

    def write_pending(self) -> None:
        """Append the records that are still in memory; called before each commit. By default nothing."""

    def write_end(self) -> None:
        """Append what stands behind the last record; by default nothing."""

    def place_files(self, partials: Sequence[Path], finals: Sequence[Path]) -> None:
        """Move the complete files to their places, the store itself last; :meth:`finish` calls it.

        A format that cannot be appended to overrides it: it makes the store of the records in the partial files.
        """
        for partial, final in zip(partials[::-1], finals[::-1], strict=True):
            partial.replace(final)

    def append(self, prepared: T_prepared) -> None:
        """Add the next record; commit if enough bytes are pending."""
        try:
            before = sum(file.tell() for file in self._files)
            self._nbytes += self.write_record(prepared)
            self._records += 1
            self._uncommitted += sum(file.tell() for file in self._files) - before
            if self._uncommitted >= _COMMIT_NBYTES or (
                self._records + len(self._skipped) - self._committed.consumed >= _COMMIT_RECORDS
            ):
                self._commit()
        except OSError as error:
            raise self._make_write_error(error) from error

    def skip(self, skipped: Skipped) -> None:
        """Note a record that is left out; on disk with the next commit."""
        self._skipped.append(skipped)

    def finish(self, problems: Sequence[Skipped] = ()) -> None:
        """Write the end, sync, and move the files to their place."""
        from penstock.stores.container import fingerprint_files

        del problems  # they are in the report; the format has no place for them
        try:
            self.write_end()
            self._sync()
            for file in self._files:
                file.close()
            self.place_files(self._partials, self._finals)
            self._committed = CommittedRecords(self._records, self._nbytes, tuple(self._skipped))
            content = fingerprint_files(self._finals[:1])
            write_origin(self.location, content, Origin.from_text(self._source), self._committed)
            self._journal.unlink(missing_ok=True)
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise self._make_write_error(error) from error
        self._is_done = True

    def close(self) -> None:
        """Close the files. What was committed stays, and is resumed by a writer of the same origin."""
        for file in self._files:
            with contextlib.suppress(OSError):  # of the rest of its buffer, which is in no commit and cut off to resume
                file.close()

    def discard(self) -> None:
        """Remove the files that were written."""
        self.close()
        for path in () if self._is_done else (*self._partials, self._journal):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                _logger.warning("%s: %s cannot be removed: %s", self.location, path.name, error)

    def _open_files(self, entry: Mapping[str, Any] | None) -> list[BinaryIO]:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | (os.O_TRUNC if entry is None else 0)
        files: list[BinaryIO] = []
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            for number, partial in enumerate(self._partials):
                file = os.fdopen(open_regular(partial, flags), "r+b", buffering=1 << 20)
                files.append(file)
                if entry is not None:
                    if file.seek(0, os.SEEK_END) < entry["lengths"][number]:
                        raise StoreError(  # noqa: TRY301  # one handler
                            f"{partial.name} is shorter than its journal says; write with overwrite=True (--overwrite) "
                            "to start anew",
                            store=str(self.location),
                        )
                    file.truncate(entry["lengths"][number])
                    file.seek(entry["lengths"][number])
        except BaseException as error:
            for file in files:
                file.close()
            if isinstance(error, OSError) and not isinstance(error, StoreError):
                raise self._make_write_error(error) from error
            raise
        return files

    def _read_journal(self) -> dict[str, Any] | None:
        """The last commit of an earlier run; None if there is none."""
        try:
            with os.fdopen(open_regular(self._journal), "rb") as file:
                entry: dict[str, Any] = json.loads(file.read())
            begun = {name: entry[name] for name in ("version", "source", "schema", "options")}
            self._skipped = [Skipped(str(key), str(reason)) for key, reason in entry["skipped"]]
            self._records, self._nbytes = int(entry["records"]), int(entry["nbytes"])
            self.state = dict(entry["state"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{self._journal.name} is damaged; write with overwrite=True (--overwrite) to start anew",
                store=str(self.location),
            ) from error
        if begun != self._describe():
            raise StoreError(
                f"an unfinished store of {counted(self._records, 'record')} of another source, or with other options, "
                "is here; write as before to resume it, or with overwrite=True (--overwrite) to start anew",
                store=str(self.location),
            )
        self._committed = CommittedRecords(self._records, self._nbytes, tuple(self._skipped))
        return entry

    def _describe(self) -> dict[str, object]:
        options = json.loads(json.dumps(self._options))
        return {
            "version": _JOURNAL_VERSION,
            "source": self._source,
            "schema": self.schema.to_json(),
            "options": options,
        }

    def _commit(self) -> None:
        self.write_pending()
        for file in self._files:
            file.flush()
        self._unsynced += self._uncommitted
        if must_sync := self._unsynced >= _SYNC_NBYTES:
            self._sync()
        entry = self._describe() | {
            "records": self._records,
            "nbytes": self._nbytes,
            "skipped": [list(entry) for entry in self._skipped],
            "lengths": [file.tell() for file in self._files],
            "state": self.state,
        }
        partial = Path(f"{self._journal}.new")
        with partial.open("w", encoding="utf-8") as journal:
            json.dump(entry, journal)
            journal.flush()
            if must_sync:
                os.fsync(journal.fileno())
        partial.replace(self._journal)
        self._committed = CommittedRecords(self._records, self._nbytes, tuple(self._skipped))
        self._uncommitted = 0

    def _sync(self) -> None:
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
        self._unsynced = 0

    def _make_write_error(self, error: OSError) -> StoreError:
        message = f"the store cannot be written: {error.strerror or error}"
        if error.errno in _NO_SPACE:
            message += (
                f". {counted(self._committed.records, 'record')} on disk so far are kept: free some space, and write "
                "again to resume"
            )
        return StoreError(message, store=str(self.location))
