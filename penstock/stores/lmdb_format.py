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
import re
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
from penstock.stores.small_fields import SMALL_TYPES, ArrayReader, pack_small

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
_MAX_META_NBYTES: Final = 1 << 30
_MAX_AXES: Final = 32  # of a small array: no list in the small fields is longer, but for that of all of them
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
"""Small fields of fewer bytes are unpacked without limits, which take time: whatever they claim stays small."""

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
        kinds = ((name, field.array) for name, field in self._small)
        self._arrays = tuple(ArrayReader(name, kind) for name, kind in kinds if kind is not None)
        self._types = [str, *(SMALL_TYPES.get(field.kind, list) for _, field in self._small)]
        self._longest = max(len(self._types), _MAX_AXES)
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
            small = msgpack.packb([key, *(pack_small(name, field, fields[name]) for name, field in self._small)])
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
        lengths, hashes = self._table(value)
        salt = index * _SALT & _MASK
        nbytes = lengths[0]
        at = self.head_nbytes + nbytes
        small = value[self.head_nbytes : at]
        if _hash(small) ^ salt != hashes[0]:
            raise ValueError("the checksum of its small fields does not hold")
        values = _unpack(small) if nbytes < _SHORT_NBYTES else self._unpack_long(small)
        if type(values) is not list or [*map(type, values)] != self._types:
            raise ValueError(self._mismatch(values))
        for name, place in self._places.items():
            start, at = at, at + lengths[place]
            blob = value[start:at]
            if check and _hash(blob) ^ salt != hashes[place]:
                raise ValueError(f"the checksum of its field {name!r} does not hold")
            values.append(blob)
        fields = dict(zip(self._names, values, strict=True))
        for array in self._arrays:
            fields[array.name] = array.read(fields[array.name])
        return fields.pop(""), fields

    def _unpack_long(self, small: memoryview) -> Any:
        """Unpack with limits: msgpack makes a list as long as it claims to be, before what is in it is read."""
        return _unpack(small, max_array_len=self._longest, max_map_len=0, max_ext_len=0)

    def _mismatch(self, values: Any) -> str:
        """How the small fields of a record differ from what the schema says."""
        if type(values) is not list:
            return f"its small fields are {type(values).__name__}, not a list"
        if len(values) != len(self._types):
            return f"it has {len(values) - 1} small fields, its schema {len(self._small)}"
        found = [type(value) is want for value, want in zip(values, self._types, strict=True)]
        at = found.index(False)
        if at == 0:
            return f"its key is {type(values[0]).__name__}, not str"
        name, field = self._small[at - 1]
        return f"its field {name!r} is {type(values[at]).__name__}, which {field.kind} does not allow"

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


def column_dtype(field: Field) -> np.dtype[Any] | None:
    """The dtype of a field's stored column; None for kinds that have none."""
    return _COLUMN_DTYPES.get(field.kind)


def column_bytes(values: NDArray[Any]) -> bytes:
    """A column as the bytes of a ``.npy`` file."""
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    return file.getvalue()


def parse_column(content: bytes | memoryview, count: int, field: Field) -> NDArray[Any]:
    """The column in ``.npy`` bytes, a read-only view; ValueError unless it is ``count`` values of the field's kind.

    Only the header that NumPy writes for such a column is understood: :func:`numpy.load` would evaluate a header of any
    other array, allocate what it claims, and open archives.
    """
    dtype = column_dtype(field)
    assert dtype is not None, "a kind that has columns"
    header = _NPY_HEADER.match(bytes(content[:_MAX_HEADER_NBYTES]))
    if header is None or int.from_bytes(header["nbytes"], "little") != len(header[0]) - 10:
        raise ValueError("its header is not that of a one-dimensional .npy file of version 1")
    if header["descr"] != dtype.str.encode() or int(header["count"]) != count:
        raise ValueError(
            f"it holds {int(header['count'])} values of {header['descr'].decode()}, not {count} of {dtype.str}"
        )
    if len(content) - len(header[0]) != count * dtype.itemsize:
        raise ValueError(f"it has {len(content) - len(header[0])} bytes, not {count * dtype.itemsize}")
    column = np.frombuffer(content, dtype, offset=len(header[0]))
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
        if len(content) > _MAX_META_NBYTES:
            raise StoreFormatError(
                f"the pack's description (database 'meta') has {len(content)} bytes, which is too much"
            )
        intact = hashed == xxhash.xxh3_64_digest(content)
        try:
            said = json.loads(content, object_pairs_hook=_unique)
            if said["format"] == FORMAT and said["version"] == VERSION and intact:
                return cls._checked(said)
        except ArgumentError as error:
            raise StoreFormatError(f"the pack's description (database 'meta') is wrong: {error.message}") from error
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise StoreFormatError("the pack's description (database 'meta') cannot be understood") from error
        if said["format"] != FORMAT:
            raise StoreFormatError(f"this pack's format is {said['format']!r:.200}, not {FORMAT!r}")
        if intact:
            raise StoreFormatError(
                f"this pack has version {said['version']!r:.200} of the format; this penstock reads version {VERSION}: "
                "install the version of penstock-data that wrote it, or pack the source again"
            )
        raise StoreFormatError(DAMAGED_META)

    @classmethod
    def _checked(cls, said: Mapping[str, Any]) -> PackMeta:
        """From the entry's object, whose values may be of any type."""
        meta = cls(
            schema=Schema.from_json(said["schema"]),
            count=said["count"],
            nbytes=said["nbytes"],
            content=said["content"],
            columns=dict(said["columns"].items()),
            skipped=tuple(Skipped(*entry) for entry in said["skipped"] if type(entry) is list),
            complete=said["complete"] is True,
            source=said["source"],
        )
        texts = [meta.content, meta.source, *(meta.columns or {}).values()]
        texts += [text for entry in meta.skipped for text in entry]
        if len(meta.skipped) != len(said["skipped"]):
            raise ArgumentError("skipped must be a list of lists")
        if not all(type(number) is int and 0 <= number < 2**63 for number in (meta.count, meta.nbytes)):
            raise ArgumentError(
                f"count and nbytes must be integers of at least 0, got {meta.count!r:.50} and {meta.nbytes!r:.50}"
            )
        if not all(type(text) is str for text in texts):
            raise ArgumentError("content, source, columns and skipped must be texts")
        "".join(texts).encode()  # a UnicodeEncodeError is a ValueError
        for name in meta.columns or {}:
            if column_dtype(meta.schema[name]) is None:
                raise ArgumentError(f"field {name!r} is {meta.schema[name].kind}, which has no column")
        return meta


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, which must not have one name twice: of two fields of a schema one would be lost."""
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ArgumentError("a name occurs twice in one object")
    return names
