"""Files in a GridFS bucket, read and written: a file is a record, its metadata are fields.

::

    <bucket>.files     {"_id": ..., "filename": "a.jpg", "length": 600000, "metadata": {"label": 3}, ...}
    <bucket>.chunks    {"files_id": ..., "n": 0, "data": 261120 bytes}, {..., "n": 1, ...}, {..., "n": 2, ...}

The chunks of all files of a batch are read by one query. Lengths and numbers of chunks are compared with what the file
says, and its MD5 where it has one. A writer inserts the chunks first: a file's document shows that its content is
there. Every library of GridFS reads the files. All else is as in :mod:`.mongo.store` and
:mod:`.mongo.writer`.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final, cast

from penstock.errors import ArgumentError, PackError
from penstock.sample import Schema
from penstock.stores.fields.small_fields import check_pixels
from penstock.stores.location import Location
from penstock.stores.mongo.connection import MongoConnection, import_bson
from penstock.stores.mongo.fields import CONTENT, Document
from penstock.stores.mongo.listing import to_hashable
from penstock.stores.mongo.opening import CollectionContents, Selection, look_at_collection
from penstock.stores.mongo.store import MongoStore
from penstock.stores.mongo.values import PIXELS, SHAPE
from penstock.stores.mongo.writer import DocumentWriter, PreparedDocument, add_id

if TYPE_CHECKING:
    from penstock.stores.mongo.connection import Collection, Database

__all__ = ["FileContentWriter", "GridFsStore"]

_NOT_FIELDS: Final = ("length", "chunkSize", "uploadDate", "md5", "filename", "aliases", "contentType", "xxh3", SHAPE)
_OF_FILES: Final = {"length": 1, "chunkSize": 1, "md5": 1, SHAPE: 1}
_CHUNK_NBYTES: Final = 255 << 10  # what all libraries of GridFS take by default


class GridFsStore(MongoStore):
    """The files of a GridFS bucket.

    Parameters
    ----------
    path : str or Location
        ``gridfs://user:password@host:27017/database/bucket?options``, or ``gridfs+srv://``; a bucket is called ``fs``
        unless somebody gave it another name.
    fields : mapping of str to str, optional
        Fields and their paths in a file's document: ``{"label": "metadata.cls"}``. The ``image`` is the content of the
        file. By default all values of ``metadata`` are fields.
    **options
        As for :class:`~penstock.stores.mongo.store.MongoStore`; the key is ``filename`` by default.

    Notes
    -----
    Of several files with one name, each is a record.
    """

    kind: ClassVar[str] = "gridfs"
    noun: ClassVar[str] = "file"

    @classmethod
    def look(cls, connection: MongoConnection, selection: Selection) -> CollectionContents:
        """What the records are; the first chunk of the first files shows whether they are images."""

        def complete(database: Database, documents: list[Document]) -> None:
            chunks = database[f"{connection.collection}.chunks"]
            for document in documents:
                chunk = chunks.find_one({"files_id": document["_id"], "n": 0})
                data = None if chunk is None else chunk.get("data")
                document[CONTENT] = data if isinstance(data, bytes) else None
            if documents and all(document[CONTENT] is None for document in documents):
                documents[0][CONTENT] = b""

        if selection.fields is not None:
            if "image" in selection.fields:
                raise ArgumentError("fields must not name the image, which is the content of the file")
            selection = replace(selection, fields={"image": CONTENT, **selection.fields})
        return look_at_collection(
            connection,
            selection,
            f"{connection.collection}.files",
            complete=complete,
            divided=("metadata",),
            ignored=_NOT_FIELDS,
        )

    @classmethod
    def writer(
        cls, location: Location, schema: Schema, source: str, *, overwrite: bool = False, **options: object
    ) -> FileContentWriter:
        """Begin or resume a bucket; see :class:`FileContentWriter`."""
        assert not options, "there are none"
        return FileContentWriter(location, schema, source, overwrite=overwrite)

    def fetch(self, database: Database, ids: list[object], field: str | None) -> Iterable[Document]:
        """The documents of some files, with their content where it is asked for."""
        projection = self._projections[field]
        needs_content = CONTENT in projection
        asked = {name: 1 for name in projection if name != CONTENT} | _OF_FILES
        files = database[f"{self._connection.collection}.files"]
        documents = list(files.find({"_id": {"$in": ids}}, asked, batch_size=len(ids) + 1))
        if needs_content:
            chunks = _read_chunks(database[f"{self._connection.collection}.chunks"], ids)
            for document in documents:
                content = _join_chunks(document, chunks.get(to_hashable(document["_id"]), {}))
                is_pixels = SHAPE in document and isinstance(content, bytes)
                document[CONTENT] = {SHAPE: document[SHAPE], PIXELS: content} if is_pixels else content
        return documents


class FileContentWriter(DocumentWriter):
    """Writes one file a record: the image, or else the first encoded field. The other fields are its metadata.

    Raises ArgumentError if the records have no encoded field.
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

    def make_document(self, key: str, fields: Mapping[str, object], hashes: Sequence[object]) -> tuple[Document, bytes]:
        """The document of a file, and its content."""
        value = fields[self._content_field]
        kind = self.schema[self._content_field].pixels
        if value is None:
            raise PackError(f"field {self._content_field!r} is the content of a file, got none", key=key)
        pixels = None if kind is None else check_pixels(self._content_field, kind, value)
        content = bytes(cast("bytes", value)) if pixels is None else pixels.tobytes()
        document = {
            "filename": key,
            "length": import_bson().Int64(len(content)),
            "chunkSize": _CHUNK_NBYTES,
            "xxh3": list(hashes),
            **({} if pixels is None else {SHAPE: list(pixels.shape)}),
            "metadata": self.make_values(fields, without=self._content_field),
        }
        return document, content

    def insert(self, database: Database, first: int, records: Sequence[PreparedDocument]) -> None:
        """Send the chunks, then the documents of the files."""
        (files, _), (chunks, _) = self.collections
        content = [
            chunk for number, record in enumerate(records, first) for chunk in _split_chunks(number, record.content)
        ]
        if content:
            database[chunks].insert_many(content, ordered=True)  # pymongo divides it into messages
        documents = [
            add_id(first + number, record.body, uploadDate=self._begun) for number, record in enumerate(records)
        ]
        database[files].insert_many(documents, ordered=True)

    def create_indexes(self, database: Database) -> None:
        """Those that the specification of GridFS asks for."""
        (files, _), (chunks, _) = self.collections
        database[chunks].create_index([("files_id", 1), ("n", 1)], unique=True)
        database[files].create_index([("filename", 1), ("uploadDate", 1)])


