"""The description of a pack: its ``meta`` entry, as JSON, with its version.

Version 1 is what packs of encoded images and small fields have had from the beginning, and still have. Version 2 is
written where version 1 has no place for what is stored: pixels (:mod:`.lmdb_pack.pixels`), blocks of records
(:mod:`.lmdb_pack.blocks`), small fields without a value. A reader of version 1 refuses it by its number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import xxhash

from penstock.errors import ArgumentError, StoreFormatError
from penstock.sample import Schema
from penstock.stores.fields.columns import get_column_dtype
from penstock.stores.writing import CommittedRecords, Skipped

__all__ = [
    "DAMAGED_META",
    "FORMAT",
    "MAX_BLOCK_RECORDS",
    "META",
    "META_ENTRY",
    "META_HASH",
    "VERSIONS",
    "PackMeta",
]

FORMAT: Final = "penstock-lmdb"
VERSIONS: Final = (1, 2, 3)
META: Final = b"meta"
META_ENTRY: Final = b"pack"
META_HASH: Final = b"pack.xxh3"
DAMAGED_META: Final = "the description of the pack (database 'meta') is damaged: its checksum does not match"
MAX_BLOCK_RECORDS: Final = 1 << 20
"""Most records of a block; the writer makes blocks of at most 128 KiB, or of one record."""

_MAX_META_NBYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class PackMeta:
    """The description of a pack, in its database ``meta``."""

    schema: Schema  # fields of the records
    count: int = 0  # number of records
    nbytes: int = 0  # bytes of their blobs
    content: str = ""
    """Hash over the heads of all records, in order; the same for packs of the same records, whatever their source."""
    columns: Mapping[str, str] | None = None  # xxh3_64 of the ``.npy`` bytes of each column, in hexadecimal
    skipped: Sequence[Skipped] = ()  # entries of the source that are not in the pack
    complete: bool = False  # whether it was finished
    source: str = ""  # digest of the source while the pack is unfinished, then empty
    block_records: int = 0  # number of records of each block but the last; 0 where each record is an entry of its own
    has_none: bool = False
    """Whether small fields may have no value; in a description that is read, whether its version allows that."""

    @property
    def committed(self) -> CommittedRecords:
        """What it says of the records."""
        return CommittedRecords(self.count, self.nbytes, tuple(self.skipped))

    @property
    def version(self) -> int:
        """The lowest version of the format that holds such records."""
        pixels = [field.pixels for field in self.schema.fields.values() if field.pixels is not None]
        if any(kind.axes[2] is None for kind in pixels):
            return 3
        return 2 if pixels or self.block_records or self.has_none else 1

    @property
    def entries(self) -> int:
        """Number of entries of the database of records."""
        return -(-self.count // self.block_records) if self.block_records else self.count

    def to_bytes(self) -> bytes:
        """Return the JSON text of the entry."""
        return json.dumps(
            {
                "format": FORMAT,
                "version": self.version,
                "complete": self.complete,
                "count": self.count,
                "nbytes": self.nbytes,
                "content": self.content,
                "schema": self.schema.to_json(),
                "columns": dict(self.columns or {}),
                "skipped": [list(entry) for entry in self.skipped],
                "source": self.source,
                **({"block_records": self.block_records} if self.version > 1 else {}),
            },
            ensure_ascii=False,
        ).encode()

    @classmethod
    def from_bytes(cls, content: bytes, hashed: bytes | None) -> PackMeta:
        """Parse the entry; ``hashed`` is the value under :data:`META_HASH`.

        Raises StoreFormatError if the version is unknown, or the entry is damaged.
        """
        if len(content) > _MAX_META_NBYTES:
            raise StoreFormatError(
                f"the description of the pack (database 'meta') must have at most {_MAX_META_NBYTES} bytes, "
                f"got {len(content)}"
            )
        intact = hashed == xxhash.xxh3_64_digest(content)
        try:
            entry = json.loads(content, object_pairs_hook=_refuse_repeated_names)
            if entry["format"] == FORMAT and type(entry["version"]) is int and entry["version"] in VERSIONS and intact:
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
                f"the version of the pack's format must be one of {', '.join(map(str, VERSIONS))}, "
                f"got {entry['version']!r:.200}: install the version of penstock-data that wrote it, or pack the "
                "source again"
            )
        raise StoreFormatError(DAMAGED_META)

    @classmethod
    def _from_json(cls, entry: Mapping[str, Any]) -> PackMeta:
        """Make it of the parsed JSON, whose values may be of any type."""
        held = CommittedRecords.from_json({**entry, "records": entry["count"]})
        meta = cls(
            schema=Schema.from_json(entry["schema"]),
            count=held.records,
            nbytes=held.nbytes,
            content=entry["content"],
            columns=dict(entry["columns"].items()),
            skipped=held.skipped,
            complete=entry["complete"] is True,
            source=entry["source"],
            block_records=entry["block_records"] if entry["version"] > 1 else 0,
            has_none=entry["version"] > 1,
        )
        if type(meta.block_records) is not int or not 0 <= meta.block_records <= MAX_BLOCK_RECORDS:
            raise ArgumentError(f"block_records must be 0 to {MAX_BLOCK_RECORDS}, got {meta.block_records!r:.50}")
        texts = [meta.content, meta.source, *(meta.columns or {}).values()]
        texts += [text for pair in meta.skipped for text in pair]
        if not all(type(text) is str for text in texts):
            raise ArgumentError("content, source and columns must be texts")
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
