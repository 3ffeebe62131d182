"""Requests for records, thumbnails, pictures, annotations, and everything about one record."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.errors import ArgumentError, PenstockError
from penstock.viewer.browse.collection import Collection
from penstock.viewer.browse.details import describe_record, shorten_text
from penstock.viewer.browse.layers import JsonObject
from penstock.viewer.browse.pictures import PictureForm
from penstock.viewer.server.answers import answer, answer_error, read_float, read_index, read_int, session_of
from penstock.viewer.session import Session

__all__ = ["ROUTES"]

_KEY_LENGTH: Final = 500
_MOST_LAYERS: Final = 500
_CLIENT_GONE: Final = 499
_VALUE_LIMIT: Final = 1e38


def show_session(request: Request) -> Response:
    """What is viewed: ``{name, url, kind, total, fields, image, description, problems, features}``."""
    session = session_of(request)
    collection = session.collection
    store = collection.store
    fields = [
        {"name": name, "kind": each.kind, "classes": list(each.classes)}
        for name, each in collection.schema.fields.items()
    ]
    return answer({
        "name": collection.name, "url": store.url, "kind": store.kind, "total": collection.total, "fields": fields,
        "image": collection.image_field, "description": store.description, "problems": len(store.problems),
        "features": session.features(),
    })  # fmt: skip


def list_rows(request: Request) -> Response:
    """Records ``start`` to ``stop`` of those that match ``q``, in the order of ``sort``: ``{total, start, rows}``.

    A row has ``index``, ``key`` and, as far as the store has them as columns, ``label`` with its ``name``, ``width``
    and ``height``. ``pending`` says that a column is still being read: ask again.
    """
    session = session_of(request)
    collection = session.collection
    order = _find_order(request, session)
    total = collection.total if order is None else len(order)
    start = read_int(request, "start", 0, 0, total)
    stop = read_int(request, "stop", min(start + 100, total), start, min(start + 1000, total))
    indices = range(start, stop) if order is None else order[start:stop].tolist()
    rows: list[JsonObject] = [
        {"index": index, "key": shorten_text(collection.key(index), _KEY_LENGTH)["text"]} for index in indices
    ]
    is_pending = False
    for name, field in collection.store.schema.fields.items():
        if field.kind != "label" and not (field.kind == "int" and name in {"width", "height"}):
            continue
        column = collection.column(name) if rows else None
        if column is None:
            is_pending = is_pending or collection.is_reading(name)
            continue
        for row, value in zip(rows, column[list(indices)].tolist(), strict=True):
            if field.kind != "label":
                row[name] = value
            elif value >= 0 and "label" not in row:
                row["label"] = value
                row["name"] = field.classes[value] if value < len(field.classes) else str(value)
    return answer({"total": total, "start": start, "rows": rows, "pending": is_pending})


async def show_thumbnail(request: Request) -> Response:
    """The picture of a record as WebP; a request whose client has gone before it is begun is dropped."""
    try:
        collection = session_of(request).collection
        index = read_index(request, collection.total)
        form = _read_form(request, 256, 1024)
        headers = _name_version(collection, index, form)
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(None, 304, headers)
        content = collection.find_kept(index, form)
        if content is None:
            future = collection.workers.submit(lambda: collection.thumbnail(index, form=form))
            made = asyncio.wrap_future(future)
            gone = asyncio.ensure_future(_wait_until_gone(request))
            await asyncio.wait((made, gone), return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            if not made.done():
                made.cancel()
                return Response(None, _CLIENT_GONE)
            content = made.result()
    except Exception as error:  # noqa: BLE001  # told as every error of a request
        return answer_error(request, error)
    return Response(content, 200, headers, "image/webp")


def show_picture(request: Request) -> Response:
    """The picture of a record, or its ``region``, in a window of values (``low``, ``high``, ``channel``)."""
    collection = session_of(request).collection
    index = read_index(request, collection.total)
    form = _read_form(request, 2048, 8192)
    headers = _name_version(collection, index, form)
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(None, 304, headers)
    picture = collection.picture(index, form)
    if picture.note:
        headers["X-Repaired"] = "1"
    return Response(picture.content, 200, headers, picture.media_type)


def show_layers(request: Request) -> Response:
    """The annotations of records as they are drawn, by index: ``{"7": {width, height, layers}}``, or ``{error}``."""
    session = session_of(request)
    collection = session.collection
    found: JsonObject = {}
    for index in _read_indices(request, collection.total):
        try:
            shown = collection.layers(index)
        except (PenstockError, OSError) as error:
            found[str(index)] = {"error": str(error)[:500]}
            continue
        more = [layer for source in session.layer_sources for layer in source.layers(index)]
        found[str(index)] = {"width": shown.width, "height": shown.height, "layers": [*shown.layers, *more]}
    return answer(found)


def show_record(request: Request) -> Response:
    """Everything about one record."""
    collection = session_of(request).collection
    return answer(describe_record(collection, read_index(request, collection.total)))


def show_neighbours(request: Request) -> Response:
    """The records before and after one in an order: ``{position, total, before, after}``; position null: not in it."""
    session = session_of(request)
    index = read_index(request, session.collection.total)
    order = _find_order(request, session)
    if order is None:
        position, total = index, session.collection.total
        around = [index - 1 if index > 0 else None, index + 1 if index + 1 < total else None]
    else:
        total = len(order)
        places = (order == index).nonzero()[0]
        if len(places) == 0:
            return answer({"position": None, "total": total, "before": None, "after": None})
        position = int(places[0])
        around = [int(order[at]) if 0 <= at < total else None for at in (position - 1, position + 1)]
    return answer({"position": position, "total": total, "before": around[0], "after": around[1]})


def _find_order(request: Request, session: Session) -> NDArray[np.int64] | None:
    from penstock.viewer.find.order import find_order

    return find_order(session, request.query_params.get("q", ""), request.query_params.get("sort", ""))


async def _wait_until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _read_indices(request: Request, total: int) -> list[int]:
    text = request.query_params.get("indices", "")
    parts = text.split(",") if text else []
    if len(parts) > _MOST_LAYERS or not all(part.isascii() and part.isdecimal() and len(part) < 20 for part in parts):
        raise ArgumentError(f"indices must be at most {_MOST_LAYERS} numbers with commas, got {text!r:.100}")
    numbers = [int(part) for part in parts]
    if outside := [number for number in numbers if number >= total]:
        raise ArgumentError(f"index must be in [0, {total}), got {outside[0]}")
    return numbers


def _read_form(request: Request, side: int, most: int) -> PictureForm:
    query = request.query_params
    region = query.get("region")
    corners: Sequence[int] = ()
    if region is not None:
        parts = region.split(",")
        if len(parts) != 4 or not all(each.isascii() and each.isdecimal() and len(each) < 10 for each in parts):
            raise ArgumentError(f"region must be four numbers x0,y0,x1,y1, got {region!r:.100}")
        corners = [int(each) for each in parts]
    window = {
        name: read_float(request, name, 0, -_VALUE_LIMIT, _VALUE_LIMIT) for name in ("low", "high") if name in query
    }
    return PictureForm(
        side=read_int(request, "side", side, 16, most),
        region=(corners[0], corners[1], corners[2], corners[3]) if corners else None,
        low=window.get("low"),
        high=window.get("high"),
        channel=read_int(request, "channel", 0, 0, 1 << 16) if "channel" in query else None,
        is_exact=query.get("exact") == "1",
    )


def _name_version(collection: Collection, index: int, form: PictureForm) -> dict[str, str]:
    """Headers by which a browser keeps a picture, and asks again with what it has."""
    name = hashlib.sha256(f"{collection.version}\0{index}\0{form}".encode("utf-8", "surrogateescape")).hexdigest()
    return {"ETag": f'"{name[:32]}"', "Cache-Control": "private, max-age=3600"}


ROUTES = [
    Route("/api/session", show_session),
    Route("/api/rows", list_rows),
    Route("/api/thumb/{index:int}", show_thumbnail),
    Route("/api/picture/{index:int}", show_picture),
    Route("/api/layers", show_layers),
    Route("/api/record/{index:int}", show_record),
    Route("/api/near/{index:int}", show_neighbours),
]
