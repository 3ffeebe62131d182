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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import xxhash

from penstock.errors import CorruptRecordError, StoreError
from penstock.sample import Blob, Record
from penstock.stores.base import Indices, PathLike
from penstock.stores.common.read_ahead import ReadAhead
from penstock.stores.container import ForeignStore
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


class MongoStore(ForeignStore[MongoConnection]):
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
    image, label : str, optional
        The path of the image and of the label, where ``fields`` is not given; empty: there is none.
    boxes : {"xyxy", "yxyx", "xywh", "cxcywh"}, optional
        What the four numbers of a box are in ``boxes``, ``bbox``, ``bboxes`` or ``box``, in pixels. By default only
        ``boxes`` is read as boxes, if its numbers look like corners; others are arrays.
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
    damage: ClassVar[tuple[type[Exception], ...]] = (ValueError, TypeError, OverflowError)
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
        image: str | None = None,
        label: str | None = None,
        key: str | None = None,
        boxes: str | None = None,
        ids: Sequence[object] | None = None,
        query: Mapping[str, object] | None = None,
        sort: str | Sequence[tuple[str, int]] | None = None,
        manifest: str | os.PathLike[str] | None = None,
        join: str | Mapping[str, str] | None = None,
        classes: Sequence[str] | None = None,
        reconnect_timeout: float = RECONNECT_TIMEOUT_S,
    ) -> None:
        selection, options = make_selection(
            fields=fields, image=image, label=label, key=key, boxes=boxes, classes=classes,
            ids=ids, query=query, sort=sort, manifest=manifest, join=join,
        )  # fmt: skip
        if reconnect_timeout != RECONNECT_TIMEOUT_S:
            options["reconnect_timeout"] = reconnect_timeout
        super().__init__(path, **options)
        connection = MongoConnection(self.location, reconnect_timeout)
        try:
            self._begin_reading(connection, self.look(connection, selection))
        except BaseException:
            connection.close()
            raise

    @classmethod
    def look(cls, connection: MongoConnection, selection: Selection) -> CollectionContents:
        """Return what the records are: the documents' layout and ids."""
        return look_at_collection(connection, selection, connection.collection)

    @property
    def description(self) -> str:
        """How many documents there are, and which values are fields."""
        return f"{counted(len(self), self.noun)}: {self._contents.layout.describe()}"

    def __len__(self) -> int:
        return len(self._contents.listing.ids)

    def get_opened(self) -> MongoConnection:
        """See :meth:`ForeignStore.get_opened`."""
        self._refuse_closed()
        return self._connection

    def make_record_reader(self, opened: MongoConnection, indices: Sequence[int]) -> Callable[[int], Record]:
        """Send one query for all of them; see :meth:`ForeignStore.make_record_reader`."""
        del opened
        documents = self._get_documents(indices, None)
        return lambda number: self._make_record(number, documents[number])

    def make_blob_reader(self, opened: MongoConnection, field: str, indices: Sequence[int]) -> Callable[[int], Blob]:
        """Ask for this field only; see :meth:`ForeignStore.make_blob_reader`."""
        del opened
        documents = self._get_documents(indices, field)
        return lambda number: self._reader.read(documents[number], (field,))[field]

    def read_column(self, opened: MongoConnection, field: str) -> Iterator[object]:
        """Ask for this field only; see :meth:`ForeignStore.read_column`."""
        del opened
        column = self._contents.listing.columns.get(field)
        if column is not None:
            yield from map(column.get, range(len(self)))
            return

        def make_reader(_: MongoConnection, numbers: Sequence[int]) -> Callable[[int], object]:
            documents = self._load_all(numbers, field)
            return lambda number: self._reader.read(documents[number], (field,))[field]

        for begin in range(0, len(self), _COLUMN_BATCH):
            yield from self._read_numbers(range(begin, min(begin + _COLUMN_BATCH, len(self))), make_reader)

    def read_keys(self) -> Sequence[str]:
        """See :meth:`ForeignStore.read_keys`."""
        return self._contents.listing.keys

    def make_damage_error(self, index: int, error: Exception) -> CorruptRecordError:
        """A document is no snapshot: another program may have changed it."""
        key = self._contents.listing.keys[index]
        return CorruptRecordError(
            f"record {index} is damaged, or was changed: {error}", store=self.url, key=key, index=index
        )

    def prefetch(self, indices: Indices) -> None:
        """Begin to read records in a thread of this process; see :meth:`Store.prefetch`."""
        count = len(self)
        if not self._closed:
            self._ahead.submit([number for number in map(int, indices) if 0 <= number < count])

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
        """Return the documents of some ids, in any order, with the values of one field, or of all.

        Called again if the server did not answer.
        """
        collection = database[self._connection.collection]
        return collection.find({"_id": {"$in": ids}}, self.choose_projection(field), batch_size=len(ids) + 1)

    def choose_projection(self, field: str | None) -> dict[str, int] | None:
        """Return the values that are sent for one field, or for all; None: whole documents, to say what is no field."""
        return None if field is None and self._is_whole else self._projections[field]

    def _begin_reading(self, connection: MongoConnection, contents: CollectionContents) -> None:
        self._connection, self._contents = connection, contents
        self._schema = contents.schema
        self._problems = self._unreadable = contents.listing.problems  # each may have been a record
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
                    key=self._contents.listing.keys[number],
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
            error.locate(key=self._contents.listing.keys[numbers[0]], index=numbers[0])
            raise
        key = self._contents.layout.key
        if key != "_id":
            for number, document in documents.items():
                found = get_value(document, key.split("."))
                if found is not None and to_text(found) != self._contents.listing.keys[number]:
                    raise self.make_damage_error(number, ValueError(f"its {key} is now {to_text(found)!r:.200}"))
        return documents

    def _make_record(self, number: int, document: Document) -> Record:
        """The record of a document; CorruptRecordError if a value is not of the kind of its field."""
        contents = self._contents
        if self._is_whole and (unread := find_unread(document, contents.layout, self.not_fields)):
            self._is_whole = False  # said once
            warnings.warn(
                f"{self.noun} {self._contents.listing.keys[number]!r} of {self.url} has values that are not read: "
                f"{quote_names(unread)}; fields= names all that are read",
                stacklevel=8,
            )
        fields = self._reader.read(document, contents.layout.paths)
        if contents.listing.columns:
            fields |= {name: column.get(number) for name, column in contents.listing.columns.items()}
            fields = {name: fields[name] for name in contents.schema.fields}
        return Record(number, self._contents.listing.keys[number], fields)


def _measure(loaded: tuple[str | None, Document]) -> int:
    """Return the bytes of a document that was read ahead, about."""
    return 200 + count_bytes(loaded[1])


def _restore(
    cls: type[MongoStore], location: Location, options: Mapping[str, Any], contents: CollectionContents
) -> MongoStore:
    store = cls.__new__(cls)
    ForeignStore.__init__(store, location, **options)
    store._begin_reading(MongoConnection(location, options.get("reconnect_timeout", RECONNECT_TIMEOUT_S)), contents)  # noqa: SLF001  # a constructor of the class
    return store
