"""Matches predicted boxes with annotated ones as COCO's evaluation does, and says what each of them is.

::

    Boxes, Boxes ──overlaps──> pairs of one record ──match──> the object of each prediction ──judge──> Events
                   (once)      IoU of at least 0.1   (per IoU)   by score, each object once    (per score)

Source of the rule: ``COCOeval.evaluateImg`` of pycocotools: predictions of one class and record by falling score, at
most 100, each takes the free object of its class that overlaps most; crowds may be taken several times, and what takes
one is not counted. The class of a whole picture is compared as one box that all of them have. Called by
:mod:`.predictions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.sample import Array

__all__ = [
    "CORRECT", "DUPLICATE", "MISSED", "SPURIOUS", "WRONG_CLASS", "Boxes", "Events", "count_cells", "count_earlier",
    "find_overlaps", "judge_boxes", "list_classes", "make_boxes", "match_boxes", "select_records",
]  # fmt: skip

CORRECT, WRONG_CLASS, DUPLICATE, SPURIOUS, MISSED = range(5)
"""What a prediction is, or an object without one. ``SPURIOUS``: nothing is there. The numbers are those of events."""
_LEAST_IOU: Final = 0.1
_MAX_PREDICTIONS: Final = 100
_CHUNK_PAIRS: Final = 1 << 20
_NOT_COUNTED: Final = -2
Indices = NDArray[np.int64]
Floats = NDArray[np.float64]
Overlaps = tuple[Indices, Indices, Floats]
"""Numbers of predictions, those of objects of the same record that they overlap, and intersection over union (of a
crowd, over the area of the prediction). Sorted by prediction; crowds come last."""


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Boxes of all records, those of a record together, in the order of records."""

    offsets: Indices  # (records + 1,): where the boxes of each record begin
    boxes: Floats  # (n, 4): x0, y0, x1, y1 in pixels
    classes: Indices  # (n,): -1 for an object without class
    scores: Floats  # (n,): falling within a record; 1 for annotations
    crowds: NDArray[np.bool_]  # (n,): objects that stand for several

    @property
    def records(self) -> Indices:
        """The record of each box."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """What was found: an entry for each prediction that counts, and for each object that was missed."""

    records: Indices  # (n,)
    kinds: Indices  # CORRECT and so on
    truths: Indices  # the class of the object, -1 without one
    predicted: Indices  # the class of the prediction, -1 without one
    scores: Floats  # of the prediction, 0 without one
    numbers: Indices  # the place of the prediction in its boxes; of an object that was missed, in those of the objects


def make_boxes(
    counts: Array, boxes: Array, classes: Array, *, scores: Array | None = None, crowds: Array | None = None
) -> Boxes:
    """Boxes of ``counts`` objects for each record, which are together and in order."""
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    scores = np.ones(len(boxes)) if scores is None else scores
    crowds = np.zeros(len(boxes), bool) if crowds is None else crowds.astype(bool)
    return Boxes(offsets, boxes.astype(np.float64), classes.astype(np.int64), scores, crowds)


def find_overlaps(predicted: Boxes, objects: Boxes) -> Overlaps:
    """Return the pairs whose overlap is at least 0.1, over all records."""
    counts = np.diff(objects.offsets)[predicted.records]
    firsts = objects.offsets[predicted.records]
    ends = np.cumsum(counts)
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
    start = 0
    while start < len(counts):
        base = ends[start] - counts[start]
        stop = max(start + 1, int(np.searchsorted(ends, base + _CHUNK_PAIRS, "right")))
        some = counts[start:stop]
        one = np.repeat(np.arange(start, stop), some)
        other = np.repeat(firsts[start:stop] - (ends[start:stop] - some), some) + np.arange(base, ends[stop - 1])
        ious = _compute_ious(predicted.boxes[one], objects.boxes[other], objects.crowds[other])
        held = ious >= _LEAST_IOU
        found.append((one[held], other[held], ious[held]))
        start = stop
    one, other, ious = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.lexsort((other, objects.crowds[other], one))
    return one[order], other[order], ious[order]


def _compute_ious(one: Floats, other: Floats, crowds: NDArray[np.bool_]) -> Floats:
    sides = np.minimum(one[:, 2:], other[:, 2:]) - np.maximum(one[:, :2], other[:, :2])
    common = np.where((sides > 0).all(axis=1), sides.prod(axis=1), 0)
    area, other_area = ((each[:, 2:] - each[:, :2]).prod(axis=1) for each in (one, other))
    union = np.where(crowds, area, area + other_area - common)
    ious: Floats = np.divide(common, union, out=np.zeros(len(one)), where=union > 0)
    return ious


def match_boxes(predicted: Boxes, objects: Boxes, overlaps: Overlaps, iou: float) -> Indices:
    """Return the object that each prediction takes: -1 none, -2 not counted (a crowd, or one of more than 100).

    A prediction below a score does not change what those above it take: the result holds for every threshold.
    """
    matched = np.full(len(predicted.classes), -1)
    names = predicted.records * (predicted.classes.max(initial=0) + 1) + predicted.classes
    matched[count_earlier(names) >= _MAX_PREDICTIONS] = _NOT_COUNTED
    numbers, places, ious = overlaps
    held = (predicted.classes[numbers] == objects.classes[places]) & (matched[numbers] != _NOT_COUNTED)
    numbers, places, ious = numbers[held], places[held], ious[held]
    crowds = objects.crowds[places].tolist()
    begins = np.flatnonzero(np.diff(numbers, prepend=-1) != 0).tolist()
    given = numbers.tolist(), places.tolist(), ious.tolist()
    is_taken: set[int] = set()
    for begin, end in zip(begins, [*begins[1:], len(given[0])], strict=True):
        best, least = -1, min(iou, 1 - 1e-10)
        for at in range(begin, end):
            if given[1][at] in is_taken and not crowds[at]:
                continue
            if best >= 0 and not crowds[best] and crowds[at]:
                break
            if given[2][at] >= least:
                best, least = at, given[2][at]
        if best >= 0:
            is_taken.add(given[1][best])
            matched[given[0][begin]] = _NOT_COUNTED if crowds[best] else given[1][best]
    return matched


def count_earlier(values: NDArray[np.int64] | NDArray[np.uint64]) -> Indices:
    """Return how many earlier values are equal to each."""
    order = np.argsort(values, kind="stable")
    begins = np.flatnonzero(np.diff(values[order], prepend=~values[order[:1]]) != 0)
    counts = np.empty(len(values), np.int64)
    counts[order] = np.arange(len(values)) - np.repeat(begins, np.diff(begins, append=len(values)))
    return counts


def judge_boxes(
    predicted: Boxes, objects: Boxes, overlaps: Overlaps, matched: Indices, *, iou: float, score: float
) -> Events:
    """Return what each prediction of at least ``score`` is, and which objects none of them found.

    A prediction without an object of its class is of a wrong class if it overlaps a free object of another class by
    ``iou``, whose object is then found; else a duplicate, if it overlaps one of its class; else nothing is there.
    """
    chosen = np.flatnonzero((predicted.scores >= score) & (matched != _NOT_COUNTED))
    kinds = np.full(len(predicted.classes), SPURIOUS)
    truths = np.full(len(predicted.classes), -1)
    is_correct = matched >= 0
    kinds[is_correct] = CORRECT
    truths[is_correct] = predicted.classes[is_correct]
    is_found = objects.crowds.copy()
    is_found[matched[chosen][matched[chosen] >= 0]] = True
    is_open = np.zeros(len(predicted.classes), bool)
    is_open[chosen] = ~is_correct[chosen]
    numbers, places, ious = overlaps
    held = is_open[numbers] & (ious >= iou) & ~objects.crowds[places]
    numbers, places = numbers[held], places[held]
    strongest = np.lexsort((-ious[held], numbers))  # numbers rise with falling scores within a record
    for number, place in zip(numbers[strongest].tolist(), places[strongest].tolist(), strict=True):
        if kinds[number] == WRONG_CLASS:
            continue
        if objects.classes[place] == predicted.classes[number]:
            kinds[number] = DUPLICATE
        elif not is_found[place]:
            kinds[number], truths[number] = WRONG_CLASS, objects.classes[place]
            is_found[place] = True
    truths[kinds == DUPLICATE] = -1
    missed = np.flatnonzero(~is_found)
    return Events(
        np.concatenate([predicted.records[chosen], objects.records[missed]]),
        np.concatenate([kinds[chosen], np.full(len(missed), MISSED)]),
        np.concatenate([truths[chosen], objects.classes[missed]]),
        np.concatenate([predicted.classes[chosen], np.full(len(missed), -1)]),
        np.concatenate([predicted.scores[chosen], np.zeros(len(missed))]),
        np.concatenate([chosen, missed]),
    )


def count_cells(events: Events) -> list[tuple[int, int, int]]:
    """(class of the object, class of the prediction, count) of each pair that occurs; -1: there is none."""
    cells, counts = np.unique(np.column_stack([events.truths, events.predicted]), axis=0, return_counts=True)
    return [(*cell, count) for cell, count in zip(cells.tolist(), counts.tolist(), strict=True)]


def list_classes(events: Events, names: Sequence[str]) -> list[dict[str, object]]:
    """Return each class that occurs, those with most errors first.

    Precision and recall are None where they have no base.
    """

    def count(classes: Indices) -> Indices:
        return np.bincount(classes[(classes >= 0) & (classes < len(names))], minlength=len(names))

    objects, predictions = count(events.truths), count(events.predicted)
    correct = count(events.predicted[events.kinds == CORRECT])
    order = np.argsort(2 * correct - objects - predictions, kind="stable")
    counts = np.column_stack([objects, predictions, correct])
    return [
        {
            "number": number, "name": names[number], "objects": wanted, "predictions": given, "correct": right,
            "precision": right / given if given else None, "recall": right / wanted if wanted else None,
        }
        for number, (wanted, given, right) in zip(order.tolist(), counts[order].tolist(), strict=True)
        if wanted or given
    ]  # fmt: skip


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
