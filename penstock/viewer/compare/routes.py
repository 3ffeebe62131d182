"""Requests of the pages that compare: two stores, and below ``api/predictions`` predictions with annotations."""

from __future__ import annotations

import itertools
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.errors import ArgumentError
from penstock.viewer.browse.collection import Collection
from penstock.viewer.compare.differences import describe_differences
from penstock.viewer.compare.prediction_routes import PREDICTION_ROUTES
from penstock.viewer.compare.two_stores import KINDS_OF_PAIRS, TwoStores
from penstock.viewer.server.answers import answer, read_index, read_int, session_of

__all__ = ["ROUTES"]

_MOST_ROWS: Final = 500
_KEYS_WAIT_S: Final = 2.0


def _comparison_of(request: Request) -> TwoStores:
    found: TwoStores | None = session_of(request).parts.get("compare")
    if found is None:
        raise ArgumentError("nothing is compared; start the viewer with --compare STORE, or ps.view(..., compare=...)")
    return found


def _describe(side: Collection, repeated: int) -> dict[str, Any]:
    return {"name": side.name, "url": side.store.url, "total": side.total, "repeated": repeated}


def show_summary(request: Request) -> Response:
    """Counts of each kind, and how far the comparison is; the first request begins it."""
    found = _comparison_of(request)
    found.start()
    found.wait_for_keys(_KEYS_WAIT_S)
    pairing = found.pairing
    repeated = (0, 0) if pairing is None else pairing.repeated
    return answer({
        "before": _describe(found.before, repeated[0]), "after": _describe(found.after, repeated[1]),
        "only_before": found.only_before, "only_after": found.only_after,
        "fields": [field.name for field in found.fields],
        "counts": found.count(), "done": found.done, "total": None if pairing is None else len(pairing.before),
        "running": found.is_running, "error": found.error,
    })  # fmt: skip


def list_pairs(request: Request) -> Response:
    """Records ``start`` to ``stop`` of ``kind`` whose key contains ``key``."""
    found = _comparison_of(request)
    before, after = found.find(request.query_params.get("kind", KINDS_OF_PAIRS[0]))
    text = request.query_params.get("key", "")
    is_added = len(before) > 0 and bool(before[0] < 0)
    keys = found.keys[is_added]
    numbers = after if is_added else before
    if text:
        wanted = itertools.compress(range(len(numbers)), (text in keys[at] for at in numbers.tolist()))
        chosen = list(wanted)
        before, after, numbers = before[chosen], after[chosen], numbers[chosen]
    start = read_int(request, "start", 0, 0, len(numbers))
    stop = read_int(request, "stop", start + 100, start, min(start + _MOST_ROWS, len(numbers)))
    rows = [
        {"key": keys[at], "before": None if one < 0 else one, "after": None if other < 0 else other}
        for at, one, other in zip(*(each[start:stop].tolist() for each in (numbers, before, after)), strict=True)
    ]
    return answer({"total": len(numbers), "start": start, "rows": rows})


def show_pair(request: Request) -> Response:
    """What differs between record ``before`` of the first store and record ``after`` of the second, by field."""
    found = _comparison_of(request)
    records = []
    for name, side in (("before", found.before), ("after", found.after)):
        index = read_int(request, name, 0, -1, side.total)
        if not 0 <= index < side.total:
            raise ArgumentError(f"{name} must be in [0, {side.total}), got {request.query_params.get(name)!r:.100}")
        records.append(side.record(index))
    return answer({"key": records[0].key, "fields": describe_differences(records[0], records[1], found.fields)})


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


ROUTES = [
    Route("/api/compare/layers", show_layers),
    Route("/api/compare/summary", show_summary),
    Route("/api/compare/list", list_pairs),
    Route("/api/compare/pair", show_pair),
    Route("/api/compare/thumb/{index:int}", show_thumbnail),
    *PREDICTION_ROUTES,
]
