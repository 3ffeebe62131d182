"""What every writer of stores does: append records in order, commit them, finish or resume.

::

    Store.writer(location) ──prepare (any thread)──> append (one thread, in order) ──> finish

Packing calls this; the store kinds that can be written implement it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

__all__ = ["CommittedRecords", "Skipped", "Writer"]

T_prepared = TypeVar("T_prepared")


class Skipped(NamedTuple):
    """An entry of a source that is not a record of the pack: its name in the source, and the reason."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class CommittedRecords:
    """What a writer has committed: the number of records, the bytes of their blobs, and the entries left out."""

    records: int = 0
    nbytes: int = 0
    skipped: tuple[Skipped, ...] = ()

    @property
    def consumed(self) -> int:
        """Number of source records that are committed or left out: the index of the next one to read."""
        return self.records + len(self.skipped)


class Writer(ABC, Generic[T_prepared]):
    """Writes one pack, in order, such that a writer that was killed can be resumed.

    ``prepare`` serialises and hashes a record, in any thread. ``append`` and ``skip`` are called by one thread, in the
    source's order. ``finish`` makes the records a store. If a writer ends before ``finish``, its records cannot be
    opened, and a new writer for the same source continues after :attr:`committed`.
    """

    @property
    @abstractmethod
    def committed(self) -> CommittedRecords:
        """What is safe on disk; a resumed writer continues with source record ``committed.consumed``."""

    @abstractmethod
    def prepare(self, key: str, fields: Mapping[str, object]) -> T_prepared:
        """Convert a record to what :meth:`append` takes; thread-safe.

        Raises
        ------
        PackError
            If the record cannot be stored.
        """

    @abstractmethod
    def append(self, prepared: T_prepared) -> None:
        """Add the next record."""

    @abstractmethod
    def skip(self, skipped: Skipped) -> None:
        """Note that the source's next record is left out."""

    @abstractmethod
    def finish(self, problems: Sequence[Skipped] = ()) -> None:
        """Commit the remaining records and make the pack a store.

        Parameters
        ----------
        problems : sequence of Skipped
            Entries of the source that are not records; the store lists them.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop writing. What is committed stays and can be resumed. After :meth:`finish`, do nothing."""

    @abstractmethod
    def discard(self) -> None:
        """Stop writing and remove everything that was written."""
