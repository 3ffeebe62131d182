"""Which values of a document are the fields of a record: named by the user, or found in the first documents.

::

    {"_id": ObjectId, "img_name": "a.jpg", "img": {"data": b"...", "w": 640}, "cls": 3, "boxes": [[...], ...]}
        key = img_name      image = img.data      w = img.w      label = cls      boxes = boxes

Paths are dotted, as in MongoDB. A document that holds bytes is divided into its values; any other one is one field of
kind ``json``. Called once, when a store of documents or of GridFS files is opened. Nothing here talks to a server.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

import numpy as np

from penstock.errors import ArgumentError, StoreFormatError
from penstock.fields.names import BOX_NAMES, IMAGE_NAMES, KEY_NAMES, LABEL_NAMES, MASK_NAMES
from penstock.sample import Field, Schema
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

    def describe(self) -> str:
        """Which path gives which field, in words."""
        fields = (name if name == path else f"{name} = {path}" for name, path in self.paths.items() if path != CONTENT)
        return f"key = {self.key}; {', '.join(fields) or 'no fields'}"


def find_layout(
    documents: Sequence[Document],
    *,
    fields: Mapping[str, str] | None,
    key: str | None,
    classes: Sequence[str] = (),
    divided: Sequence[str] = (),
    ignored: Sequence[str] = (),
) -> DocumentLayout:
    """The layout of some documents.

    Parameters
    ----------
    documents : sequence of dict
        The first ones, whole.
    fields : mapping of str to str, optional
        Fields and their paths, as the user gives them; by default all values are fields.
    key : str, optional
        The path of the key, as the user gives it.
    classes : sequence of str
        Names of the label's classes, as the user gives them.
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
    if key is None:
        key = _find_key(values, len(documents))
    elif key != "_id" and not any(get_value(each, key.split(".")) is not None for each in documents):
        raise ArgumentError(
            f"key must be a path in the documents, got {key!r}; they have: {quote_names([*values], 20)}"
        )
    if fields is None:
        paths = _name_fields({path: found for path, found in values.items() if path not in {"_id", key, *ignored}})
    else:
        paths = dict(fields)
        values = {path: _values_at(documents, path) for path in paths.values()}
        if missing := [path for path, found in values.items() if not found]:
            raise ArgumentError(
                f"fields must name paths in the documents, got {missing[0]!r}, which none of the first "
                f"{len(documents)} has; they have: {quote_names([*_collect(documents, divided)], 20)}"
            )
    if not paths:
        raise StoreFormatError("the documents have no fields beside their names")
    kinds = {name: _find_kind(name, values[path]) for name, path in paths.items()}
    has_class_names = kinds.get("label") == "text"
    schema = {name: Field(kind) for name, kind in kinds.items()}
    if has_class_names or kinds.get("label") == "label":
        schema["label"] = Field("label", tuple(classes))
    return DocumentLayout(Schema(schema), paths, key, has_class_names)


def find_unread(document: Document, layout: DocumentLayout, ignored: Collection[str]) -> list[str]:
    """Paths of values of a document that are no fields, though all values of the first documents are.

    Values that are None are none; those ``ignored`` are left out.
    """
    known = {"_id", layout.key, CONTENT, *ignored, *layout.paths.values()}
    parts = [path.split(".") for path in known]
    divided = {".".join(each[:end]) for each in parts for end in range(1, len(each))}
    return [path for path, value in _walk(document, "", divided) if path not in known and value is not None]


def get_value(document: object, path: Sequence[str]) -> object:
    """The value at a path; None if there is none. A number in a path is a place in a list."""
    for part in path:
        if isinstance(document, dict):
            document = document.get(part)
        elif isinstance(document, list) and part.isdecimal() and int(part) < len(document):
            document = document[int(part)]
        else:
            return None
    return document


def _collect(documents: Sequence[Document], divided: Sequence[str]) -> dict[str, list[object]]:
    """The values of the documents by path, None left out, in the order of their first occurrence."""
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


def _find_key(values: Mapping[str, Sequence[object]], count: int) -> str:
    for wanted in KEY_NAMES:
        for path, found in values.items():
            if _last(path).lower() == wanted and len(found) == count and all(isinstance(value, str) for value in found):
                return path
    return "_id"


