"""Requests for filters, facts and histograms."""

from __future__ import annotations

from typing import Final

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.errors import ArgumentError
from penstock.viewer.find.finder import finder_of
from penstock.viewer.find.histograms import make_histograms
from penstock.viewer.find.language import QueryError
from penstock.viewer.find.order import check_sort, find_order
from penstock.viewer.find.problems import PROBLEMS
from penstock.viewer.server.answers import answer, session_of

__all__ = ["ROUTES"]

_SMALL: Final = 2000
"""Records of a local store that are scanned without being asked for, when the panel is shown."""


def show_names(request: Request) -> Response:
    """Return what filters can compare: ``{names: [{name, kind, scans, about, classes}], problems: {name: about}}``."""
    finder, collection = finder_of(session_of(request)), session_of(request).collection
    names = [{"name": name, **each._asdict(), "classes": finder.classes(name)} for name, each in finder.names().items()]
    is_near = not collection.store.is_remote and collection.store.location.remote is None
    return answer({"names": names, "problems": PROBLEMS, "scans_small": is_near and collection.total <= _SMALL})


def check_filter(request: Request) -> Response:
    """Return whether ``q`` and ``sort`` can be read: ``{ok, error, at, in, scans}``.

    Character ``at`` of ``in`` is wrong.
    """
    finder, asked = finder_of(session_of(request)), request.query_params
    part, scans = "q", False
    try:
        scans = finder.parse(asked.get("q", ""))[1]
        part = "sort"
        scans |= check_sort(finder, asked.get("sort", "").strip())
    except QueryError as error:
        return answer({"ok": False, "error": error.message, "at": error.at, "in": part, "scans": False})
    return answer({"ok": True, "error": "", "at": None, "in": "", "scans": scans})


def show_facts(request: Request) -> Response:
    """Return how far the scan is: see :meth:`.scanning.Scan.progress`."""
    return answer(finder_of(session_of(request)).scan.progress())


def control_scan(request: Request) -> Response:
    """Start the scan (``?do=start``), or stop it (``?do=stop``); answers as ``facts``."""
    scan = finder_of(session_of(request)).scan
    wanted = request.query_params.get("do", "start")
    if wanted not in {"start", "stop"}:
        raise ArgumentError(f"do must be one of start, stop, got {wanted!r:.100}")
    (scan.start if wanted == "start" else scan.stop)()
    return show_facts(request)


def show_histograms(request: Request) -> Response:
    """Counts of all records and of those shown for ``q`` and ``sort``: ``{total, matched, histograms, ...progress}``.

    The scan that ``q`` and ``sort`` need is started. Of the names of ``whole``, all classes are counted.
    """
    asked, finder = request.query_params, finder_of(session_of(request))
    indices = find_order(session_of(request), asked.get("q", ""), asked.get("sort", ""))
    mask = np.full(finder.total, indices is None)
    if indices is not None:
        mask[indices] = True
    return answer({
        **finder.scan.progress(), "matched": int(mask.sum()),  # before the counts, which may miss what comes meanwhile
        "histograms": make_histograms(finder, mask, set(asked.getlist("whole"))),
    })  # fmt: skip


ROUTES = [
    Route("/api/find/names", show_names),
    Route("/api/find/check", check_filter),
    Route("/api/find/facts", show_facts),
    Route("/api/find/scan", control_scan, methods=["POST"]),
    Route("/api/find/histograms", show_histograms),
]
