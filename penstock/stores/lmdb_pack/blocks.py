r"""Blocks: many records of one fixed size under one key of the database of records.

::

    value of block b, which holds records first = b * block_records and following
    ┌───────────┬───────┬───────┬──────┬──────┬───────────────┬───────┬──────┬───────┬───────┬─────┐
    │ "PSB\x01" │ count │ nones │ keys │ hash │ hash of row 0 │  ...  │ none │ keys  │ row 0 │ ... │
    │  4 bytes  │  u32  │  u32  │ u32  │ u64  │      u64      │       │ bits │       │       │     │
    └───────────┴───────┴───────┴──────┴──────┴───────────────┴───────┴──────┴───────┴───────┴─────┘

A row is one record: its fields at fixed offsets, little-endian, the larger types first, so that all are aligned. The
hash of a row is xxh3_64, xor ``i * 0x9E3779B97F4A7C15 mod 2**64`` for record ``i``; that of the block is over all that
follows it, salted with ``first`` in the same way. ``nones`` and ``keys`` are numbers of bytes, and 0 in most blocks:

- none bits: one row of ``ceil(fields / 8)`` bytes for each record, whose bit ``f`` (least significant first) says that
  small field ``f`` has no value. The row then holds -1 or NaN.
- keys: the end of each key, u32, then the keys in UTF-8. Absent: the key of record ``i`` is ``str(i)``.

Where either is there, the hash of a row is xxh3_64 of its none bits and key, seeded by that of the row. Both parts are
padded to 8 bytes. Nothing here opens a file: :mod:`.lmdb_pack.entries` writes blocks, :mod:`.lmdb_pack.block_reader`
reads them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from penstock.errors import StoreFormatError
from penstock.sample import Array, DType, Field, Schema
from penstock.stores.fields.columns import get_column_dtype
from penstock.stores.lmdb_pack.meta import PackMeta
from penstock.stores.problems import Problem

__all__ = [
    "MAX_ROW_NBYTES",
    "BlockLayout",
    "ParsedBlock",
    "choose_block_records",
    "find_block_problems",
    "find_layout",
    "hash_rows",
    "pack_block",
]

MAX_ROW_NBYTES: Final = 4096
"""Largest record that is stored in blocks."""

_HEAD: Final = struct.Struct("<4sIIIQ")
_END: Final = struct.Struct("<I")
_MAGIC: Final = b"PSB\x01"
_SALT: Final = 0x9E3779B97F4A7C15
_MASK: Final = 0xFFFFFFFFFFFFFFFF
_BLOCK_NBYTES: Final = (128 << 10) - 16
"""Bytes of a block without none bits and keys, at most: whole pages of LMDB, less the header of the first."""

_hash: Final = xxhash.xxh3_64_intdigest


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """Where the fields of a record are in its row."""

    schema: Schema  # fields of the records
    row: DType  # the structured type of a row; its names are those of the fields
    nbytes: int  # bytes of a row
    none_nbytes: int  # bytes of the none bits of a record

    @classmethod
    def of(cls, schema: Schema) -> Self | None:
        """The layout of records of a schema; None if they are not stored in blocks.

        They are where one of the fields is pixels, all fields have a fixed size, and a record is small.
        """
        found = {name: _get_row_dtype(field) for name, field in schema.fields.items()}
        dtypes = {name: dtype for name, dtype in found.items() if dtype is not None}
        if len(dtypes) < len(found) or all(field.pixels is None for field in schema.fields.values()):
            return None
        alignments = {name: dtype.base.itemsize for name, dtype in dtypes.items()}
        offsets: dict[str, int] = {}
        end = 0
        for name in sorted(alignments, key=lambda name: -alignments[name]):
            offsets[name] = end
            end += dtypes[name].itemsize
        widest = max(alignments.values())
        nbytes = -(-end // widest) * widest
        if not 0 < nbytes <= MAX_ROW_NBYTES:
            return None
        names = list(dtypes)
        row = np.dtype(
            {
                "names": names,
                "formats": [dtypes[name] for name in names],
                "offsets": [offsets[name] for name in names],
                "itemsize": nbytes,
            }
        )
        return cls(schema, row, nbytes, -(-len(schema.small) // 8))

    def offset(self, field: str) -> int:
        """Return the offset of a field in a row."""
        assert self.row.fields is not None, "a structured type"
        return int(self.row.fields[field][1])

    def dtype(self, field: str) -> DType:
        """Return the type of a field, with its shape."""
        return self.row[field]

    @property
    def blob_nbytes(self) -> int:
        """Bytes of the pixels of a record."""
        return sum(self.row[name].itemsize for name in self.schema.blobs)


def find_layout(meta: PackMeta, url: str) -> BlockLayout | None:
    """The layout of the blocks of a pack; None if it has none. StoreFormatError if its schema allows none."""
    if not meta.block_records:
        return None
    layout = BlockLayout.of(meta.schema)
    if layout is None:
        raise StoreFormatError(
            "the description of the pack (database 'meta') is wrong: records of this schema are not stored in blocks",
            store=url,
        )
    return layout


def find_block_problems(block: ParsedBlock, columns: Mapping[str, Array]) -> Iterator[Problem]:
    """Yield what is wrong with the records of a block.

    ``columns``: the stored columns, which must agree with the records.
    """
    rows = block.rows()
    first, end = block.first, block.first + block.count
    if not block.is_intact():
        for position in range(block.count):
            if not block.is_row_intact(position):
                yield Problem("its checksum does not match", _find_key(block, position), first + position)
    else:
        for position in range(block.count if block.key_part else 0):
            if _find_key(block, position) is None:
                yield Problem("its key is damaged", None, first + position)
    for name, column in columns.items():
        stored, held = column[first:end], rows[name][: max(0, len(column) - first)]
        same = (stored == held) | ((stored != stored) & (held != held))  # noqa: PLR0124  # NaN alone
        for position in np.flatnonzero(~same).tolist():
            value = rows[name][position].item()
            reason = f"its {name} is {value!r}, which differs from the column"
            yield Problem(reason, _find_key(block, position), first + position)


def _find_key(block: ParsedBlock, position: int) -> str | None:
    try:
        return block.key(position)
    except ValueError:
        return None


def choose_block_records(layout: BlockLayout) -> int:
    """Return how many records a block holds, such that it fills its pages."""
    return max(1, (_BLOCK_NBYTES - _HEAD.size) // (layout.nbytes + 8))


def hash_rows(rows: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Hash each row of (n, nbytes) by xxh3_64, not salted."""
    count, nbytes = rows.shape
    content = np.ascontiguousarray(rows).data.cast("B")
    return np.fromiter((_hash(content[at : at + nbytes]) for at in range(0, count * nbytes, nbytes)), np.uint64, count)


