"""The manifest of a sharded pack: which packs it consists of, in order, as JSON in ``manifest.json``.

::

    {"format": "penstock sharded pack", "version": 1, "schema": ..., "records": N, "content": hash of all contents,
     "source": origin, "skipped": [...],
     "shards": {"names": [...], "counts": [...], "contents": [...], "nbytes": [...]},
     "checksum": hash of everything before it}

It is written last, in one step: a folder without it is no store. The hash of the content of each shard tells it from
another one under the same name. :mod:`.lmdb_pack.sharded` reads it, :mod:`.lmdb_pack.sharded_writer` and ``merge``
write it. No shard is opened here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import xxhash

from penstock.errors import ArgumentError, StoreError, StoreFormatError
from penstock.sample import Schema, State
from penstock.stores.common.regular_file import read_json, replace_json
from penstock.stores.writing import MANIFEST, CommittedRecords, Skipped

__all__ = ["PackManifest", "ShardColumns"]

_FORMAT: Final = "penstock sharded pack"
_VERSION: Final = 1
_MAX_RECORDS: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class ShardColumns:
    """Some packs in order: of each its name below the folder, records, hash of its content, and bytes of its blobs.

    A name may occur several times; the records of that pack then do.
    """

    names: list[str] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    contents: list[str] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)

    def append(self, name: str, count: int, content: str, nbytes: int) -> None:
        """Add a pack."""
        self.names.append(name)
        self.counts.append(count)
        self.contents.append(content)
        self.nbytes.append(nbytes)

    def extend(self, others: ShardColumns, folder: str) -> None:
        """Add packs that lie in a folder below that of these."""
        self.names.extend(f"{folder}/{name}" for name in others.names)
        self.counts.extend(others.counts)
        self.contents.extend(others.contents)
        self.nbytes.extend(others.nbytes)

    @property
    def content(self) -> str:
        """A hash over the contents in order."""
        return xxhash.xxh3_128_hexdigest("\n".join(self.contents).encode())

    def to_json(self) -> dict[str, object]:
        """Write the columns as :meth:`from_json` reads them."""
        return {"names": self.names, "counts": self.counts, "contents": self.contents, "nbytes": self.nbytes}

    @classmethod
    def from_json(cls, entry: Mapping[str, object]) -> ShardColumns:
        """Make it of parsed JSON, whose values may be of any type.

        Raises
        ------
        ValueError
            If lengths differ, a number is negative, or a name is not that of a folder below that of the manifest.
        """
        columns = [entry[name] for name in cls.__slots__]
        lists = [column for column in columns if isinstance(column, list)]
        if len(lists) < len(columns) or len({*map(len, lists)}) > 1:
            raise ValueError("its shards must be four lists of one length")
        for name, column, kind in zip(cls.__slots__, lists, (str, int, str, int), strict=True):
            if {*map(type, column)} - {kind}:
                raise ValueError(f"the {name} of its shards must be {kind.__name__}")
        shards = cls(*lists)
        for name, numbers in (("counts", shards.counts), ("nbytes", shards.nbytes)):
            if min(numbers, default=0) < 0 or sum(numbers) > _MAX_RECORDS:
                raise ValueError(f"the {name} of its shards must be numbers from 0 to 2**62 in all")
        if len(set(zip(shards.names, shards.counts, shards.contents, strict=True))) > len(set(shards.names)):
            raise ValueError("a shard must have the same content wherever its name occurs")
        joined = "/".join(shards.names)
        if shards.names and ("\0" in joined or not {"", ".", ".."}.isdisjoint(joined.split("/"))):
            raise ValueError("the name of a shard must be a path below its folder, without '..'")
        joined.encode()  # a UnicodeEncodeError is a ValueError
        return shards


@dataclass(frozen=True, slots=True)
class PackManifest:
    """What ``manifest.json`` says."""

    schema: Schema  # fields of the records of each shard
    shards: ShardColumns  # at least one
    source: str = ""  # the text of the origin
    skipped: Sequence[Skipped] = ()  # entries of the source that are not in the pack

    @property
    def committed(self) -> CommittedRecords:
        """What it says of the records."""
        return CommittedRecords(sum(self.shards.counts), sum(self.shards.nbytes), tuple(self.skipped))

    def write(self, path: Path) -> None:
        """Write the file in one step; on disk when this returns. Raises OSError."""
        entry: dict[str, object] = {
            "format": _FORMAT,
            "version": _VERSION,
            "schema": self.schema.to_json(),
            "records": sum(self.shards.counts),
            "content": self.shards.content,
            "source": self.source,
            "skipped": [list(each) for each in self.skipped],
            "shards": self.shards.to_json(),
        }
        replace_json(path, {**entry, "checksum": _hash(entry)})

    @classmethod
    def read(cls, path: Path, url: str) -> PackManifest:
        """Parse the file.

        Raises
        ------
        FileNotFoundError
            If there is none.
        StoreFormatError
            If it is damaged, or of an unknown version.
        StoreError
            If it cannot be read.
        """
        try:
            entry = read_json(path)
            if entry["format"] == _FORMAT and entry["version"] != _VERSION:
                raise StoreFormatError(
                    f"the version of {MANIFEST} must be {_VERSION}, got {entry['version']!r:.200}: install the version "
                    "of penstock-data that wrote it, or pack the source again",
                    store=url,
                )
            if entry.pop("checksum") != _hash(entry):
                raise ValueError("its checksum does not match")  # noqa: TRY301  # one handler
            return cls._from_json(entry)
        except (FileNotFoundError, StoreError):
            raise
        except OSError as error:
            raise StoreError(f"{MANIFEST} cannot be read: {error.strerror or error}", store=url) from error
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            what = error.message if isinstance(error, ArgumentError) else str(error)
            raise StoreFormatError(
                f"{MANIFEST} is damaged: {what}; copy it again, or pack the source again", store=url
            ) from error

    @classmethod
    def _from_json(cls, entry: State) -> PackManifest:
        """Make it of the parsed JSON, whose values may be of any type."""
        shards = ShardColumns.from_json(entry["shards"])
        held = CommittedRecords.from_json({**entry, "nbytes": 0})
        if not shards.names or held.records != sum(shards.counts) or entry["content"] != shards.content:
            raise ValueError("its shards are not those of its records and content")
        if type(entry["source"]) is not str:
            raise ValueError("source must be a text")
        return cls(Schema.from_json(entry["schema"]), shards, entry["source"], held.skipped)


def _hash(entry: Mapping[str, object]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(entry).encode())
