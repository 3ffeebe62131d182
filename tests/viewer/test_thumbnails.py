"""Thumbnails: in which order they are made, which are never made, and what is kept."""

from __future__ import annotations

import threading
from pathlib import Path

import penstock as ps
from penstock.viewer.browse.thumbnails import KeptResults, NewestFirst
from tests.pack.images import make_photos
from tests.viewer.asking import App

_PATIENCE_S = 60


def test_the_newest_request_is_made_first_and_a_cancelled_one_never() -> None:
    """While the only thread is busy, five requests come; one client goes."""
    began, release, order = threading.Event(), threading.Event(), list[int]()
    workers: NewestFirst[None] = NewestFirst(1)

    def block() -> None:
        began.set()
        release.wait(_PATIENCE_S)

    blocked = workers.submit(block)
    assert began.wait(_PATIENCE_S)
    waiting = [workers.submit(lambda number=number: order.append(number)) for number in range(5)]  # type: ignore[misc]  # the default binds it
    assert waiting[3].cancel()
    release.set()
    blocked.result(_PATIENCE_S)
    waiting[0].result(_PATIENCE_S)
    workers.close()

    assert order == [4, 2, 1, 0]


def test_closing_cancels_what_waits_and_ends_the_threads() -> None:
    """No thread is left, and an error of a call is raised where its result is awaited."""
    workers: NewestFirst[float] = NewestFirst(2)
    failed = workers.submit(lambda: 1 / 0)

    assert isinstance(failed.exception(_PATIENCE_S), ZeroDivisionError)
    workers.close()
    assert not any(thread.name.startswith("penstock-view-") for thread in threading.enumerate())


def test_what_was_asked_for_last_is_kept() -> None:
    """Up to the limit; large results are not kept at all."""
    kept = KeptResults(max_nbytes=8000)
    for number in range(8):
        kept.keep(number, bytes(800))
    kept.get(0)

    kept.keep("new", bytes(900))
    kept.keep("large", bytes(2000))

    assert kept.get(0) is not None
    assert kept.get(1) is None
    assert kept.get("large") is None
    assert kept.nbytes <= 8000


def test_a_thumbnail_is_asked_for_again_by_its_version(tmp_path: Path) -> None:
    """The second answer is 304, without a body; another size is another version."""
    with ps.open(make_photos(tmp_path / "photos", 2)) as store:
        app = App(store)
        first = app.ask("api/thumb/0", "side=32")
        again = app.ask("api/thumb/0", "side=32", headers={"if-none-match": first.headers["etag"]})
        other = app.ask("api/thumb/0", "side=16", headers={"if-none-match": first.headers["etag"]})
        app.close()

    assert (first.status, again.status, other.status) == (200, 304, 200)
    assert again.body == b""
    assert first.headers["cache-control"].startswith("private")