def pack_block(
    first: int,
    rows: NDArray[np.uint8],
    hashes: NDArray[np.uint64],
    keys: Sequence[bytes] | None,
    nones: NDArray[np.uint8] | None,
) -> tuple[bytes, bytes]:
    """Return the value of a block, and what the hash over all records is made of.

    Parameters
    ----------
    first : int
        Number of its first record.
    rows : ndarray, shape (n, nbytes), uint8
        The rows.
    hashes : ndarray, shape (n,), uint64
        From :func:`hash_rows`.
    keys : sequence of bytes, optional
        The keys; None if they are the numbers of the records.
    nones : ndarray, shape (n, none_nbytes), uint8, optional
        The none bits; None if every field of every record has a value.
    """
    count = len(rows)
    none_part = b"" if nones is None else nones.tobytes()
    key_part = b"" if keys is None else _pack_keys(keys)
    hashes = _add_extras(hashes, none_part, keys)
    salted = (hashes ^ _salts(first, count)).astype("<u8").tobytes()
    body = b"".join((salted, _padded(none_part), _padded(key_part), np.ascontiguousarray(rows).data))
    hashed = _hash(body) ^ (first * _SALT & _MASK)
    return _HEAD.pack(_MAGIC, count, len(none_part), len(key_part), hashed) + body, salted


