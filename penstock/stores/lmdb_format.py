r"""The bytes of a pack: the value of a record, the ``meta`` entry, and the constants that reader and writer share.

::

    value of record i
    ┌───────────┬───────┬─────┬──────────────┬──────────────┬─────┬──────────────┬────────┬─────┐
    │ "PSR\x01" │ blobs │  0  │ length, hash │ length, hash │ ... │ small fields │ blob 0 │ ... │
    │  4 bytes  │  u16  │ u16 │   of small   │  of blob 0   │     │  (msgpack)   │        │     │
    └───────────┴───────┴─────┴── u64, u64 ──┴── u64, u64 ──┴─────┴──────────────┴────────┴─────┘

Integers are little-endian. A hash is xxh3_64 of the part, xor ``i * 0x9E3779B97F4A7C15 mod 2**64``: if a damaged B-tree
returns a record under another number, its hashes do not match. The small fields are the msgpack array
``[key, value, ...]`` in the order of the schema. Nothing here opens a file, and nothing is ever unpickled.
"""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]  # ships no types
import numpy as np
import xxhash

from penstock.errors import ArgumentError, PackError, StoreFormatError
from penstock.sample import Array, Field, Schema
from penstock.stores.small_fields import SMALL_TYPES, ArrayReader, pack_small
from penstock.stores.writing import Skipped

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
    "PackMeta",
    "RecordCodec",
    "decode_column",
    "encode_column",
    "get_column_dtype",
    "make_record_key",
]

FORMAT: Final = "penstock-lmdb"
VERSION: Final = 1
RECORDS, COLUMNS, KEYS, INDEX, META = b"records", b"columns", b"keys", b"index", b"meta"
META_ENTRY: Final = b"pack"
META_HASH: Final = b"pack.xxh3"
MAX_KEY_NBYTES: Final = 511
"""LMDB's own limit."""
DAMAGED_META: Final = "the description of the pack (database 'meta') is damaged: its checksum does not match"

_MAGIC: Final = b"PSR\x01"
_MASK: Final = 0xFFFFFFFFFFFFFFFF
_SALT: Final = 0x9E3779B97F4A7C15
_MAX_VALUE_NBYTES: Final = 0xFFFFFFFF  # LMDB's MAXDATASIZE
_MAX_META_NBYTES: Final = 1 << 30
_MAX_AXES: Final = 32  # of a small array: the longest list that a small field contains
_MAX_HEADER_NBYTES: Final = 1024
_NPY_HEADER: Final = re.compile(
    rb"\x93NUMPY\x01\x00(?P<nbytes>..)\{'descr': '(?P<descr>[<>|=]\w{1,8})', 'fortran_order': (?:False|True), "
    rb"'shape': \((?P<count>[0-9]{1,19}),\), \} *\n",
    re.DOTALL,
)
_COLUMN_DTYPES: Final = {"label": np.dtype("<i8"), "int": np.dtype("<i8"), "float": np.dtype("<f8")}

_hash: Final = xxhash.xxh3_64_intdigest
_unpack: Final = msgpack.unpackb
_SHORT_NBYTES: Final = 4096
"""Small fields of fewer bytes are unpacked without limits, which take time: so few bytes make no large list."""

make_record_key = struct.Struct(">Q").pack
"""The key of a record: its number, big-endian, so that LMDB's order is the order of numbers."""


