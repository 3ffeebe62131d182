"""Looks at a collection when a store of it is opened: which documents are the records, and which values are the fields.

::

    Selection (the user's options) ──look_at_collection──> CollectionContents: layout, listing, schema

Called by :mod:`.mongo.store` and :mod:`.mongo.gridfs`. Everything that is found is carried by pickles of the store.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import ArgumentError, PenstockError, StoreFormatError, StoreNotFoundError, check_choice
from penstock.fields.roles import Stated
from penstock.sample import Field, Schema
from penstock.stores.fields.record_names import check_classes, quote_names
from penstock.stores.mongo.connection import MongoConnection
from penstock.stores.mongo.fields import Document, DocumentLayout, find_layout
from penstock.stores.mongo.joined_manifest import read_manifest
from penstock.stores.mongo.listing import (
    DocumentIds,
    DocumentListing,
    expand_ids,
    list_by_query,
    list_selected,
)
from penstock.stores.mongo.values import count_bytes
from penstock.wording import counted

if TYPE_CHECKING:
    from penstock.stores.mongo.connection import Collection, Database

__all__ = ["CollectionContents", "Selection", "look_at_collection", "make_selection"]

_SAMPLED: Final = 32
_SAMPLED_NBYTES: Final = 32 << 20
_MAX_CLASSES: Final = 100_000
_DEFAULT_JOIN: Final = "img_name"


@dataclass(frozen=True, slots=True)
class Selection:
    """The options of a store, checked: see :class:`~penstock.stores.mongo.store.MongoStore`."""

    stated: Stated = field(default_factory=Stated)
    ids: Sequence[object] | None = None
    query: Mapping[str, object] = field(default_factory=dict)
    sort: tuple[tuple[str, int], ...] = ()
    manifest: str = ""
    join: tuple[str, str] = (_DEFAULT_JOIN, _DEFAULT_JOIN)


@dataclass(frozen=True, slots=True)
class CollectionContents:
    """What was found in a collection."""

    layout: DocumentLayout  # where the fields are in a document
    listing: DocumentListing  # the records
    schema: Schema  # fields of the records, those of a manifest included


def make_selection(**given: object) -> tuple[Selection, dict[str, object]]:
    """The options of a store, checked, and those that were given, as a pickle has them.

    Raises ArgumentError if one is invalid, or two exclude each other.
    """
    options = {name: value for name, value in given.items() if value is not None}
    chosen = [name for name in ("ids", "query", "manifest") if name in options]
    if len(chosen) > 1:
        raise ArgumentError(f"only one of ids, query and manifest may be given, got {' and '.join(chosen)}")
    if "sort" in options and ("ids" in options or "manifest" in options):
        raise ArgumentError(f"sort is for documents of a query; {chosen[0]} has an order of its own")
    if "join" in options and "manifest" not in options:
        raise ArgumentError("join is the column of a manifest; give manifest= too")
    values = {name: _CHECKS[name](value) for name, value in options.items()}
    stated = Stated(**{name: values.pop(name) for name in _STATED if name in values})
    check_choice("boxes", stated.boxes, ("xyxy", "yxyx", "xywh", "cxcywh"), optional=True)
    if "ids" in options:
        options["ids"] = DocumentIds(values["ids"])  # it is pickled: a list takes much more
    if "manifest" in options:
        options["manifest"] = values["manifest"]
    return Selection(stated, **values), options


def look_at_collection(
    connection: MongoConnection,
    selection: Selection,
    documents_name: str,
    *,
    complete: Callable[[Database, list[Document]], None] | None = None,
    divided: Sequence[str] = (),
    ignored: Sequence[str] = (),
) -> CollectionContents:
    """Find the records and their fields.

    Parameters
    ----------
    connection : MongoConnection
        The server, database and collection (or bucket).
    selection : Selection
        The user's options.
    documents_name : str
        The name of the collection of the documents.
    complete : callable, optional
        Called with the database and the first documents, to add what is elsewhere.
    divided, ignored : sequence of str
        As for :func:`~penstock.stores.mongo.fields.find_layout`.
    """
    try:
        samples = connection.run(lambda db: _sample(db, documents_name, selection, complete))
        if not samples:
            raise _make_empty_error(connection, documents_name, selection)
        stated = replace(selection.stated, key=selection.join[1]) if selection.manifest else selection.stated
        layout = find_layout(samples, stated, divided=divided, ignored=ignored)
        layout, listing = _list_records(connection, selection, documents_name, layout)
        if not len(listing.ids):
            raise _make_empty_error(connection, documents_name, selection, listing)
        layout = _name_classes(connection, documents_name, selection, layout)
    except PenstockError as error:
        error.locate(store=connection.url)
        raise
    schema = Schema({**layout.schema.fields, **{name: column.field for name, column in listing.columns.items()}})
    return CollectionContents(layout, listing, schema)


def _sample(
    database: Database,
    name: str,
    selection: Selection,
    complete: Callable[[Database, list[Document]], None] | None,
) -> list[Document]:
    """Return the first documents, whole; fewer if they are large."""
    query = {"_id": {"$in": expand_ids(selection.ids[:_SAMPLED])}} if selection.ids else dict(selection.query)
    documents: list[Document] = []
    nbytes = 0
    with database[name].find(query, batch_size=4).sort([*selection.sort, ("_id", 1)]).limit(_SAMPLED) as cursor:
        for document in cursor:
            documents.append(document)
            nbytes += count_bytes(document)
            if nbytes > _SAMPLED_NBYTES:
                break
    if complete is not None:
        complete(database, documents)
    return documents


def _list_records(
    connection: MongoConnection, selection: Selection, name: str, layout: DocumentLayout
) -> tuple[DocumentLayout, DocumentListing]:
    if selection.ids is not None:
        ids = selection.ids
        listing, _ = connection.run(
            lambda db: list_selected(db[name], ids, "_id", layout.key, is_text=False, has_index=True)
        )
        _warn_of_problems(listing, len(ids))
        return layout, listing
    if not selection.manifest:
        return layout, connection.run(lambda db: list_by_query(db[name], selection.query, selection.sort, layout.key))
    column, path = selection.join
    manifest = read_manifest(selection.manifest, column)
    has_index = connection.run(lambda db: _has_index(db[name], path))
    if not has_index:
        warnings.warn(
            f"the collection {name!r} has no index on {path!r}, by which the manifest is joined: all documents are "
            f"read; make one with create_index({path!r})",
            stacklevel=8,
        )
    listing, rows = connection.run(
        lambda db: list_selected(db[name], manifest.names, path, path, is_text=True, has_index=has_index)
    )
    _warn_of_problems(listing, len(manifest.names))
    columns = {name: values.select(rows) for name, values in manifest.columns.items()}
    return _without_fields(replace(layout, key=path), columns), replace(listing, columns=columns)


def _without_fields(layout: DocumentLayout, names: Mapping[str, object]) -> DocumentLayout:
    """Return the layout without the fields that a manifest gives."""
    kept = {name: kind for name, kind in layout.schema.fields.items() if name not in names}
    if not kept:
        raise ArgumentError(
            "the manifest gives every field; the documents must have one of their own, such as an image"
        )
    return replace(
        layout,
        schema=Schema(kept),
        paths={name: path for name, path in layout.paths.items() if name in kept},
        has_class_names=layout.has_class_names and "label" in kept,
    )


def _name_classes(
    connection: MongoConnection, name: str, selection: Selection, layout: DocumentLayout
) -> DocumentLayout:
    """The layout with the names of classes, where labels are stored as texts."""
    if not layout.has_class_names or layout.schema["label"].classes:
        return layout
    path = layout.paths["label"]
    found = connection.run(lambda db: db[name].distinct(path, dict(selection.query)))
    texts = sorted({text for text in found if isinstance(text, str)})
    if len(texts) > _MAX_CLASSES:
        raise ArgumentError(f"{path!r} has {len(texts)} texts: too many for classes; give fields= without it")
    return replace(layout, schema=Schema({**layout.schema.fields, "label": Field("label", tuple(texts))}))


def _has_index(collection: Collection, path: str) -> bool:
    indexes = (next(iter(index["key"].items()), ("", 0))[0] for index in collection.list_indexes())
    return path == "_id" or path in indexes


def _warn_of_problems(listing: DocumentListing, count: int) -> None:
    if listing.problems and len(listing.ids):
        names = quote_names([entry.key for entry in listing.problems])
        warnings.warn(
            f"{len(listing.problems)} of {counted(count, 'name')} are not records, see the store's problems: {names}",
            stacklevel=8,
        )


def _make_empty_error(
    connection: MongoConnection, name: str, selection: Selection, listing: DocumentListing | None = None
) -> PenstockError:
    exists = connection.run(lambda database: name in database.list_collection_names(filter={"name": name}))
    if not exists:
        return StoreNotFoundError(f"there is no collection {name!r} in the database {connection.database!r}")
    if listing is not None and listing.problems:
        first = listing.problems[0]
        return ArgumentError(f"none of {len(listing.problems)} names is a document: {first.key!r}: {first.reason}")
    if selection.query or selection.ids is not None:
        return ArgumentError(f"no document of the collection {name!r} is selected by query= or ids=")
    return StoreFormatError(f"the collection {name!r} has no documents")


def _check_fields(fields: object) -> dict[str, str]:
    if not isinstance(fields, Mapping) or not fields or not all(isinstance(p, str) and p for p in fields.values()):
        raise ArgumentError(f"fields must map names to paths, {{'image': 'img.data'}}, got {fields!r:.200}")
    return {str(name): path for name, path in fields.items()}


def _check_query(query: object) -> Mapping[str, object]:
    if not isinstance(query, Mapping):
        raise ArgumentError(f"query must be a filter, a mapping, got {query!r:.200}")
    return query


def _check_key(key: object) -> str:
    if not isinstance(key, str) or not key:
        raise ArgumentError(f"key must be the path of a value, got {key!r:.200}")
    return key


def _check_ids(ids: object) -> list[object]:
    if isinstance(ids, str | bytes | Mapping) or not hasattr(ids, "__iter__"):
        raise ArgumentError(f"ids must be a sequence of _id values, got {ids!r:.200}")
    found = [each.item() if hasattr(each, "dtype") else each for each in ids]
    if not found:
        raise ArgumentError("ids must name at least one document, got none")
    return found


def _check_sort(sort: object) -> tuple[tuple[str, int], ...]:
    pairs = [(sort, 1)] if isinstance(sort, str) else sort
    try:
        checked = tuple((path, direction) for path, direction in pairs)  # type: ignore[attr-defined]  # or a TypeError
    except (TypeError, ValueError):
        checked = ()
    if not checked or not all(isinstance(path, str) and path and way in (1, -1) for path, way in checked):
        raise ArgumentError(f"sort must be a path, or pairs of a path and 1 or -1, got {sort!r:.200}")
    return checked


def _check_join(join: object) -> tuple[str, str]:
    if isinstance(join, str) and join:
        return join, join
    if isinstance(join, Mapping) and len(join) == 1:
        ((column, path),) = join.items()
        if isinstance(column, str) and isinstance(path, str) and path:
            return column, path
    raise ArgumentError(f"join must be a column, or one column and its path, {{'file': 'img_name'}}, got {join!r:.200}")


def _check_path(path: object) -> str:
    if not isinstance(path, str):
        raise ArgumentError(f"image and label must be the path of a value, or empty, got {path!r:.200}")
    return path


_STATED: Final = ("image", "label", "key", "fields", "boxes", "classes")
_CHECKS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "fields": _check_fields,
    "image": _check_path,
    "label": _check_path,
    "boxes": _check_path,
    "key": _check_key,
    "ids": _check_ids,
    "query": _check_query,
    "sort": _check_sort,
    "manifest": os.fspath,
    "join": _check_join,
    "classes": check_classes,
}
"""What each option of a store must pass, and becomes."""
