r"""The bytes of a pack: one record's value, the ``meta`` entry, and the constants that reader and writer share.

::

    value of record i
    ┌───────────┬───────┬─────┬──────────────┬──────────────┬─────┬──────────────┬────────┬─────┐
    │ "PSR\x01" │ blobs │  0  │ length, hash │ length, hash │ ... │ small fields │ blob 0 │ ... │
    │  4 bytes  │  u16  │ u16 │   of small   │  of blob 0   │     │  (msgpack)   │        │     │
    └───────────┴───────┴─────┴── u64, u64 ──┴── u64, u64 ──┴─────┴──────────────┴────────┴─────┘

Integers are little-endian. A hash is xxh3_64 of the part, xor ``i * 0x9E3779B97F4A7C15 mod 2**64``: a record that a
damaged B-tree hands out under another number does not pass for that one. The small fields are the msgpack array
``[key, value, ...]`` in the schema's order. Nothing here opens a file, and nothing is ever unpickled.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]  # ships no types
import numpy as np
import xxhash
from numpy.typing import NDArray

from penstock.errors import ArgumentError, PackError, StoreFormatError
from penstock.sample import Field, Schema
from penstock.stores.base import Skipped

__all__ = [
    "COLUMNS",
    "DAMAGED_META",
    "FORMAT",
    "INDEX",
    "KEYS",
    "MAX_KEY_NBYTES",
    "META",
    "META_ENTRY",
    "META_HASH",
    "RECORDS",
    "VERSION",
    "Layout",
    "PackMeta",
    "column_bytes",
    "column_dtype",
    "parse_column",
    "record_key",
]

FORMAT: Final = "penstock-lmdb"
VERSION: Final = 1
RECORDS, COLUMNS, KEYS, INDEX, META = b"records", b"columns", b"keys", b"index", b"meta"
META_ENTRY: Final = b"pack"
META_HASH: Final = b"pack.xxh3"
MAX_KEY_NBYTES: Final = 511
"""LMDB's own limit."""
DAMAGED_META: Final = "the pack's description (database 'meta') is damaged: its checksum does not hold"

_MAGIC: Final = b"PSR\x01"
_MASK: Final = 0xFFFFFFFFFFFFFFFF
_SALT: Final = 0x9E3779B97F4A7C15
_MAX_VALUE_NBYTES: Final = 0xFFFFFFFF  # LMDB's MAXDATASIZE
_COLUMN_DTYPES: Final = {"label": np.dtype("<i8"), "int": np.dtype("<i8"), "float": np.dtype("<f8")}

_hash: Final = xxhash.xxh3_64_intdigest
_unpack: Final = msgpack.unpackb

record_key = struct.Struct(">Q").pack
"""The key of a record: its number, big-endian, so that LMDB's order is the order of numbers."""


