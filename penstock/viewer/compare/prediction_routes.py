"""Requests for predictions: what is there, how good they are, the records of a set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.errors import ArgumentError
from penstock.viewer.compare.matching import CORRECT, DUPLICATE, MISSED, SPURIOUS, WRONG_CLASS, Events
from penstock.viewer.compare.predictions import SETS, Predictions
from penstock.viewer.compare.scoring import count_cells, list_classes
from penstock.viewer.server.answers import answer, read_float, read_int, session_of

__all__ = ["PREDICTION_ROUTES"]

_MOST_ROWS: Final = 500
_MOST_CELLS: Final = 20_000
_READY_WAIT_S: Final = 1.0
_COUNTS: Final = {
    "correct": CORRECT, "wrong_class": WRONG_CLASS, "duplicates": DUPLICATE, "nothing_there": SPURIOUS, "missed": MISSED
}  # fmt: skip


def _predictions_of(request: Request) -> Predictions:
    found: Predictions | None = session_of(request).parts.get("predictions")
    if found is None:
        raise ArgumentError("there are no predictions; start the viewer with --predictions FILE")
    return found


def show_summary(request: Request) -> Response:
    """The file, its classes, and whether the annotations are read; the first request begins to read them."""
    found = _predictions_of(request)
    found.start()
    found.is_ready.wait(_READY_WAIT_S)
    return answer({
        "file": found.path.name, "kind": "boxes" if found.has_boxes else "labels", "count": len(found.boxes.classes),
        "records": int(np.count_nonzero(np.diff(found.boxes.offsets))), "classes": list(found.names),
        "notes": found.notes, "ready": found.is_ready.is_set(), "read": found.read, "error": found.error,
        "sets": list(SETS),
    })  # fmt: skip


def show_evaluation(request: Request) -> Response:
    """Counts, a row for each class, and the cells of the confusion matrix, at ``iou`` and ``score``."""
    found = _predictions_of(request)
    iou, score = read_float(request, "iou", 0.5, 0.1, 0.95), read_float(request, "score", 0.3, 0.0, 1.0)
    evaluation = found.evaluate(iou, score)
    found.shown_score = score
    rows = list_classes(evaluation.events, evaluation.precisions, found.names)
    known = list(evaluation.precisions.values())
    cells = sorted(count_cells(evaluation.events), key=lambda cell: -cell[2])
    counts = np.bincount(evaluation.events.kinds, minlength=len(_COUNTS))
    return answer({
        "iou": iou, "score": score, "counts": {name: int(counts[kind]) for name, kind in _COUNTS.items()},
        "mean": float(np.mean(known)) if known else None, "cells": cells[:_MOST_CELLS],
        "more_cells": max(0, len(cells) - _MOST_CELLS),
        "classes": rows,
    })  # fmt: skip


def list_records(request: Request) -> Response:
    """Records ``start`` to ``stop`` of ``set``: ``{total, rows: [{index, key, kind, truth, predicted, score}]}``."""
    found = _predictions_of(request)
    evaluation, records, events = found.find_set(request.query_params.get("set", ""))
    start = read_int(request, "start", 0, 0, len(records))
    stop = read_int(request, "stop", start + 60, start, min(start + _MOST_ROWS, len(records)))
    collection = session_of(request).collection
    rows = [
        {"index": index, "key": collection.key(index), **_describe_event(evaluation.events, at, found.names)}
        for index, at in zip(records[start:stop].tolist(), events[start:stop].tolist(), strict=True)
    ]
    return answer({"total": len(records), "start": start, "rows": rows})


def _describe_event(events: Events, at: int, names: Sequence[str]) -> dict[str, Any]:
    truth, guess = (None if each < 0 else names[each] for each in (events.truths[at], events.predicted[at]))
    return {"kind": events.kinds[at], "truth": truth, "predicted": guess, "score": events.scores[at]}


PREDICTION_ROUTES = [
    Route("/api/predictions/summary", show_summary),
    Route("/api/predictions/evaluate", show_evaluation),
    Route("/api/predictions/records", list_records),
]
