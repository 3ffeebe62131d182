"""Requests for filters, facts, histograms and duplicates."""

from __future__ import annotations

from typing import Final

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.errors import ArgumentError
from penstock.viewer.find.duplicates import MAX_DISTANCE
from penstock.viewer.find.finder import Finder, finder_of
from penstock.viewer.find.histograms import make_histograms
from penstock.viewer.find.language import QueryError
from penstock.viewer.find.measuring import HEADER, PIXELS
from penstock.viewer.find.order import find_mask, parse_sort, start_scan
from penstock.viewer.find.problems import PROBLEMS
from penstock.viewer.server.answers import answer, read_int, session_of

__all__ = ["ROUTES"]

_SMALL: Final = 2000
"""Records of a local store that are scanned without being asked for, when the panel is shown."""

_MOST_GROUPS: Final = 1000


def show_names(request: Request) -> Response:
    """What filters can compare: ``{names: [{name, kind, level, about, classes}], problems: {name: about}}``."""
    finder = finder_of(session_of(request))
    names = [{"name": name, **each._asdict(), "classes": finder.classes(name)} for name, each in finder.names().items()]
    return answer({"names": names, "problems": PROBLEMS, "scans_small": _is_small(request)})


def check_filter(request: Request) -> Response:
    """Whether ``q`` and ``sort`` can be read: ``{ok, error, at, in, level}``; character ``at`` of ``in`` is wrong."""
    finder = finder_of(session_of(request))
    level = 0
    for name, read in (("q", Finder.parse), ("sort", parse_sort)):
        try:
            level = max(level, read(finder, request.query_params.get(name, "").strip())[-1])
        except QueryError as error:
            return answer({"ok": False, "error": error.message, "at": error.at, "in": name, "level": 0})
    return answer({"ok": True, "error": "", "at": None, "in": "", "level": level})


def show_facts(request: Request) -> Response:
    """How far the scan is: see :meth:`.scanning.Scan.progress`."""
    return answer(finder_of(session_of(request)).scan.progress())


def control_scan(request: Request) -> Response:
    """Start the scan (``?do=pixels``, ``?do=headers``), or stop it (``?do=stop``); answers as ``facts``."""
    scan = finder_of(session_of(request)).scan
    wanted = request.query_params.get("do", "pixels")
    if wanted not in {"pixels", "headers", "stop"}:
        raise ArgumentError(f"do must be one of pixels, headers, stop, got {wanted!r:.100}")
    if wanted == "stop":
        scan.stop()
    else:
        scan.start(PIXELS if wanted == "pixels" else HEADER)
    return show_facts(request)


def show_histograms(request: Request) -> Response:
    """Counts of all records and of those that fit ``q``, and the progress: ``{total, matched, histograms, ...}``.

    The scan that ``q`` and ``sort`` need is started.
    """
    finder = finder_of(session_of(request))
    query, sort = (request.query_params.get(name, "") for name in ("q", "sort"))
    start_scan(finder, query, sort)
    mask = find_mask(finder, query)
    matched = session_of(request).collection.total if mask is None else int(np.count_nonzero(mask))
    return answer({
        "total": session_of(request).collection.total, "matched": matched, **finder.scan.progress(),
        "histograms": make_histograms(finder, mask, request.query_params.getlist("asked")),
    })  # fmt: skip


def show_duplicates(request: Request) -> Response:
    """Groups of near-duplicates, the largest first: ``{groups: [[index, ...], ...], total, distance}``."""
    finder = finder_of(session_of(request))
    distance = read_int(request, "distance", MAX_DISTANCE, 0, MAX_DISTANCE)
    finder.scan.need(PIXELS)
    groups = finder.duplicate_groups(distance)
    groups.sort(key=lambda each: (-len(each), each[0]))
    return answer({
        "groups": [each[:_MOST_GROUPS] for each in groups[:_MOST_GROUPS]], "total": len(groups), "distance": distance,
        **finder.scan.progress(),
    })  # fmt: skip


def _is_small(request: Request) -> bool:
    collection = session_of(request).collection
    return collection.total <= _SMALL and not collection.store.is_remote and collection.store.location.remote is None


ROUTES = [
    Route("/api/find/names", show_names),
    Route("/api/find/check", check_filter),
    Route("/api/find/facts", show_facts),
    Route("/api/find/scan", control_scan, methods=["POST"]),
    Route("/api/find/histograms", show_histograms),
    Route("/api/find/duplicates", show_duplicates),
]
