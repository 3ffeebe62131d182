"""Requests for records and pictures."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.viewer.server.answers import answer, read_int, session_of

__all__ = ["ROUTES"]


def show_session(request: Request) -> Response:
    """What is viewed: ``{name, url, total, fields, image, features}``."""
    session = session_of(request)
    collection = session.collection
    fields = [
        {"name": name, "kind": each.kind, "classes": list(each.classes)}
        for name, each in collection.store.schema.fields.items()
    ]
    return answer({
        "name": collection.name, "url": collection.store.url, "total": collection.total, "fields": fields,
        "image": collection.image_field, "features": session.features(),
    })  # fmt: skip


def list_rows(request: Request) -> Response:
    """Records ``start`` to ``stop`` of those that match ``q``, in the order of ``sort``: ``{total, rows}``."""
    from penstock.viewer.find.order import find_order

    session = session_of(request)
    order = find_order(session, request.query_params.get("q", ""), request.query_params.get("sort", ""))
    total = session.collection.total if order is None else len(order)
    start = read_int(request, "start", 0, 0, total)
    stop = read_int(request, "stop", min(start + 100, total), start, min(start + 1000, total))
    indices = range(start, stop) if order is None else order[start:stop].tolist()
    rows: list[dict[str, Any]] = [{"index": index, "key": session.collection.store.get_key(index)} for index in indices]
    return answer({"total": total, "start": start, "rows": rows})


ROUTES = [
    Route("/api/session", show_session),
    Route("/api/rows", list_rows),
]