class Layout:
    """How the records of one schema lie in their values; encodes and decodes them.

    Thread-safe: it holds constants only.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._blobs = schema.blobs
        self._places = {name: 1 + i for i, name in enumerate(self._blobs)}  # behind the small fields
        self._small = tuple((name, schema[name]) for name in schema.small)
        self._plain = all(field.kind in {"label", "int", "float", "text"} for _, field in self._small)
        self._names = ("", *schema.small, *schema.blobs)  # the key comes first, under a name no field has
        self._head = struct.Struct(f"<8s{2 * (1 + len(self._blobs))}Q")
        self._begin = struct.pack("<4sHH", _MAGIC, len(self._blobs), 0)
        self.head_nbytes = self._head.size

    def encode(self, key: str, fields: Mapping[str, Any]) -> bytearray:
        """The value of a record, but for its number, which :meth:`stamp` adds.

        Raises
        ------
        PackError
            If a field is missing or not of its kind, or LMDB could not hold the record.
        """
        try:
            if not 0 < len(key.encode()) <= MAX_KEY_NBYTES:
                raise PackError(
                    f"a key must have 1 to {MAX_KEY_NBYTES} bytes of UTF-8, this one has {len(key.encode())}"
                )
            small = msgpack.packb([key, *(_pack_small(name, field, fields[name]) for name, field in self._small)])
            parts = [small, *(fields[name] for name in self._blobs)]
        except KeyError as error:
            raise PackError(f"the record has no field {error.args[0]!r}", key=key) from error
        except UnicodeEncodeError as error:
            raise PackError("a key or text that is not valid UTF-8", key=ascii(key)) from error
        nbytes = self.head_nbytes + sum(map(len, parts))
        if nbytes > _MAX_VALUE_NBYTES:
            raise PackError(f"a record of {nbytes} bytes; LMDB holds at most {_MAX_VALUE_NBYTES}", key=key)
        table = [number for part in parts for number in (len(part), _hash(part))]
        return bytearray().join((self._head.pack(self._begin, *table), *parts))

    def stamp(self, value: bytearray, index: int) -> bytes:
        """Bind an encoded value to its number, in place; returns the finished head."""
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
            If a length or checksum does not hold; the message says which part. Not a penstock error: the caller knows
            the store.
        """
        (nbytes, *lengths), (hashed, *hashes) = self._table(value)
        salt = index * _SALT & _MASK
        at = self.head_nbytes + nbytes
        small = value[self.head_nbytes : at]
        if _hash(small) ^ salt != hashed:
            raise ValueError("the checksum of its small fields does not hold")
        values = _unpack(small)
        for name, length, want in zip(self._blobs, lengths, hashes, strict=True):
            blob = value[at : at + length]
            if check and _hash(blob) ^ salt != want:
                raise ValueError(f"the checksum of its field {name!r} does not hold")
            values.append(blob)
            at += length
        if len(values) != len(self._names):
            raise ValueError(f"it has {len(values)} fields, its schema {len(self._names)}")
        fields = dict(zip(self._names, values, strict=False))
        key = fields.pop("")
        if type(key) is not str:
            raise ValueError("its key is no text")
        if not self._plain:
            fields.update({name: _unpack_small(field, fields[name]) for name, field in self._small})
        return key, fields

    def blob(self, value: memoryview, index: int, name: str, *, check: bool = True) -> memoryview:
        """One blob of a record as a view; the small fields are not looked at. Raises as :meth:`decode`."""
        lengths, hashes = self._table(value)
        place = self._places[name]
        at = self.head_nbytes + sum(lengths[:place])
        blob = value[at : at + lengths[place]]
        if check and _hash(blob) ^ (index * _SALT & _MASK) != hashes[place]:
            raise ValueError(f"the checksum of its field {name!r} does not hold")
        return blob

    def _table(self, value: memoryview) -> tuple[list[int], list[int]]:
        """Lengths and hashes of a value's parts, the small fields first; ValueError if it is no record."""
        if len(value) < self.head_nbytes:
            raise ValueError(f"its {len(value)} bytes are fewer than its header needs")
        begin, *table = self._head.unpack_from(value)
        if begin != self._begin:
            raise ValueError("its header is not one of this format")
        lengths = table[::2]
        if self.head_nbytes + sum(lengths) != len(value):
            raise ValueError(f"it has {len(value)} bytes, its header speaks of {self.head_nbytes + sum(lengths)}")
        return lengths, table[1::2]

    def blob_nbytes(self, value: bytes | bytearray | memoryview) -> int:
        """Bytes of a value's blobs, by its header."""
        return sum(self._head.unpack_from(value)[3::2])


def _pack_small(name: str, field: Field, value: Any) -> Any:
    if field.kind in {"label", "int"}:
        return int(value)
    if field.kind == "float":
        return float(value)
    if field.kind == "text":
        return str(value)
    dtype = _array_dtype(field)
    array = np.asarray(value)
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise PackError(f"field {name!r} is {field.kind}: an array of {array.dtype} does not fit")
    return [list(array.shape), np.ascontiguousarray(array, dtype).tobytes()]


def _unpack_small(field: Field, value: Any) -> Any:
    if field.kind in {"label", "int", "float", "text"}:
        return value
    try:
        shape, content = value
        return np.frombuffer(content, _array_dtype(field)).reshape(shape)
    except TypeError as error:
        raise ValueError(f"a small field is not {field.kind}") from error


