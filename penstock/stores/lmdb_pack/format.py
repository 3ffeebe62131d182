r"""The bytes of a pack: the value of a record, the ``meta`` entry, and the constants that reader and writer share.

::

    value of record i
    ┌───────────┬───────┬─────┬──────────────┬──────────────┬─────┬──────────────┬────────┬─────┐
    │ "PSR\x01" │ blobs │  0  │ length, hash │ length, hash │ ... │ small fields │ blob 0 │ ... │
    │  4 bytes  │  u16  │ u16 │   of small   │  of blob 0   │     │  (msgpack)   │        │     │
    └───────────┴───────┴─────┴── u64, u64 ──┴── u64, u64 ──┴─────┴──────────────┴────────┴─────┘

Integers are little-endian. A hash is xxh3_64 of the part, xor ``i * 0x9E3779B97F4A7C15 mod 2**64``: if a damaged B-tree
returns a record under another number, its hashes do not match. The small fields are the msgpack array
``[key, value, ...]`` in the order of the schema. The blob of an image is a file, or coefficients of a JPEG, whose bytes
``docs/howto/coefficients.md`` states. Nothing here opens a file, and nothing is ever unpickled.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgpack  # type: ignore[import-untyped]  # ships no types
import numpy as np
import xxhash

from penstock.errors import PackError
from penstock.sample import Array, Blob, Field, Schema
from penstock.stores.fields.columns import get_column_dtype
from penstock.stores.fields.image_signatures import refuse_array
from penstock.stores.fields.npy_arrays import read_array
from penstock.stores.fields.small_fields import SMALL_TYPES, ArrayReader, pack_small
from penstock.stores.lmdb_pack.pixels import PixelReader, pack_pixels
from penstock.system.mapping import is_map

__all__ = [
    "COLUMNS",
    "INDEX",
    "KEYS",
    "MAX_KEY_NBYTES",
    "RECORDS",
    "EncodedRecord",
    "RecordCodec",
    "decode_column",
    "encode_column",
    "make_record_key",
]

RECORDS, COLUMNS, KEYS, INDEX = b"records", b"columns", b"keys", b"index"
MAX_KEY_NBYTES: Final = 511
"""LMDB's own limit."""

_MAGIC: Final = b"PSR\x01"
_MASK: Final = 0xFFFFFFFFFFFFFFFF
_SALT: Final = 0x9E3779B97F4A7C15
_MAX_VALUE_NBYTES: Final = 0xFFFFFFFF  # LMDB's MAXDATASIZE
_MAX_AXES: Final = 32  # of a small array: the longest list that a small field contains
_hash: Final = xxhash.xxh3_64_intdigest
_unpack: Final = msgpack.unpackb
_SHORT_NBYTES: Final = 4096
"""Small fields of fewer bytes are unpacked without limits, which take time: so few bytes make no large list."""

_COPIED_NBYTES: Final = 1 << 14
"""A value of fewer bytes is copied when it is encoded: that takes less time than to keep its parts."""

make_record_key = struct.Struct(">Q").pack
"""The key of a record: its number, big-endian, so that LMDB's order is the order of numbers."""