@dataclass(frozen=True, slots=True)
class ParsedBlock:
    """The parts of a block, whose lengths agree with each other; use :meth:`parse`."""

    layout: BlockLayout  # of its rows
    first: int  # number of its first record
    count: int  # number of its records
    value: memoryview  # the whole value
    rows_at: int  # offset of row 0 in the value
    none_part: memoryview  # None bits; empty if there are none
    key_part: memoryview  # keys; empty if there are none

    @classmethod
    def parse(cls, layout: BlockLayout, value: memoryview, first: int, count: int) -> Self:
        """Return the parts of the block that begins with record ``first`` and must hold ``count``.

        Raises ValueError if it is no such block; checksums are not compared.
        """
        if len(value) < _HEAD.size:
            raise ValueError(f"its block has {len(value)} bytes, fewer than a header")
        magic, held, nones_nbytes, keys_nbytes, _ = _HEAD.unpack_from(value)
        if magic != _MAGIC:
            raise ValueError("the header of its block is not of this format")
        nones_at = _HEAD.size + 8 * count
        keys_at = nones_at + _round_up(nones_nbytes)
        rows_at = keys_at + _round_up(keys_nbytes)
        if (
            held != count
            or nones_nbytes not in {0, count * layout.none_nbytes}
            or 0 < keys_nbytes < 4 * count
            or rows_at + count * layout.nbytes != len(value)
        ):
            raise ValueError(
                f"its block must have {count} records of {layout.nbytes} bytes, got {held} in {len(value)} bytes"
            )
        nones, keys = value[nones_at : nones_at + nones_nbytes], value[keys_at : keys_at + keys_nbytes]
        return cls(layout, first, count, value, rows_at, nones, keys)

    def is_intact(self) -> bool:
        """Return whether the checksum of the whole block matches."""
        hashed: int = _HEAD.unpack_from(self.value)[4]
        return _hash(self.value[_HEAD.size :]) ^ (self.first * _SALT & _MASK) == hashed

    @property
    def stored_hashes(self) -> memoryview:
        """The hashes of its rows, salted, as bytes."""
        return self.value[_HEAD.size : _HEAD.size + 8 * self.count]

    def row(self, position: int) -> memoryview:
        """Return the bytes of one row."""
        at = self.rows_at + position * self.layout.nbytes
        return self.value[at : at + self.layout.nbytes]

    def rows(self) -> Array:
        """Return all rows, as one structured array, a view."""
        return np.frombuffer(self.value, self.layout.row, self.count, self.rows_at)

    def is_row_intact(self, position: int) -> bool:
        """Whether the checksum of one record matches: of its row, and of its key and none bits where they are."""
        hashed = _hash(self.row(position))
        try:
            extra = self._extra(position)
        except ValueError:
            return False
        if extra:
            hashed = _hash(extra, hashed)
        stored = int.from_bytes(self.stored_hashes[8 * position : 8 * position + 8], "little")
        return hashed ^ ((self.first + position) * _SALT & _MASK) == stored

    def key(self, position: int) -> str:
        """The key of one record; ValueError if that part of the block is damaged."""
        if not self.key_part:
            return str(self.first + position)
        return self._key_bytes(position).decode()

    def list_keys(self) -> list[str]:
        """The keys of all records, in order; raises as :meth:`key`."""
        return [self.key(position) for position in range(self.count)]

    def nones(self, position: int) -> frozenset[str]:
        """The small fields of one record that have no value."""
        if not self.none_part:
            return frozenset()
        bits = int.from_bytes(self._none_bytes(position), "little")
        return frozenset(name for at, name in enumerate(self.layout.schema.small) if bits >> at & 1)

    def _extra(self, position: int) -> bytes:
        extra = self._none_bytes(position) if self.none_part else b""
        return extra + self._key_bytes(position) if self.key_part else extra

    def _none_bytes(self, position: int) -> bytes:
        nbytes = self.layout.none_nbytes
        return bytes(self.none_part[position * nbytes : (position + 1) * nbytes])

    def _key_bytes(self, position: int) -> bytes:
        texts = self.key_part[4 * self.count :]
        end: int = _END.unpack_from(self.key_part, 4 * position)[0]
        begin: int = _END.unpack_from(self.key_part, 4 * position - 4)[0] if position else 0
        if not begin < end <= len(texts):
            raise ValueError(f"the key of record {self.first + position} has no valid place in its block")
        return bytes(texts[begin:end])


def _get_row_dtype(field: Field) -> DType | None:
    """Return the type of a field in a row; None if it has no fixed size."""
    number = get_column_dtype(field)
    if number is not None:
        return number
    kind = field.pixels or field.array
    if kind is None or kind.shape is None or math.prod(kind.shape) == 0:
        return None
    return np.dtype((kind.dtype.newbyteorder("<"), kind.shape))


def _salts(first: int, count: int) -> NDArray[np.uint64]:
    return np.arange(first, first + count, dtype=np.uint64) * np.uint64(_SALT)


def _add_extras(hashes: NDArray[np.uint64], none_part: bytes, keys: Sequence[bytes] | None) -> NDArray[np.uint64]:
    if not none_part and keys is None:
        return hashes
    width = len(none_part) // len(hashes)
    added = []
    for at, hashed in enumerate(hashes.tolist()):
        extra = none_part[at * width : (at + 1) * width] + (b"" if keys is None else keys[at])
        added.append(_hash(extra, hashed))
    return np.array(added, np.uint64)


def _pack_keys(keys: Sequence[bytes]) -> bytes:
    ends = np.cumsum([len(key) for key in keys]).astype("<u4")
    return ends.tobytes() + b"".join(keys)


def _round_up(nbytes: int) -> int:
    return -(-nbytes // 8) * 8


def _padded(part: bytes) -> bytes:
    return part.ljust(_round_up(len(part)), b"\0")