def _array_dtype(field: Field) -> np.dtype[Any]:
    name = "float32" if field.kind in {"boxes", "keypoints"} else field.kind.partition("[")[0]
    return np.dtype(name).newbyteorder("<")


def column_dtype(field: Field) -> np.dtype[Any] | None:
    """The dtype of a field's stored column; None for kinds that have none."""
    return _COLUMN_DTYPES.get(field.kind)


def column_bytes(values: NDArray[Any]) -> bytes:
    """A column as the bytes of a ``.npy`` file."""
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    return file.getvalue()


def parse_column(content: bytes | memoryview, count: int, field: Field) -> NDArray[Any]:
    """The column in ``.npy`` bytes, read-only; ValueError if it is not one of ``count`` values of the field's kind."""
    column: NDArray[Any] = np.load(io.BytesIO(content), allow_pickle=False)
    if column.shape != (count,) or column.dtype != column_dtype(field):
        raise ValueError(f"it is {column.dtype}{column.shape}, not {column_dtype(field)}({count},)")
    column.flags.writeable = False
    return column


@dataclass(frozen=True, slots=True)
class PackMeta:
    """What database ``meta`` says of a pack.

    Parameters
    ----------
    schema : Schema
        Fields of the records.
    count, nbytes : int
        Records, and bytes of their blobs.
    content : str
        Hash over the heads of all records, in order; equal packs have equal ones, wherever they came from.
    columns : mapping of str to str
        xxh3_64 of each column's ``.npy`` bytes, in hexadecimal.
    skipped : sequence of Skipped
        What the source held and the pack does not.
    complete : bool
        Whether it was finished.
    source : str
        Digest of the source while the pack is unfinished, then empty.
    """

    schema: Schema
    count: int = 0
    nbytes: int = 0
    content: str = ""
    columns: Mapping[str, str] | None = None
    skipped: Sequence[Skipped] = ()
    complete: bool = False
    source: str = ""

    def to_bytes(self) -> bytes:
        """The JSON text of the entry."""
        return json.dumps(
            {
                "format": FORMAT,
                "version": VERSION,
                "complete": self.complete,
                "count": self.count,
                "nbytes": self.nbytes,
                "content": self.content,
                "schema": self.schema.to_json(),
                "columns": dict(self.columns or {}),
                "skipped": [list(entry) for entry in self.skipped],
                "source": self.source,
            },
            ensure_ascii=False,
        ).encode()

    @classmethod
    def from_bytes(cls, content: bytes, hashed: bytes | None) -> PackMeta:
        """Parse the entry; ``hashed`` is what stands under :data:`META_HASH`.

        Raises
        ------
        StoreFormatError
            If the version is not known here, or the entry is damaged.
        """
        intact = hashed == xxhash.xxh3_64_digest(content)
        try:
            said = json.loads(content)
            if said["format"] != FORMAT:
                raise StoreFormatError(f"this pack's format is {said['format']!r}, not {FORMAT!r}")
            if intact and said["version"] != VERSION:
                raise StoreFormatError(
                    f"this pack has version {said['version']} of the format; this penstock reads version {VERSION}: "
                    "install the penstock that wrote it, or pack the source again"
                )
            if not intact:
                raise StoreFormatError(DAMAGED_META)
            return cls(
                schema=Schema.from_json(said["schema"]),
                count=int(said["count"]),
                nbytes=int(said["nbytes"]),
                content=str(said["content"]),
                columns={str(name): str(value) for name, value in said["columns"].items()},
                skipped=tuple(Skipped(str(key), str(reason)) for key, reason in said["skipped"]),
                complete=said["complete"] is True,
                source=str(said["source"]),
            )
        except ArgumentError as error:
            raise StoreFormatError(f"the pack's description (database 'meta') is wrong: {error.message}") from error
        except (KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise StoreFormatError("the pack's description (database 'meta') cannot be understood") from error
