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
from typing import TYPE_CHECKING, Final, cast, overload

import numpy as np
import xxhash

from penstock.errors import ArgumentError, StoreFormatError
from penstock.sample import Array
from penstock.stores.common.keys import KeyList, LazyKeys
from penstock.stores.fields.record_names import quote_names
from penstock.stores.mongo.connection import import_bson
from penstock.stores.mongo.fields import Document, get_value
from penstock.stores.mongo.joined_manifest import ManifestColumn
from penstock.stores.mongo.values import make_projection, to_text
from penstock.stores.writing import Skipped
from penstock.wording import counted

if TYPE_CHECKING:
    from bson import ObjectId

    from penstock.stores.mongo.connection import Collection

__all__ = [
    "DocumentIds",
    "DocumentListing",
    "IdKeys",
    "expand_ids",
    "list_by_query",
    "list_selected",
    "to_hashable",
]

_BATCH: Final = 5000
_OBJECT_ID: Final = "V12"


class DocumentIds(Sequence[object]):
    """Ids of documents: ObjectIds in 12 bytes each, integers in 8, texts in one block of memory, others as they are.

    ``ids``: the ids, of any type that MongoDB allows.
    """

    def __init__(self, ids: Iterable[object]) -> None:
        iterator = iter(ids)
        parts = []
        while chunk := list(itertools.islice(iterator, _BATCH)):
            parts.append(_pack_ids(chunk))
        arrays = [each for each in parts if isinstance(each, np.ndarray)]
        texts = [each for each in parts if isinstance(each, KeyList)]
        self._values: Array | KeyList | list[object]
        if parts and len(arrays) == len(parts) and len({each.dtype for each in arrays}) == 1:
            self._values = np.concatenate(arrays)
        elif parts and len(texts) == len(parts):
            self._values = KeyList(b"".join(each.joined for each in texts))
        else:  # also ids of several types
            self._values = [_unpack_id(value) for packed in parts for value in packed]

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, index: int) -> object: ...
    @overload
    def __getitem__(self, index: slice) -> list[object]: ...
    def __getitem__(self, index: int | slice) -> object:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return _unpack_id(self._values[index])

    def to_bytes(self) -> bytes:
        """Return all ids, for a digest."""
        if isinstance(self._values, np.ndarray):
            return self._values.tobytes()
        if isinstance(self._values, KeyList):
            return self._values.joined
        return b"".join(map(_encode_id, self._values))

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'id')}>"


def _pack_ids(ids: list[object]) -> Array | KeyList | list[object]:
    if {*map(type, ids)} == {import_bson().ObjectId}:
        return np.frombuffer(b"".join(each.binary for each in cast("list[ObjectId]", ids)), _OBJECT_ID)
    if all(isinstance(each, int) and not isinstance(each, bool) for each in ids):
        return np.array(ids, np.int64)
    names = [each for each in ids if type(each) is str and "\0" not in each]
    return KeyList.from_names(names) if len(names) == len(ids) else ids


def _unpack_id(value: object) -> object:
    if isinstance(value, np.void):
        return import_bson().ObjectId(value.tobytes())
    return int(value) if isinstance(value, np.integer) else value


class IdKeys(LazyKeys):
    """The ids as texts: keys of documents without a name."""

    def __init__(self, ids: DocumentIds) -> None:
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    def get(self, number: int) -> str:
        """Return the text of an id."""
        return to_text(self._ids[number])


@dataclass(frozen=True, slots=True)
class DocumentListing:
    """The records of a store."""

    ids: DocumentIds  # of the documents, in order
    names: KeyList | None  # keys of the records; None where the ids are the keys
    columns: Mapping[str, ManifestColumn] = field(default_factory=dict)  # fields that a manifest gives
    problems: tuple[Skipped, ...] = ()  # names without a document, with the reason

    @property
    def keys(self) -> Sequence[str]:
        """The keys of the records."""
        return IdKeys(self.ids) if self.names is None else self.names

    def digest(self) -> str:
        """Hash ids, keys and columns."""
        state = xxhash.xxh3_128(self.ids.to_bytes())
        state.update(b"\0" if self.names is None else self.names.joined)
        for name, column in self.columns.items():
            state.update(name.encode() + b"\0" + column.to_bytes())
        return state.hexdigest()


