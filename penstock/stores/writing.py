"""What every writer of stores does: append records in order, commit them, finish or resume.

::

    Store.writer(location) ──prepare (any thread)──> append (one thread, in order) ──> finish
                           ──prepare_batch ────────> append_batch ────────────────────┘

Packing calls this; the store kinds that can be written implement it. A source that has its records as arrays (one value
for each record, by field) calls the batch methods, which some kinds write without an object for each record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from penstock.errors import ArgumentError
from penstock.sample import Array
from penstock.stores.kinds import MANIFEST, UNFINISHED
from penstock.stores.location import Location

__all__ = [
    "BESIDE",
    "MANIFEST",
    "SIDECAR",
    "SIDECAR_PACK",
    "UNFINISHED",
    "CommittedRecords",
    "FieldValues",
    "Skipped",
    "Writer",
]

SIDECAR: Final = "fields"
SIDECAR_PACK: Final = f"{SIDECAR}.lmdb"
"""The file, and the pack, that belong to a container which has no place for all fields; see :mod:`.stores.joined`."""
BESIDE: Final = frozenset({f".{SIDECAR}", f".{SIDECAR}.new", f".{SIDECAR_PACK}", ".convert.json"})
"""What a conversion writes into the folder of a container, for those who replace the folder."""

T_prepared = TypeVar("T_prepared")
FieldValues = Mapping[str, Sequence[object] | Array]
"""By field, the values of some records: an array whose first axis is that of the records, or a sequence, in which None
means that a record has no value."""


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

    def __add__(self, other: CommittedRecords) -> CommittedRecords:
        return CommittedRecords(self.records + other.records, self.nbytes + other.nbytes, self.skipped + other.skipped)

    def to_json(self) -> dict[str, object]:
        """Write the records as :meth:`from_json` reads them."""
        return {"records": self.records, "nbytes": self.nbytes, "skipped": [list(entry) for entry in self.skipped]}

    @classmethod
    def from_json(cls, entry: Mapping[str, object]) -> CommittedRecords:
        """Make it of parsed JSON, whose values may be of any type; names that it does not know are ignored.

        Raises
        ------
        ArgumentError
            If a number is none, or negative, or ``skipped`` is no list of pairs of texts.
        """
        records, nbytes, skipped = entry.get("records"), entry.get("nbytes"), entry.get("skipped")
        for name, number in (("records", records), ("nbytes", nbytes)):
            if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 63:
                raise ArgumentError(f"{name} must be an integer of at least 0, got {number!r:.50}")
        if not isinstance(skipped, list) or not all(map(_is_skipped, skipped)):
            raise ArgumentError(f"skipped must be a list of pairs of texts, got {skipped!r:.50}")
        return cls(cast("int", records), cast("int", nbytes), tuple(Skipped(*pair) for pair in skipped))


def _is_skipped(entry: object) -> bool:
    if not isinstance(entry, list) or len(entry) != len(Skipped._fields):
        return False
    return all(isinstance(text, str) for text in entry)


class Writer(ABC, Generic[T_prepared]):
    """Writes one pack, in order, such that a writer that was killed can be resumed.

    ``prepare`` serialises and hashes a record, in any thread. ``append`` and ``skip`` are called by one thread, in the
    source's order. ``finish`` makes the records a store. If a writer ends before ``finish``, its records cannot be
    opened, and a new writer for the same source continues after :attr:`committed`.
    """

    before_visible: Callable[[Location], None] | None = None
    """Called by ``finish`` with the location of the complete store, just before it can be opened there."""

    def announce_visible(self, location: Location) -> None:
        """Call :attr:`before_visible`."""
        if self.before_visible is not None:
            self.before_visible(location)

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

    def prepare_batch(self, keys: Sequence[str], fields: FieldValues) -> Any:
        """Convert some records to what :meth:`append_batch` takes; thread-safe. By default one by one.

        Parameters
        ----------
        keys : sequence of str
            The key of each record.
        fields : mapping of str to ndarray or sequence
            By field, one value for each record.

        Raises
        ------
        PackError
            If a record cannot be stored. It names no record where a whole array is of a wrong dtype or shape.
        """
        return [self.prepare(key, {name: values[at] for name, values in fields.items()}) for at, key in enumerate(keys)]

    def append_batch(self, prepared: Any) -> None:
        """Add the next records, as :meth:`prepare_batch` returned them.

        The result is that of :meth:`append` for each of them, byte for byte, also after a kill between two of them.
        """
        for record in prepared:
            self.append(record)

    @abstractmethod
    def skip(self, skipped: Skipped) -> None:
        """Note that the source's next record is left out."""

    def repeats_last(self, prepared: T_prepared) -> bool:
        """Return whether a prepared record equals the last one that is committed; True if a writer cannot tell.

        Called before a run is resumed whose source cannot be told from a changed one.
        """
        del prepared
        return True

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
