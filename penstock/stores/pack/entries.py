"""From records to the entries of a pack's database of records: one entry a record.

::

    prepare (any thread) ──> add ──> pending entries ──commit──> clear_pending
                              └────> columns, keys, hash over all records      all in memory until the pack is finished

:class:`~penstock.stores.pack.writer.LmdbWriter` commits what is pending. Blocks of small
records are :mod:`.pack.block_entries`. Nothing here writes to a file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

import xxhash

from penstock.errors import PackError
from penstock.sample import Schema
from penstock.stores.fields.columns import get_column_dtype, make_column
from penstock.stores.pack.format import EncodedRecord, RecordCodec, encode_column, make_record_key
from penstock.stores.writing import FieldValues

__all__ = ["PackEntries", "RecordEntries", "refuse_other_lengths"]

T_batch = TypeVar("T_batch")
PreparedRecord = tuple[str, EncodedRecord, list[object]]
"""Key, encoded value, and the values of its columns."""


class PackEntries(ABC, Generic[T_batch]):
    """The entries of one pack that is being written.

    Attributes
    ----------
    pending : list of EncodedRecord
        Entries that are not committed.
    first : int
        Number of the first of them.
    count, nbytes : int
        Number of records in all entries, and of bytes of their blobs.
    stored_nbytes : int
        Bytes of all entries.
    content : bytes
        Hash over all of them, in order.
    has_none : bool
        Whether a small field of one of them has no value.
    """

    block_records = 0
    """Records of each block; 0 where each record is an entry."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.column_fields = tuple(name for name in schema.small if get_column_dtype(schema[name]) is not None)
        self.pending: list[EncodedRecord] = []
        self.pending_nbytes = 0
        self.first = self.count = self.nbytes = self.stored_nbytes = 0
        self.content = b""
        self.has_none = False

    @abstractmethod
    def prepare(self, keys: Sequence[str], fields: FieldValues) -> T_batch:
        """Encode and hash some records; see :meth:`penstock.stores.writing.Writer.prepare_batch`."""

    @abstractmethod
    def add(self, prepared: T_batch) -> Iterator[None]:
        """Add some records, as :meth:`prepare` returned them; yields wherever a commit may be made."""

    @property
    def added(self) -> int:
        """Number of records that were added, in an entry or not."""
        return self.count

    @abstractmethod
    def drop(self, prepared: T_batch, count: int) -> T_batch | None:
        """Prepared records without the first ``count``; None if none are left."""

    @abstractmethod
    def restore(self, value: bytes, total: int) -> None:
        """Add an entry that an earlier run has committed, of ``total`` records; ValueError if it is damaged."""

    @abstractmethod
    def complete(self) -> None:
        """Make an entry of the records that are left."""

    @abstractmethod
    def key_entries(self) -> list[tuple[bytes, bytes]]:
        """What the database of keys holds, in order: each key once, with the numbers of its records, 8 bytes each."""

    @abstractmethod
    def columns(self) -> dict[str, bytes]:
        """The stored columns by field."""

    def repeats_last(self, prepared: T_batch) -> bool:
        """Whether a prepared record equals the last one that was added; True where blocks hide the record."""
        del prepared
        return True

    def clear_pending(self) -> None:
        """Forget the pending entries: they are committed."""
        self.first += len(self.pending)
        self.pending.clear()
        self.pending_nbytes = 0

    def _push(self, value: EncodedRecord) -> None:
        self.pending.append(value)
        self.pending_nbytes += value.nbytes
        self.stored_nbytes += value.nbytes


class RecordEntries(PackEntries[list[PreparedRecord]]):
    """Each record is an entry."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._codec = RecordCodec(schema)
        self._columns: dict[str, list[object]] = {name: [] for name in self.column_fields}
        self._keys: list[bytes] = []
        self._content_before = b""

    def prepare(self, keys: Sequence[str], fields: FieldValues) -> list[PreparedRecord]:
        """See :meth:`PackEntries.prepare`."""
        refuse_other_lengths(keys, fields)
        records = ({name: values[at] for name, values in fields.items()} for at in range(len(keys)))
        return [
            (key, self._codec.encode(key, record), [record[name] for name in self.schema.small])
            for key, record in zip(keys, records, strict=True)
        ]

    def add(self, prepared: list[PreparedRecord]) -> Iterator[None]:
        """See :meth:`PackEntries.add`."""
        for key, value, small in prepared:
            self._note(key, value.begin, small, self._codec.add_number(value.begin, self.count))
            self._push(value)
            yield

    def drop(self, prepared: list[PreparedRecord], count: int) -> list[PreparedRecord] | None:
        """See :meth:`PackEntries.drop`."""
        return prepared[count:] or None

    def restore(self, value: bytes, total: int) -> None:
        """See :meth:`PackEntries.restore`."""
        del total
        key, fields = self._codec.decode(memoryview(value), self.count)
        small = [fields[name] for name in self.schema.small]
        self._note(key, bytearray(value), small, value[: self._codec.head_nbytes])
        self.first += 1
        self.stored_nbytes += len(value)

    def complete(self) -> None:
        """Nothing is left."""

    def key_entries(self) -> list[tuple[bytes, bytes]]:
        """All keys, in order of their bytes, with the numbers of their records."""
        places: dict[bytes, list[bytes]] = {}
        for index, key in enumerate(self._keys):
            places.setdefault(key, []).append(make_record_key(index))
        return [(key, b"".join(places[key])) for key in sorted(places)]

    def columns(self) -> dict[str, bytes]:
        """See :meth:`PackEntries.columns`."""
        columns = {name: make_column(name, held, self.schema[name], "") for name, held in self._columns.items()}
        return {name: encode_column(column) for name, column in columns.items()}

    def repeats_last(self, prepared: list[PreparedRecord]) -> bool:
        """See :meth:`PackEntries.repeats_last`."""
        [(_, value, _)] = prepared
        head = self._codec.add_number(bytearray(value.begin), self.count - 1)
        return bool(xxhash.xxh3_128_digest(self._content_before + head) == self.content)

    def _note(self, key: str, value: bytearray, small: Sequence[object], head: bytes) -> None:
        self._content_before = self.content
        self.content = xxhash.xxh3_128_digest(self.content + head)
        self._keys.append(key.encode())
        for name, item in zip(self.schema.small, small, strict=True):
            if name in self._columns:
                self._columns[name].append(item)
            self.has_none = self.has_none or (item is None and self.schema[name].kind != "json")
        self.count += 1
        self.nbytes += self._codec.blob_nbytes(value)


def refuse_other_lengths(keys: Sequence[str], fields: FieldValues) -> None:
    """Raise PackError unless all fields of a batch have as many values as there are keys."""
    for name, values in fields.items():
        if len(values) != len(keys):
            raise PackError(
                f"field {name!r} of a batch of {len(keys)} records must have as many values, got {len(values)}"
            )
