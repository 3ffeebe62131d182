"""Writes documents to a MongoDB collection, such that a writer that was killed is resumed.

::

    append, append, ... ──16 MB or 1000 documents──> insert_many (_id = number of the record), then the description
    resumed             documents from the last description on are deleted, and written again

What is written of a record: ``_id``, ``key``, ``xxh3`` (of each encoded field), and its fields under their names.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import xxhash

from penstock.errors import ArgumentError, PackError, StoreFormatError
from penstock.registry import require
from penstock.sample import Field, Schema
from penstock.stores.common.journal import Journal, JournaledWriter
from penstock.stores.fields.small_fields import check_pixels, check_small
from penstock.stores.location import Location
from penstock.stores.mongo.connection import MongoConnection, import_bson
from penstock.stores.mongo.descriptor import Descriptor, name_descriptors, read_descriptor
from penstock.stores.mongo.fields import Document
from penstock.stores.mongo.values import PIXELS, SHAPE, VALUES, hash_blob
from penstock.stores.writing import Skipped
from penstock.wording import counted

if TYPE_CHECKING:
    from bson.raw_bson import RawBSONDocument

    from penstock.stores.mongo.connection import Database

__all__ = ["MAX_DOCUMENT_NBYTES", "DocumentWriter", "PreparedDocument", "to_document_value"]

MAX_DOCUMENT_NBYTES: Final = 16 << 20
"""MongoDB's own limit."""
_COMMIT_NBYTES: Final = 16 << 20
_ID_NBYTES: Final = 64  # what `_id` and a time add to a document, at most
_RESERVED: Final = frozenset({"_id", "key", "xxh3", "filename", "length", "metadata"})


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A record as it is sent: BSON without ``_id``, the content of its GridFS file, number of bytes of its blobs."""

    body: bytes
    content: bytes
    nbytes: int


class DocumentWriter(JournaledWriter[PreparedDocument]):
    """Writes one document a record; GridFS (:mod:`.mongo.gridfs`) writes files in the same way.

    Parameters
    ----------
    location : Location
        The server, database and collection or bucket.
    schema : Schema
        Fields of the records.
    source : str
        The origin, as :meth:`~penstock.stores.origin.Origin.to_text` returns it; only a collection of the same origin
        is resumed.
    overwrite : bool
        Whether to drop the collection first, whoever wrote it.

    Raises
    ------
    ArgumentError
        If a finished collection is there.
    StoreFormatError
        If the collection has documents that penstock did not write; nothing is changed.
    StoreError
        If the server does not answer or refuses, or an unfinished collection of another origin is there.
    """

    commit_records: int = 1000
    """Most records that are sent at once."""

    def __init__(self, location: Location, schema: Schema, source: str, *, overwrite: bool = False) -> None:
        self.location, self.schema = location, schema
        self._connection = MongoConnection(location)
        self._url = str(location)
        self._names = _name_values(schema)
        self._pending: list[PreparedDocument] = []
        self._pending_nbytes = 0
        self._descriptor = Descriptor(schema, self.make_paths(self._names), source)
        self.journal = Journal(self._url, "collection", source, schema, {"paths": self._descriptor.paths})
        try:
            self._begin(overwrite=overwrite)
        except BaseException:
            self._connection.close()
            raise

    @property
    def bucket(self) -> str:
        """The name of the collection, or of the bucket."""
        return self._connection.collection

    @property
    def collections(self) -> Sequence[tuple[str, str]]:
        """The collections that are written, the documents first; and the value of each that numbers the records."""
        return ((self.bucket, "_id"),)

    def make_paths(self, names: Mapping[str, str]) -> dict[str, str]:
        """The path of each field in a document, from the names of their values: at the top."""
        return dict(names)

    def make_document(self, key: str, fields: Mapping[str, object], hashes: Sequence[object]) -> tuple[Document, bytes]:
        """The document of a record, without ``_id``, and the content of its GridFS file; raises as :meth:`prepare`."""
        return {"key": key, "xxh3": list(hashes), **self.make_values(fields)}, b""

    def insert(self, database: Database, first: int, records: Sequence[PreparedDocument]) -> None:
        """Send records, in order; the first one has number ``first``."""
        documents = [add_id(first + number, record.body) for number, record in enumerate(records)]
        database[self.bucket].insert_many(documents, ordered=True)

    def create_indexes(self, database: Database) -> None:
        """Create what the server finds documents by: the keys, by which a manifest is joined; again without effect."""
        database[self.bucket].create_index("key")

    def make_values(self, fields: Mapping[str, object], *, without: str = "") -> Document:
        """The values of a record's fields under their names in a document, but for one field."""
        return {
            stored: to_document_value(name, self.schema[name], fields[name])
            for name, stored in self._names.items()
            if name != without
        }

    def prepare(self, key: str, fields: Mapping[str, object]) -> PreparedDocument:
        """Convert and encode a record; thread-safe.

        Raises
        ------
        PackError
            If a field is missing, is not of its kind, or is no value of BSON; or if the document has more than 16 MiB.
        """
        bson = import_bson()
        if not key or "\0" in key:
            raise PackError(f"a key must be text without zero characters, got {key!r:.200}")
        try:
            blobs = [fields[name] for name in self.schema.blobs]
            hashes = [bson.Int64(hash_blob(blob)) for blob in blobs]
            document, content = self.make_document(key, fields, hashes)
            body = bson.encode(document)
        except KeyError as error:
            raise PackError(f"the record has no field {error.args[0]!r}", key=key) from error
        except (bson.errors.BSONError, OverflowError, TypeError, ValueError) as error:  # a UnicodeError is a ValueError
            if isinstance(error, PackError):
                raise
            raise PackError(f"the record is no document: {error}", key=key) from error
        if len(body) + _ID_NBYTES > MAX_DOCUMENT_NBYTES:
            raise PackError(
                f"a document must have at most {MAX_DOCUMENT_NBYTES:,} bytes (MongoDB), got {len(body):,}; write to "
                "gridfs://host/database/bucket, where images may be larger",
                key=key,
            )
        return PreparedDocument(body, content, sum(0 if blob is None else _count_bytes(blob) for blob in blobs))

    def append(self, prepared: PreparedDocument) -> None:
        """Add the next record; commit if enough are pending."""
        self._pending.append(prepared)
        self.journal.append(prepared.nbytes)
        self._pending_nbytes += len(prepared.body) + len(prepared.content)
        if len(self._pending) >= self.commit_records or self._pending_nbytes >= _COMMIT_NBYTES:
            self._commit()

    def finish(self, problems: Sequence[Skipped] = ()) -> None:
        """Send the remaining records, create the indexes, and mark the collection as complete."""
        self._commit()
        self._connection.run(self.create_indexes)
        self.journal.skipped += problems
        self._describe(replace(self._descriptor, committed=self.journal.written, complete=True))

    def close(self) -> None:
        """Close the client. What was committed stays, and is resumed by a writer of the same origin."""
        self._connection.close()

    def discard(self) -> None:
        """Drop the collections."""
        self._connection.run(self._drop)
        self.close()

    def _begin(self, *, overwrite: bool) -> None:
        held = None if overwrite else self._connection.run(self._read_descriptor)
        if held is None:
            if overwrite:
                self._connection.run(self._drop)
            elif self._connection.run(self._has_documents):
                raise StoreFormatError(
                    "this collection has documents that penstock did not write; nothing was changed. overwrite=True "
                    "(--overwrite) drops the collection",
                    store=self._url,
                )
            self._connection.run(self.create_indexes)
            self._describe(self._descriptor)
            return
        if held.complete:
            raise ArgumentError(
                f"{self._url} is a finished collection of {counted(held.committed.records, 'record')}; it is "
                "replaced with overwrite=True (--overwrite)"
            )
        wanted = self._descriptor
        if (held.source, held.schema, held.paths) != (wanted.source, wanted.schema, wanted.paths):
            raise self.journal.make_other_error(held.committed.records, held.source, held.schema, {"paths": held.paths})
        self._connection.run(lambda database: self._delete_from(database, held.committed.records))
        name = self.collections[0][0]
        found = self._connection.run(lambda database: database[name].count_documents({}))
        if found != held.committed.records:
            raise self.journal.make_damage_error(
                f"the unfinished collection must have {held.committed.records} documents, and {found} are there"
            )
        self._descriptor = held
        self.journal.restore(held.committed)

    def _read_descriptor(self, database: Database) -> Descriptor | None:
        return read_descriptor(database, self._connection.collection, self._url)

    def _has_documents(self, database: Database) -> bool:
        return any(database[name].find_one({}, {"_id": 1}) is not None for name, _ in self.collections)

    def _drop(self, database: Database) -> None:
        database.drop_collection(name_descriptors(self._connection.collection))
        for name, _ in self.collections:
            database.drop_collection(name)

    def _delete_from(self, database: Database, first: int) -> None:
        for name, number in self.collections:
            database[name].delete_many({number: {"$gte": first}})

    def _commit(self) -> None:
        first, records = self.committed.records, self._pending
        attempts = 0

        def send(database: Database) -> None:
            nonlocal attempts
            attempts += 1
            if attempts > 1:  # the server went away: some of them may be there
                self._delete_from(database, first)
            self.insert(database, first, records)

        if records:
            self._connection.run(send)
        content = bytes.fromhex(self._descriptor.content)
        for record in records:
            content = xxhash.xxh3_128_digest(content + xxhash.xxh3_128_digest(record.body + record.content))
        self._describe(replace(self._descriptor, committed=self.journal.written, content=content.hex()))
        self._pending = []
        self._pending_nbytes = 0

    def _describe(self, descriptor: Descriptor) -> None:
        self._connection.run(lambda database: descriptor.write(database, self._connection.collection))
        self._descriptor = descriptor
        self.journal.restore(descriptor.committed)