def _read_chunks(collection: Collection, ids: list[object]) -> dict[object, dict[object, object]]:
    """The chunks of some files: by file, and by number."""
    chunks: dict[object, dict[object, object]] = {}
    for chunk in collection.find({"files_id": {"$in": ids}}, {"files_id": 1, "n": 1, "data": 1, "_id": 0}):
        chunks.setdefault(to_hashable(chunk["files_id"]), {})[chunk.get("n")] = chunk.get("data")
    return chunks


def _join_chunks(file: Document, chunks: Mapping[object, object]) -> bytes | ValueError:
    """The content of a file; a :class:`ValueError`, to be raised where the record is made, if it is not complete."""
    length = file.get("length")
    pieces = []
    for number in range(len(chunks)):
        piece = chunks.get(number)
        if not isinstance(piece, bytes):
            return ValueError(f"chunk {number} of the file is missing")
        pieces.append(piece)
    content = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    if len(content) != length:
        size = file.get("chunkSize")
        where = f"; chunk {len(content) // size} is missing or short" if isinstance(size, int) and size > 0 else ""
        return ValueError(
            f"the file must have {length!r:.80} bytes, and its {len(chunks)} chunks have {len(content)}{where}"
        )
    digest = file.get("md5")
    if isinstance(digest, str) and hashlib.md5(content, usedforsecurity=False).hexdigest() != digest:
        return ValueError("the MD5 of the file does not match")
    return content


def _split_chunks(number: int, content: bytes) -> Iterator[Document]:
    file = import_bson().Int64(number)
    for n, begin in enumerate(range(0, len(content), _CHUNK_NBYTES)):
        yield {"files_id": file, "n": n, "data": content[begin : begin + _CHUNK_NBYTES]}
