"""Average precision of boxes at one overlap, as COCO defines it: in NumPy, and by pycocotools where it is installed.

Objects are found in descending order of scores: each takes the object of its class that it overlaps most, among those
not yet taken, if the IoU is large enough. Precision is the largest at this or a higher recall, and averaged over the
recalls 0, 0.01, ..., 1; then over the classes that have objects. Of an image, the 100 best of each class count.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["average_precisions", "average_precisions_of_pycocotools"]

Rows = NDArray[Any]
_MOST = 100


def average_precisions(found: Sequence[Rows], true: Sequence[Rows], classes: int, overlap: float = 0.5) -> Rows:
    """The average precision of each class.

    Parameters
    ----------
    found : sequence of ndarray
        For each image, (n, 6): x0, y0, x1, y1, label, score.
    true : sequence of ndarray
        For each image, (m, 5): x0, y0, x1, y1, label.
    classes : int
        Number of classes.
    overlap : float
        Least IoU of a box that is right.

    Returns
    -------
    ndarray of float64, shape (classes,)
        In [0, 1]; NaN for a class without objects. ``numpy.nanmean`` of it is the mean average precision.
    """
    return np.array([_average_precision(found, true, label, overlap) for label in range(classes)])


def _average_precision(found: Sequence[Rows], true: Sequence[Rows], label: int, overlap: float) -> float:
    scores, hits, total = [np.zeros(0)], [np.zeros(0, bool)], 0
    for rows, objects in zip(found, true, strict=True):
        boxes = objects[objects[:, 4] == label, :4].astype(np.float64)
        own = rows[rows[:, 4] == label].astype(np.float64)
        own = own[np.argsort(-own[:, 5], kind="stable")][:_MOST]
        scores.append(own[:, 5])
        hits.append(_match(_iou(own[:, :4], boxes), overlap))
        total += len(boxes)
    if total == 0:
        return float("nan")
    order = np.argsort(-np.concatenate(scores), kind="stable")
    right = np.cumsum(np.concatenate(hits)[order])
    recall, precision = right / total, right / np.arange(1, len(right) + 1)
    precision = np.append(np.maximum.accumulate(precision[::-1])[::-1], 0.0)
    return float(precision[np.searchsorted(recall, np.linspace(0, 1, 101))].mean())


def _match(iou: Rows, overlap: float) -> NDArray[np.bool_]:
    """Which of the found boxes (rows) take an object (columns)."""
    hits, free = np.zeros(len(iou), bool), np.ones(iou.shape[1], bool)
    for row, values in enumerate(iou):
        candidates = np.where(free, values, -1.0)
        if free.any() and candidates.max() >= overlap:
            free[candidates.argmax()], hits[row] = False, True
    return hits


def _iou(one: Rows, other: Rows) -> Rows:
    low, high = np.maximum(one[:, None, :2], other[None, :, :2]), np.minimum(one[:, None, 2:], other[None, :, 2:])
    shared = np.clip(high - low, 0, None).prod(2)
    areas = [(each[:, 2:] - each[:, :2]).prod(1) for each in (one, other)]
    return np.asarray(shared / np.maximum(areas[0][:, None] + areas[1][None] - shared, 1e-9))


def average_precisions_of_pycocotools(found: Sequence[Rows], true: Sequence[Rows], classes: int) -> Rows | None:
    """The same at an overlap of 0.5 by pycocotools; None where it is not installed."""
    try:
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval
    except ImportError:
        return None
    content: dict[str, Any] = {
        "images": [{"id": number} for number in range(1, len(true) + 1)],
        "categories": [{"id": label + 1} for label in range(classes)],
        "annotations": [_entry(number, row) for number, rows in enumerate(true, 1) for row in rows.tolist()],
    }
    for number, each in enumerate(content["annotations"], 1):
        each.update(id=number, iscrowd=0)
    results = [_entry(number, row) | {"score": row[5]} for number, rows in enumerate(found, 1) for row in rows.tolist()]
    if not results:  # pycocotools takes no empty list
        return average_precisions(found, true, classes)
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = content
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(results), "bbox")
        evaluation.params.iouThrs = np.array([0.5])
        evaluation.evaluate()
        evaluation.accumulate()
    precision = evaluation.eval["precision"][0, :, :, 0, -1]  # (recalls, classes), -1 without objects
    return np.where(precision[0] < 0, np.nan, precision.mean(0))


def _entry(image: int, row: Sequence[float]) -> dict[str, Any]:
    x0, y0, x1, y1, label = row[:5]
    box = [x0, y0, x1 - x0, y1 - y0]
    return {"image_id": image, "category_id": int(label) + 1, "bbox": box, "area": box[2] * box[3]}
