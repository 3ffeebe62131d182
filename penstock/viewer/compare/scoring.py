"""Counts of events: the confusion of classes, precision and recall, and average precision by COCO's rule.

Called by :mod:`.predictions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.viewer.compare.matching import CORRECT, MISSED, Boxes, Events

__all__ = ["ClassRow", "average_precisions", "count_cells", "list_classes", "select_records"]

_RECALLS: Final = np.linspace(0, 1, 101)
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ClassRow:
    """What is counted of one class; None where nothing is divided by."""

    number: int
    name: str
    objects: int  # annotated ones
    predictions: int  # those that count
    correct: int
    precision: float | None
    recall: float | None
    ap: float | None  # average precision


def count_cells(events: Events) -> list[tuple[int, int, int]]:
    """(class of the object, class of the prediction, count) of each pair that occurs; -1: there is none."""
    if not len(events.records):
        return []
    cells, counts = np.unique(np.column_stack([events.truths, events.predicted]), axis=0, return_counts=True)
    return [(*cell, count) for cell, count in zip(map(tuple, cells.tolist()), counts.tolist(), strict=True)]


def list_classes(events: Events, precisions: dict[int, float], names: Sequence[str]) -> list[ClassRow]:
    """Each class that occurs; those with most errors are first."""
    count = len(names)
    is_correct = events.kinds == CORRECT
    has_object = (events.truths >= 0) & (events.truths < count)
    has_prediction = (events.predicted >= 0) & (events.predicted < count)
    objects = np.bincount(events.truths[has_object], minlength=count)
    predictions = np.bincount(events.predicted[has_prediction], minlength=count)
    correct = np.bincount(events.predicted[has_prediction & is_correct], minlength=count)
    counted = zip(range(count), names, objects.tolist(), predictions.tolist(), correct.tolist(), strict=True)
    rows = [
        ClassRow(*row, row[4] / row[3] if row[3] else None, row[4] / row[2] if row[2] else None, precisions.get(row[0]))
        for row in counted
        if row[2] or row[3]
    ]
    return sorted(rows, key=lambda row: 2 * row.correct - row.objects - row.predictions)


def select_records(events: Events, kinds: set[int], cell: tuple[int, int] | None = None) -> tuple[Indices, Indices]:
    """The records with an event of some kinds, or of a cell of the matrix, each once; and the event shown of each.

    The most confident are first; of equal confidence those with more objects missed, then those of a lower index.
    """
    is_chosen = np.isin(events.kinds, sorted(kinds))
    if cell is not None:
        is_chosen &= (events.truths == cell[0]) & (events.predicted == cell[1])
    found = np.flatnonzero(is_chosen)
    records, scores = events.records[found], events.scores[found]
    missed = np.bincount(records[events.kinds[found] == MISSED], minlength=int(records.max(initial=0)) + 1)
    order = np.lexsort((records, -missed[records], -scores))
    first = np.sort(np.unique(records[order], return_index=True)[1])
    return records[order][first], found[order][first]


def average_precisions(predicted: Boxes, objects: Boxes, matched: Indices) -> dict[int, float]:
    """The average precision of each class with objects, at one IoU: 101 recalls, as ``COCOeval.accumulate``."""
    wanted = objects.classes[~objects.crowds]
    order = np.argsort(-predicted.scores, kind="stable")
    order = order[matched[order] != -2]  # not counted, see match_boxes
    by_class = np.argsort(predicted.classes[order], kind="stable")
    order = order[by_class]
    numbers = predicted.classes[order]
    found: dict[int, float] = {}
    for number, count in zip(*(each.tolist() for each in np.unique(wanted, return_counts=True)), strict=True):
        rows = order[np.searchsorted(numbers, number) : np.searchsorted(numbers, number, "right")]
        right = np.cumsum(matched[rows] >= 0).astype(np.float64)
        recalls = right / count
        precisions = right / (np.arange(1, len(rows) + 1) + np.spacing(1))
        best = np.maximum.accumulate(precisions[::-1])[::-1]
        places = np.searchsorted(recalls, _RECALLS, "left")
        found[number] = float(np.where(places < len(best), np.append(best, 0)[np.minimum(places, len(best))], 0).mean())
    return found
