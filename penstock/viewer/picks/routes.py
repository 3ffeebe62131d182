"""Picked records: those that are kept, all of a filter at once, and exports, as texts that are downloaded or pasted.

The page has the picked records as bits, one for each record of the store (the lowest bit of a byte first), and sends
them so: 125 kB for a million records.
"""

from __future__ import annotations

import base64
import itertools
import shlex
from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from penstock.errors import ArgumentError, check_choice
from penstock.stores.base import Store
from penstock.stores.common.key_files import format_key_lines, format_keys
from penstock.viewer.find.columns import Mask
from penstock.viewer.find.order import find_order
from penstock.viewer.picks.kept import kept_picks_of
from penstock.viewer.server.answers import answer, session_of
from penstock.wording import counted

__all__ = ["EXPORTS", "ROUTES"]

_MOST_LISTED: Final = 200
"""Indices in a line to paste; of more records, the line names a file of keys."""
_LINES_AT_ONCE: Final = 4096
_REASON: Final = "picked in penstock view"
Indices = NDArray[np.int64]


def show_picks(request: Request) -> Response:
    """The records that are picked, as bits in base64, and how many picked keys the store lacks: ``{bits, gone}``."""
    picked, gone = kept_picks_of(session_of(request)).load()
    return answer({"bits": base64.b64encode(_pack_bits(picked)).decode(), "gone": gone})


async def change_picks(request: Request) -> Response:
    """Keep what the page changed: bits of the records that are picked now, then of those that are so no longer.

    ``forget``: also the picked keys that the store lacks are forgotten.
    """
    kept, forgets = kept_picks_of(session_of(request)), "forget" in request.query_params
    await run_in_threadpool(kept.change, *await _read_bits(request, 2), forgets=forgets)
    return answer({})


def send_matching(request: Request) -> Response:
    """The records that match ``q``, as bits; ``sort`` may name a set."""
    session = session_of(request)
    order = find_order(session, *(request.query_params.get(name, "") for name in ("q", "sort")))
    is_matching = np.full(session.collection.total, order is None)
    is_matching[slice(0) if order is None else order] = True
    return Response(
        _pack_bits(is_matching), media_type="application/octet-stream", headers={"Cache-Control": "no-store"}
    )


async def export_picks(request: Request) -> Response:
    """The picked records, bits in the body, as ``format``: one of :data:`EXPORTS`."""
    return await run_in_threadpool(_export, request, (await _read_bits(request, 1))[0])


def _pack_bits(mask: Mask) -> bytes:
    return np.packbits(mask, bitorder="little").tobytes()


async def _read_bits(request: Request, sets: int) -> Mask:
    """The sets of records in the body, (sets, n)."""
    total = session_of(request).collection.total
    nbytes = sets * ((total + 7) // 8)
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > nbytes:
            break
    if len(body) != nbytes:
        raise ArgumentError(f"the body must have a bit for each record, {counted(nbytes, 'byte')}, got {len(body)}")
    bits = np.frombuffer(body, np.uint8).reshape(sets, nbytes // sets)
    return np.unpackbits(bits, axis=1, count=total, bitorder="little").astype(bool)


def _export(request: Request, chosen: Mask) -> Response:
    store = session_of(request).collection.store
    form = request.query_params.get("format", "keys")
    check_choice("format", form, EXPORTS)
    indices = np.flatnonzero(chosen)
    if not len(indices):
        raise ArgumentError("no record is picked; pick some first")
    name, make = EXPORTS[form]
    headers = {"Cache-Control": "no-store"}
    if name:
        headers["Content-Disposition"] = f'attachment; filename="{name}"'
    keys = itertools.compress(store.keys(), chosen.tolist())
    return StreamingResponse(make(store, indices, keys), 200, headers, "text/plain")


def _make_quarantine(store: Store, indices: Indices, keys: Iterable[str]) -> Iterable[str]:
    rows = zip(keys, indices.tolist(), strict=True)
    while some := list(itertools.islice(rows, _LINES_AT_ONCE)):
        yield format_key_lines({"store": store.url, "key": key, "index": at, "reason": _REASON} for key, at in some)


def _make_python(store: Store, indices: Indices, _keys: Iterable[str]) -> Iterable[str]:
    """Return a line that makes a subset; ``dataset`` is a dataset of the store, whole."""
    first, last, count = int(indices[0]), int(indices[-1]), len(indices)
    note = f"# {counted(count, 'record')} of {len(store):,}\n"
    if last - first + 1 == count:
        return [f"{note}subset = ps.Subset(dataset, range({first}, {last + 1}))\n"]
    if count <= _MOST_LISTED:
        return [f"{note}subset = ps.Subset(dataset, {indices.tolist()})\n"]
    return [f'{note}subset = ps.Subset(dataset, ps.find_keys(dataset.store, "keys.txt"))\n']


EXPORTS: Final[dict[str, tuple[str, Callable[[Store, Indices, Iterable[str]], Iterable[str]]]]] = {
    "keys": ("keys.txt", lambda _store, _indices, keys: [format_keys(keys)]),
    "quarantine": ("quarantine.jsonl", _make_quarantine),
    "python": ("", _make_python),
    "command": ("", lambda store, *_: [f"penstock pack {shlex.quote(store.url)} picked.lmdb --keys keys.txt\n"]),
}
"""Name of the file, if it is one, and the text of each format."""

ROUTES = [
    Route("/api/picks", show_picks),
    Route("/api/picks", change_picks, methods=["POST"]),
    Route("/api/picks/matching", send_matching),
    Route("/api/picks/export", export_picks, methods=["POST"]),
]