def add_id(number: int, body: bytes, **more: object) -> RawBSONDocument:
    """A document of BSON with an ``_id`` (and ``more``) in front, as pymongo sends it without encoding it again."""
    bson = import_bson()
    head = bson.encode({"_id": bson.Int64(number), **more})
    whole = struct.pack("<i", len(head) + len(body) - 5) + head[4:-1] + body[4:]
    document: RawBSONDocument = require("bson.raw_bson", extra="mongo").RawBSONDocument(whole)
    return document


def to_document_value(name: str, field: Field, value: object) -> object:
    """The value of a field in a document. Numbers and texts are themselves, vectors are lists, JSON is a document.

    An array of several axes is ``{"shape": [...], "values": [...]}``, pixels are ``{"shape": [...], "pixels": bytes}``.

    ``value``: its value; None is stored as null. Raises PackError if the value is not of the kind of the field.
    """
    if value is None:
        return None
    if field.pixels is not None:
        pixels = check_pixels(name, field.pixels, value)
        return {SHAPE: list(pixels.shape), PIXELS: pixels.tobytes()}
    if field.is_blob:
        return bytes(cast("bytes", value))  # any buffer, or a TypeError
    small = check_small(name, field, value)
    if not isinstance(small, np.ndarray):
        return json.loads(str(small)) if field.kind == "json" else small
    return small.tolist() if small.ndim == 1 else {SHAPE: list(small.shape), VALUES: small.ravel().tolist()}


def _count_bytes(blob: object) -> int:
    return blob.nbytes if isinstance(blob, np.ndarray) else len(cast("bytes", blob))


def _name_values(schema: Schema) -> dict[str, str]:
    """Names of the values in a document: those of the fields, unless MongoDB or penstock reserves one."""
    names = {}
    for number, name in enumerate(schema.fields):
        is_free = name not in _RESERVED and "." not in name and not name.startswith("$") and "\0" not in name
        names[name] = name if is_free else f"field_{number}"
    if len(set(names.values())) < len(names):
        names = {name: f"field_{number}" for number, name in enumerate(schema.fields)}
    return names
