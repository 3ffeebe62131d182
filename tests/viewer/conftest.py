"""Viewers of small stores, asked over HTTP as a browser asks."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import penstock as ps
from penstock.viewer.server.serving import Viewer


class Asker:
    """Asks one viewer.

    Parameters
    ----------
    viewer : Viewer
        Running.
    """

    def __init__(self, viewer: Viewer) -> None:
        self.viewer = viewer
        self.address = urlsplit(viewer.url)

    def request(
        self, path: str, headers: dict[str, str] | None = None, method: str = "GET", body: bytes | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of a request; ``path`` follows the token."""
        return self.request_raw(self.address.path + path, headers, method, body)

    def request_raw(
        self, path: str, headers: dict[str, str] | None = None, method: str = "GET", body: bytes | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """The same for the whole path, which may lack the token."""
        connection = http.client.HTTPConnection("127.0.0.1", self.address.port or 0, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        finally:
            connection.close()

    def json(self, path: str) -> Any:
        """The JSON of a request that is answered."""
        status, _, body = self.request(path)
        assert status == 200, body
        return json.loads(body)


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's state folder, in which picks are kept: an own one for each test, which does not exist yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Callable[..., Asker]]:
    """Starts a viewer: ``ask(store, ...)`` with the arguments of ``ps.view``."""
    started: list[Viewer] = []

    def start(*args: Any, **kwargs: Any) -> Asker:
        started.append(ps.view(*args, **kwargs))
        return Asker(started[-1])

    yield start
    for viewer in started:
        viewer.close()
