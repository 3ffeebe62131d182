"""What a store has to compare predictions with: labels, or boxes with classes. No image is read for it."""

from __future__ import annotations

from collections.abc import Collection as Names
from typing import Final

import numpy as np

from penstock.errors import ArgumentError
from penstock.ragged import Ragged
from penstock.sample import Array, Field, Schema
from penstock.stores.fields.columns import join_values, refuse_fixed
from penstock.viewer.browse.collection import Collection
from penstock.viewer.compare.matching import Boxes

__all__ = ["WHOLE", "find_class_names", "make_boxes", "read_labels", "read_objects"]

_CLASS_FIELDS: Final = ("labels", "label", "classes", "class", "category", "categories", "category_id", "class_id")
WHOLE: Final = (0.0, 0.0, 1.0, 1.0)
"""The box of what is said of a whole picture."""
_CROWDS: Final = ("crowd", "iscrowd", "is_crowd")


def _find_label(schema: Schema) -> str:
    """The field that has the class of a record; empty without one."""
    fields = schema.fields
    named = [name for name, field in fields.items() if field.kind == "label"]
    return next(iter([*named, *(name for name in _CLASS_FIELDS if name in fields and fields[name].kind == "int")]), "")


def _find_list(schema: Schema, names: Names[str]) -> str:
    """The field that has a number for each object: one of classes, or of a name; empty without one."""

    def is_list(name: str, field: Field) -> bool:
        if field.array is None or field.array.axes != (None,) or field.array.dtype.kind not in "biu":
            return False
        return name in names or (names is _CLASS_FIELDS and bool(field.classes))

    return next((name for name, field in schema.fields.items() if is_list(name, field)), "")


def find_class_names(schema: Schema, *, of_objects: bool) -> tuple[str, ...]:
    """Names of the classes of objects, or of whole records."""
    name = _find_list(schema, _CLASS_FIELDS) if of_objects else _find_label(schema)
    return schema[name].classes if name else ()


def read_labels(collection: Collection) -> Boxes:
    """An object for each record with a class; :class:`ArgumentError` if the records have no label."""
    name = _find_label(collection.store.schema)
    if not name:
        raise ArgumentError("the store has no labels to compare predictions with; they are shown alone")
    labels = collection.store.column(name).astype(np.int64)
    is_known = labels >= 0
    return make_boxes(is_known, np.broadcast_to(np.array(WHOLE), (int(is_known.sum()), 4)), labels[is_known])


def read_objects(collection: Collection) -> Boxes:
    """The boxes of each record; :class:`ArgumentError` if the records have none with classes."""
    schema = collection.schema
    name = next((name for name, field in schema.fields.items() if field.kind == "boxes"), "")
    classes = _find_list(schema, _CLASS_FIELDS)
    if not name or not classes:
        raise ArgumentError("the store has no boxes with classes to compare predictions with; they are shown alone")
    boxes, numbers = _read_lists(collection, name), _read_lists(collection, classes)
    if not np.array_equal(boxes.offsets, numbers.offsets):
        raise ArgumentError(f"{name} and {classes} must have as many values in a record; predictions are shown alone")
    given = _find_list(schema, _CROWDS)
    crowds = _read_lists(collection, given).values if given else None
    return make_boxes(np.diff(boxes.offsets), boxes.values.reshape(-1, 4), numbers.values, crowds=crowds)


def _read_lists(collection: Collection, name: str) -> Ragged:
    if name in collection.store.schema:
        return collection.store.ragged_column(name)
    values = (each[name] for each in collection.iter_beside())
    return join_values(name, refuse_fixed(name, collection.schema[name]), values, collection.store.url)


def make_boxes(
    counts: Array, boxes: Array, classes: Array, *, scores: Array | None = None, crowds: Array | None = None
) -> Boxes:
    """Boxes of ``counts`` objects for each record, which are together and in order."""
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    scores = np.ones(len(boxes)) if scores is None else scores
    crowds = np.zeros(len(boxes), bool) if crowds is None else crowds.astype(bool)
    return Boxes(offsets, boxes.astype(np.float64), classes.astype(np.int64), scores, crowds)
