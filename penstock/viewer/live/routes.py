"""Requests for running loaders."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.errors import ArgumentError
from penstock.viewer.live.sources import LiveSources, read_number
from penstock.viewer.server.answers import answer, read_index, read_int, session_of

__all__ = ["ROUTES"]

_TEXT: Final = 400
_TIMES: Final = re.compile(r"(?:[0-9]{1,4}:[0-9]{1,12}(?:\.[0-9]{1,12})?(?:,|$)){0,64}")


def _sources_of(request: Request) -> LiveSources:
    sources = session_of(request).parts.get("live")
    if not isinstance(sources, LiveSources):
        raise ArgumentError("this viewer shows no running loader; start it with --attach")
    return sources


def list_loaders(request: Request) -> Response:
    """List the loaders: ``{now, loaders: [{number, state, points, slow, ...}]}``.

    ``since`` is ``NUMBER:TIME,...``, up to when the points of each loader are known to the page.
    """
    sources, since = _sources_of(request), _read_times(request.query_params.get("since", ""))
    loaders = [
        {
            **loader.describe(since.get(loader.number, 0.0)),
            "slow": [_describe_slow(sources, each) for each in loader.slow],
        }
        for loader in sources.poll()
    ]
    return answer({"now": time.time(), "loaders": sorted(loaders, key=_place_in_job)})


def _read_times(text: str) -> dict[int, float]:
    if not _TIMES.fullmatch(text):
        raise ArgumentError(f"since must be NUMBER:TIME of each loader, separated by commas, got {text!r:.100}")
    pairs = (each.split(":") for each in text.split(",") if each)
    return {int(number): float(t) for number, t in pairs}


def _place_in_job(loader: Mapping[str, object]) -> tuple[bool, float, float]:
    return loader["state"] != "running", read_number(loader, "rank"), read_number(loader, "started")


def _describe_slow(sources: LiveSources, sample: Mapping[str, object]) -> dict[str, object]:
    url, record, indices = sample.get("store"), sample.get("record"), sample.get("indices")
    described: dict[str, object] = {
        **{name: read_number(sample, name) for name in ("ms", "count", "batch", "worker", "t")},
        "indices": [int(each) for each in indices if isinstance(each, int)][:8] if isinstance(indices, list) else [],
        "key": str(sample.get("key") or "")[:_TEXT], "picture": None, "record": None,
    }  # fmt: skip
    if isinstance(url, str) and isinstance(record, int):
        key, described["picture"] = sources.find_record(url, record)
        described["key"] = key[:_TEXT]
        described["record"] = record if sources.shows(url) else None
    return described


def show_thumbnail(request: Request) -> Response:
    """The picture of a slow sample as WebP."""
    collection = _sources_of(request).collection(request.path_params["store"])
    index = read_index(request, collection.total)
    content = collection.thumbnail(index, read_int(request, "side", 128, 32, 512))
    return Response(content, 200, {"Cache-Control": "private, max-age=600"}, "image/webp")


ROUTES = [
    Route("/api/live/loaders", list_loaders),
    Route("/api/live/thumb/{store:int}/{index:int}", show_thumbnail),
]
