"""Requests of the pages that compare: two stores, and below ``api/predictions`` predictions with annotations."""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.errors import ArgumentError
from penstock.viewer.browse.collection import Collection
from penstock.viewer.compare.differences import describe_differences
from penstock.viewer.compare.matching import count_cells, list_classes
from penstock.viewer.compare.predictions import Predictions
from penstock.viewer.compare.two_stores import KINDS_OF_PAIRS, TwoStores
from penstock.viewer.server.answers import answer, read_float, read_index, read_int, session_of

__all__ = ["ROUTES"]

_MOST_ROWS: Final = 500
_MOST_CELLS: Final = 20_000
_WAIT_S: Final = 2.0
_COUNTS: Final = ("correct", "wrong-class", "duplicates", "nothing-there", "missed")
"""Names of the kinds of events."""


def _comparison_of(request: Request) -> TwoStores:
    found = session_of(request).parts.get("compare")
    if not isinstance(found, TwoStores):
        raise ArgumentError("nothing is compared; start the viewer with --compare STORE, or ps.view(..., compare=...)")
    found.start(_WAIT_S)
    return found


def _predictions_of(request: Request) -> Predictions:
    found = session_of(request).parts.get("predictions")
    if not isinstance(found, Predictions):
        raise ArgumentError("there are no predictions; start the viewer with --predictions FILE")
    found.start(_WAIT_S)
    return found


def _read_range(request: Request, total: int) -> slice:
    start = read_int(request, "start", 0, 0, total)
    return slice(start, read_int(request, "stop", start + 100, start, min(start + _MOST_ROWS, total)))


def _describe_side(side: Collection, repeated: int, other: Collection) -> dict[str, object]:
    only = [name for name in side.store.schema.fields if name not in other.store.schema]
    return {"name": side.name, "url": side.store.url, "total": side.total, "repeated": repeated, "only": only}


def show_comparison(request: Request) -> Response:
    """Counts of each kind, and how far the comparison is; the first request begins it."""
    found = _comparison_of(request)
    pairing = found.pairing
    repeated = (0, 0) if pairing is None else pairing.repeated
    return answer({
        "before": _describe_side(found.before, repeated[0], found.after),
        "after": _describe_side(found.after, repeated[1], found.before),
        "counts": {kind: len(found.find(kind)[0]) for kind in KINDS_OF_PAIRS},
        "done": found.done, "total": None if pairing is None else len(pairing.before),
        "running": found.is_running, "error": found.error,
    })  # fmt: skip


def list_pairs(request: Request) -> Response:
    """Records ``start`` to ``stop`` of ``kind`` whose key contains ``key``."""
    found = _comparison_of(request)
    kind, text = request.query_params.get("kind", KINDS_OF_PAIRS[0]), request.query_params.get("key", "")
    before, after = found.find(kind)
    keys, numbers = (found.keys[1], after) if kind == "added" else (found.keys[0], before)
    if text:
        wanted = (text in keys[at] for at in numbers.tolist())
        chosen = list(itertools.compress(range(len(numbers)), wanted))
        before, after, numbers = before[chosen], after[chosen], numbers[chosen]
    some = _read_range(request, len(numbers))
    rows = [
        {"key": keys[at], "before": None if one < 0 else one, "after": None if other < 0 else other}
        for at, one, other in zip(*(each[some].tolist() for each in (numbers, before, after)), strict=True)
    ]
    return answer({"total": len(numbers), "rows": rows})


def show_pair(request: Request) -> Response:
    """Return what differs between record ``before`` of the first store and record ``after`` of the second, by field."""
    found = _comparison_of(request)
    records = []
    for name, side in (("before", found.before), ("after", found.after)):
        index = read_int(request, name, 0, -1, side.total)
        if not 0 <= index < side.total:
            raise ArgumentError(f"{name} must be in [0, {side.total}), got {request.query_params.get(name)!r:.100}")
        records.append(side.record(index))
    return answer({"fields": describe_differences(records[0], records[1], found.fields)})


def show_thumbnail(request: Request) -> Response:
    """The picture of a record of the second store; those of the first are ``api/thumb``."""
    side = _comparison_of(request).after
    content = side.thumbnail(read_index(request, side.total), read_int(request, "side", 256, 32, 1024))
    return Response(content, media_type="image/webp", headers={"Cache-Control": "private, max-age=3600"})


def show_layers(request: Request) -> Response:
    """The annotations of record ``indices`` of the second store, as those of ``api/layers``."""
    side = _comparison_of(request).after
    index = read_int(request, "indices", 0, 0, max(0, side.total - 1))
    return answer({str(index): side.layers(index)})


def show_predictions(request: Request) -> Response:
    """Return the file, its classes, and whether the annotations are read; the first request begins to read them."""
    found = _predictions_of(request)
    return answer({
        "file": found.path.name, "kind": "boxes" if found.has_boxes else "labels", "count": len(found.boxes.classes),
        "records": int(np.count_nonzero(np.diff(found.boxes.offsets))), "classes": found.names,
        "notes": found.notes, "ready": found.is_ready.is_set(), "error": found.error,
    })  # fmt: skip


def show_evaluation(request: Request) -> Response:
    """Counts, a row for each class, and the largest cells of the confusion matrix, at ``iou`` and ``score``."""
    found = _predictions_of(request)
    iou, score = read_float(request, "iou", 0.5, 0.1, 0.95), read_float(request, "score", 0.3, 0.0, 1.0)
    events = found.evaluate(iou, score)
    counts = np.bincount(events.kinds, minlength=len(_COUNTS)).tolist()
    cells = sorted(count_cells(events), key=lambda cell: -cell[2])[:_MOST_CELLS]
    classes = list_classes(events, found.names)
    return answer({"counts": dict(zip(_COUNTS, counts, strict=True)), "cells": cells, "classes": classes})


def list_records(request: Request) -> Response:
    """Records ``start`` to ``stop`` of ``set``: ``{total, rows: [{index, key, truth, predicted, score, wrong}]}``."""
    found = _predictions_of(request)
    events, records, chosen = found.find_set(request.query_params.get("set", ""))
    some = _read_range(request, len(records))
    collection, names = session_of(request).collection, {-1: None, **dict(enumerate(found.names))}
    rows = [
        {
            "index": index, "key": collection.key(index), "wrong": found.say(events, at), "score": events.scores[at],
            "truth": names[int(events.truths[at])], "predicted": names[int(events.predicted[at])],
        }
        for index, at in zip(records[some].tolist(), chosen[some].tolist(), strict=True)
    ]  # fmt: skip
    return answer({"total": len(records), "rows": rows})


ROUTES = [
    Route("/api/compare/layers", show_layers),
    Route("/api/compare/summary", show_comparison),
    Route("/api/compare/list", list_pairs),
    Route("/api/compare/pair", show_pair),
    Route("/api/compare/thumb/{index:int}", show_thumbnail),
    Route("/api/predictions/summary", show_predictions),
    Route("/api/predictions/evaluate", show_evaluation),
    Route("/api/predictions/records", list_records),
]
