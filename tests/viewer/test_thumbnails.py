"""Thumbnails: in which order they are made, which are never made, and what is kept."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.stores.common.kept_objects import KeptObjects
from penstock.viewer.browse.collection import NewestFirst
from penstock.viewer.browse.pictures import PictureForm
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


def test_what_was_used_last_is_kept() -> None:
    """Up to the limit; an object that is made again replaces the other."""
    kept = KeptObjects(8000)
    for number in range(8):
        kept.get(number, lambda number=number: (f"{number}", 1000))  # type: ignore[misc]  # the default binds it
    kept.find(0)

    assert kept.get("new", lambda: ("new", 1900)) == "new"
    assert [number for number in range(8) if kept.find(number) is not None] == [0, 3, 4, 5, 6, 7]
    assert kept.get("large", lambda: ("large", 9000)) == "large"
    assert [kept.find(name) for name in ("large", "new", 0)] == ["large", None, None]


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


def test_a_request_whose_client_has_gone_is_dropped(tmp_path: Path) -> None:
    """It is answered to nobody, and its picture is never made."""
    with ps.open(make_photos(tmp_path / "photos", 2)) as store:
        app = App(store)
        app.collection.workers.close()
        app.collection.workers = NewestFirst(1)
        busy, release = threading.Event(), threading.Event()

        def block() -> bytes:
            busy.set()
            release.wait(_PATIENCE_S)
            return b""

        blocked = app.collection.workers.submit(block)
        assert busy.wait(_PATIENCE_S)
        answer = app.ask("api/thumb/0", gone=True)
        release.set()
        blocked.result(_PATIENCE_S)
        app.collection.workers.submit(lambda: b"").result(_PATIENCE_S)
        kept = app.collection.is_kept(0, PictureForm(256))
        app.close()

    assert answer.status == 499
    assert not kept


def test_rows_do_not_wait_for_a_column_that_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come without labels, and say so; when the column is there, they have them."""
    may_read = threading.Event()
    with ps.open(make_photos(tmp_path / "photos", 2)) as store:
        labels = store.column("label")

        def read(_: object, field: str) -> Any:
            assert field == "label"
            assert may_read.wait(_PATIENCE_S)
            return labels

        monkeypatch.setattr(type(store), "column", read)
        app = App(store)
        early = app.ask("api/rows").json
        may_read.set()
        app.collection.column("label", _PATIENCE_S)
        late = app.ask("api/rows").json
        app.close()

    assert early["pending"] is True
    assert [row["key"] for row in early["rows"]] == [row["key"] for row in late["rows"]]
    assert "label" not in early["rows"][0]
    assert late["pending"] is False
    assert [row["name"] for row in late["rows"]] == ["cats", "dogs"]
