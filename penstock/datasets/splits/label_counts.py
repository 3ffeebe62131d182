"""Counts the labels of the records of a store, from columns and small arrays. Called by :mod:`.splits.splits`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.splits.stratification import LabelCounts
from penstock.errors import ArgumentError
from penstock.sample import Array, Field
from penstock.stores.base import Store

__all__ = ["count_values", "join_counts"]

Indices = NDArray[np.int64]
_READ_RECORDS: Final = 256


def count_values(store: Store, name: str) -> tuple[LabelCounts, tuple[str, ...]]:
    """How often each record has each value of a field, and the names of the values.

    Raises ArgumentError if the field has no labels.
    """
    field = store.schema[name]
    if field.kind in {"label", "int", "text"}:
        items, labels = np.arange(len(store), dtype=np.int64), store.column(name)
    elif (kind := field.array) is not None and kind.dtype.kind in "biu" and len(kind.axes) == 1:
        items, labels = _read_lists(store, name, is_multi_hot=kind.dtype.kind == "b")
    else:
        raise ArgumentError(
            f"by must name fields of labels: label, int, text, or a list of ints or bools (int64[*], bool[20]), got "
            f"{name!r}, which is {field.kind}"
        )
    values, places = np.unique(labels, return_inverse=True)
    counts = LabelCounts.from_pairs(items, places.astype(np.int64), len(store), len(values))
    return counts, tuple(_name_value(field, value) for value in values.tolist())


def _read_lists(store: Store, name: str, *, is_multi_hot: bool) -> tuple[Indices, Indices]:
    """Pairs of record and label of a field of small arrays; those of one length are read from the records."""
    kind = store.schema[name].array
    if kind is not None and kind.shape is None and not is_multi_hot:
        column = store.ragged_column(name)
        return np.repeat(np.arange(len(store), dtype=np.int64), column.counts), column.values.astype(np.int64)
    items: list[Array] = []
    labels: list[Array] = []
    for first in range(0, len(store), _READ_RECORDS):
        for record in store.read(range(first, min(first + _READ_RECORDS, len(store)))):
            found = record.fields[name]
            if found is None:
                continue
            values = np.flatnonzero(found) if is_multi_hot else found.astype(np.int64)
            items.append(np.full(len(values), record.index, np.int64))
            labels.append(values)
    empty = [np.empty(0, np.int64)]
    return np.concatenate(items or empty), np.concatenate(labels or empty)


def _name_value(field: Field, value: object) -> str:
    if isinstance(value, int) and 0 <= value < len(field.classes):
        return field.classes[value]
    return "no value" if value == "" or (value == -1 and field.classes) else str(value)


def join_counts(counts: Sequence[LabelCounts], num_items: int) -> LabelCounts:
    """The labels of several fields as one list of labels."""
    if len(counts) == 1:
        return counts[0]
    offsets = np.cumsum([0, *(each.num_labels for each in counts)])
    items = np.concatenate([each.items for each in counts] or [np.empty(0, np.int64)])
    labels = np.concatenate(
        [each.labels + offset for each, offset in zip(counts, offsets, strict=False)] or [np.empty(0, np.int64)]
    )
    numbers = np.concatenate([each.counts for each in counts] or [np.empty(0, np.int64)])
    order = np.argsort(items, kind="stable")
    return LabelCounts(items[order], labels[order], numbers[order], num_items, int(offsets[-1]))
