"""The journal of a writer: what a new writer must know to continue where a killed one ended.

::

    append, skip ──> records, nbytes, skipped ──commit──> JSON: what the records are (source, schema, options), counts
    killed, and begun again ──> resume: the same source, schema and options, or an error that names the difference

A writer stores the JSON where its format lets it replace it in one step: a file, an entry of LMDB, a document. The lock
of one writer is here too. What the records are in a format is no concern of this module.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, TypeVar, cast

from penstock.errors import ArgumentError, PenstockError, StoreError
from penstock.sample import Schema
from penstock.stores.common.regular_file import name_failure, open_regular
from penstock.stores.location import Location
from penstock.stores.origin import Origin
from penstock.stores.writing import CommittedRecords, Skipped, Writer
from penstock.wording import counted

__all__ = ["Journal", "JournaledWriter", "open_locked", "refuse_existing", "writing_at"]

T_prepared = TypeVar("T_prepared")
_logger = logging.getLogger(__name__)
_REPLACES: Final = "overwrite=True (--overwrite)"
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_LOCKS: Final = frozenset({errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK})


@dataclass
class Journal:
    """What a writer has written, what of it is committed, and what it is."""

    url: str  # the store
    what: str  # what it is called in errors: "store", "pack", "collection", ...
    source: str  # the text of the origin of the records
    schema: Schema  # their fields
    options: Mapping[str, object] = field(default_factory=dict)
    """What else decides which bytes are written, as JSON can hold it; these entries stand beside source and schema."""
    anew: str = f"write with {_REPLACES} to start anew"  # what errors advise where the records cannot be resumed
    records: int = 0
    nbytes: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    committed: CommittedRecords = field(default_factory=CommittedRecords)

    @property
    def written(self) -> CommittedRecords:
        """What is written, in a commit or not."""
        return CommittedRecords(self.records, self.nbytes, tuple(self.skipped))

    @property
    def uncommitted(self) -> int:
        """Number of source records that are in no commit."""
        return self.records + len(self.skipped) - self.committed.consumed

    def append(self, nbytes: int) -> None:
        """Count a record with so many bytes in its blobs."""
        self.records += 1
        self.nbytes += nbytes

    def commit(self) -> None:
        """Note that everything that is written is safe."""
        self.committed = self.written

    def to_json(self) -> dict[str, object]:
        """Return what :meth:`resume` reads."""
        entry: dict[str, object] = {"source": self.source, "schema": self.schema.to_json()}
        return entry | self._plain_options() | self.written.to_json()

    def resume(self, entry: object, name: str) -> None:
        """Continue after the commit that ``entry`` describes, which is parsed JSON of any type, read from ``name``.

        Raises StoreError if it is damaged, or was written from another source, with other fields or options.
        """
        with self.reading(name):
            begun = cast("Mapping[str, object]", entry)
            held = CommittedRecords.from_json(begun)
            source, schema = str(begun["source"]), Schema.from_json(cast("dict[str, object]", begun["schema"]))
            options = {name: begun[name] for name in self.options}
        if (source, schema, options) != (self.source, self.schema, self._plain_options()):
            raise self.make_other_error(held.records, source, schema, options)
        self.restore(held)

    def restore(self, held: CommittedRecords) -> None:
        """Continue after this commit."""
        self.records, self.nbytes, self.skipped = held.records, held.nbytes, list(held.skipped)
        self.committed = held

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Raise errors of reading and parsing as the StoreError of a journal that is damaged."""
        try:
            yield
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self.make_damage_error(f"{name} is damaged ({error})") from error

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Raise errors of the operating system as StoreErrors; those pass."""
        try:
            yield
        except StoreError:
            raise
        except OSError as error:
            raise self.make_write_error(error) from error

    def make_write_error(self, error: OSError) -> StoreError:
        """Return the error for a system that refuses to write."""
        advice = "free some space, and write" if error.errno in _NO_SPACE else "write"
        return StoreError(
            f"the {self.what} cannot be written: {name_failure(error)}. "
            f"{counted(self.committed.records, 'record')} so far are kept: {advice} again to resume",
            store=self.url,
        )

    def make_damage_error(self, message: str) -> StoreError:
        """The error for unfinished records that cannot be resumed."""
        return StoreError(f"{message}; {self.anew}", store=self.url)

    def make_other_error(
        self, records: int, source: str, schema: Schema, options: Mapping[str, object] | None = None
    ) -> StoreError:
        """The error for unfinished records of another source, or with other fields or options."""
        difference = Origin.from_text(source).describe_difference(schema, Origin.from_text(self.source), self.schema)
        if (source, schema) == (self.source, self.schema):
            difference = f"it was written with the options {options}, not {self._plain_options()}"
        return StoreError(
            f"an unfinished {self.what} of {counted(records, 'record')} is here, and {difference}; write as before to "
            f"resume it, or {self.anew}",
            store=self.url,
        )

    def _plain_options(self) -> dict[str, object]:
        """Return the options as they are read back from JSON."""
        return cast("dict[str, object]", json.loads(json.dumps(dict(self.options))))


class JournaledWriter(Writer[T_prepared], Generic[T_prepared]):
    """A writer that counts in a journal; a subclass makes it, and calls :meth:`Journal.commit`."""

    journal: Journal

    @property
    def committed(self) -> CommittedRecords:
        """What is safe; a resumed writer continues behind it."""
        return self.journal.committed

    @property
    def records(self) -> int:
        """Number of records appended so far, by earlier runs too."""
        return self.journal.records

    @property
    def skipped(self) -> Sequence[Skipped]:
        """The records left out so far, by earlier runs too."""
        return self.journal.skipped

    def skip(self, skipped: Skipped) -> None:
        """Note a record that is left out; safe with the next commit."""
        self.journal.skipped.append(skipped)


@contextlib.contextmanager
def writing_at(what: str, url: str) -> Iterator[None]:
    """Raise errors of the operating system as StoreErrors that name the place; those of penstock, and of pipes, pass.

    ``what``: the beginning of the message, such as "the copy cannot be made".
    """
    try:
        yield
    except (PenstockError, ConnectionError):
        raise
    except OSError as error:
        named = f" ({error.filename})" if error.filename else ""
        advice = "; free some space and try again" if error.errno in _NO_SPACE else ""
        raise StoreError(f"{what}: {error.strerror or error}{named}{advice}", store=url) from error


def refuse_existing(location: Location, *, overwrite: bool) -> None:
    """Raise ArgumentError if something is at the place of a store that is not to be replaced."""
    if not overwrite and os.path.lexists(location.local_path):
        raise ArgumentError(f"{location} exists; it is replaced with {_REPLACES}, if that is what you want")


def open_locked(path: Path, url: str) -> int:
    """Open a file for reading and writing that one writer at a time holds; made, with its folder, where it is not.

    Closing the descriptor releases it. A file system without locks lets several writers hold it.

    Raises StoreError if it cannot be opened, or another writer holds it.
    """
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        except OSError as error:
            blocks = next((each for each in (path.parent, *path.parent.parents) if each.is_file()), None)
            reason = f"{error.filename}: {error.strerror}"
            if blocks is not None:
                reason = f"{blocks} is a file, and must be a folder"
            raise StoreError(f"cannot write here: {reason}", store=url) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(file)
            raise StoreError("another process is writing here; wait for it, or stop it", store=url) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(file)
                raise StoreError(f"cannot lock {path.name} here: {error.strerror}", store=url) from error
            _logger.warning("%s: this file system has no locks (%s): only one process may write here", url, error)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), path.stat()):
                return file
        os.close(file)  # the process that held the lock has finished, and removed or moved the file