def _name_fields(values: Mapping[str, Sequence[object]]) -> dict[str, str]:
    """Names of fields and their paths; values that are None everywhere are left out."""
    present = {path: found for path, found in values.items() if found}
    image, label = _find_image(present), _find_label(present)
    special = {path: name for path, name in ((image, "image"), (label, "label")) if path}
    names: dict[str, str] = {}
    short = [_last(path) for path in present if path not in special]
    for path in present:
        name = special.get(path) or _last(path)
        if path not in special and (short.count(name) > 1 or name in special.values()):
            name = path
        names[name] = path
    return names


def _find_image(values: Mapping[str, Sequence[object]]) -> str:
    if CONTENT in values:
        return CONTENT if _are_images(values[CONTENT]) else ""
    images = [path for path, found in values.items() if _are_images(found)]
    images = [path for path in images if _last(path) not in MASK_NAMES] or images
    if len(images) > 1:
        named = [path for path in images if set(path.lower().split(".")) & set(IMAGE_NAMES)]
        if len(named) != 1:
            raise ArgumentError(
                f"several values of the documents are images ({', '.join(images)}); say which is the image of a "
                f"record: fields={{'image': {images[0]!r}, ...}}"
            )
        images = named
    return images[0] if images else ""


def _are_images(values: Sequence[object]) -> bool:
    """Whether more than half of some values begin as images: a damaged one does not change what a field is."""
    return 2 * sum(isinstance(value, bytes) and looks_like_image(value) for value in values) > len(values)


def _find_label(values: Mapping[str, Sequence[object]]) -> str:
    for wanted in LABEL_NAMES:
        for path, found in values.items():
            if _last(path).lower() == wanted and (_all_are(found, int) or _all_are(found, str)):
                return path
    return ""


def _last(path: str) -> str:
    return path.rpartition(".")[2] if path != CONTENT else "content"


def _all_are(values: Sequence[object], kind: type | tuple[type, ...]) -> bool:
    return all(isinstance(value, kind) and not isinstance(value, bool) for value in values)


def _find_kind(name: str, values: Sequence[object]) -> str:
    """The kind of a field, from some values, none of which is None."""
    if name == "image" and any(isinstance(value, bytes) for value in values):
        return "image"  # others, which are no bytes, are errors when they are read
    if all(isinstance(value, bytes) for value in values):
        is_image = all(isinstance(value, bytes) and looks_like_image(value) for value in values)
        return "mask" if name in MASK_NAMES else "image" if is_image else "bytes"
    if all(isinstance(value, bool | int) for value in values):
        return "label" if name == "label" and _all_are(values, int) else "int"
    if all(isinstance(value, list) or is_shaped(value) for value in values):
        return _find_array_kind(name, values)
    if _all_are(values, (int, float)):
        return "float"
    has_parts = any(isinstance(value, dict | list | bytes) for value in values)
    return "json" if has_parts else "text"  # texts, and what is shown as one: ObjectId, UUID, Decimal128, a time


def is_shaped(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether a value is an array as its shape and values, as penstock writes those of several axes."""
    return isinstance(value, dict) and value.keys() == {"shape", "values"}


def _find_array_kind(name: str, values: Sequence[object]) -> str:
    arrays = []
    for value in values:
        try:
            arrays.append(np.reshape(value["values"], value["shape"]) if is_shaped(value) else np.asarray(value))
        except (ValueError, TypeError):  # lists of different lengths
            return "json"
    filled = [array for array in arrays if array.size]
    if not filled or any(array.dtype.kind not in "iufb" or array.ndim != filled[0].ndim for array in filled):
        return "json"
    last = {array.shape[-1] for array in filled}
    axes = filled[0].ndim
    if name in BOX_NAMES and axes == 2 and last == {4}:
        return "boxes"
    if name == "keypoints" and axes == 2 and last <= {2, 3}:
        return "keypoints"
    kinds = {array.dtype.kind for array in filled}
    dtype = "bool" if kinds == {"b"} else "float64" if "f" in kinds else "int64"
    lengths = ({array.shape[axis] for array in arrays if array.ndim == axes} for axis in range(axes))
    shape = [str(next(iter(each))) if len(each) == 1 else "*" for each in lengths]
    if len(filled) < len(arrays):
        shape[0] = "*"
    return f"{dtype}[{','.join(shape)}]"
