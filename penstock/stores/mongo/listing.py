"""Which documents are the records of a store, in which order: their ids and names, in little memory.

::

    query, sort  ─┐
    ids          ─┼──one projection of _id and key──> DocumentListing: ids (12 bytes an ObjectId), keys, what is missing
    manifest     ─┘

Made once, when a store is opened, and pickled with it: a document that is inserted later is not seen, and one that is
deleted is an error that names it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, overload

import numpy as np
import xxhash

from penstock.errors import ArgumentError, StoreFormatError
from penstock.sample import Array
from penstock.stores.common.keys import KeyList, LazyKeys
from penstock.stores.fields.record_names import quote_names
from penstock.stores.joined_manifest import ManifestColumn
from penstock.stores.mongo.connection import import_bson
from penstock.stores.mongo.fields import Document, get_value
from penstock.stores.mongo.values import make_projection, to_text
from penstock.stores.writing import Skipped
from penstock.wording import counted

__all__ = [
    "DocumentIds",
    "DocumentListing",
    "IdKeys",
    "expand_ids",
    "list_by_id",
    "list_by_name",
    "list_by_query",
    "to_hashable",
]

_BATCH: Final = 5000
_OBJECT_ID_NBYTES: Final = 12
_HASHES: Final = "xxh3"


class DocumentIds(Sequence[Any]):
    """Ids of documents: ObjectIds in 12 bytes each, integers in 8, texts in one block of memory, others as they are.

    Parameters
    ----------
    ids : iterable
        The ids, of any type that MongoDB allows.
    """

    def __init__(self, ids: Iterable[Any]) -> None:
        self._object_id = import_bson().ObjectId
        iterator = iter(ids)
        parts = []
        while chunk := list(itertools.islice(iterator, _BATCH)):
            kind = _find_id_kind(chunk, self._object_id)
            parts.append((kind, _pack_ids(chunk, kind)))
        kinds = {kind for kind, _ in parts}
        self._kind = kinds.pop() if len(kinds) == 1 else "other"
        self._values: Any
        if self._kind in {"object_id", "int"}:
            self._values = np.concatenate([packed for _, packed in parts])
        elif self._kind == "text":
            self._values = KeyList(b"".join(packed.joined for _, packed in parts))
        else:  # also ids of several types
            self._values = [self._unpack(kind, value) for kind, packed in parts for value in packed]

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return self._unpack(self._kind, self._values[index])

    def to_bytes(self) -> bytes:
        """All ids, for a digest."""
        if isinstance(self._values, np.ndarray):
            return self._values.tobytes()
        if isinstance(self._values, KeyList):
            return self._values.joined
        encode = import_bson().encode
        return b"".join(encode({"": each}) for each in self._values)

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'id')}>"

    def __getstate__(self) -> dict[str, Any]:
        return {"_kind": self._kind, "_values": self._values}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self._kind, self._values = state["_kind"], state["_values"]
        self._object_id = import_bson().ObjectId

    def _unpack(self, kind: str, value: Any) -> Any:
        if kind == "object_id":
            return self._object_id(value.tobytes())
        return int(value) if kind == "int" else value


def _find_id_kind(ids: Sequence[Any], object_id: type) -> str:
    if all(type(each) is object_id for each in ids):
        return "object_id"
    if all(isinstance(each, int) and not isinstance(each, bool) for each in ids):
        return "int"
    if all(type(each) is str and "\0" not in each for each in ids):
        return "text"
    return "other"


def _pack_ids(ids: Sequence[Any], kind: str) -> Any:
    if kind == "object_id":
        return np.frombuffer(b"".join(each.binary for each in ids), np.uint8).reshape(-1, _OBJECT_ID_NBYTES)
    if kind == "int":
        return np.array(ids, np.int64)
    return KeyList.from_names(ids) if kind == "text" else list(ids)


class IdKeys(LazyKeys):
    """The ids as texts: keys of documents without a name."""

    def __init__(self, ids: DocumentIds) -> None:
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    def get(self, number: int) -> str:
        """The text of an id."""
        return to_text(self._ids[number])


@dataclass(frozen=True, slots=True)
class DocumentListing:
    """The records of a store.

    Parameters
    ----------
    ids : DocumentIds
        Of the documents, in order.
    names : KeyList or None
        Keys of the records; None where the ids are the keys.
    hashes : array or None
        int64 (records, blobs): hashes of the encoded fields, where penstock wrote the documents.
    columns : mapping of str to ManifestColumn
        Fields that a manifest gives.
    problems : tuple of Skipped
        Names without a document, with the reason.
    """

    ids: DocumentIds
    names: KeyList | None
    hashes: Array | None = None
    columns: Mapping[str, ManifestColumn] = field(default_factory=dict)
    problems: tuple[Skipped, ...] = ()

    @property
    def keys(self) -> Sequence[str]:
        """The keys of the records."""
        return IdKeys(self.ids) if self.names is None else self.names

    def digest(self) -> str:
        """Of ids, keys, hashes and columns."""
        state = xxhash.xxh3_128(self.ids.to_bytes())
        state.update(b"\0" if self.names is None else self.names.joined)
        state.update(b"\0" if self.hashes is None else self.hashes.tobytes())
        for name, column in self.columns.items():
            state.update(name.encode() + b"\0" + column.to_bytes())
        return state.hexdigest()


def list_by_query(
    collection: Any, query: Document, sort: Sequence[tuple[str, int]], key: str, blobs: int | None
) -> DocumentListing:
    """The documents that a query finds, in the order of ``sort`` and then of their ids.

    Parameters
    ----------
    collection : pymongo's Collection
        The documents.
    query : mapping
        MongoDB's filter.
    sort : sequence of (str, int)
        Paths and directions.
    key : str
        The path of the keys.
    blobs : int, optional
        Number of hashes that each document has; None: none.
    """
    order = [*sort] if any(path == "_id" for path, _ in sort) else [*sort, ("_id", 1)]
    paths = [path for path in (key, _HASHES if blobs is not None else "_id") if path != "_id"]
    cursor = collection.find(dict(query), make_projection(paths), batch_size=_BATCH).sort(order)
    names, hashes = list[KeyList](), list[Array]()
    parts = key.split(".")

    def collect() -> Iterator[Any]:
        while chunk := list(itertools.islice(cursor, _BATCH)):
            if key != "_id":
                names.append(_join_names(chunk, parts))
            if blobs is not None:
                hashes.append(_join_hashes(chunk, blobs))
            yield from (each["_id"] for each in chunk)

    ids = DocumentIds(collect())
    return DocumentListing(
        ids,
        KeyList(b"".join(each.joined for each in names)) if key != "_id" else None,
        np.concatenate(hashes) if hashes else None,
    )


def list_by_id(collection: Any, ids: Sequence[Any], key: str) -> DocumentListing:
    """The documents of some ids, in their order. An ObjectId may be given as text.

    Raises
    ------
    ArgumentError
        If an id is given twice.
    """
    object_id = import_bson().ObjectId
    _refuse_repeated([to_text(each) for each in ids], "ids")
    found: dict[Any, Any] = {}
    parts = key.split(".")
    for chunk in _split(ids):
        asked = expand_ids(chunk)
        for document in collection.find({"_id": {"$in": asked}}, make_projection([key]), batch_size=len(asked)):
            found[to_hashable(document["_id"])] = (document["_id"], _to_name(get_value(document, parts), document))
    records, problems = [], []
    for each in ids:
        entry = found.get(to_hashable(each))
        if entry is None and type(each) is str and object_id.is_valid(each):
            entry = found.get(object_id(each))
        if entry is None:
            problems.append(Skipped(to_text(each), "there is no document with this _id"))
        else:
            records.append(entry)
    names = None if key == "_id" else KeyList.from_names(name for _, name in records)
    return DocumentListing(DocumentIds(each for each, _ in records), names, None, {}, tuple(problems))


def list_by_name(
    collection: Any, names: Sequence[str], path: str, *, has_index: bool
) -> tuple[DocumentListing, list[int]]:
    """The documents whose value at ``path`` is one of some names, in the order of the names.

    Returns
    -------
    tuple of DocumentListing and list of int
        The records, and their positions in ``names``. A name without a document, or of several, is a problem.

    Raises
    ------
    ArgumentError
        If a name is given twice.
    """
    _refuse_repeated(names, "the manifest")
    found: dict[str, list[Any]] = {}
    wanted = set(names)
    parts = path.split(".")
    for chunk in _split(names) if has_index else [None]:  # without an index, each query would read the whole collection
        query = {} if chunk is None else {path: {"$in": [*chunk, *_find_numbers(chunk)]}}
        for document in collection.find(query, make_projection([path]), batch_size=_BATCH):
            name = to_text(get_value(document, parts))
            if name in wanted:
                found.setdefault(name, []).append(document["_id"])
    rows, problems = [], []
    for row, name in enumerate(names):
        ids = found.get(name, ())
        if len(ids) == 1:
            rows.append(row)
        else:
            reason = f"{len(ids)} documents have this {path}" if ids else f"no document has this {path}"
            problems.append(Skipped(name, reason))
    listing = DocumentListing(
        DocumentIds(found[names[row]][0] for row in rows),
        KeyList.from_names(names[row] for row in rows),
        problems=tuple(problems),
    )
    return listing, rows


def expand_ids(ids: Sequence[Any]) -> list[Any]:
    """Some ids, and those that are the text of an ObjectId also as one."""
    object_id = import_bson().ObjectId
    return [*ids, *(object_id(each) for each in ids if type(each) is str and object_id.is_valid(each))]


def to_hashable(value: Any) -> Any:
    """An id as a key of a dictionary: a document as its bytes."""
    return import_bson().encode({"": value}) if isinstance(value, dict) else value


def _split(values: Sequence[Any]) -> Iterator[list[Any]]:
    for begin in range(0, len(values), _BATCH):
        yield list(values[begin : begin + _BATCH])


def _find_numbers(names: Sequence[str]) -> list[int]:
    """The integers that some names are the texts of: a column of numbers is joined with numbers."""
    return [
        int(each)
        for each in names
        if len(each) < 19 and each.isascii() and str(each).isdecimal() and str(int(each)) == each
    ]


def _refuse_repeated(names: Sequence[str], what: str) -> None:
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise ArgumentError(
            f"{what} must name each document once, got {len(repeated)} twice or more: {quote_names(repeated)}"
        )


def _to_name(value: object, document: Document) -> str:
    name = to_text(document["_id"] if value is None else value)
    if "\0" in name:
        raise StoreFormatError(f"a key must not contain a zero character, got {name!r:.200}")
    return name


def _join_names(documents: Sequence[Document], path: Sequence[str]) -> KeyList:
    return KeyList.from_names(_to_name(get_value(each, path), each) for each in documents)


def _join_hashes(documents: Sequence[Document], blobs: int) -> Array:
    try:
        return np.array([each[_HASHES] for each in documents], np.int64).reshape(len(documents), blobs)
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise StoreFormatError(
            f"the documents must have {blobs} hashes each in {_HASHES!r}, as penstock writes them; the collection was "
            "changed by another program"
        ) from error
