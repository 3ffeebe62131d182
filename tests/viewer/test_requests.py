"""A thousand requests that nobody's page sends: each is answered or refused, and none is a fault of the viewer."""

from __future__ import annotations

import json
import random
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.routing import Route

import penstock as ps
from penstock.viewer.server.app import PAGE, list_routes
from tests.pack.images import make_photos
from tests.viewer.asking import App

REQUESTS = 1000
REFUSED = {304, 307, 400, 403, 404, 405, 413, 414, 422, 499}
WORDS = (
    "0", "1", "-1", "99999999999999999999", "1e9", "nan", "inf", "0x10", "\u0663", "", " ", "null", "[]", "{}", "%",
    "%00", "../../../etc/passwd", "..%2f..%2fsession.py", "\\..\\..", "a" * 3000, "\x00", "\x1b[2J", "\u202e",
    "<script>", "' or 1=1 --", "label = ", "((((((", "width > 10 and not", "1,2,3", "0,0,5,5", "5,5,0,0",
    "key ~ (a+)+$", "__class__", "{0.__class__}", "$(id)", "`id`", "file:///etc/passwd", "true", "9" * 1500,
)  # fmt: skip
NAMES = (
    "q", "sort", "start", "stop", "side", "index", "indices", "region", "low", "high", "channel", "exact", "seed",
    "epoch", "distance", "step", "draws", "format", "path", "picks", "a", "",
)  # fmt: skip


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    """The application over six pictures, one of them damaged."""
    path = make_photos(tmp_path / "photos", 6)
    (path / "cats" / "0.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    with ps.open(path) as store:
        made = App(store)
        yield made
        made.close()


def make_requests(seed: int, count: int) -> list[tuple[str, str, str, dict[str, str]]]:
    """Requests to the paths of all parts, with words where numbers belong, and to paths that are not there."""
    draw = random.Random(seed)
    templates = [route.path for route in list_routes() if isinstance(route, Route)]
    made = []
    for _ in range(count):
        path = draw.choice(templates) if draw.random() < 0.85 else "/".join(draw.choices(WORDS, k=3))
        path = re.sub(r"\{[^}]*\}", lambda _: draw.choice([*WORDS, *map(str, range(8))]), path).lstrip("/")
        pairs = [(draw.choice(NAMES), draw.choice(WORDS)) for _ in range(draw.randrange(4))]
        query = "&".join(f"{quote(name)}={quote(value)}" for name, value in pairs)
        method = draw.choices(["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PROPFIND"], [12, 3, 2, 1, 1, 1, 1])[
            0
        ]
        headers = {"host": draw.choice(["127.0.0.1:1", "localhost"])} if draw.random() < 0.9 else {"host": "[::1"}
        made.append((quote(path), query, method, headers))
    return made


def test_a_thousand_requests_are_answered_or_refused(app: App) -> None:
    """No request of any part is a fault of the viewer, and each refusal is one sentence without a traceback."""
    requests = make_requests(0, REQUESTS)
    statuses: set[int] = set()

    for start in range(0, REQUESTS, 50):
        part = requests[start : start + 50]
        for asked, answer in zip(part, app.ask_all(part), strict=True):
            statuses.add(answer.status)
            assert answer.status in {200} | REFUSED, (asked, answer.body[:500])
            assert b"Traceback" not in answer.body
            assert "content-security-policy" in answer.headers
            if answer.status in {400, 422} and asked[2] != "HEAD":
                assert isinstance(json.loads(answer.body)["error"], str)

    assert statuses >= {200, 400, 403, 404, 405, 422}


def test_only_files_of_the_page_are_sent(app: App) -> None:
    """Those that lie in its folder, with their types; nothing beside or above it."""
    sent = {path.name: app.ask(f"page/{path.name}") for path in PAGE.iterdir()}

    assert {answer.status for answer in sent.values()} == {200}
    assert sent["main.js"].headers["content-type"].startswith("text/javascript")
    for name in (
        "..%2fsession.py",
        "%2e%2e/session.py",
        "%2fetc%2fpasswd",
        "",
        ".",
        "main.js%00",
        "main.js/",
        "MAIN.JS",
    ):
        assert app.ask(f"page/{name}").status == 404


def test_other_methods_and_bodies_without_a_length_are_refused(app: App) -> None:
    """405 and 413; a number that is none, 400; a path or a query that is too long, 414."""
    assert app.ask("api/rows", method="POST").status == 405
    assert app.ask("api/rows", method="HEAD").status == 200
    assert app.ask("api/rows", headers={"transfer-encoding": "chunked"}).status == 413
    assert app.ask("api/rows", headers={"content-length": str(1 << 40)}).status == 413
    assert app.ask("api/rows", "start=--1").status == 400
    assert app.ask("api/rows", "q=" + "a" * 20_000).status == 414
    assert app.ask("a" * 5000).status == 414


def test_a_fault_of_the_viewer_is_logged_and_told_in_one_sentence(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """500 with the error's name; the traceback is in the log, and not in the answer. The next request is answered."""
    with monkeypatch.context() as patch:
        patch.setattr(app.collection, "key", lambda index: 1 // index)
        patch.setattr(app.collection, "is_kept", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):  # raised again for the server, which hides it
            app.ask("api/rows")
        answer = app.ask("api/thumb/0")

    assert answer.status == 500
    assert answer.json["error"].startswith("ZeroDivisionError")
    assert [record.getMessage() for record in caplog.records] == ["GET /api/rows", "GET /api/thumb/0"]
    assert app.ask("api/rows").status == 200


def test_a_frame_may_show_the_viewer_on_this_machine_only(app: App) -> None:
    """Notebooks do; scripts come from the viewer alone."""
    rules = dict(each.strip().split(" ", 1) for each in app.ask("").headers["content-security-policy"].split(";"))

    assert rules["script-src"] == "'self'"
    assert rules["default-src"] == "'none'"
    assert set(rules["frame-ancestors"].split()) == {
        "'self'", "http://localhost:*", "http://127.0.0.1:*", "https://localhost:*", "https://127.0.0.1:*",
        "vscode-webview:", "vscode-file:",
    }  # fmt: skip


def test_bytes_that_are_no_requests_do_not_stop_the_server(tmp_path: Path, ask: Callable[..., Any]) -> None:
    """Random bytes, half a request, a header without end: the next request is answered."""
    asker = ask(make_photos(tmp_path / "photos", 2))
    draw = random.Random(1)
    for length in (0, 1, 20, 1000, 100_000):
        for head in (b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "):
            with socket.create_connection(("127.0.0.1", asker.address.port or 0), timeout=60) as connection:
                try:
                    connection.sendall(head + draw.randbytes(length))
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(1 << 16):
                        pass
                except ConnectionError:
                    pass

    assert asker.json("api/session")["total"] == 2
