"""Makes records of documents, and compares them with what was known when the store was opened.

::

    document ──DocumentReader──> fields ──key and checksums──> Record     or an error that names store, key and index

Called by :class:`~penstock.stores.mongo.store.MongoStore` for each document that it read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.errors import CorruptRecordError, StoreError
from penstock.sample import Record
from penstock.stores.mongo.fields import Document, get_value
from penstock.stores.mongo.opening import CollectionContents
from penstock.stores.mongo.values import DocumentReader, hash_blob, to_text

__all__ = ["RecordMaker"]

_DAMAGE: Final = (ValueError, TypeError, OverflowError)
"""What is raised for values of another kind."""


class RecordMaker:
    """Makes the records of one store. It holds constants only.

    Parameters
    ----------
    contents : CollectionContents
        What was found when the store was opened.
    url : str
        The store, for errors.
    """

    def __init__(self, contents: CollectionContents, url: str) -> None:
        self._contents, self._url = contents, url
        self._keys = contents.listing.keys
        self._reader = DocumentReader(contents.layout)
        self._key_path = [] if contents.layout.key == "_id" else contents.layout.key.split(".")

    def make(self, number: int, document: Document) -> Record:
        """The record of a document; raises :class:`CorruptRecordError` if a value is not of the kind of its field."""
        try:
            fields = self._reader.read(document)
        except _DAMAGE as error:
            raise self._make_damage_error(number, str(error)) from error
        listing = self._contents.listing
        if listing.hashes is not None:
            for name in self._contents.blobs:
                self._check_hash(name, number, fields[name])
        if listing.columns:
            small = {name: column.get(number) for name, column in listing.columns.items()}
            fields = {name: small[name] if name in small else fields[name] for name in self._contents.schema.fields}
        return Record(number, self._keys[number], fields)

    def read_field(self, name: str, number: int, document: Document) -> Any:
        """One field of a record; raises as :meth:`make`."""
        try:
            value = self._reader.read_field(name, document)
        except _DAMAGE as error:
            raise self._make_damage_error(number, str(error)) from error
        if self._contents.listing.hashes is not None and name in self._contents.blobs:
            self._check_hash(name, number, value)
        return value

    def refuse_others(self, documents: Mapping[int, Document]) -> None:
        """Raise if a document has another key than when the store was opened."""
        if not self._key_path:
            return
        for number, document in documents.items():
            found = get_value(document, self._key_path)
            if found is not None and found != self._keys[number] and to_text(found) != self._keys[number]:
                raise self._make_damage_error(number, f"its {self._contents.layout.key} is now {to_text(found)!r:.200}")

    def make_absence_error(self, number: int) -> StoreError:
        """The error for a document that is not there any more."""
        return StoreError(
            f"the document with _id {self._contents.listing.ids[number]!r} is not there; it was deleted since this "
            "store was opened",
            store=self._url,
            key=self._keys[number],
            index=number,
        )

    def _check_hash(self, name: str, number: int, value: Any) -> None:
        hashes = self._contents.listing.hashes
        assert hashes is not None, "where penstock wrote the documents"
        if hash_blob(value) != hashes[number, self._contents.blobs[name]]:
            raise self._make_damage_error(number, f"the checksum of its field {name!r} does not match")

    def _make_damage_error(self, number: int, reason: str) -> CorruptRecordError:
        return CorruptRecordError(
            f"record {number} is damaged, or was changed: {reason}",
            store=self._url,
            key=self._keys[number],
            index=number,
        )