class RecordCodec:
    """Encodes the records of one schema to their stored values, and decodes them.

    Thread-safe: it holds constants only.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._blobs = schema.blobs
        self._parts = {name: 1 + i for i, name in enumerate(self._blobs)}  # part 0 holds the small fields
        self._small = tuple((name, schema[name]) for name in schema.small)
        kinds = ((name, field.array) for name, field in self._small)
        self._arrays = tuple(ArrayReader(name, kind) for name, kind in kinds if kind is not None)
        self._types = [str, *(SMALL_TYPES.get(field.kind, list) for _, field in self._small)]
        self._longest = max(len(self._types), _MAX_AXES)
        self._names = ("", *schema.small, *schema.blobs)  # the key comes first, under a name that no field has
        self._head = struct.Struct(f"<8s{2 * (1 + len(self._blobs))}Q")
        self._begin = struct.pack("<4sHH", _MAGIC, len(self._blobs), 0)
        self.head_nbytes = self._head.size

    def encode(self, key: str, fields: Mapping[str, Any]) -> bytearray:
        """The value of a record, complete except for its number, which :meth:`add_number` adds.

        Raises
        ------
        PackError
            If a field is missing or not of its kind, or the record is too large for LMDB.
        """
        try:
            if not 0 < len(key.encode()) <= MAX_KEY_NBYTES:
                raise PackError(f"a key must have 1 to {MAX_KEY_NBYTES} bytes of UTF-8, got {len(key.encode())}")
            small = msgpack.packb([key, *(pack_small(name, field, fields[name]) for name, field in self._small)])
            parts = [small, *(fields[name] for name in self._blobs)]
        except KeyError as error:
            raise PackError(f"the record has no field {error.args[0]!r}", key=key) from error
        except UnicodeEncodeError as error:
            raise PackError("a key or text must be valid UTF-8", key=ascii(key)) from error
        nbytes = self.head_nbytes + sum(map(len, parts))
        if nbytes > _MAX_VALUE_NBYTES:
            raise PackError(f"a record must have at most {_MAX_VALUE_NBYTES} bytes (LMDB), got {nbytes}", key=key)
        table = [number for part in parts for number in (len(part), _hash(part))]
        return bytearray().join((self._head.pack(self._begin, *table), *parts))

    def add_number(self, value: bytearray, index: int) -> bytes:
        """Combine the hashes of an encoded value with its number, in place; returns the finished head."""
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
        values = _unpack(small) if nbytes < _SHORT_NBYTES else self._unpack_limited(small)
        if type(values) is not list or [*map(type, values)] != self._types:
            raise ValueError(self._describe_mismatch(values))
        for name, part in self._parts.items():
            start, at = at, at + lengths[part]
            blob = value[start:at]
            if check and _hash(blob) ^ salt != hashes[part]:
                raise ValueError(f"the checksum of its field {name!r} does not match")
            values.append(blob)
        fields = dict(zip(self._names, values, strict=True))
        for array in self._arrays:
            fields[array.name] = array.read(fields[array.name])
        return fields.pop(""), fields

    def _unpack_limited(self, small: memoryview) -> object:
        """Unpack with limits: msgpack allocates a list of the claimed length before it reads the items."""
        return _unpack(small, max_array_len=self._longest, max_map_len=0, max_ext_len=0)

    def _describe_mismatch(self, values: object) -> str:
        """How the small fields of a record differ from the schema."""
        if type(values) is not list:
            return f"its small fields must be a list, got {type(values).__name__}"
        if len(values) != len(self._types):
            return f"it must have {len(self._small)} small fields, got {len(values) - 1}"
        found = [type(value) is want for value, want in zip(values, self._types, strict=True)]
        at = found.index(False)
        if at == 0:
            return f"its key must be str, got {type(values[0]).__name__}"
        name, field = self._small[at - 1]
        return f"its field {name!r} must be {field.kind}, got {type(values[at]).__name__}"

    def blob(self, value: memoryview, index: int, name: str, *, check: bool = True) -> memoryview:
        """One blob of a record as a view; the small fields are not read. Raises as :meth:`decode`."""
        lengths, hashes = self._parse_head(value)
        part = self._parts[name]
        at = self.head_nbytes + sum(lengths[:part])
        blob = value[at : at + lengths[part]]
        if check and _hash(blob) ^ (index * _SALT & _MASK) != hashes[part]:
            raise ValueError(f"the checksum of its field {name!r} does not match")
        return blob

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
        """Number of bytes of the blobs of a value, by its header."""
        return sum(self._head.unpack_from(value)[3::2])


def get_column_dtype(field: Field) -> np.dtype[Any] | None:
    """The dtype of the stored column of a field; None for kinds without a column."""
    return _COLUMN_DTYPES.get(field.kind)


def encode_column(values: Array) -> bytes:
    """A column as the bytes of a ``.npy`` file."""
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    return file.getvalue()


def decode_column(content: bytes | memoryview, count: int, field: Field) -> Array:
    """The column in ``.npy`` bytes, a read-only view; ValueError unless it has ``count`` values of the field's kind.

    Only the header that NumPy writes for such a column is accepted. :func:`numpy.load` would evaluate any header,
    allocate the size that it claims, and open archives.
    """
    dtype = get_column_dtype(field)
    assert dtype is not None, "the kind has columns"
    header = _NPY_HEADER.match(bytes(content[:_MAX_HEADER_NBYTES]))
    if header is None or int.from_bytes(header["nbytes"], "little") != len(header[0]) - 10:
        raise ValueError("its header must be that of a one-dimensional .npy file of version 1")
    if header["descr"] != dtype.str.encode() or int(header["count"]) != count:
        raise ValueError(
            f"it must hold {count} values of {dtype.str}, got {int(header['count'])} of {header['descr'].decode()}"
        )
    if len(content) - len(header[0]) != count * dtype.itemsize:
        raise ValueError(f"it must have {count * dtype.itemsize} bytes, got {len(content) - len(header[0])}")
    column = np.frombuffer(content, dtype, offset=len(header[0]))
    column.flags.writeable = False
    return column


@dataclass(frozen=True, slots=True)
class PackMeta:
    """The description of a pack, in its database ``meta``.

    Parameters
    ----------
    schema : Schema
        Fields of the records.
    count, nbytes : int
        Number of records, and of bytes of their blobs.
    content : str
        Hash over the heads of all records, in order; the same for packs of the same records, whatever their source.
    columns : mapping of str to str
        xxh3_64 of the ``.npy`` bytes of each column, in hexadecimal.
    skipped : sequence of Skipped
        Entries of the source that are not in the pack.
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
        """Parse the entry; ``hashed`` is the value under :data:`META_HASH`.

        Raises
        ------
        StoreFormatError
            If the version is unknown, or the entry is damaged.
        """
        if len(content) > _MAX_META_NBYTES:
            raise StoreFormatError(
                f"the description of the pack (database 'meta') must have at most {_MAX_META_NBYTES} bytes, "
                f"got {len(content)}"
            )
        intact = hashed == xxhash.xxh3_64_digest(content)
        try:
            entry = json.loads(content, object_pairs_hook=_refuse_repeated_names)
            if entry["format"] == FORMAT and entry["version"] == VERSION and intact:
                return cls._from_json(entry)
        except ArgumentError as error:
            raise StoreFormatError(
                f"the description of the pack (database 'meta') is wrong: {error.message}"
            ) from error
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise StoreFormatError("the description of the pack (database 'meta') cannot be parsed") from error
        if entry["format"] != FORMAT:
            raise StoreFormatError(f"the format of the pack must be {FORMAT!r}, got {entry['format']!r:.200}")
        if intact:
            raise StoreFormatError(
                f"the version of the pack's format must be {VERSION}, got {entry['version']!r:.200}: "
                "install the version of penstock-data that wrote it, or pack the source again"
            )
        raise StoreFormatError(DAMAGED_META)

    @classmethod
    def _from_json(cls, entry: Mapping[str, Any]) -> PackMeta:
        """From the parsed JSON, whose values may be of any type."""
        meta = cls(
            schema=Schema.from_json(entry["schema"]),
            count=entry["count"],
            nbytes=entry["nbytes"],
            content=entry["content"],
            columns=dict(entry["columns"].items()),
            skipped=tuple(Skipped(*pair) for pair in entry["skipped"] if type(pair) is list),
            complete=entry["complete"] is True,
            source=entry["source"],
        )
        texts = [meta.content, meta.source, *(meta.columns or {}).values()]
        texts += [text for pair in meta.skipped for text in pair]
        if len(meta.skipped) != len(entry["skipped"]):
            raise ArgumentError("skipped must be a list of lists")
        if not all(type(number) is int and 0 <= number < 2**63 for number in (meta.count, meta.nbytes)):
            raise ArgumentError(
                f"count and nbytes must be integers of at least 0, got {meta.count!r:.50} and {meta.nbytes!r:.50}"
            )
        if not all(type(text) is str for text in texts):
            raise ArgumentError("content, source, columns and skipped must be texts")
        "".join(texts).encode()  # a UnicodeEncodeError is a ValueError
        for name in meta.columns or {}:
            if get_column_dtype(meta.schema[name]) is None:
                raise ArgumentError(f"field {name!r} is {meta.schema[name].kind}, which has no column")
        return meta


def _refuse_repeated_names(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Make a JSON object; a name that occurs twice is an error: one of two fields of a schema would be lost."""
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ArgumentError("a name must occur once in an object")
    return names
