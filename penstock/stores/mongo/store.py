"""The store of documents in a MongoDB collection: read in batches by id.

::

    opening       ids and keys of the documents, once ──> DocumentListing    fields: given, or from the first documents
    read([7, 3])  find({_id: {$in: [id 7, id 3]}}, only the needed fields) ──> records in the asked order
    prefetch      the same, ahead, in one thread a process

:mod:`.mongo.gridfs` reads files in the same way; :mod:`.mongo.opening` looks at a collection. A collection is no
snapshot: documents that are inserted later are not seen, deleted ones are errors, and what is changed in a document is
read as it is then.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from penstock.errors import CorruptRecordError, StoreError
from penstock.sample import Array, Record, Schema
from penstock.stores.base import Indices, PathLike, Store
from penstock.stores.common.read_ahead import ReadAhead
from penstock.stores.container import load_column
from penstock.stores.fields.record_names import quote_names
from penstock.stores.location import Location
from penstock.stores.mongo.connection import RECONNECT_TIMEOUT_S, MongoConnection
from penstock.stores.mongo.fields import Document, find_unread, get_value
from penstock.stores.mongo.listing import to_hashable
from penstock.stores.mongo.opening import CollectionContents, Selection, look_at_collection, make_selection
from penstock.stores.mongo.values import DocumentReader, count_bytes, make_projection, to_text
from penstock.wording import counted

if TYPE_CHECKING:
    from penstock.stores.mongo.connection import Database

__all__ = ["MongoStore"]

T = TypeVar("T")
_READ_AHEAD_NBYTES: Final = 256 << 20
_COLUMN_BATCH: Final = 5000


class MongoStore(Store):
    """The documents of a collection.

    Parameters
    ----------
    path : str or Location
        ``mongodb://user:password@host:27017/database/collection?options``, or ``mongodb+srv://``. The options are those
        of MongoDB's connection strings. As there, the user is one of ``database``, unless ``authSource`` says another.
    fields : mapping of str to str, optional
        The fields of a record, and the dotted path of each in a document: ``{"image": "img.data", "label": "cls"}``. By
        default all values of the first documents: bytes that begin as an image file are the ``image``, and ``label``,
        ``cls``, ``class``, ``category`` ... is the ``label``.
    key : str, optional
        The path of the key. By default ``img_name``, ``filename``, ``name`` ... where each document has one, else
        ``_id``.
    ids : sequence, optional
        The ``_id`` of each record, in order; those without a document are in :attr:`problems`.
    query : mapping, optional
        MongoDB's filter: ``{"split": "train"}``. By default all documents.
    sort : str or sequence of (str, int), optional
        Paths by which the documents are ordered, with 1 or -1; by default, and among equal ones, by ``_id``.
    manifest : str or path, optional
        A table, CSV, TSV, JSON or JSONL: its rows are the records, in order; its columns are fields, in place of those
        of the same name in the documents. Rows without a document, or with several, are in :attr:`problems`.
    join : str or mapping of str to str
        The column of the manifest that names the documents, and the path where the documents have that name:
        ``{"file": "img_name"}``; a text is both.
    classes : sequence of str, optional
        Names of the classes in the order of their numbers. Labels that are texts are numbered so, by default in
        alphabetical order.
    reconnect_timeout : float
        Seconds for which a read is repeated while the server does not answer.

    Raises
    ------
    StoreNotFoundError
        If there is no such collection.
    StoreError
        If the server does not answer, or refuses.
    ArgumentError
        If an argument is invalid, or cannot be known: which of several values is the image.
    OptionalPackageError
        If pymongo is not installed.

    Notes
    -----
    Each process has one client, made at its first use, which its threads share. The digest is that of ids, keys and
    fields: an image that another program replaces in its document leaves it unchanged.
    """

    kind: ClassVar[str] = "mongodb"
    is_remote: ClassVar[bool] = True
    noun: ClassVar[str] = "document"
    """What a record is on the server."""
    not_fields: ClassVar[tuple[str, ...]] = ()
    """Paths of documents that are never fields."""
    _connection: MongoConnection
    _contents: CollectionContents

    def __init__(
        self,
        path: PathLike,
        *,
        fields: Mapping[str, str] | None = None,
        key: str | None = None,
        ids: Sequence[object] | None = None,
        query: Mapping[str, object] | None = None,
        sort: str | Sequence[tuple[str, int]] | None = None,
        manifest: str | os.PathLike[str] | None = None,
        join: str | Mapping[str, str] | None = None,
        classes: Sequence[str] | None = None,
        reconnect_timeout: float = RECONNECT_TIMEOUT_S,
    ) -> None:
        selection, options = make_selection(
            fields=fields, key=key, ids=ids, query=query, sort=sort, manifest=manifest, join=join, classes=classes
        )
        if reconnect_timeout != RECONNECT_TIMEOUT_S:
            options["reconnect_timeout"] = reconnect_timeout
        super().__init__(path, **options)
        connection = MongoConnection(self.location, reconnect_timeout)
        try:
            self._begin(connection, self.look(connection, selection))
        except BaseException:
            connection.close()
            raise

    @classmethod
    def look(cls, connection: MongoConnection, selection: Selection) -> CollectionContents:
        """What the records are: the documents' layout and ids."""
        return look_at_collection(connection, selection, connection.collection)

    @property
    def description(self) -> str:
        """How many documents there are, and which values are fields."""
        return f"{counted(len(self), self.noun)}: {self._contents.layout.describe()}"

    @property
    def schema(self) -> Schema:
        """Fields of the records."""
        return self._contents.schema

    def __len__(self) -> int:
        return len(self._contents.listing.ids)

    def read(self, indices: Indices) -> list[Record]:
        """The records at ``indices``, with one query; see :meth:`Store.read`."""
        numbers = self._check_indices(indices)
        documents = self._get_documents(numbers, None)
        made = {number: self._make_record(number, document) for number, document in documents.items()}
        return [made[number] for number in numbers]

    def blobs(self, field: str, indices: Indices) -> list[object]:
        """One encoded field of the records at ``indices``; only that one is sent. See :meth:`Store.blobs`."""
        self.schema.refuse_small(field)
        numbers = self._check_indices(indices)
        documents = self._get_documents(numbers, field)
        return [self._read_field(field, number, documents[number]) for number in numbers]

    def prefetch(self, indices: Indices) -> None:
        """Begin to read records in a thread of this process; see :meth:`Store.prefetch`."""
        count = len(self)
        if not self._closed:
            self._ahead.submit([number for number in map(int, indices) if 0 <= number < count])

    def column(self, field: str) -> Array:
        """A small field of all records, read at the first call; see :meth:`Store.column`."""
        self._refuse_closed()
        if field not in self._columns:
            self._columns[field] = load_column(field, self.schema[field], lambda: self._read_column(field), self.url)
        return self._columns[field]

    def lacks_value(self, field: str, indices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Only this field is sent; see :meth:`Store.lacks_value`."""
        return np.array([value is None for value in self._read_column(field)], np.bool_)[indices]

    def _iter_values(self, field: str) -> Iterator[object]:
        """Only this field is sent."""
        return iter(self._read_column(field))

    def keys(self) -> Sequence[str]:
        """The names of the records, in order of index."""
        self._refuse_closed()
        return self._keys

    def digest(self) -> str:
        """The hash of ids, keys, fields and columns; see the class."""
        return self._digest

    def close(self) -> None:
        """Close the client of this process."""
        super().close()
        self._ahead.close()
        self._connection.close()

    def __reduce__(self) -> tuple[object, ...]:
        self._refuse_closed()
        return _restore, (type(self), self.location, self._options, self._contents)

    def fetch(self, database: Database, ids: list[object], field: str | None) -> Iterable[Document]:
        """The documents of some ids, in any order, with the values of one field, or of all.

        Called again if the server did not answer.
        """
        collection = database[self._connection.collection]
        return collection.find({"_id": {"$in": ids}}, self.choose_projection(field), batch_size=len(ids) + 1)

    def choose_projection(self, field: str | None) -> dict[str, int] | None:
        """The values that are sent for one field, or for all; None: whole documents, to say what is no field."""
        return None if field is None and self._is_whole else self._projections[field]

    def _begin(self, connection: MongoConnection, contents: CollectionContents) -> None:
        self._connection, self._contents = connection, contents
        self._keys = contents.listing.keys
        self._problems = self._unreadable = contents.listing.problems  # each may have been a record
        self._columns: dict[str, Array] = {}
        self._reader = DocumentReader(contents.layout)
        paths = contents.layout.paths
        self._projections = {
            name: make_projection([contents.layout.key, *((paths[name],) if name is not None else paths.values())])
            for name in (None, *paths)
        }
        chosen = self._options.get("fields") or self._options.get("manifest")
        self._is_whole = not chosen  # all values are fields
        self._wanted: str | None = None  # the field that was asked for last: what is read ahead
        self._ahead = ReadAhead(self._load_ahead, _measure, _READ_AHEAD_NBYTES)
        state = xxhash.xxh3_128(contents.listing.digest().encode())
        state.update(repr((self.schema.to_json(), sorted(paths.items()))).encode())
        self._digest = state.hexdigest()

    def _check_indices(self, indices: Indices) -> list[int]:
        self._refuse_closed()
        return super()._check_indices(indices)

    def _get_documents(self, numbers: Sequence[int], field: str | None) -> dict[int, Document]:
        """The documents of some records, those that were read ahead included."""
        self._wanted = field
        taken = self._ahead.take(numbers)
        documents = {number: document for number, (wanted, document) in taken.items() if wanted in {field, None}}
        missing = [number for number in dict.fromkeys(numbers) if number not in documents]
        if missing:
            documents.update(self._load_all(missing, field))
        return documents

    def _load_all(self, numbers: Sequence[int], field: str | None) -> dict[int, Document]:
        documents = self._load(numbers, field)
        for number in numbers:
            if number not in documents:
                raise StoreError(
                    f"the document with _id {self._contents.listing.ids[number]!r} is not there; it was deleted since "
                    "this store was opened",
                    store=self.url,
                    key=self._keys[number],
                    index=number,
                )
        return documents

    def _load_ahead(self, numbers: Sequence[int]) -> dict[int, tuple[str | None, Document]]:
        wanted = self._wanted
        return {number: (wanted, document) for number, document in self._load(numbers, wanted).items()}

    def _load(self, numbers: Sequence[int], field: str | None) -> dict[int, Document]:
        ids = self._contents.listing.ids
        asked = {to_hashable(ids[number]): number for number in numbers}
        values = [ids[number] for number in numbers]

        def load(database: Database) -> dict[int, Document]:
            found = self.fetch(database, values, field)
            return {asked[to_hashable(document["_id"])]: document for document in found}

        try:
            documents = self._connection.run(load)
        except StoreError as error:
            error.locate(key=self._keys[numbers[0]], index=numbers[0])
            raise
        key = self._contents.layout.key
        if key != "_id":
            for number, document in documents.items():
                found = get_value(document, key.split("."))
                if found is not None and to_text(found) != self._keys[number]:
                    raise self._make_damage_error(number, f"its {key} is now {to_text(found)!r:.200}")
        return documents

    def _make_record(self, number: int, document: Document) -> Record:
        """The record of a document; CorruptRecordError if a value is not of the kind of its field."""
        contents = self._contents
        if self._is_whole and (unread := find_unread(document, contents.layout, self.not_fields)):
            self._is_whole = False  # said once
            warnings.warn(
                f"{self.noun} {self._keys[number]!r} of {self.url} has values that are not read: "
                f"{quote_names(unread)}; fields= names all that are read",
                stacklevel=4,
            )
        fields = self._read_fields(number, document, contents.layout.paths)
        if contents.listing.columns:
            fields |= {name: column.get(number) for name, column in contents.listing.columns.items()}
            fields = {name: fields[name] for name in contents.schema.fields}
        return Record(number, self._keys[number], fields)

    def _read_field(self, name: str, number: int, document: Document) -> object:
        """One field of a record; raises as :meth:`_make_record`."""
        return self._read_fields(number, document, (name,))[name]

    def _read_fields(self, number: int, document: Document, names: Collection[str]) -> dict[str, Any]:
        try:
            return self._reader.read(document, names)
        except (ValueError, TypeError, OverflowError) as error:
            raise self._make_damage_error(number, str(error)) from error

    def _make_damage_error(self, number: int, reason: str) -> CorruptRecordError:
        return CorruptRecordError(
            f"record {number} is damaged, or was changed: {reason}",
            store=self.url,
            key=self._keys[number],
            index=number,
        )

    def _read_column(self, field: str) -> Iterable[object]:
        column = self._contents.listing.columns.get(field)
        if column is not None:
            yield from map(column.get, range(len(self)))
            return
        for begin in range(0, len(self), _COLUMN_BATCH):
            numbers = range(begin, min(begin + _COLUMN_BATCH, len(self)))
            documents = self._load_all(numbers, field)
            yield from (self._read_field(field, number, documents[number]) for number in numbers)


def _measure(loaded: tuple[str | None, Document]) -> int:
    """The bytes of a document that was read ahead, about."""
    return 200 + count_bytes(loaded[1])


def _restore(
    cls: type[MongoStore], location: Location, options: Mapping[str, Any], contents: CollectionContents
) -> MongoStore:
    store = cls.__new__(cls)
    Store.__init__(store, location, **options)
    store._begin(MongoConnection(location, options.get("reconnect_timeout", RECONNECT_TIMEOUT_S)), contents)  # noqa: SLF001  # a constructor of the class
    return store
