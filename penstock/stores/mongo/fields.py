"""Which values of a document are the fields of a record: named by the user, or found in the first documents.

::

    {"_id": ObjectId, "img_name": "a.jpg", "img": {"data": b"...", "w": 640}, "cls": 3, "boxes": [[...], ...]}
        key = img_name      image = img.data      w = img.w      label = cls      boxes = boxes

Paths are dotted, as in MongoDB. A document that holds bytes is divided into its values; any other one is one field of
kind ``json``. Called once, when a store of documents or of GridFS files is opened. Nothing here talks to a server.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeGuard

import numpy as np

from penstock.errors import ArgumentError, StoreFormatError
from penstock.fields.kinds import are_corners, find_array_kind
from penstock.fields.names import BOX_NAMES
from penstock.fields.roles import Candidate, Stated, choose_roles, find_key
from penstock.sample import Array, Field, Schema
from penstock.stores.fields.image_signatures import looks_like_image
from penstock.stores.fields.record_names import quote_names

__all__ = ["CONTENT", "Document", "DocumentLayout", "find_layout", "find_unread", "get_value", "is_shaped"]

CONTENT: Final = "$content"
"""The path of the bytes of a GridFS file; no document has such a name."""

Document = dict[str, object]
"""A document, as pymongo decodes it."""

_MAX_DEPTH: Final = 8


@dataclass(frozen=True, slots=True)
class DocumentLayout:
    """The fields of a record, where they are in a document, and which value is the key."""

    schema: Schema  # fields of the records
    paths: Mapping[str, str]  # where each field is in a document
    key: str = "_id"  # the path of the key; ``"_id"`` if documents have no name
    has_class_names: bool = False  # whether ``label`` is stored as the name of a class
    boxes: str = "xyxy"  # what the four numbers of a box are
    doubts: tuple[str, ...] = ()  # what the description says of the choice

    def describe(self) -> str:
        """Return which path gives which field, in words."""
        fields = (name if name == path else f"{name} = {path}" for name, path in self.paths.items() if path != CONTENT)
        return "; ".join([f"key = {self.key}", ", ".join(fields) or "no fields", *self.doubts])


def find_layout(
    documents: Sequence[Document], stated: Stated, *, divided: Sequence[str] = (), ignored: Sequence[str] = ()
) -> DocumentLayout:
    """Return the layout of some documents.

    Parameters
    ----------
    documents : sequence of dict
        The first ones, whole.
    stated : Stated
        What the user says: ``fields`` maps fields to paths; by default all values are fields.
    divided : sequence of str
        Values that are divided into their own values, though they hold no bytes.
    ignored : sequence of str
        Paths that are no fields.

    Raises
    ------
    ArgumentError
        If several values may be the image, or no document has a path that the user names.
    """
    values = _collect(documents, divided)
    paths = dict(stated.fields) if isinstance(stated.fields, Mapping) else {}
    named = [("fields", path) for path in paths.values()]
    named += [(role, path) for role, path in stated.roles.items() if path and path != "_id"]
    for option, path in named:
        if not (found := _values_at(documents, path)):
            raise ArgumentError(
                f"{option} must name paths in the documents, got {path!r}, which none of the first {len(documents)} "
                f"has; they have: {quote_names([*values], 20)}"
            )
        values.setdefault(path, found)
    image = stated.roles["image"]
    candidates = [_make_candidate(path, found, is_image=path == image) for path, found in values.items() if found]
    key = stated.key
    if key is None:
        whole = [each for each in candidates if len(values[each.path]) == len(documents)]
        key = find_key(whole, stated)
    if stated.fields is None:
        candidates = [each for each in candidates if each.path not in {"_id", key, *ignored}]
        if CONTENT in values and stated.image is None:
            stated = replace(stated, image=CONTENT if _hold_images(values[CONTENT]) else "")
    if not candidates:
        raise StoreFormatError("the documents have no fields beside their names")
    lasts = [each.name for each in candidates]
    candidates = [each if lasts.count(each.name) == 1 else replace(each, name=each.path) for each in candidates]
    roles = choose_roles(candidates, replace(stated, key=""))
    fields = {name: each.field for name, each in roles.fields.items()}
    doubts = [*roles.doubts]
    for name, each in roles.fields.items():
        fields[name], may_be_boxes = _find_special_field(name, each, values, stated)
        doubts += [f"{name!r} may hold boxes: state boxes="] if may_be_boxes else []
    has_class_names = "label" in fields and fields["label"].kind == "text"
    if has_class_names:
        fields["label"] = Field("label", tuple(stated.classes or ()))
    places = {name: each.path for name, each in roles.fields.items()}
    return DocumentLayout(Schema(fields), places, key or "_id", has_class_names, stated.boxes or "xyxy", tuple(doubts))


def find_unread(document: Document, layout: DocumentLayout, ignored: Collection[str]) -> list[str]:
    """Paths of values of a document that are no fields, though all values of the first documents are.

    Values that are None are none; those ``ignored`` are left out.
    """
    known = {"_id", layout.key, CONTENT, *ignored, *layout.paths.values()}
    parts = [path.split(".") for path in known]
    divided = {".".join(each[:end]) for each in parts for end in range(1, len(each))}
    return [path for path, value in _walk(document, "", divided) if path not in known and value is not None]


def get_value(document: object, path: Sequence[str]) -> object:
    """Return the value at a path; None if there is none. A number in a path is a place in a list."""
    for part in path:
        if isinstance(document, dict):
            document = document.get(part)
        elif isinstance(document, list) and part.isdecimal() and int(part) < len(document):
            document = document[int(part)]
        else:
            return None
    return document


def _collect(documents: Sequence[Document], divided: Sequence[str]) -> dict[str, list[object]]:
    """Return the values of the documents by path, None left out, in the order of their first occurrence."""
    values: dict[str, list[object]] = {}
    paths = {path for each in documents for path in _find_divided(each, "", 0)} | set(divided)
    for document in documents:
        for path, value in _walk(document, "", paths):
            values.setdefault(path, [])
            if value is not None:
                values[path].append(value)
    return values


def _find_divided(document: Document, prefix: str, depth: int) -> Iterator[str]:
    """Paths of the documents in a document that hold bytes."""
    for name, value in document.items():
        if isinstance(value, dict) and depth < _MAX_DEPTH:
            path = f"{prefix}{name}"
            within = [*_find_divided(value, f"{path}.", depth + 1)]
            if within or any(isinstance(each, bytes) for each in value.values()):
                yield path
                yield from within


def _walk(document: Document, prefix: str, divided: set[str]) -> Iterator[tuple[str, object]]:
    for name, value in document.items():
        path = f"{prefix}{name}"
        if path in divided and isinstance(value, dict):
            yield from _walk(value, f"{path}.", divided)
        else:
            yield path, value


def _values_at(documents: Sequence[Document], path: str) -> list[object]:
    parts = path.split(".")
    found = (get_value(document, parts) for document in documents)
    return [value for value in found if value is not None]


def _make_candidate(path: str, found: Sequence[object], *, is_image: bool) -> Candidate:
    """Return what a path holds; its field has the last part of its name, unless another one has it too."""
    kind = "image" if is_image and any(map(_looks_like_image, found)) else _find_kind(found)
    is_plain = kind != "text" or all(isinstance(value, str) for value in found)
    name = "content" if path == CONTENT else path.rpartition(".")[2]
    return Candidate(path, Field(kind), name=name, is_plain=is_plain)


def _find_kind(values: Sequence[object]) -> str:
    """Return the kind of some values, none of which is None."""
    if _hold_images(values):
        return "image"  # others, which are no bytes, are errors when they are read
    if all(isinstance(value, bytes) for value in values):
        return "bytes"
    if all(isinstance(value, bool | int) for value in values):
        return "int"
    if all(isinstance(value, list) or is_shaped(value) for value in values):
        arrays = _make_arrays(values)
        return "json" if not any(array.size for array in arrays) else find_array_kind(arrays) or "json"
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return "float"
    has_parts = any(isinstance(value, dict | list | bytes) for value in values)
    return "json" if has_parts else "text"  # texts, and what is shown as one: ObjectId, UUID, Decimal128, a time


def _hold_images(values: Sequence[object]) -> bool:
    """Return whether most values are encoded images; of empty bytes, nobody knows."""
    return 2 * sum(value == b"" or _looks_like_image(value) for value in values) > len(values)


def _looks_like_image(value: object) -> bool:
    return isinstance(value, bytes) and looks_like_image(value)


def _find_special_field(
    name: str, each: Candidate, values: Mapping[str, Sequence[object]], stated: Stated
) -> tuple[Field, bool]:
    """Return the field of a candidate, which boxes and keypoints have by its name; and whether it may hold boxes."""
    array = each.field.array
    if array is None or len(array.axes) != 2 or array.axes[1] not in {(2,), (3,), (4,)}:
        return each.field, False
    if array.axes[1] != (4,):
        return (Field("keypoints") if name == "keypoints" else each.field), False
    if name.lower() not in BOX_NAMES:
        return each.field, False
    is_boxes = bool(stated.boxes) or (name == "boxes" and are_corners(_make_arrays(values[each.path])))
    return (Field("boxes"), False) if is_boxes else (each.field, True)


def is_shaped(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether a value is an array as its shape and values, as penstock writes those of several axes."""
    return isinstance(value, dict) and value.keys() == {"shape", "values"}


def _make_arrays(values: Sequence[object]) -> list[Array]:
    """The arrays of lists; empty if lists in them differ in length."""
    try:
        return [
            np.reshape(value["values"], value["shape"]) if is_shaped(value) else np.asarray(value) for value in values
        ]
    except (ValueError, TypeError):
        return []
