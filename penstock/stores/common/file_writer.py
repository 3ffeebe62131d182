"""Writers that append to files: what was committed survives a kill, and a new writer continues after it.

::

    photos.tar.partial            the files that grow; committed at fixed numbers of bytes
    photos.tar.partial.json       origin, schema, counts, length of each file: replaced at each commit, in one step
    finish ──> photos.tar.source (its origin), then photos.tar, at which the partial files are gone

A subclass says what the bytes of a record are. Used by the kinds of stores whose format is written front to back.
"""

from __future__ import annotations

import contextlib
import logging
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from penstock.sample import Schema
from penstock.stores.common.journal import Journal, JournaledWriter, open_locked, refuse_existing
from penstock.stores.common.regular_file import fingerprint_files, open_regular, read_json, replace_json
from penstock.stores.location import Location
from penstock.stores.origin import Origin, write_origin
from penstock.stores.writing import Skipped

__all__ = ["FileWriter", "open_partial"]

T_prepared = TypeVar("T_prepared")
_logger = logging.getLogger(__name__)
_COMMIT_NBYTES: Final = 64 << 20
_COMMIT_RECORDS: Final = 10_000
_SYNC_NBYTES: Final = 1 << 30
"""A commit survives the death of the process; it is synced, to survive that of the machine, after so many bytes."""
_JOURNAL_VERSION: Final = 1


