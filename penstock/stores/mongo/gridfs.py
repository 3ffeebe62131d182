"""Files in a GridFS bucket: a file is a record, its metadata are fields.

::

    <bucket>.files     {"_id": ..., "filename": "a.jpg", "length": 600000, "metadata": {"label": 3}, ...}
    <bucket>.chunks    {"files_id": ..., "n": 0, "data": 261120 bytes}, {..., "n": 1, ...}, {..., "n": 2, ...}

The chunks of all files of a batch are read by one query. Lengths and numbers of chunks are compared with what the file
says, and its MD5 where it has one. All else is as in :mod:`.mongo.store`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from penstock.errors import ArgumentError
from penstock.stores.mongo.connection import MongoConnection
from penstock.stores.mongo.fields import CONTENT, Document
from penstock.stores.mongo.listing import to_hashable
from penstock.stores.mongo.opening import CollectionContents, Selection, look_at_collection
from penstock.stores.mongo.store import MongoStore
from penstock.stores.mongo.values import PIXELS, SHAPE

if TYPE_CHECKING:
    from penstock.stores.mongo.connection import Collection, Database

__all__ = ["GridFsStore"]

_NOT_FIELDS: Final = ("length", "chunkSize", "uploadDate", "md5", "filename", "aliases", "contentType", SHAPE)
_OF_FILES: Final = {"length": 1, "chunkSize": 1, "md5": 1, SHAPE: 1}


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
    not_fields: ClassVar[tuple[str, ...]] = _NOT_FIELDS

    @classmethod
    def look(cls, connection: MongoConnection, selection: Selection) -> CollectionContents:
        """Return what the records are; the first chunk of the first files shows whether they are images."""

        def complete(database: Database, documents: list[Document]) -> None:
            chunks = database[f"{connection.collection}.chunks"]
            for document in documents:
                chunk = chunks.find_one({"files_id": document["_id"], "n": 0})
                data = None if chunk is None else chunk.get("data")
                document[CONTENT] = data if isinstance(data, bytes) else None
            if documents and all(document[CONTENT] is None for document in documents):
                documents[0][CONTENT] = b""

        fields = selection.stated.fields
        if isinstance(fields, Mapping):
            if "image" in fields:
                raise ArgumentError("fields must not name the image, which is the content of the file")
            stated = replace(selection.stated, fields={"image": CONTENT, **fields})
            selection = replace(selection, stated=stated)
        return look_at_collection(
            connection,
            selection,
            f"{connection.collection}.files",
            complete=complete,
            divided=("metadata",),
            ignored=_NOT_FIELDS,
        )

    def fetch(self, database: Database, ids: list[object], field: str | None) -> Iterable[Document]:
        """Return the documents of some files, with their content where it is asked for."""
        projection = self._projections[field]
        needs_content = CONTENT in projection
        asked = self.choose_projection(field)
        if asked is not None:
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


def _read_chunks(collection: Collection, ids: list[object]) -> dict[object, dict[object, object]]:
    """Return the chunks of some files: by file, and by number."""
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
