"""Asks the application of a viewer in this thread, without a server: for many requests in little time."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from penstock.stores.base import Store
from penstock.viewer.browse.collection import Collection
from penstock.viewer.server.app import make_app
from penstock.viewer.session import Session

__all__ = ["TOKEN", "Answer", "App"]

TOKEN = "token"


@dataclass
class Answer:
    """What a request got."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, which must be JSON."""
        return json.loads(self.body)


class App:
    """The application over a store.

    Parameters
    ----------
    store : Store
        Open; the caller closes it.
    """

    def __init__(self, store: Store, **options: Any) -> None:
        self.collection = Collection(store, **options)
        self._app = make_app(Session(self.collection), TOKEN)

    def ask(self, path: str, query: str = "", method: str = "GET", headers: dict[str, str] | None = None) -> Answer:
        """One request; ``path`` follows the token and is percent-encoded."""
        return self.ask_all([(path, query, method, headers or {})])[0]

    def ask_all(self, requests: list[tuple[str, str, str, dict[str, str]]]) -> list[Answer]:
        """Several requests at once: path, query, method, headers."""

        async def run() -> list[Answer]:
            return list(await asyncio.gather(*(self._ask(*each) for each in requests)))

        return asyncio.run(run())

    def close(self) -> None:
        """End the threads."""
        self.collection.close()

    async def _ask(self, path: str, query: str, method: str, headers: dict[str, str]) -> Answer:
        named = {"host": "127.0.0.1", **headers}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": unquote(f"/{TOKEN}/{path}"), "raw_path": b"", "query_string": query.encode("utf-8", "replace"),
            "headers": [(name.encode(), value.encode("latin-1", "replace")) for name, value in named.items()],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
        }  # fmt: skip
        answer = Answer(0, {}, b"")
        bodies = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> dict[str, Any]:
            if bodies:
                return bodies.pop()
            await asyncio.Event().wait()
            raise AssertionError("never")

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                answer.body += message.get("body", b"")

        await self._app(scope, receive, send)
        return answer
