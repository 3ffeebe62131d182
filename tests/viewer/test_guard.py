"""Who gets an answer: the token, the host and the origin."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pack.images import make_photos


@pytest.fixture
def asker(tmp_path: Path, ask: Callable[..., Any]) -> Any:
    """A viewer of four pictures."""
    return ask(make_photos(tmp_path / "photos", 4, ("a", "b")))


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("", {}, 200),
        ("api/session", {}, 200),
        ("api/session", {"Host": "localhost:1"}, 200),
        ("api/session", {"Host": "evil.example"}, 403),
        ("api/session", {"Host": "[::1]"}, 200),
        ("api/session", {"Host": "localhost:1", "Origin": "http://localhost:1"}, 200),
        ("api/session", {"Host": "localhost:1", "Origin": "http://localhost:2"}, 403),
        ("api/session", {"Host": "localhost.evil.example"}, 403),
        ("api/session", {"Host": "localhost@evil.example"}, 403),
        ("api/session", {"Host": ""}, 403),
        ("api/session", {"Origin": "http://evil.example"}, 403),
        ("api/session", {"Origin": "null"}, 403),
        ("page/../../../session.py", {}, 404),
        ("page/%2e%2e/session.py", {}, 404),
    ],
)
def test_who_is_answered(asker: Any, path: str, headers: dict[str, str], status: int) -> None:
    """Pages of another host or origin get nothing, and no file outside the page's folder is sent."""
    assert asker.request(path, headers)[0] == status


def test_without_the_token_nothing_is_told(asker: Any) -> None:
    """Neither the session, nor whether a path exists."""
    for path in (
        "/",
        "/api/session",
        "/wrong/api/session",
        "//",
        f"/{asker.address.path.strip('/')[:-1]}/api/session",
    ):
        status, _, body = asker.request_raw(path)
        assert status == 404
        assert b"photos" not in body


def test_the_viewer_shows_what_is_there(asker: Any) -> None:
    """Fields, classes and keys."""
    session = asker.json("api/session")
    assert session["total"] == 4
    assert [row["index"] for row in asker.json("api/rows?start=1&stop=3")["rows"]] == [1, 2]
