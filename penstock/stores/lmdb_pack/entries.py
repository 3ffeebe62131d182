"""From records to the entries of a pack's database of records: an entry for each, or one for a block of rows.

::

    prepare (any thread) ──> add ──> pending entries ──commit──> clear_pending
                              └────> columns, keys, hash over all records      all in memory until the pack is finished

    records of one fixed size:  columns of values ──> PreparedRows: rows, hashes, keys ──add──> blocks, each an entry

:class:`~penstock.stores.lmdb_pack.writer.LmdbWriter` commits what is pending; :mod:`.lmdb_pack.blocks` lays out a
block. Nothing here writes to a file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from penstock.errors import PackError
from penstock.sample import Array, DType, Field, Schema
from penstock.stores.fields.columns import get_column_dtype, get_missing, make_column
from penstock.stores.fields.small_fields import cast_values, check_pixels, check_small
from penstock.stores.lmdb_pack.blocks import (
    BlockLayout,
    ParsedBlock,
    choose_block_records,
    hash_rows,
    pack_block,
)
from penstock.stores.lmdb_pack.format import MAX_KEY_NBYTES, EncodedRecord, RecordCodec, encode_column, make_record_key
from penstock.stores.writing import FieldValues

__all__ = ["BlockEntries", "PreparedRows", "make_entries"]

Values = Sequence[object] | Array
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
        """Yield the database of keys, in order: each key once, with the numbers of its records, 8 bytes each."""

    @abstractmethod
    def columns(self) -> dict[str, bytes]:
        """Return the stored columns by field."""

    def repeats_last(self, prepared: T_batch) -> bool:
        """Return whether a prepared record equals the last one that was added; True where blocks hide the record."""
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
        """Encode each record, and note its small fields."""
        refuse_other_lengths(keys, fields)
        records = ({name: values[at] for name, values in fields.items()} for at in range(len(keys)))
        return [
            (key, self._codec.encode(key, record), [record[name] for name in self.schema.small])
            for key, record in zip(keys, records, strict=True)
        ]

    def add(self, prepared: list[PreparedRecord]) -> Iterator[None]:
        """Make an entry of each record; a commit may be made after each."""
        for key, value, small in prepared:
            self._note(key, value.begin, small, self._codec.add_number(value.begin, self.count))
            self._push(value)
            yield

    def drop(self, prepared: list[PreparedRecord], count: int) -> list[PreparedRecord] | None:
        """Return the records after the first ``count``; None if none are left."""
        return prepared[count:] or None

    def restore(self, value: bytes, total: int) -> None:
        """Add the record of a committed entry."""
        del total
        key, fields = self._codec.decode(memoryview(value), self.count)
        small = [fields[name] for name in self.schema.small]
        self._note(key, bytearray(value), small, value[: self._codec.head_nbytes])
        self.first += 1
        self.stored_nbytes += len(value)

    def complete(self) -> None:
        """Do nothing: each record is an entry already."""

    def key_entries(self) -> list[tuple[bytes, bytes]]:
        """Return all keys, in order of their bytes, with the numbers of their records."""
        places: dict[bytes, list[bytes]] = {}
        for index, key in enumerate(self._keys):
            places.setdefault(key, []).append(make_record_key(index))
        return [(key, b"".join(places[key])) for key in sorted(places)]

    def columns(self) -> dict[str, bytes]:
        """Encode the columns of the small fields."""
        columns = {name: make_column(name, held, self.schema[name], "") for name, held in self._columns.items()}
        return {name: encode_column(column) for name, column in columns.items()}

    def repeats_last(self, prepared: list[PreparedRecord]) -> bool:
        """Return whether a prepared record has the hash of the one that was added last."""
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


def make_entries(schema: Schema) -> PackEntries[Any]:
    """The entries of a new pack of records of a schema."""
    layout = BlockLayout.of(schema)
    return RecordEntries(schema) if layout is None else BlockEntries(layout)


class PreparedRows(NamedTuple):
    """Some records as rows of blocks: of each its row, hash, key and none bits."""

    rows: NDArray[np.uint8]
    hashes: NDArray[np.uint64]
    keys: list[bytes]
    nones: NDArray[np.uint8]

    def select(self, rows: slice) -> PreparedRows:
        """Return some of them."""
        return PreparedRows(self.rows[rows], self.hashes[rows], self.keys[rows], self.nones[rows])


class BlockEntries(PackEntries[PreparedRows]):
    """Records of one fixed size, in blocks: an entry is pending as soon as its block is full."""

    def __init__(self, layout: BlockLayout) -> None:
        super().__init__(layout.schema)
        self._layout = layout
        self.block_records = choose_block_records(layout)
        self._parts: list[PreparedRows] = []
        self._held = 0
        self._columns: dict[str, list[Array]] = {name: [] for name in self.column_fields}

    def prepare(self, keys: Sequence[str], fields: FieldValues) -> PreparedRows:
        """Encode records as rows, and hash them."""
        refuse_other_lengths(keys, fields)
        count = len(keys)
        rows = np.zeros((count, self._layout.nbytes), np.uint8)
        nones = np.zeros((count, self._layout.none_nbytes), np.uint8)
        structured = rows.view(self._layout.row)[:, 0]
        for name, field in self.schema.fields.items():
            if name not in fields:
                raise PackError(f"the records have no field {name!r}")
            missing = self._write_field(structured[name], name, field, fields[name])
            if missing is not None:
                at = self.schema.small.index(name)
                nones[:, at // 8] |= missing << np.uint8(at % 8)
        return PreparedRows(rows, hash_rows(rows), [*map(_as_key, keys)], nones)

    def add(self, prepared: PreparedRows) -> Iterator[None]:
        """Collect records, and make an entry of each full block, after which a commit may be made."""
        begin, count = 0, len(prepared.rows)
        while begin < count:
            end = min(count, begin + self.block_records - self._held)
            self._parts.append(prepared.select(slice(begin, end)))
            self._held += end - begin
            begin = end
            if self._held == self.block_records:
                self.complete()
                yield

    @property
    def added(self) -> int:
        """The number of records in entries and in the block that is not full."""
        return self.count + self._held

    def drop(self, prepared: PreparedRows, count: int) -> PreparedRows | None:
        """Return the records after the first ``count``; None if none are left."""
        return prepared.select(slice(count, None)) if count < len(prepared.keys) else None

    def complete(self) -> None:
        """Make a block of the records that are left."""
        if not self._held:
            return
        rows, hashes, nones = (np.concatenate([part[at] for part in self._parts]) for at in (0, 1, 3))
        keys = [key for part in self._parts for key in part.keys]
        first, count, has_none = self.count, self._held, bool(nones.any())
        are_numbers = keys == [b"%d" % number for number in range(first, first + count)]
        self._parts, self._held = [], 0
        value, salted = pack_block(first, rows, hashes, None if are_numbers else keys, nones if has_none else None)
        self._note(rows.view(self._layout.row)[:, 0], salted, has_none=has_none, count=count)
        self._push(EncodedRecord(bytearray(value)))

    def restore(self, value: bytes, total: int) -> None:
        """Add the block of a committed entry."""
        count = min(self.block_records, total - self.count)
        block = ParsedBlock.parse(self._layout, memoryview(value), self.count, count)
        if not block.is_intact():
            raise ValueError(f"the checksum of the block of record {self.count} does not match")
        salted = bytes(block.stored_hashes)
        self._note(block.rows(), salted, has_none=bool(block.none_part), count=block.count)
        self.first += 1
        self.stored_nbytes += len(value)

    def key_entries(self) -> list[tuple[bytes, bytes]]:
        """Return nothing: keys are in the blocks."""
        return []

    def columns(self) -> dict[str, bytes]:
        """Encode the columns that are stored beside the blocks."""
        empty = {name: np.zeros(0, get_column_dtype(self.schema[name])) for name in self.column_fields}
        return {name: encode_column(np.concatenate([empty[name], *values])) for name, values in self._columns.items()}

    def _note(self, rows: Array, salted: bytes, *, has_none: bool, count: int) -> None:
        self.content = xxhash.xxh3_128_digest(self.content + salted)
        for name, values in self._columns.items():
            values.append(rows[name].copy())
        self.has_none = self.has_none or has_none
        self.count += count
        self.nbytes += count * self._layout.blob_nbytes

    def _write_field(self, out: Array, name: str, field: Field, values: Values) -> NDArray[np.uint8] | None:
        """Write the values of one field; returns which of them are missing, or None."""
        array = _as_one_array(values)
        if array is not None:
            out[...] = _check_array(name, field, array)
            return None
        missing = np.zeros(len(out), np.uint8)
        for at, value in enumerate(values):
            if field.pixels is not None:
                out[at] = check_pixels(name, field.pixels, value)
                continue
            small = check_small(name, field, value)
            if small is None:
                missing[at] = 1
                small = _get_missing(name, field)
            out[at] = small
        return missing if missing.any() else None


def _as_one_array(values: Values) -> Array | None:
    """The values of a field of some records as one array; None where they must be checked one by one."""
    if isinstance(values, np.ndarray):
        return None if values.dtype == object else values
    types = set(map(type, values))
    arrays = [value for value in values if isinstance(value, np.ndarray)] if types == {np.ndarray} else []
    if len({(array.shape, array.dtype) for array in arrays}) == 1:
        return np.stack(arrays)
    if types == {int} or (len(types) == 1 and issubclass(next(iter(types)), np.number)):
        try:
            return np.array(values, np.int64 if types == {int} else None)
        except OverflowError:
            return None
    return None


def _check_array(name: str, field: Field, values: Array) -> Array:
    """Values of a field of some records, of the kind of the field."""
    pixels = field.pixels
    if pixels is not None:
        if values.dtype != pixels.dtype or not pixels.allows(values.shape[1:]):
            raise PackError(f"field {name!r} must be pixels ({pixels}), got {values.dtype} of shape {values.shape[1:]}")
        return values
    kind = field.array
    dtype, shape = _get_dtype(field), () if kind is None else kind.shape
    if values.shape[1:] != shape:
        raise PackError(
            f"field {name!r} must be of kind {field.kind}, got {values.dtype} of shape {values.shape[1:]} a record"
        )
    return cast_values(name, field, values, dtype)


def _as_key(key: str) -> bytes:
    try:
        encoded = key.encode()
    except UnicodeEncodeError as error:
        raise PackError("a key or text must be valid UTF-8", key=ascii(key)) from error
    if not 0 < len(encoded) <= MAX_KEY_NBYTES:
        raise PackError(f"a key must have 1 to {MAX_KEY_NBYTES} bytes of UTF-8, got {len(encoded)}")
    return encoded


def _get_missing(name: str, field: Field) -> float:
    try:
        return get_missing(_get_dtype(field))
    except ValueError as error:
        raise PackError(f"field {name!r} must have a value in each record: {error}") from error


def _get_dtype(field: Field) -> DType:
    dtype = get_column_dtype(field) if field.array is None else field.array.dtype
    assert dtype is not None, "a small field of fixed size"
    return dtype
