"""What penstock notes beside the documents that it writes: one document in the collection ``<collection>.penstock``.

::

    photos             {"_id": 0, "key": "cats/1.jpg", "image": Binary, "label": 0, "xxh3": [...]}, ...
    photos.penstock    {"_id": "store", "schema": ..., "paths": ..., "source": ..., "count": 2, "complete": true, ...}

Writers replace it with each commit; a store reads from it fields, classes and the number of documents.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import ArgumentError, IncompleteStoreError, StoreFormatError
from penstock.sample import Schema
from penstock.stores.writing import CommittedRecords, Skipped
from penstock.wording import counted

if TYPE_CHECKING:
    from penstock.stores.mongo.connection import Database

__all__ = ["Descriptor", "name_descriptors", "read_descriptor"]

_ID: Final = "store"
_VERSION: Final = 1
_MAX_LISTED: Final = 10_000
"""Most entries left out that are listed by name: a document has at most 16 MiB."""

_MAX_UNLISTED: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The description of a collection that penstock wrote."""

    schema: Schema  # fields of the records
    paths: Mapping[str, str]  # where each field is in a document
    source: str  # the origin of the records
    committed: CommittedRecords = field(default_factory=CommittedRecords)
    """What is on the server, and which entries of the source were left out."""
    content: str = ""  # a hash of all records, in order
    complete: bool = False  # whether the last record is written

    def refuse_incomplete(self, url: str) -> None:
        """Raise :class:`IncompleteStoreError` unless the last record is written."""
        if not self.complete:
            raise IncompleteStoreError(
                f"this collection is not finished: {counted(self.committed.records, 'record')} of it are written; pack "
                "again to resume it",
                store=url,
            )


def name_descriptors(collection: str) -> str:
    """The name of the collection that holds the description of another one."""
    return f"{collection}.penstock"


def read_descriptor(database: Database, collection: str, url: str) -> Descriptor | None:
    """The description of a collection; None if penstock did not write it.

    Raises StoreFormatError if the description is damaged, or of a later version.
    """
    document: Mapping[str, Any] | None = database[name_descriptors(collection)].find_one({"_id": _ID})
    if document is None:
        return None
    try:
        if document["version"] != _VERSION:
            raise StoreFormatError(  # noqa: TRY301  # one handler
                f"{name_descriptors(collection)} must be of version {_VERSION}, got {document['version']!r:.80}; "
                "another version of penstock wrote it",
                store=url,
            )
        paths = {str(name): str(path) for name, path in json.loads(document["paths"]).items()}
        schema = Schema.from_json(json.loads(document["schema"]))
        if paths.keys() != schema.fields.keys():
            raise ValueError("paths and fields differ")  # noqa: TRY301  # one handler
        held = CommittedRecords.from_json(
            {
                "records": document["count"],
                "nbytes": document["nbytes"],
                "skipped": json.loads(document["skipped"]),
            }
        )
        unlisted = int(document["skipped_count"]) - len(held.skipped)
        if not 0 <= unlisted <= _MAX_UNLISTED:
            raise ValueError(  # noqa: TRY301  # one handler
                f"skipped_count is {document['skipped_count']!r:.80}, and {len(held.skipped)} are listed"
            )
        return Descriptor(
            schema,
            paths,
            str(document["source"]),
            held + CommittedRecords(skipped=(Skipped("", "left out, not listed by name"),) * unlisted),
            str(document["content"]),
            bool(document["complete"]),
        )
    except StoreFormatError:
        raise
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError, ArgumentError) as error:
        raise StoreFormatError(f"{name_descriptors(collection)} is damaged: {error}", store=url) from error