class FileWriter(JournaledWriter[T_prepared]):
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
        self._path = location.local_path
        self._finals = [self._path]
        self._partials, self._journal_path = self.locate_unfinished()
        self._complete = self._partials  # what is moved to the places of the store in the end
        self._uncommitted = self._unsynced = 0
        self._is_done = False
        self._files: list[BinaryIO] = []
        self.state: dict[str, Any] = {}
        """What a subclass must know to continue, as JSON can hold it; stored with each commit."""
        self.journal = self.make_journal(source, options or {})
        self.refuse_existing(overwrite=overwrite)
        with self.journal.writing():
            self._open_files(overwrite=overwrite)

    def locate_unfinished(self) -> tuple[list[Path], Path]:
        """Return the paths of the files while they grow, and that of the journal."""
        return [Path(f"{path}.partial") for path in self._finals], Path(f"{self._path}.partial.json")

    def make_journal(self, source: str, options: Mapping[str, object]) -> Journal:
        """The journal before the first record."""
        fixed = {"version": _JOURNAL_VERSION, "options": dict(options)}
        return Journal(str(self.location), "store", source, self.schema, fixed)

    def refuse_existing(self, *, overwrite: bool) -> None:
        """Raise ArgumentError if something is there that is not to be replaced."""
        refuse_existing(self.location, overwrite=overwrite)

    @property
    def files(self) -> Sequence[BinaryIO]:
        """The open files; the first one is the store, or its part that is written."""
        return self._files

    @property
    def finished_location(self) -> Location | None:
        """Where the finished store is; None if nothing was written."""
        return self.location

    @abstractmethod
    def write_record(self, prepared: T_prepared) -> int:
        """Append a record to :attr:`files`; returns the number of bytes of its blobs."""

    def write_pending(self) -> None:
        """Append the records that are still in memory; called before each commit. By default nothing."""

    def write_end(self) -> None:
        """Append what stands behind the last record; by default nothing."""

    def place_files(self, partials: Sequence[Path], finals: Sequence[Path]) -> None:
        """Move the complete files to their places, the store itself last; :meth:`finish` calls it."""
        for partial, final in zip(partials[::-1], finals[::-1], strict=True):
            partial.replace(final)

    def fingerprint(self) -> str:
        """A hash of the complete files, as the reader of the finished store computes it."""
        return fingerprint_files(self._complete[:1])

    def append(self, prepared: T_prepared) -> None:
        """Add the next record; commit if enough bytes are pending."""
        with self.journal.writing():
            before = sum(file.tell() for file in self._files)
            self.journal.append(self.write_record(prepared))
            self._uncommitted += sum(file.tell() for file in self._files) - before
            if self._uncommitted >= _COMMIT_NBYTES or self.journal.uncommitted >= _COMMIT_RECORDS:
                self._commit()

    def finish(self, problems: Sequence[Skipped] = ()) -> None:
        """Write the end, sync, and move the files to their place."""
        del problems  # they are in the report; the format has no place for them
        with self.journal.writing():
            self.write_end()
            self._sync()
            if (finished := self.finished_location) is not None:  # first: a store in its place has an origin
                origin = Origin.from_text(self.journal.source)
                write_origin(finished, self.fingerprint(), origin, self.journal.written)
                self.announce_visible(finished)
            self.place_files(self._complete, self._finals)
            self.journal.commit()
            for path in (*self._partials, self._journal_path):
                path.unlink(missing_ok=True)
        self._is_done = True
        self.close()

    def close(self) -> None:
        """Close the files. What was committed stays, and is resumed by a writer of the same origin."""
        for file in self._files:
            with contextlib.suppress(OSError):  # of the rest of its buffer, which is in no commit and cut off to resume
                file.close()

    def discard(self) -> None:
        """Remove the files that were written."""
        self.close()
        for path in () if self._is_done else (*self._partials, self._journal_path):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                _logger.warning("%s: %s cannot be removed: %s", self.location, path.name, error)

    def _open_files(self, *, overwrite: bool) -> None:
        """Lock the first file, and open all of them behind the last commit."""
        try:
            for partial, final in zip(self._partials, self._finals, strict=False):
                if self._files and not partial.exists() and self._journal_path.exists() and final.exists():
                    final.replace(partial)  # its writer was killed while it moved the files to their places
                self._files.append(open_partial(partial, None if self._files else str(self.location)))
            lengths = self._read_journal(overwrite=overwrite)
            for number, (file, partial) in enumerate(zip(self._files, self._partials, strict=True)):
                nbytes = lengths[number] if lengths else 0
                if file.seek(0, os.SEEK_END) < nbytes:
                    raise self.journal.make_damage_error(  # noqa: TRY301  # one handler
                        f"{partial.name} is shorter than its journal says"
                    )
                file.truncate(nbytes)
                file.seek(nbytes)
        except BaseException:
            self.close()
            raise

    def _read_journal(self, *, overwrite: bool) -> list[int] | None:
        """Continue after the last commit of an earlier run; the length of each file then, None to start anew."""
        name = self._journal_path.name
        if overwrite:
            self._journal_path.unlink(missing_ok=True)
        if not os.path.lexists(self._journal_path):
            return None
        with self.journal.reading(name):
            entry = read_json(self._journal_path)
        self.journal.resume(entry, name)
        with self.journal.reading(name):
            self.state, lengths = self.read_state(entry)
            if len(lengths) != len(self._files) or min(lengths) < 0:
                raise ValueError(f"lengths {lengths}")
        return lengths

    def read_state(self, entry: Mapping[str, Any]) -> tuple[dict[str, Any], list[int]]:
        """:attr:`state`, and the length of each file, as a journal says them; may raise any error of parsing."""
        return dict(entry["state"]), [int(nbytes) for nbytes in entry["lengths"]]

    def _commit(self) -> None:
        self.write_pending()
        for file in self._files:
            file.flush()
        self._unsynced += self._uncommitted
        if must_sync := self._unsynced >= _SYNC_NBYTES:
            self._sync()
        more = {"lengths": [file.tell() for file in self._files], "state": self.state}
        replace_json(self._journal_path, self.journal.to_json() | more, sync=must_sync)
        self.journal.commit()
        self._uncommitted = 0

    def _sync(self) -> None:
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
        self._unsynced = 0


def open_partial(path: Path, lock_url: str | None) -> BinaryIO:
    """Open a file that grows; locked for this writer if the URL of its store is given."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    descriptor = open_regular(path, flags) if lock_url is None else open_locked(path, lock_url)
    return os.fdopen(descriptor, "r+b", buffering=1 << 20)
