"""Writes files to a GridFS bucket, one a record, as :mod:`.mongo.writer` writes documents.

::

    <bucket>.chunks    inserted first: a file's document shows that its content is there
    <bucket>.files     {"_id": number of the record, "filename": key, "length": ..., "metadata": its fields, ...}

Any library of GridFS reads the files.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from penstock.errors import ArgumentError, PackError
from penstock.sample import Schema
from penstock.stores.location import Location
from penstock.stores.mongo.connection import import_bson
from penstock.stores.mongo.fields import CONTENT
from penstock.stores.mongo.values import SHAPE, to_bytes
from penstock.stores.mongo.writer import PreparedDocument, ServerWriter, add_id

__all__ = ["FileContentWriter"]

_CHUNK_NBYTES: Final = 255 << 10  # what all libraries of GridFS take by default
_CALL_NBYTES: Final = 32 << 20  # of chunks that are sent by one call


class FileContentWriter(ServerWriter):
    """Writes one file a record: the image, or else the first encoded field. The other fields are its metadata.

    Raises
    ------
    ArgumentError
        If the records have no encoded field.
    """

    def __init__(self, location: Location, schema: Schema, source: str, *, overwrite: bool = False) -> None:
        if not schema.blobs:
            raise ArgumentError(
                f"a GridFS file must have content: an image or bytes, got the fields {', '.join(schema.fields)}; write "
                "to mongodb://host/database/collection"
            )
        self._content_field = "image" if "image" in schema.blobs else schema.blobs[0]
        self._begun = dt.datetime.now(dt.UTC)
        super().__init__(location, schema, source, overwrite=overwrite)

    @property
    def collections(self) -> Sequence[tuple[str, str]]:
        """The files, numbered by ``_id``, and their chunks."""
        return ((f"{self.bucket}.files", "_id"), (f"{self.bucket}.chunks", "files_id"))

    def make_paths(self, names: Mapping[str, str]) -> dict[str, str]:
        """One field is the content, the others are in ``metadata``."""
        return {
            name: CONTENT if name == self._content_field else f"metadata.{stored}" for name, stored in names.items()
        }

    def make_document(self, key: str, fields: Mapping[str, Any], hashes: Sequence[Any]) -> tuple[dict[str, Any], bytes]:
        """The document of a file, and its content."""
        value = fields[self._content_field]
        kind = self.schema[self._content_field].pixels
        if value is None or (kind is not None and not kind.allows(np.shape(value))):
            got = "none" if value is None else f"an array of shape {np.shape(value)}"
            raise PackError(f"field {self._content_field!r} is the content of a file, got {got}", key=key)
        content = bytes(value) if kind is None else to_bytes(np.asarray(value, kind.dtype))
        document = {
            "filename": key,
            "length": import_bson().Int64(len(content)),
            "chunkSize": _CHUNK_NBYTES,
            "xxh3": list(hashes),
            **({} if kind is None else {SHAPE: list(np.shape(value))}),
            "metadata": self.make_values(fields, without=self._content_field),
        }
        return document, content

    def insert(self, database: Any, first: int, records: Sequence[PreparedDocument]) -> None:
        """Send the chunks, then the documents of the files."""
        (files, _), (chunks, _) = self.collections
        pending: list[dict[str, Any]] = []
        nbytes = 0
        for number, record in enumerate(records, first):
            for chunk in _split_chunks(number, record.content):
                pending.append(chunk)
                nbytes += len(chunk["data"])
                if nbytes >= _CALL_NBYTES:
                    database[chunks].insert_many(pending, ordered=True)
                    pending, nbytes = [], 0
        if pending:
            database[chunks].insert_many(pending, ordered=True)
        documents = [
            add_id(first + number, record.body, uploadDate=self._begun) for number, record in enumerate(records)
        ]
        database[files].insert_many(documents, ordered=True)

    def create_indexes(self, database: Any) -> None:
        """Those that the specification of GridFS asks for."""
        (files, _), (chunks, _) = self.collections
        database[chunks].create_index([("files_id", 1), ("n", 1)], unique=True)
        database[files].create_index([("filename", 1), ("uploadDate", 1)])


def _split_chunks(number: int, content: bytes) -> Iterator[dict[str, Any]]:
    file = import_bson().Int64(number)
    for n, begin in enumerate(range(0, len(content), _CHUNK_NBYTES)):
        yield {"files_id": file, "n": n, "data": content[begin : begin + _CHUNK_NBYTES]}
