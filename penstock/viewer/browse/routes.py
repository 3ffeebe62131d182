"""Requests for records, thumbnails, pictures, annotations, and everything about one record."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.errors import ArgumentError, PenstockError
from penstock.viewer.browse.details import describe_record, shorten_text
from penstock.viewer.browse.layers import JsonObject
from penstock.viewer.browse.pictures import PictureForm
from penstock.viewer.server.answers import answer, answer_error, read_float, read_index, read_int, session_of

__all__ = ["ROUTES"]

_KEY_LENGTH: Final = 500
_MOST_LAYERS: Final = 500
_CLIENT_GONE: Final = 499
_VALUE_LIMIT: Final = 1e38


def show_session(request: Request) -> Response:
    """Return what is viewed: ``{name, url, kind, total, fields, image, description, problems, features, start}``."""
    session = session_of(request)
    collection, store = session.collection, session.collection.store
    fields = [
        {"name": name, "kind": each.kind, "classes": each.classes} for name, each in collection.schema.fields.items()
    ]
    return answer({
        "name": collection.name, "url": store.url, "kind": store.kind, "total": collection.total, "fields": fields,
        "image": collection.image_field, "description": store.description, "problems": len(store.problems),
        "features": session.features(), "start": session.start,
    })  # fmt: skip


def list_rows(request: Request) -> Response:
    """Records ``start`` to ``stop`` of those that match ``q``, in the order of ``sort``: ``{total, start, rows}``.

    A row has ``index``, ``key``, ``values`` (see :func:`.values.describe_values`), ``group`` and, if the store has them
    as a column, ``label`` with its ``name``. ``pending`` says that the column is still being read: ask again.
    """
    collection = session_of(request).collection
    order = _find_order(request)
    start = read_int(request, "start", 0, 0, len(order))
    indices = order[start : read_int(request, "stop", start + 100, start, start + 1000)].tolist()
    rows: list[JsonObject] = [
        {"index": index, "key": shorten_text(collection.key(index), _KEY_LENGTH)["text"], **shown}
        for index, shown in zip(indices, _describe_values(request, indices), strict=True)
    ]
    labels = [(name, each.classes) for name, each in collection.store.schema.fields.items() if each.kind == "label"]
    for name, classes in labels[: 1 if rows else 0]:
        column = collection.column(name)
        for row, value in zip(rows, [] if column is None else column[indices].tolist(), strict=False):
            if value >= 0:
                row |= {"label": value, "name": classes[value] if value < len(classes) else str(value)}
    is_pending = any(collection.is_reading(name) for name, _ in labels[:1])
    return answer({"total": len(order), "start": start, "rows": rows, "pending": is_pending})


def make_sender(side: int, most: int) -> Callable[[Request], Awaitable[Response]]:
    """Make what answers with the picture of a record, or its ``region``, in a window of values: ``low, high, channel``.

    Its longer side has ``side`` pixels, unless the request names another, up to ``most``. A request whose client has
    gone before it is begun is dropped.
    """

    async def send(request: Request) -> Response:
        try:
            collection = session_of(request).collection
            index, form = read_index(request, collection.total), _read_form(request, side, most)
            version = hashlib.sha256(f"{collection.version}\0{index}\0{form}".encode("utf-8", "surrogateescape"))
            headers = {"ETag": f'"{version.hexdigest()[:32]}"', "Cache-Control": "private, max-age=3600"}
            if request.headers.get("if-none-match") == headers["ETag"]:
                return Response(None, 304, headers)
            if collection.is_kept(index, form):
                content = collection.picture(index, form)
            else:
                made = asyncio.wrap_future(collection.workers.submit(lambda: collection.picture(index, form)))
                gone = asyncio.ensure_future(_wait_until_gone(request))
                await asyncio.wait((made, gone), return_when=asyncio.FIRST_COMPLETED)
                gone.cancel()
                if not made.done():
                    made.cancel()
                    return Response(None, _CLIENT_GONE)
                content = made.result()
        except Exception as error:  # noqa: BLE001  # told as every error of a request
            return answer_error(request, error)
        return Response(content, 200, headers, "image/png" if form.is_exact else "image/webp")

    return send


def show_layers(request: Request) -> Response:
    """The annotations of records as they are drawn, by index: ``{"7": {width, height, layers}}``, or ``{error}``."""
    session = session_of(request)
    found: JsonObject = {}
    for index in _read_numbers(request, "indices", _MOST_LAYERS, session.collection.total):
        try:
            shown = session.collection.layers(index)
        except (PenstockError, OSError) as error:
            found[str(index)] = {"error": str(error)[:500]}
            continue
        shown["layers"] += [layer for source in session.layer_sources for layer in source.layers(index)]
        found[str(index)] = shown
    return answer(found)


def show_record(request: Request) -> Response:
    """Answer with everything about one record."""
    session = session_of(request)
    index = read_index(request, session.collection.total)
    described = describe_record(session.collection, index)
    facts = [fact for source in session.layer_sources for fact in source.facts(index)]
    return answer({**described, "fields": [*facts, *described["fields"]]})


def show_neighbours(request: Request) -> Response:
    """The records before and after one in an order: ``{key, position, total, before, after}``.

    The position is null where it is not in the order. The key is there also where the record cannot be read.
    """
    collection = session_of(request).collection
    index = read_index(request, collection.total)
    order = _find_order(request)
    at = next(iter(np.flatnonzero(order == index).tolist()), None)
    before = None if at is None or at == 0 else order[at - 1]
    after = None if at is None or at + 1 == len(order) else order[at + 1]
    key = collection.key(index)
    return answer({"key": key, "position": at, "total": len(order), "before": before, "after": after})


def _find_order(request: Request) -> NDArray[np.int64]:
    """The records that match ``q``, in the order of ``sort``."""
    from penstock.viewer.find.order import find_order

    session = session_of(request)
    order = find_order(session, request.query_params.get("q", ""), request.query_params.get("sort", ""))
    return np.arange(session.collection.total) if order is None else order


def _describe_values(request: Request, indices: list[int]) -> list[JsonObject]:
    """Return what shows why records are in a list, and why there."""
    from penstock.viewer.find.finder import finder_of
    from penstock.viewer.find.values import describe_values

    query, sort = request.query_params.get("q", ""), request.query_params.get("sort", "")
    if not query.strip() and not sort.strip():
        return [{} for _ in indices]
    return describe_values(finder_of(session_of(request)), query, sort, indices)


async def _wait_until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _read_numbers(request: Request, name: str, most: int, end: int) -> list[int]:
    """Read up to ``most`` integers of the query, with commas, each in ``[0, end)``; none without the name."""
    text = request.query_params.get(name, "")
    parts = text.split(",") if text else []
    if len(parts) > most or not all(part.isascii() and part.isdecimal() and len(part) < 20 for part in parts):
        raise ArgumentError(f"{name} must be at most {most} numbers with commas, got {text!r:.100}")
    numbers = [int(part) for part in parts]
    if outside := [number for number in numbers if number >= end]:
        raise ArgumentError(f"{name} must be in [0, {end}), got {outside[0]}")
    return numbers


def _read_form(request: Request, side: int, most: int) -> PictureForm:
    query = request.query_params
    corners = _read_numbers(request, "region", 4, 1 << 31)
    if len(corners) not in {0, 4}:
        raise ArgumentError(f"region must be four numbers x0,y0,x1,y1, got {query['region']!r:.100}")
    low, high = (
        read_float(request, name, 0, -_VALUE_LIMIT, _VALUE_LIMIT) if name in query else None for name in ("low", "high")
    )
    length = read_int(request, "side", side, 16, most)
    region = (corners[0], corners[1], corners[2], corners[3]) if corners else None
    channel = read_int(request, "channel", 0, 0, 1 << 16) if "channel" in query else None
    return PictureForm(length, region, low, high, channel, query.get("exact") == "1")


ROUTES = [
    Route("/api/session", show_session),
    Route("/api/rows", list_rows),
    Route("/api/thumb/{index:int}", make_sender(256, 1024)),
    Route("/api/picture/{index:int}", make_sender(2048, 8192)),
    Route("/api/layers", show_layers),
    Route("/api/record/{index:int}", show_record),
    Route("/api/near/{index:int}", show_neighbours),
]