def list_by_query(
    collection: Collection, query: Mapping[str, object], sort: Sequence[tuple[str, int]], key: str
) -> DocumentListing:
    """Return the documents that a query finds, in the order of ``sort`` and then of their ids.

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
    """
    order = [*sort] if any(path == "_id" for path, _ in sort) else [*sort, ("_id", 1)]
    paths = [] if key == "_id" else [key]
    cursor = collection.find(dict(query), make_projection(paths), batch_size=_BATCH).sort(order)
    names, parts = bytearray(), key.split(".")

    def collect() -> Iterator[object]:
        for document in cursor:
            if key != "_id":
                names.extend(_to_name(get_value(document, parts), document).encode() + b"\0")
            yield document["_id"]

    ids = DocumentIds(collect())
    return DocumentListing(ids, KeyList(bytes(names)) if key != "_id" else None)


def list_selected(
    collection: Collection, wanted: Sequence[object], path: str, key: str, *, is_text: bool, has_index: bool
) -> tuple[DocumentListing, list[int]]:
    """Return the documents whose value at ``path`` is one of some values, in the order of these.

    Parameters
    ----------
    collection : pymongo's Collection
        The documents.
    wanted : sequence
        The ids, or the names in a manifest.
    path, key : str
        The path of these values, and that of the keys.
    is_text : bool
        Whether values are compared as texts, as names are; else an ObjectId may be given as text.
    has_index : bool
        False: the whole collection is read, once.

    Returns
    -------
    tuple of DocumentListing and list of int
        The records, and their positions in ``wanted``. A value without a document, or of several, is a problem.

    Raises
    ------
    ArgumentError
        If a value is given twice.
    """
    names = [to_text(each) for each in wanted]
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise ArgumentError(
            f"{'the manifest' if is_text else 'ids'} must name each document once, got {len(repeated)} twice or more: "
            f"{quote_names(repeated)}"
        )
    expand, identify = (_expand_names, to_text) if is_text else (expand_ids, to_hashable)
    allowed = {identify(each) for each in expand(wanted)}
    found: dict[object, list[tuple[object, str]]] = {}
    value_path, key_path = path.split("."), key.split(".")
    for begin in range(0, len(wanted) if has_index else 1, _BATCH):
        query = {path: {"$in": expand(wanted[begin : begin + _BATCH])}} if has_index else {}
        for document in collection.find(query, make_projection([path, key]), batch_size=_BATCH):
            value = identify(get_value(document, value_path))
            if value in allowed:
                found.setdefault(value, []).append((document["_id"], _to_name(get_value(document, key_path), document)))
    rows, records, problems = [], [], []
    for row, (each, name) in enumerate(zip(wanted, names, strict=True)):
        documents = next((found[value] for value in map(identify, expand([each])) if value in found), [])
        if len(documents) == 1:
            rows.append(row)
            records += documents
        else:
            reason = f"{len(documents)} documents have this {path}" if documents else f"no document has this {path}"
            problems.append(Skipped(name, reason))
    keys = None if key == "_id" else KeyList.from_names(name for _, name in records)
    return DocumentListing(DocumentIds(each for each, _ in records), keys, problems=tuple(problems)), rows


def expand_ids(ids: Sequence[object]) -> list[object]:
    """Return some ids, and those that are the text of an ObjectId also as one."""
    object_id = import_bson().ObjectId
    return [*ids, *(object_id(each) for each in ids if type(each) is str and object_id.is_valid(each))]


def to_hashable(value: object) -> object:
    """Return an id as a key of a dictionary: a document as its bytes."""
    return _encode_id(value) if isinstance(value, dict) else value


def _encode_id(value: object) -> bytes:
    bson = import_bson()
    options = bson.codec_options.CodecOptions(uuid_representation=bson.binary.UuidRepresentation.STANDARD)
    encoded: bytes = bson.encode({"": value}, codec_options=options)
    return encoded


def _expand_names(names: Sequence[object]) -> list[object]:
    """Some names, and the integers that some of them are the texts of: a column of numbers is joined with numbers."""
    texts = [each for each in names if isinstance(each, str) and len(each) < 19 and each.isascii()]
    return [*names, *(int(each) for each in texts if each.isdecimal() and str(int(each)) == each)]


def _to_name(value: object, document: Document) -> str:
    name = to_text(document["_id"] if value is None else value)
    if "\0" in name:
        raise StoreFormatError(f"a key must not contain a zero character, got {name!r:.200}")
    return name
