"""Reads the records of a pack of blocks: each block is checked once, then a record is known by its offset.

::

    indices ──> blocks ──not open yet?──> parse, compare the checksum ──> offset of row 0, in one array
        └─────────────> offsets of fields in the map ──> PixelRows, rows of arrays, records          no object a record

The checksum of a block is compared when the first of its records is read in a process. If it does not match, the
checksums of its records are, at each read: those that are intact can still be read.
:class:`~penstock.stores.lmdb_pack.store.LmdbStore` calls this; :mod:`.lmdb_pack.blocks` describes the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from penstock import _native
from penstock.pixel_rows import PixelRows
from penstock.sample import Array, Record
from penstock.stores.lmdb_pack.blocks import BlockLayout, ParsedBlock
from penstock.stores.lmdb_pack.mapping import PackMap
from penstock.stores.lmdb_pack.pixels import copy_aligned

__all__ = ["BlockReader", "DamagedRecordError"]

_UNKNOWN, _INTACT, _DAMAGED = 0, 1, 2


class DamagedRecordError(ValueError):
    """The record ``index`` is damaged; the caller, which knows the store, turns it into an error of penstock."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index


class BlockReader:
    """The records of one map of a pack of blocks.

    Parameters
    ----------
    source : PackMap
        The map, in this process.
    layout : BlockLayout
        Of its rows.
    check : bool
        Whether checksums are compared.

    Notes
    -----
    Thread-safe: two threads may check one block at the same time, with the same result.
    """

    def __init__(self, source: PackMap, layout: BlockLayout, *, check: bool) -> None:
        self.source, self._layout, self._check = source, layout, check
        self._per_block = source.meta.block_records
        self._count = source.meta.count
        self._states = np.zeros(source.meta.entries, np.uint8)
        self._starts = np.zeros(source.meta.entries, np.int64)
        self._has_extras = np.zeros(source.meta.entries, np.bool_)
        self._dtypes = {name: layout.dtype(name) for name in layout.schema.fields}
        self._offsets = {name: layout.offset(name) for name in layout.schema.fields}

    def read(self, indices: NDArray[np.int64]) -> list[Record]:
        """The records at ``indices``, which are in the pack; arrays are views of the map."""
        starts = self._find_rows(indices)
        columns = [self._read_values(name, indices, starts) for name in self._dtypes]
        numbers = indices.tolist()
        records = [
            Record(number, str(number), dict(zip(self._dtypes, values, strict=True)))
            for number, *values in zip(numbers, *columns, strict=True)
        ]
        for at in np.flatnonzero(self._has_extras[indices // self._per_block]).tolist():
            records[at] = self._add_extras(records[at])
        return records

    def pixels(self, field: str, indices: NDArray[np.int64]) -> PixelRows:
        """Return the images at ``indices``, as their places in the map."""
        dtype = self._dtypes[field]
        offsets = self._find_rows(indices) + self._offsets[field]
        return PixelRows(self.source.window, offsets, dtype.shape, dtype.base)

    def rows(self, field: str, indices: NDArray[np.int64]) -> Array:
        """Return the values of a field at ``indices``: (n, ...), a new array."""
        dtype = self._dtypes[field]
        values = np.empty((len(indices), *dtype.shape), dtype.base)
        offsets = self._find_rows(indices) + self._offsets[field]
        _native.gather(self.source.window, offsets, values, np.arange(len(indices), dtype=np.int64))
        if dtype.base == np.bool_:
            self._refuse_wrong_bools(field, values, indices)
        return values

    def column(self, field: str) -> Array:
        """A small field of all records, read-only."""
        values = self.rows(field, np.arange(self._count, dtype=np.int64))
        values.flags.writeable = False
        return values

    def prefetch(self, indices: NDArray[np.int64]) -> bool:
        """Begin to read the blocks of records that are asked for soon; False if they are known."""
        numbers = self._find_unknown(indices)
        return len(numbers) > 0 and self.source.read_ahead(numbers) > 0

    def _find_unknown(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The blocks of some records that were not read yet."""
        blocks = np.unique(indices // self._per_block)
        unknown: NDArray[np.int64] = blocks[self._states[blocks] == _UNKNOWN]
        return unknown

    def key(self, index: int) -> str | None:
        """The key of a record, also of one that is damaged; None if that part of its block is."""
        try:
            return self._parse(index // self._per_block, index).key(index % self._per_block)
        except (ValueError, IndexError):
            return None

    def keys(self) -> Iterator[str]:
        """Yield all keys, in order; ValueError if they are damaged."""
        for number in range(len(self._states)):
            self._open_block(number, number * self._per_block)
            yield from self._parse(number, number * self._per_block).list_keys()

    def _find_rows(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The offset in the map of each row; checks blocks and, in damaged ones, records."""
        blocks = indices // self._per_block
        states = self._states[blocks]
        if not states.all():
            self.source.fetch(self._find_unknown(indices))
            for at in np.flatnonzero(states == _UNKNOWN).tolist():
                self._open_block(int(blocks[at]), int(indices[at]))
            states = self._states[blocks]
        for at in np.flatnonzero(states == _DAMAGED).tolist():
            index = int(indices[at])
            if not self._parse(int(blocks[at]), index).is_row_intact(index % self._per_block):
                raise DamagedRecordError(index, "its checksum does not match")
        return self._starts[blocks] + (indices - blocks * self._per_block) * self._layout.nbytes

    def _open_block(self, number: int, index: int) -> None:
        if self._states[number] != _UNKNOWN:
            return
        block = self._parse(number, index)
        # before the state: a thread that sees the state reads both
        self._starts[number] = self.source.offset(number) + block.rows_at
        self._has_extras[number] = bool(block.key_part or block.none_part)
        self._states[number] = _INTACT if not self._check or block.is_intact() else _DAMAGED

    def _parse(self, number: int, index: int) -> ParsedBlock:
        """Block ``number``, which holds record ``index``."""
        first = number * self._per_block
        count = min(self._per_block, self._count - first)
        try:
            return ParsedBlock.parse(self._layout, self.source.record(number), first, count)
        except ValueError as error:
            raise DamagedRecordError(index, str(error)) from error

    def _read_values(self, name: str, indices: NDArray[np.int64], starts: NDArray[np.int64]) -> Sequence[object]:
        """Return the values of one field: numbers, or read-only arrays."""
        dtype = self._dtypes[name]
        if not dtype.shape:
            numbers: list[object] = self.rows(name, indices).tolist()
            return numbers
        window, shape, base = self.source.window, dtype.shape, dtype.base
        arrays: list[Array] = [np.ndarray(shape, base, window, at) for at in (starts + self._offsets[name]).tolist()]
        if base == np.bool_ and arrays:
            self._refuse_wrong_bools(name, np.stack(arrays), indices)
        if base.itemsize == 1:
            return arrays
        return [array if array.flags.aligned else copy_aligned(array) for array in arrays]

    def _add_extras(self, record: Record) -> Record:
        """A record of a block with keys or none bits, with its own."""
        number, position = divmod(record.index, self._per_block)
        block = self._parse(number, record.index)
        try:
            key = block.key(position)
        except ValueError as error:
            raise DamagedRecordError(record.index, f"its key is damaged: {error}") from error
        return Record(record.index, key, {**record.fields, **dict.fromkeys(block.nones(position))})

    def _refuse_wrong_bools(self, field: str, values: Array, indices: NDArray[np.int64]) -> None:
        wrong = values.view(np.uint8).reshape(len(values), -1).max(axis=1, initial=0) > 1
        if wrong.any():
            index = int(indices[wrong.argmax()])
            raise DamagedRecordError(index, f"its field {field!r} is bool and must have no bytes other than 0 and 1")
