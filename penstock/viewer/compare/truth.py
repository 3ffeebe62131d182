"""The annotations of all records, to compare predictions with: labels, or boxes with classes.

Columns are read, and no image, where the annotations are fields of the store. Called by :mod:`.predictions`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.sample import Array, Schema
from penstock.stores.base import Store
from penstock.transforms.targets.target_forms import as_boxes
from penstock.view.shown_pixels import as_array
from penstock.viewer.browse.collection import Collection
from penstock.viewer.compare.matching import Boxes

__all__ = ["find_class_names", "make_boxes", "read_labels", "read_objects"]

_CLASS_FIELDS: Final = ("labels", "label", "classes", "class", "category", "categories", "category_id", "class_id")
_CROWDS: Final = ("crowd", "iscrowd", "is_crowd")
_REPORT_RECORDS: Final = 256


def _find_label(schema: Schema) -> str:
    """The field that has the class of a record; empty without one."""
    named = [name for name, field in schema.fields.items() if field.kind == "label"]
    plain = [name for name, field in schema.fields.items() if field.kind == "int" and name in _CLASS_FIELDS]
    return next(iter([*named, *plain]), "")


def _find_lists(schema: Schema) -> tuple[str, str]:
    """The fields that have boxes, and the classes of these; empty without them."""
    boxes = next((name for name, field in schema.fields.items() if field.kind == "boxes"), "")
    lists = [
        name for name, field in schema.fields.items()
        if field.array is not None and len(field.array.axes) == 1 and field.array.axes[0] is None
        and field.array.dtype.kind in "iu" and (field.classes or name in _CLASS_FIELDS)
    ]  # fmt: skip
    return boxes, next(iter(lists), "")


def find_class_names(schema: Schema, *, of_objects: bool) -> tuple[str, ...]:
    """Names of the classes of objects, or of whole records."""
    name = _find_lists(schema)[1] if of_objects else _find_label(schema)
    return schema[name].classes if name else ()


def read_labels(store: Store) -> NDArray[np.int64]:
    """The class of each record, -1 where it has none.

    Raises
    ------
    ArgumentError
        If the records have no label.
    """
    name = _find_label(store.schema)
    if not name:
        raise ArgumentError("the store has no labels to compare predictions with; they are shown alone")
    return store.column(name).astype(np.int64)


def read_objects(collection: Collection, report: Callable[[int], None]) -> Boxes:
    """The boxes of each record.

    Parameters
    ----------
    collection : Collection
        The records.
    report : callable
        Called with the number of records that were read; may raise to stop.

    Raises
    ------
    ArgumentError
        If the records have no boxes.
    """
    store = collection.store
    boxes, classes = _find_lists(store.schema)
    if boxes and classes:
        found, numbers = store.ragged_column(boxes), store.ragged_column(classes)
        if np.array_equal(found.offsets, numbers.offsets):
            crowds = _read_crowds(store, found.offsets)
            return make_boxes(np.diff(found.offsets), found.values.reshape(-1, 4), numbers.values, crowds=crowds)
    rows: list[Array] = []
    classes_of: list[Array] = []
    for index in range(len(store)):
        if index % _REPORT_RECORDS == 0:
            report(index)
        annotated = collection.annotated(index)
        own: Array = np.zeros((0, 4))
        if annotated.boxes is not None:
            own = as_boxes(as_array(annotated.boxes)).reshape(-1, 4)
        numbers_of = annotated.numbers
        rows.append(own)
        classes_of.append(
            numbers_of if numbers_of is not None and len(numbers_of) == len(own) else np.full(len(own), -1)
        )
    if not any(map(len, rows)):
        raise ArgumentError("the store has no boxes to compare predictions with; they are shown alone")
    return make_boxes(np.array([len(own) for own in rows]), np.concatenate(rows), np.concatenate(classes_of))


def _read_crowds(store: Store, offsets: Array) -> NDArray[np.bool_] | None:
    name = next((name for name in _CROWDS if name in store.schema and store.schema[name].array is not None), "")
    if not name:
        return None
    found = store.ragged_column(name)
    return found.values.astype(bool) if np.array_equal(found.offsets, offsets) else None


def make_boxes(
    counts: Array, boxes: Array, classes: Array, *, scores: Array | None = None, crowds: Array | None = None
) -> Boxes:
    """Boxes of ``counts`` objects for each record, which are together and in order."""
    total = len(boxes)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Boxes(
        offsets,
        boxes.astype(np.float64),
        classes.astype(np.int64),
        np.ones(total) if scores is None else scores,
        np.zeros(total, bool) if crowds is None else crowds.astype(bool),
    )