class EncodedRecord(NamedTuple):
    """The value of a record: its beginning, and the blobs that follow, where they were not copied to it."""

    begin: bytearray
    blobs: tuple[bytes | memoryview, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of the value."""
        return len(self.begin) + sum(map(len, self.blobs))


class RecordCodec:
    """Encodes the records of one schema to their stored values, and decodes them.

    Parameters
    ----------
    schema : Schema
        Fields of the records.
    allows_none : bool
        Whether a small field of a record that is decoded may have no value (version 2).

    Notes
    -----
    Thread-safe: it holds constants only.
    """

    def __init__(self, schema: Schema, *, allows_none: bool = True) -> None:
        self.schema, self._allows_none = schema, allows_none
        self._blobs = schema.blobs
        self._parts = {name: 1 + i for i, name in enumerate(self._blobs)}  # part 0 holds the small fields
        self._small = tuple((name, schema[name]) for name in schema.small)
        kinds = ((name, field.array) for name, field in self._small)
        self._arrays = tuple(ArrayReader(name, kind) for name, kind in kinds if kind is not None)
        self._json = tuple(name for name, field in self._small if field.kind == "json")
        self._pixels = {
            name: PixelReader(name, field.pixels) for name, field in schema.fields.items() if field.pixels is not None
        }
        count, encoded = len(self._blobs), self._parts.keys() - self._pixels.keys()
        self.encoded = {name: (count, self._parts[name]) for name in encoded}
        """The number of blobs of a record, and which of them, from 1, a field of encoded bytes is; by name."""
        self._types = [str, *(SMALL_TYPES.get(field.kind, list) for _, field in self._small)]
        self._longest = max(len(self._types), _MAX_AXES)
        self._names = ("", *schema.small, *schema.blobs)  # the key comes first, under a name that no field has
        self._head = struct.Struct(f"<8s{2 * (1 + count)}Q")
        self._begin = struct.pack("<4sHH", _MAGIC, count, 0)
        self.head_nbytes = self._head.size

    def encode(self, key: str, fields: Mapping[str, object]) -> EncodedRecord:
        """The value of a record, complete except for its number, which :meth:`add_number` adds.

        Large blobs are not copied where nobody can write to them: bytes, and read-only views of bytes or of a file.

        Raises
        ------
        PackError
            If a field is missing or not of its kind, or the record is too large for LMDB.
        """
        try:
            if not 0 < len(key.encode()) <= MAX_KEY_NBYTES:
                raise PackError(f"a key must have 1 to {MAX_KEY_NBYTES} bytes of UTF-8, got {len(key.encode())}")
            small = msgpack.packb([key, *(pack_small(name, field, fields[name]) for name, field in self._small)])
            parts = [small, *(self._pack_blob(name, fields[name]) for name in self._blobs)]
        except KeyError as error:
            raise PackError(f"the record has no field {error.args[0]!r}", key=key) from error
        except UnicodeEncodeError as error:
            raise PackError("a key or text must be valid UTF-8", key=ascii(key)) from error
        nbytes = self.head_nbytes + sum(map(len, parts))
        if nbytes > _MAX_VALUE_NBYTES:
            raise PackError(f"a record must have at most {_MAX_VALUE_NBYTES} bytes (LMDB), got {nbytes}", key=key)
        table = [number for part in parts for number in (len(part), _hash(part))]
        head = self._head.pack(self._begin, *table)
        if nbytes < _COPIED_NBYTES:
            return EncodedRecord(bytearray().join((head, *parts)))
        return EncodedRecord(bytearray(head + small), tuple(map(_keep, parts[1:])))

    def _pack_blob(self, name: str, value: Blob) -> Blob:
        """Return the bytes of a blob as they are stored."""
        pixels = self.schema[name].pixels
        if pixels is not None:
            return pack_pixels(name, pixels, value)
        if value is None:
            raise PackError(f"field {name!r} must hold encoded bytes, and this record has none")
        refuse_array(name, value)
        return value

    def add_number(self, value: bytearray, index: int) -> bytes:
        """Combine the hashes of a value, or of its beginning, with its number, in place; returns the finished head."""
        begin, *table = self._head.unpack_from(value)
        salt = index * _SALT & _MASK
        table[1::2] = [hashed ^ salt for hashed in table[1::2]]
        self._head.pack_into(value, 0, begin, *table)
        return bytes(value[: self.head_nbytes])

    def decode(self, value: memoryview, index: int, *, check: bool = True) -> tuple[str, dict[str, Any]]:
        """Key and fields of a record; blobs are views of ``value``.

        Raises
        ------
        ValueError
            If a length or checksum does not match; the message says of which part. The caller, which knows the store,
            turns it into an error of penstock.
        """
        lengths, hashes = self._parse_head(value)
        salt = index * _SALT & _MASK
        nbytes = lengths[0]
        at = self.head_nbytes + nbytes
        small = value[self.head_nbytes : at]
        if _hash(small) ^ salt != hashes[0]:
            raise ValueError("the checksum of its small fields does not match")
        values: Any = _unpack(small) if nbytes < _SHORT_NBYTES else self._unpack_limited(small)
        if type(values) is not list or [*map(type, values)] != self._types:
            mismatch = self._describe_mismatch(values)
            if mismatch:
                raise ValueError(mismatch)
        for name, part in self._parts.items():
            start, at = at, at + lengths[part]
            blob = value[start:at]
            if check and _hash(blob) ^ salt != hashes[part]:
                raise ValueError(f"the checksum of its field {name!r} does not match")
            values.append(self._pixels[name].read(blob) if name in self._pixels else blob)
        fields = dict(zip(self._names, values, strict=True))
        for array in self._arrays:
            if fields[array.name] is not None:
                fields[array.name] = array.read(fields[array.name])
        for name in self._json:
            fields[name] = _parse_json(name, fields[name])
        return fields.pop(""), fields

    def _unpack_limited(self, small: memoryview) -> object:
        """Unpack with limits: msgpack allocates a list of the claimed length before it reads the items."""
        return _unpack(small, max_array_len=self._longest, max_map_len=0, max_ext_len=0)

    def _describe_mismatch(self, values: object) -> str:
        """Return how the small fields of a record differ from the schema; empty if values are missing, and may be."""
        if type(values) is not list:
            return f"its small fields must be a list, got {type(values).__name__}"
        if len(values) != len(self._types):
            return f"it must have {len(self._small)} small fields, got {len(values) - 1}"
        pairs = enumerate(zip(values, self._types, strict=True))
        wrong = [at for at, (value, want) in pairs if type(value) is not want and not self._may_be_none(at, value)]
        if not wrong:
            return ""
        at = wrong[0]
        if at == 0:
            return f"its key must be str, got {type(values[0]).__name__}"
        name, field = self._small[at - 1]
        return f"its field {name!r} must be {field.kind}, got {type(values[at]).__name__}"

    def _may_be_none(self, at: int, value: object) -> bool:
        return value is None and at > 0 and self._allows_none and self._small[at - 1][1].kind != "json"

    def blob(self, value: memoryview, index: int, name: str, *, check: bool = True) -> Blob:
        """Return one blob of a record as a view, pixels as an array, without small fields. Raises as :meth:`decode`."""
        lengths, hashes = self._parse_head(value)
        part = self._parts[name]
        at = self.head_nbytes + sum(lengths[:part])
        blob = value[at : at + lengths[part]]
        if check and _hash(blob) ^ (index * _SALT & _MASK) != hashes[part]:
            raise ValueError(f"the checksum of its field {name!r} does not match")
        return self._pixels[name].read(blob) if name in self._pixels else blob

    def _parse_head(self, value: memoryview) -> tuple[list[int], list[int]]:
        """Lengths and hashes of the parts of a value, the small fields first; ValueError if it is no record."""
        if len(value) < self.head_nbytes:
            raise ValueError(f"its {len(value)} bytes are shorter than a header")
        begin, *table = self._head.unpack_from(value)
        if begin != self._begin:
            raise ValueError("its header is not of this format")
        lengths = table[::2]
        if self.head_nbytes + sum(lengths) != len(value):
            raise ValueError(f"it must have {self.head_nbytes + sum(lengths)} bytes by its header, got {len(value)}")
        return lengths, table[1::2]

    def blob_nbytes(self, value: bytes | bytearray | memoryview) -> int:
        """Return the number of bytes of the blobs of a value, by its header."""
        return sum(self._head.unpack_from(value)[3::2])


def _keep(blob: bytes | memoryview) -> bytes | memoryview:
    """Return a blob whose bytes stay as they are until it is written: itself, or a copy if somebody may write to it.

    A small part of a large byte string is copied as well: the whole would stay in memory for it.
    """
    if isinstance(blob, memoryview) and blob.readonly:
        held = blob.obj
        if is_map(held) or (isinstance(held, bytes) and 2 * blob.nbytes >= len(held)):
            return blob
    return bytes(blob)  # bytes are not copied


def _parse_json(name: str, text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its field {name!r} must be JSON: {error}") from error


def encode_column(values: Array) -> bytes:
    """Return a column as the bytes of a ``.npy`` file."""
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    return file.getvalue()


def decode_column(content: bytes | memoryview, count: int, field: Field) -> Array:
    """Return the column in ``.npy`` bytes, a read-only view.

    Raises ValueError unless it has ``count`` values of the field's kind.
    """
    dtype = get_column_dtype(field)
    column = read_array(content)
    if column.dtype != dtype or column.shape != (count,):
        raise ValueError(f"it must hold {count} values of {dtype}, got {column.dtype} of shape {column.shape}")
    return column
